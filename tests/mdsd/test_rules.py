"""The rules of verification: numpy, other arrays and compiled code say the same.

That they are lossless is shown by the plans, which take their tests and residuals from them.
"""

from __future__ import annotations

from fractions import Fraction

import array_api_strict as xp
import numpy as np
import pytest

import mdsd
from mdsd.batch import _kernels
from mdsd.batch._rules import rule_of
from mdsd.batch.tensors.laws import TESTS
from mdsd.rules import kernels, kseq, possible, sums

from .batch_rows import KINDS, LARGEST, instances
from .batch_spaces import RULES, laws_of

DEVICE = xp.Device("device1")


def far(values):
    return xp.asarray(values, device=DEVICE)


def back(values):
    return np.asarray(values.to_device(xp.Device("CPU_DEVICE")))


def rows_of(verifier, draft, n, size=12, repeats=12):
    """Rows of every kind, with what numpy makes of them; kseq without those of no certain root."""
    targets, drafted, ids, laws = instances(draft, n, size=size, repeats=repeats, seed=n)
    keep = [not (verifier == "kseq" and kind == "equal") for kind in KINDS * repeats]
    rule = rule_of(mdsd.get_verifier(verifier), laws[0])
    rows = targets[keep], drafted[keep], ids[keep]
    return rule, rows, TESTS[rule](*rows)


@pytest.mark.parametrize(("verifier", "draft", "n"), RULES)
def test_other_arrays_say_what_numpy_says(verifier, draft, n):
    rule, rows, here = rows_of(verifier, draft, n)
    there = TESTS[rule](*map(far, rows))
    assert (back(there.tested) == here.tested).all()
    np.testing.assert_allclose(laws_of(there, back), laws_of(here, np.asarray), rtol=0, atol=1e-12)


def compiled(rule, rows, uniforms):
    targets, drafted, ids = rows
    tokens = np.empty(len(ids), dtype=np.int64)
    masses = targets.sum(axis=1), drafted.sum(axis=1)
    code = getattr(_kernels, rule.name)
    arrays = targets, masses[0], drafted, masses[1], ids, uniforms
    _kernels.verify_rows(code, *arrays, tokens, 0, len(ids))
    return tokens


def emitted(tests, uniforms):
    """What the tests of numpy emit."""
    tokens = np.empty(len(uniforms), dtype=np.int64)
    for row, numbers in enumerate(uniforms):
        passed = np.flatnonzero(numbers[:-1] < tests.chances[row])
        if len(passed):
            tokens[row] = tests.tested[row, passed[0]]
        else:
            running = np.cumsum(tests.residual[row])
            tokens[row] = np.searchsorted(running, numbers[-1] * running[-1], side="right")
    return tokens


def beside_each_threshold(tests, width, seed=0):
    """Uniforms that come to some test, or the residual, and there just below or above a bound.

    With them the rows in which neither that bound nor an earlier chance is near 0 or 1.
    """
    rng = np.random.default_rng(seed)
    rows, count = tests.chances.shape
    for k in range(count + 1):
        for sign in (-1.0, 1.0):
            numbers = np.full((rows, count + 1), LARGEST)
            if k < count:
                bounds = tests.chances[:, k]
            else:
                running = np.cumsum(tests.residual, axis=1)
                pick = rng.integers(running.shape[1], size=rows)
                bounds = running[np.arange(rows), pick] / running[:, -1]
            numbers[:, k] = np.clip(bounds + sign * width, 0.0, LARGEST)
            numbers[:, k + 1 :] = rng.random((rows, count - k))
            clear = (bounds > 1e-3) & (bounds < 0.999) & (tests.chances[:, :k] < 0.999).all(axis=1)
            yield numbers, clear


