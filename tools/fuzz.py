"""Fuzz every draft distribution, verifier and formulation on instances that can be enumerated.

The optimal verifier goes three times: with each effort, and in groups as coarse as can be, which
so few tokens would not share otherwise.

Besides, every verifier goes through the conformance suite with one seed for each 5,000 instances.

Instances are drawn from a seed, in chunks whose content depends on the seed and the number of the
chunk only, so the number of processes changes nothing. Every check has a tolerance; the largest
deviation of each is printed. Of every kind of failure the shortest instance is printed as a snippet
to paste, and the exit code is 1 then.

    python tools/fuzz.py --instances 100000 --seed 0 --workers 2
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing import get_context
from typing import Any

import numpy as np

import mdsd
from mdsd._solvers import token_lottery
from mdsd._typing import FloatArray, IntArray
from mdsd.drafts import DraftDistribution
from mdsd.drafts.registry import draft_types
from mdsd.testing import random_probs
from mdsd.testing._exact import drafted_mass
from mdsd.testing._instances import DraftRecipe
from mdsd.verifiers import Plan, Verifier

MAX_VOCAB_SIZE = 8
MAX_NUM_DRAFTS = 5
CHUNK = 200
"""Instances of one task."""

CONFORMANCE = 5_000
"""Instances for each of which every verifier goes once through the conformance suite."""

TOLERANCES = {
    "tuples: sum to 1": 1e-12,
    "tuples: as prob() declares": 1e-12,
    "hit_probs: as enumerated": 1e-12,
    "token_hit_probs: as enumerated": 1e-12,
    "bound: formulations agree": 1e-9,
    "bound: its subset gives it": 1e-9,
    "law: a law for every tuple": 1e-12,
    "law: nothing negative or impossible": 0.0,
    "law: sums to the target": 1e-12,
    "law: marginal_law is the target": 1e-12,
    "law: nothing impossible is emitted": 0.0,
    "rate: as enumerated": 1e-12,
    "rate: not above the bound": 1e-12,
    "rate: optimal reaches the bound": 1e-9,
    "rate: optimal certifies its gap": 1e-9,
}

FORMULATIONS = {
    "prefix": 1,
    "submodular": 1,
    "subset": 1,
    "matching": 1,
    "lp": 4,
    "cover": 4,
    "cvxpy": 20,
}
"""Each is tried on one instance in so many: the last three cost more than all the rest."""

DRAFTS: tuple[type[DraftDistribution], ...] = (*draft_types(), mdsd.ExplicitDraft)

FAST, COARSE = "optimal, fast", "optimal, coarse"
"""The optimal verifier with effort "fast", and that in coarse groups."""

_COARSE = {"FAST": token_lottery.Effort(1, 1e-6, 60, 1), "FEWEST_GROUPS": 1, "FEW": 0}
"""One token alone, and one group of those that are not too heavy for one."""

_EDGES = (0.0, float(np.nextafter(1.0, 0.0)))


@dataclass(frozen=True)
class Problem:
    """One instance, in the numbers it was made from."""

    draft_name: str
    target_probs: list[float]
    recipe: DraftRecipe

    def snippet(self, check: str, subject: str) -> str:
        """Source code that makes the instance and what failed on it."""
        if subject == "draft":
            call = "print(list(draft.tuples()))"
        elif subject in ("auto", *FORMULATIONS):
            call = f"print(mdsd.acceptance_bound(target_probs, draft, method={subject!r}))"
        else:
            before, made = _source(subject)
            call = (
                f"{before}plan = {made}.plan(target_probs, draft)\n"
                "bound = mdsd.acceptance_bound(target_probs, draft)\n"
                "print(plan.acceptance_rate, plan.gap, bound.value)\n"
                "mdsd.testing.check_plan(plan)"
            )
        return (
            f"# {check}\nimport mdsd\n\ntarget_probs = {self.target_probs}\ndraft = {self.recipe}\n"
            f"{call}\n"
        )


@dataclass
class Failure:
    """Failures of one kind: how many, and the shortest of them."""

    count: int
    what: str
    snippet: str

    def add(self, other: Failure) -> None:
        """Take in further ones of the same kind."""
        self.count += other.count
        if (len(other.snippet), other.snippet) < (len(self.snippet), self.snippet):
            self.what, self.snippet = other.what, other.snippet


@dataclass
class Report:
    """What some instances showed."""

    instances: int = 0
    conformance: int = 0
    checks: Counter[str] = field(default_factory=Counter)
    worst: dict[str, tuple[float, str]] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)
    failures: dict[str, Failure] = field(default_factory=dict)

    def note(self, check: str, deviation: float, problem: Problem, subject: str) -> None:
        """Record one deviation; NaN counts as the largest there is."""
        size = math.inf if math.isnan(deviation) else float(deviation)
        self.checks[check] += 1
        if size > self.worst.get(check, (-1.0, ""))[0]:
            self.worst[check] = (size, f"{subject} on {problem.draft_name}")
        if not size <= TOLERANCES[check]:
            what = f"{check}: off by {size:.3g}, allowed {TOLERANCES[check]:g} ({subject})"
            self.fail(f"{check} ({subject} on {problem.draft_name})", what, problem, subject)

    def fail(self, kind: str, what: str, problem: Problem, subject: str) -> None:
        """Record a failure."""
        self.fail_as(kind, what, problem.snippet(what, subject))

    def fail_as(self, kind: str, what: str, snippet: str) -> None:
        """Record a failure that a snippet of its own shows."""
        self._add_failure(kind, Failure(1, what, snippet))

    def _add_failure(self, kind: str, failure: Failure) -> None:
        if kind in self.failures:
            self.failures[kind].add(failure)
        else:
            self.failures[kind] = failure

    def add(self, other: Report) -> None:
        """Take in another report."""
        self.instances += other.instances
        self.conformance += other.conformance
        self.checks += other.checks
        self.kinds += other.kinds
        for kind, failure in other.failures.items():
            self._add_failure(kind, failure)
        for check, found in other.worst.items():
            if found[0] > self.worst.get(check, (-1.0, ""))[0]:
                self.worst[check] = found


# --- instances ---------------------------------------------------------------------------------


def problems(seed: int, chunk: int, count: int) -> Iterator[Problem]:
    """Draw the instances of one chunk."""
    rng = np.random.default_rng([seed, chunk])
    made = 0
    while made < count:
        problem = _problem(rng, DRAFTS[made % len(DRAFTS)])
        if problem is not None:
            made += 1
            yield problem


def _problem(rng: np.random.Generator, draft_type: type[DraftDistribution]) -> Problem | None:
    """Draw an instance, or None where that class does not draft so many tokens of what it got."""
    vocab_size = int(rng.integers(1, MAX_VOCAB_SIZE + 1))
    n = int(rng.integers(1, MAX_NUM_DRAFTS + 1))
    vectors = [_vector(rng, vocab_size) for _ in range(n)]
    if draft_type is mdsd.ExplicitDraft:
        ids = rng.integers(0, vocab_size, (int(rng.integers(1, 13)), n)).tolist()
        masses = _vector(rng, len(ids)).tolist()
        recipe = DraftRecipe(draft_type, (ids, masses), {"vocab_size": vocab_size})
    else:
        kinds = [each for each in draft_type.example_kinds(n) if each.refusal(n) is None]
        if not kinds:
            return None
        kind = kinds[int(rng.integers(len(kinds)))]
        probs = np.array(vectors) if kind.one_model_each else vectors[0]
        if not kind.drawable(probs[np.newaxis], n)[0]:
            return None
        recipe = DraftRecipe.of(kind, probs.tolist(), n)
    return Problem(draft_type.name, _target(rng, vectors[0]).tolist(), recipe)


def _vector(rng: np.random.Generator, size: int) -> FloatArray:
    """Draw a probability vector; one in eight has some subnormal entries."""
    probs = random_probs(rng, size)
    if rng.random() < 0.125:
        tiny = rng.random(size) < 0.5
        tiny[int(rng.integers(size))] = False
        weights = np.where(tiny, rng.integers(1, 1000, size) * 2.0**-1074, probs)
        if weights.sum() > 1e-3:
            probs = weights / weights.sum()
    return probs


def _target(rng: np.random.Generator, vector: FloatArray) -> FloatArray:
    """Draw a target of its own, the draft vector itself, or one whose ratios nearly tie."""
    choice = rng.random()
    if choice < 0.8:
        return _vector(rng, len(vector))
    if choice < 0.9:
        return vector
    step = float(rng.choice([1e-3, 1e-9, 1e-14]))
    weights = vector * (1.0 + step * rng.integers(-1, 2, len(vector)))
    return np.asarray(weights / weights.sum())


# --- checks ------------------------------------------------------------------------------------


def check_draft(
    report: Report, problem: Problem, draft: DraftDistribution, rng: np.random.Generator
) -> tuple[IntArray, FloatArray]:
    """Check the declared law of the drafts against its own tuples, and give these."""
    ids, probs = draft.tuple_arrays()
    report.note("tuples: sum to 1", abs(float(probs.sum()) - 1.0), problem, "draft")
    declared = _largest(draft.prob(ids) - probs)
    report.note("tuples: as prob() declares", declared, problem, "draft")
    order = rng.permutation(draft.vocab_size)
    first = np.argsort(order)[ids].min(axis=1)
    gains = np.bincount(first, weights=probs, minlength=draft.vocab_size)
    hits = np.concatenate([[0.0], np.cumsum(gains)])
    off = _largest(draft.hit_probs(order) - hits)
    report.note("hit_probs: as enumerated", off, problem, "draft")
    drafted = np.zeros((len(ids), draft.vocab_size))
    np.put_along_axis(drafted, ids, 1.0, axis=1)
    off = _largest(draft.token_hit_probs() - probs @ drafted)
    report.note("token_hit_probs: as enumerated", off, problem, "draft")
    return ids, probs


def check_bounds(
    report: Report,
    problem: Problem,
    draft: DraftDistribution,
    tuples: tuple[IntArray, FloatArray],
    number: int,
) -> float:
    """Check every formulation that is due, and give the bound that the others are held against."""
    ids, probs = tuples
    target = np.array(problem.target_probs)
    target /= target.sum()
    best = mdsd.acceptance_bound(problem.target_probs, draft).value
    for method, every in FORMULATIONS.items():
        if number % every:
            continue
        try:
            found = mdsd.acceptance_bound(problem.target_probs, draft, method=method)
        except mdsd.UnsupportedError:
            continue
        report.note("bound: formulations agree", abs(found.value - best), problem, method)
        inside = np.isin(ids, found.subset).all(axis=1)
        value = 1.0 + float(target[found.subset].sum()) - float(probs[inside].sum())
        report.note("bound: its subset gives it", abs(value - found.value), problem, method)
    return best


def check_verifier(
    report: Report,
    problem: Problem,
    plan: Plan,
    tuples: tuple[IntArray, FloatArray],
    bound: float,
    rng: np.random.Generator,
    subject: str,
    attains_bound: bool,
) -> None:
    """Check one plan by enumeration, and what it emits on extreme uniforms."""

    def note(check: str, deviation: float) -> None:
        report.note(check, deviation, problem, subject)

    ids, probs = tuples
    target, laws = plan.target_probs, plan.output_law(ids)
    note("law: a law for every tuple", _largest(laws.sum(axis=1) - 1.0))
    impossible = float(laws[:, target == 0.0].max(initial=0.0))
    note("law: nothing negative or impossible", max(impossible, -float(laws.min())))
    note("law: sums to the target", _largest(probs @ laws - target))
    note("law: marginal_law is the target", _largest(plan.marginal_law() - target))

    accepted = float(probs @ drafted_mass(laws, ids))
    rate, gap, noise = plan.acceptance_rate, plan.gap, 6.0 * plan.acceptance_stderr
    low, high = rate - noise, rate + gap + noise
    note("rate: as enumerated", max(low - accepted, accepted - high, 0.0))
    note("rate: not above the bound", max(accepted - bound, 0.0))
    if attains_bound:
        note("rate: optimal certifies its gap", max(bound - rate - gap, 0.0))
        if subject != COARSE:
            note("rate: optimal reaches the bound", max(bound - accepted, gap, 0.0))

    # A few tuples with numbers of their own: every uniform is at an edge or anywhere.
    rows = rng.integers(0, len(ids), min(len(ids), 16))
    numbers = rng.random((len(rows), plan.num_uniforms))
    numbers = np.where(rng.random(numbers.shape) < 0.5, rng.choice(_EDGES, numbers.shape), numbers)
    tokens = plan.verify_many(ids[rows], uniforms=numbers).token_id
    note("law: nothing impossible is emitted", float(np.count_nonzero(target[tokens] == 0.0)))


def _largest(differences: FloatArray) -> float:
    return float(np.max(np.abs(differences), initial=0.0))


def run_chunk(seed: int, chunk: int, count: int, extra: str | None) -> Report:
    """Run every check on the instances of one chunk."""
    warnings.simplefilter("error")
    report = Report()
    verifiers = [(name, _verifier(name)) for name in (*_names(extra), FAST, COARSE)]
    for number, problem in enumerate(problems(seed, chunk, count)):
        rng = np.random.default_rng([seed, chunk, number])
        report.instances += 1
        report.kinds[problem.draft_name] += 1
        subject = "draft"
        try:
            draft = problem.recipe.build()
            tuples = check_draft(report, problem, draft, rng)
            subject = "auto"
            bound = check_bounds(report, problem, draft, tuples, chunk * CHUNK + number)
            for subject, verifier in verifiers:
                if verifier.supports(draft):
                    plan = _plan(subject, verifier, problem.target_probs, draft)
                    attains = verifier.attains_bound
                    check_verifier(report, problem, plan, tuples, bound, rng, subject, attains)
        except Exception as error:  # whatever is raised here is a finding
            what = f"{subject} raised {error!r}"
            kind = f"{type(error).__name__} ({subject} on {problem.draft_name})"
            report.fail(kind, what, problem, subject)
    return report


def run_conformance(seed: int, name: str) -> Report:
    """Run the conformance suite on one verifier."""
    warnings.simplefilter("error")
    report = Report(conformance=1)
    try:
        mdsd.testing.check_verifier(_verifier(name), seed=seed)
    except Exception as error:  # whatever is raised here is a finding
        what = f"check_verifier of {name} raised {error!r}"
        before, made = _source(name)
        snippet = f"# {what!a}\nimport mdsd\n{before}verifier = {made}\n"
        snippet += f"mdsd.testing.check_verifier(verifier, seed={seed})\n"
        report.fail_as(f"conformance ({name})", what, snippet)
    return report


def _names(extra: str | None) -> list[str]:
    return [*mdsd.verifier_names(), *([] if extra is None else [extra])]


def _verifier(name: str) -> Verifier:
    """Make a verifier by its name, or its module and class."""
    if name in (FAST, COARSE):
        return mdsd.OptimalVerifier(effort="fast")
    return _load(name) if ":" in name else mdsd.get_verifier(name)


def _plan(name: str, verifier: Verifier, target_probs: Any, draft: DraftDistribution) -> Plan:
    """Plan a verification, in coarse groups where the name says so."""
    if name != COARSE:
        return verifier.plan(target_probs, draft)
    kept = {part: getattr(token_lottery, part) for part in _COARSE}
    try:
        for part, value in _COARSE.items():
            setattr(token_lottery, part, value)
        return verifier.plan(target_probs, draft)
    finally:
        for part, value in kept.items():
            setattr(token_lottery, part, value)


def _source(name: str) -> tuple[str, str]:
    """Source code that makes a verifier: lines to go before, and an expression."""
    module, _, kind = name.partition(":")
    if kind:
        return f"from {module} import {kind}\n", f"{kind}()"
    if name not in (FAST, COARSE):
        return "", f"mdsd.get_verifier({name!r})"
    before = ""
    if name == COARSE:
        before = "from mdsd._solvers import token_lottery\n\n"
        before += "".join(
            f"token_lottery.{part} = {'token_lottery.' * (part == 'FAST')}{value}\n"
            for part, value in _COARSE.items()
        )
    return before, "mdsd.OptimalVerifier(effort='fast')"


def _load(path: str) -> Verifier:
    module, _, name = path.partition(":")
    kind = getattr(import_module(module), name)
    if not issubclass(kind, Verifier):
        raise TypeError(f"{path} is not a Verifier")
    made: Verifier = kind()
    return made


# --- the command -------------------------------------------------------------------------------


def fuzz(
    instances: int,
    seed: int,
    workers: int,
    extra: str | None = None,
    keep_going: bool = False,
    progress: Callable[[int], None] = lambda done: None,
) -> Report:
    """Run the chunks in processes of their own until all are done, or one failed."""
    sizes = [min(CHUNK, instances - start) for start in range(0, instances, CHUNK)]
    report = Report()
    # Forking a process that holds numba's or BLAS's threads can hang it: start afresh.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(run_chunk, seed, k, size, extra) for k, size in enumerate(sizes)]
        jobs += [
            pool.submit(run_conformance, seed + 1 + k, name)
            for k in range(instances // CONFORMANCE)
            for name in _names(extra)
        ]
        for job in as_completed(jobs):
            report.add(job.result())
            progress(report.instances)
            if report.failures and not keep_going:
                for waiting in jobs:
                    waiting.cancel()
                break
    return report


def _table(report: Report, seconds: float) -> Iterator[str]:
    kinds = ", ".join(f"{name} {count:,}" for name, count in sorted(report.kinds.items()))
    rate = report.instances / seconds
    yield f"{report.instances:,} instances in {seconds:.0f} s ({rate:.0f} a second): {kinds}"
    yield f"{report.conformance:,} runs of the conformance suite"
    yield f"{'check':42}{'times':>12}{'worst':>10}{'allowed':>10}  where"
    for check, allowed in TOLERANCES.items():
        worst, where = report.worst.get(check, (0.0, ""))
        times = f"{report.checks[check]:,}"
        yield f"{check:42}{times:>12}{worst:>10.1e}{allowed:>10.0e}  {where if worst else ''}"


def main(arguments: list[str] | None = None) -> int:
    """Read the command line; 1 if anything failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--instances", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--verifier",
        metavar="MODULE:CLASS",
        help="a verifier of your own, besides the built-in ones",
    )
    parser.add_argument("--keep-going", action="store_true", help="collect all kinds of failures")
    options: Any = parser.parse_args(arguments)
    if min(options.instances, options.workers) < 1 or options.seed < 0:
        parser.error("--instances and --workers are at least 1, --seed is at least 0")

    def progress(done: int) -> None:
        if sys.stderr.isatty():
            print(f"\r{done:,} of {options.instances:,}", end="", file=sys.stderr, flush=True)

    start = time.perf_counter()
    report = fuzz(
        options.instances,
        options.seed,
        options.workers,
        options.verifier,
        options.keep_going,
        progress,
    )
    if sys.stderr.isatty():
        print(file=sys.stderr)
    print("\n".join(_table(report, time.perf_counter() - start)))
    if not report.failures:
        return 0
    for kind, failure in sorted(report.failures.items()):
        print(f"\nFAILED {failure.count} times: {kind}\n\n{failure.snippet}", end="")
    return 1


if __name__ == "__main__":
    sys.exit(main())
