"""The conformance suite for verifiers, built-in or your own.

`check_verifier` proves losslessness instead of sampling it: it enumerates the draft tuples, sums
the exact output laws and compares with the target to 1e-12. Sampling comes second, with fixed
seeds.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from mdsd._arguments import check_type
from mdsd._typing import IntArray
from mdsd.bounds import acceptance_bound
from mdsd.drafts import DraftDistribution
from mdsd.errors import InvalidTokenError, UnsupportedError
from mdsd.testing._exact import drafted_mass, follows
from mdsd.testing._failures import EXACT, CheckFailure, close, require
from mdsd.testing._instances import Instance, instances
from mdsd.verifiers import Plan, Verifier

_DRAWS = 4000
_STEPS = 2000


def check_plan(plan: Plan, *, attains_bound: bool = False) -> None:
    """Check the exact contract of one plan by enumeration.

    Parameters
    ----------
    plan : Plan
        Of a draft distribution that enumerates its support.
    attains_bound : bool, default False
        Whether its acceptance must reach the bound up to `plan.gap`.

    Raises
    ------
    CheckFailure
        If an output law is no law or emits a token of target probability 0; if their sum, or
        `marginal_law`, differs from the target by more than 1e-12; if `acceptance_rate` is not the
        enumerated one, exceeds the bound, or misses it where it must not; if accept tests are not
        strict.
    InvalidArgumentError
        If `plan` is no plan.
    """
    check_type("plan", plan, Plan)
    target = plan.target_probs
    ids, probs = plan.draft.tuple_arrays()
    laws = plan.output_law(ids)
    require(laws.shape == (len(ids), len(target)), f"output_law has shape {laws.shape}")
    require(bool((laws >= 0.0).all()), "output_law has a negative entry")
    close(laws.sum(axis=1), 1.0, EXACT, "output_law does not sum to 1")
    close(laws[:, target == 0.0], 0.0, 0.0, "output_law emits a token of target probability 0")
    close(probs @ laws, target, EXACT, "output_law summed over the tuples is not the target")
    close(plan.marginal_law(), target, EXACT, "marginal_law is not the target")

    accepted = float(probs @ drafted_mass(laws, ids))
    rate, stderr, gap = plan.acceptance_rate, plan.acceptance_stderr, plan.gap
    require(0.0 <= rate <= 1.0 and stderr >= 0.0 and gap >= 0.0, "a rate, error or gap is off")
    require(
        rate - EXACT - 6.0 * stderr <= accepted <= rate + gap + EXACT + 6.0 * stderr,
        f"acceptance_rate is {rate!r} but enumeration gives {accepted!r}",
    )
    bound = acceptance_bound(target, plan.draft)
    require(
        accepted <= bound.value + EXACT,
        f"acceptance {accepted!r} exceeds the bound {bound.value!r}",
    )
    if attains_bound:
        # What the search for the bound left open, the plan cannot be blamed for.
        least = bound.value - bound.gap - gap - EXACT
        require(accepted >= least, f"acceptance {accepted!r} misses {bound.value!r}")

    for edge in (0.0, float(np.nextafter(1.0, 0.0))):
        emitted = plan.verify_many(ids, uniforms=np.full((len(ids), plan.num_uniforms), edge))
        impossible = target[emitted.token_id] == 0.0
        require(not impossible.any(), f"uniforms of {edge!r} emit a token of probability 0")


def check_verifier(verifier: Verifier, *, seed: int = 0, count: int = 24) -> None:
    """Check that a verifier keeps the whole contract; silent if it does.

    Parameters
    ----------
    verifier : Verifier
        Built-in or your own.
    seed : int, default 0
        Seed of the instances and of every sampling check.
    count : int, default 24
        Pairs of vectors tried, each with every draft distribution the verifier supports.

    Raises
    ------
    CheckFailure
        Naming the instance and what broke.
    InvalidArgumentError
        If `verifier` is no verifier, or `seed` or `count` is out of range.

    Notes
    -----
    Exactly: see `check_plan`. By sampling, with fixed seeds: frequencies of `verify_many` follow
    `output_law`, and drafting and verifying with the same integer seed are independent. Further:
    the same seed gives the same result, also from a pickled plan; `verify` agrees with
    `verify_many`; accept indices are right; read-only, strided, float16, float32 and big-endian
    targets work and stay unchanged; relabelling tokens relabels the law; impossible tuples and
    unsupported draft distributions are refused.

    Examples
    --------
    >>> import mdsd
    >>> mdsd.testing.check_verifier(mdsd.get_verifier("naive"))
    """
    check_type("verifier", verifier, Verifier)
    supported = 0
    for number, instance in enumerate(instances(seed, count)):
        try:
            if not verifier.supports(instance.draft):
                _check_refusal(verifier, instance)
                continue
            supported += 1
            before = instance.target_probs.copy()
            plan = verifier.plan(instance.target_probs, instance.draft)
            require(before.tolist() == instance.target_probs.tolist(), "the target was modified")
            check_plan(plan, attains_bound=verifier.attains_bound)
            _check_uniforms(verifier, plan)
            _check_inputs(verifier, instance)
            _check_impossible(plan)
            _check_sampling(plan, seed + number)
            if instance.tie_free:
                _check_relabelling(verifier, instance, seed + number)
                _check_streams(plan)
        except CheckFailure as failure:
            raise CheckFailure(f"{verifier!r} on {instance.label}: {failure}") from None
        except Exception as error:  # whatever a stranger's code raises
            raise CheckFailure(f"{verifier!r} on {instance.label}: raised {error!r}") from error
    require(supported > 0, f"{verifier!r} supports none of the draft distributions tried")


def _check_refusal(verifier: Verifier, instance: Instance) -> None:
    try:
        verifier.plan(instance.target_probs, instance.draft)
    except UnsupportedError as error:
        require(instance.draft.name in str(error), "the refusal does not name the draft")
    else:
        raise CheckFailure("plan() accepts a draft distribution that supports() denies")


def _check_uniforms(verifier: Verifier, plan: Plan) -> None:
    require(
        verifier.num_uniforms(plan.draft) == plan.num_uniforms,
        "num_uniforms of the verifier and of its plan differ",
    )
    drafts = plan.draft.sample(7, 20)
    uniforms = np.random.default_rng(7).random((20, plan.num_uniforms))
    together = plan.verify_many(drafts, uniforms=uniforms)
    alone = [plan.verify(row, uniforms=u) for row, u in zip(drafts, uniforms, strict=True)]
    require(
        [v.token_id for v in alone] == together.token_id.tolist()
        and [v.accept_index for v in alone] == together.accept_index.tolist(),
        "verify and verify_many differ on the same uniforms",
    )
    first = plan.verify_many(drafts, 11)
    again = pickle.loads(pickle.dumps(plan)).verify_many(drafts, 11)
    require(
        first.token_id.tolist() == again.token_id.tolist(),
        "the same seed gives another result from a pickled plan",
    )


def _check_inputs(verifier: Verifier, instance: Instance) -> None:
    target = instance.target_probs
    expected = verifier.plan(target, instance.draft).marginal_law()
    wide = np.zeros((len(target), 3))
    wide[:, 1] = target
    read_only = target.copy()
    read_only.setflags(write=False)
    same = {
        "read-only": read_only,
        "strided": wide[:, 1],
        "reversed": target[::-1].copy()[::-1],
        "big-endian": target.astype(">f8"),
    }
    for label, form in same.items():
        before = form.copy()
        law = verifier.plan(form, instance.draft).marginal_law()
        require(bool((form == before).all()), f"a {label} target was modified")
        require(law.tolist() == expected.tolist(), f"a {label} target gives another law")
    for dtype in (np.float32, np.float16):
        rounded = target.astype(dtype)
        exact = rounded.astype(np.float64) / rounded.astype(np.float64).sum()
        law = verifier.plan(rounded, instance.draft).marginal_law()
        close(law, exact, EXACT, f"a {np.dtype(dtype).name} target is not reproduced")


def _check_impossible(plan: Plan) -> None:
    n, vocab_size = plan.draft.num_drafts, plan.draft.vocab_size
    wrongs: list[list[Any]] = [[vocab_size] * n, [-1] * n, [0.0] * n, [0] * (n + 1)]
    grid = np.indices((vocab_size,) * n).reshape(n, -1).T
    impossible = grid[~plan.draft.is_possible(grid)]
    wrongs += impossible[:1].tolist()
    for wrong in wrongs:
        for call in (plan.verify, plan.output_law):
            try:
                call(wrong)
            except InvalidTokenError:
                continue
            raise CheckFailure(f"draft_token_ids {wrong} are not refused")


def _check_streams(plan: Plan) -> None:
    """One step for each seed: the first numbers of the two streams must not go together."""
    tokens, hits = [], 0
    for seed in range(_STEPS):
        ids = plan.draft.sample(seed)
        seen = plan.verify(ids, seed)
        tokens.append(seen.token_id)
        hits += seen.accept_index >= 0
    counts = np.bincount(tokens, minlength=plan.draft.vocab_size)
    # The true rate may lie above the declared one by as much as the gap.
    rate = min(max(hits / _STEPS, plan.acceptance_rate), plan.acceptance_rate + plan.gap)
    dependent = "the same seed for drafting and verifying is not independent"
    follows(counts, plan.target_probs, dependent)
    follows([hits, _STEPS - hits], np.array([rate, 1.0 - rate]), dependent)


def _check_sampling(plan: Plan, seed: int) -> None:
    vocab_size = plan.draft.vocab_size
    # The same integer seed on both sides: the streams must still be independent.
    drafts = plan.draft.sample(seed, _DRAWS)
    seen = plan.verify_many(drafts, seed)
    matches = drafts == seen.token_id[:, np.newaxis]
    index = np.where(matches.any(axis=1), matches.argmax(axis=1), -1)
    require(index.tolist() == seen.accept_index.tolist(), "accept_index is wrong")
    counts = np.bincount(seen.token_id, minlength=vocab_size)
    follows(counts, plan.target_probs, "emitted tokens do not follow the target")

    fixed = np.tile(drafts[0], (_DRAWS, 1))
    emitted = plan.verify_many(fixed, seed + 1).token_id
    law = plan.output_law(drafts[0])
    # Rounding residues of the law, far below what sampling could see, count as 0.
    counts = np.bincount(emitted, minlength=vocab_size)
    follows(counts, np.where(law < 1e-14, 0.0, law), "verify does not follow output_law")


def _check_relabelling(verifier: Verifier, instance: Instance, seed: int) -> None:
    label = np.random.default_rng(seed).permutation(len(instance.target_probs))
    target = np.empty_like(instance.target_probs)
    target[label] = instance.target_probs
    draft = _relabelled(instance.draft, label)
    ids, _ = instance.draft.tuple_arrays()
    plan = verifier.plan(instance.target_probs, instance.draft)
    relabelled = verifier.plan(target, draft)
    if not plan.canonical:
        slack = 1e-9 + max(plan.gap, relabelled.gap)
        distance = abs(plan.acceptance_rate - relabelled.acceptance_rate)
        require(distance <= slack, "relabelling tokens changes the acceptance rate")
        return
    before, after = plan.output_law(ids), relabelled.output_law(label[ids])
    close(after[:, label], before, 1e-9, "relabelling tokens does not relabel the law")


def _relabelled(draft: Any, label: IntArray) -> DraftDistribution:
    probs = np.empty_like(draft.draft_probs)
    probs[..., label] = draft.draft_probs
    made: DraftDistribution = draft.own_kind.make(probs, draft.num_drafts)
    return made