@pytest.mark.parametrize(("verifier", "draft", "n"), RULES)
def test_compiled_code_has_the_thresholds_of_the_rules(verifier, draft, n):
    """Beside a threshold by 1e-12 it never contradicts, and by 1e-6 it hardly ever is unsure."""
    rule, rows, tests = rows_of(verifier, draft, n)
    for width in (1e-12, 1e-6):
        decided = []
        for numbers, clear in beside_each_threshold(tests, width):
            found = compiled(rule, rows, numbers)
            known = found != _kernels.UNSURE
            assert (found == emitted(tests, numbers))[known].all()
            decided.extend(known[clear])
        assert width == 1e-12 or np.mean(decided) > 0.95


@pytest.mark.parametrize(("verifier", "draft", "n"), [r for r in RULES if r[0] != "naive"])
def test_another_target_would_show(verifier, draft, n):
    """The negative control: thresholds moved by 1e-9 of the target are noticed at 1e-12."""
    rule, rows, _ = rows_of(verifier, draft, n)
    moved = np.roll(rows[0], 1, axis=1) * 1e-9 + rows[0] * (1.0 - 1e-9)
    tests = TESTS[rule](moved, *rows[1:])
    wrong = 0
    for numbers, _ in beside_each_threshold(tests, 1e-12):
        found = compiled(rule, rows, numbers)
        known = found != _kernels.UNSURE
        wrong += (found != emitted(tests, numbers))[known].sum()
    assert wrong > 0


@pytest.mark.parametrize("n", [1, 2, 3, 8, 64])
def test_the_two_roots_of_kseq_agree(n):
    """Where the excess is flat any root is as good: then it vanishes at both."""
    targets, drafted, _, _ = instances("with_replacement", n, size=40, repeats=6, seed=n)
    roots = kseq.kseq_root(targets, drafted, n)[:, 0]
    for p, q, root in zip(targets, drafted, roots, strict=True):
        other, rate = kernels.kseq_root_and_overlap(p, 1.0, q, 1.0, n)
        overlaps = np.minimum(p, other * q).sum(), np.minimum(p, root * q).sum()
        for rho, taken in zip((other, root), overlaps, strict=True):
            assert abs(kernels.kseq_excess(taken, rho, n)) <= 1e-13
        assert rate == pytest.approx(overlaps[1], rel=1e-12, abs=1e-300)


def test_a_wrong_root_of_kseq_would_show():
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3])
    rho = kernels.kseq_root_and_overlap(p, 1.0, q, 1.0, 2)[0] + 1e-9
    assert abs(kernels.kseq_excess(np.minimum(p, rho * q).sum(), rho, 2)) > 1e-11


@pytest.mark.parametrize("n", [1, 2, 16, 17, 500])
def test_one_of_several_tries(n):
    chances = np.concatenate([[0.0, 1.0], 10.0 ** -np.arange(0.5, 20.0)])
    exact = [float(1 - (1 - Fraction(x)) ** n) for x in chances]
    np.testing.assert_allclose(sums.any_of(chances, n), exact, rtol=1e-14)
    compiled = [kernels.any_of_tries(x, n) for x in chances]
    np.testing.assert_allclose(compiled, exact, rtol=1e-14)


@pytest.mark.parametrize("draft", ["without_replacement", "greedy", "spechub"])
def test_possible_tuples_are_those_of_drafts(draft):
    rng = np.random.default_rng(0)
    for n in (1, 2, 3) if draft != "spechub" else (2,):
        _, drafted, _, laws = instances(draft, n, size=5, repeats=3)
        for q, law in zip(drafted, laws, strict=True):
            ids = np.concatenate([law.sample(rng, 20), rng.integers(0, 5, (60, n))])
            found = possible.are_distinct(ids) & possible.are_positive(law.draft_probs, ids)
            if draft == "greedy":
                found &= possible.tops_match(law.draft_probs, ids[:, :-1])
            if draft == "spechub":
                tops = [possible.tops_match(law.draft_probs, ids[:, k : k + 1]) for k in (0, 1)]
                found &= tops[0] | tops[1]
            assert found.tolist() == law.is_possible(ids).tolist()
            every = np.tile(law.draft_probs, (len(ids), 1))
            assert (possible.are_positive(every, ids) == (q[ids] > 0.0).all(axis=1)).all()
