"""Every run of a decoder with its probability: exact laws of the very code that decodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from mdsd._typing import FloatArray, IntArray
from mdsd.decoding.choices import Choices
from mdsd.decoding.selection import selection_law
from mdsd.drafts import DraftDistribution
from mdsd.errors import UnsupportedError
from mdsd.verifiers import Verifier
from mdsd.verifiers.base import Plan, SelectionPlan

MAX_BRANCHES = 1_000_000
"""Most branches that one call of `branches` follows."""

_Result = TypeVar("_Result")
_Answers = list[tuple[int, float]]


class EnumeratedChoices(Choices):
    """Answers by a script, and the first possible answer where the script ends.

    Parameters
    ----------
    script : sequence of int
        Which of the possible answers, those of positive probability, each question gets.
    known : dict
        Plans and laws worked out in earlier runs; shared between runs to save time.

    Attributes
    ----------
    probability : float
        Product of the probabilities of the answers so far.
    """

    def __init__(self, script: list[int], known: dict[Any, Any]) -> None:
        self._script, self._known = script, known
        self._taken: list[int] = []
        self._counts: list[int] = []
        self.probability = 1.0

    def next_script(self) -> list[int] | None:
        """Give the script of the next run in order; None after the last."""
        script = self._taken
        for place in range(len(script) - 1, -1, -1):
            if script[place] + 1 < self._counts[place]:
                return [*script[:place], script[place] + 1]
        return None

    def drafts(self, draft: DraftDistribution) -> IntArray:  # noqa: D102
        def tuples() -> tuple[IntArray, _Answers]:
            ids, probs = draft.tuple_arrays()
            return ids, _possible(probs)

        ids, answers = self._once(("tuples", *draft.law_key()), tuples, draft)
        return np.asarray(ids[self._answer(answers)])

    def plan(  # noqa: D102
        self, verifier: Verifier, target_probs: FloatArray, draft: DraftDistribution
    ) -> Plan:
        key = _plan_key(verifier, target_probs, draft)
        plan: Plan = self._once(key, lambda: verifier.plan(target_probs, draft), (verifier, draft))
        return plan

    def verify(  # noqa: D102
        self,
        verifier: Verifier,
        target_probs: FloatArray,
        draft: DraftDistribution,
        draft_token_ids: IntArray,
    ) -> int:
        plan = self.plan(verifier, target_probs, draft)
        given = (*_plan_key(verifier, target_probs, draft), draft_token_ids.tobytes())
        return self._answer(self._once(given, lambda: _possible(plan.output_law(draft_token_ids))))

    def accept(self, probability: float) -> bool:  # noqa: D102
        return self._answer(_possible(np.array([1.0 - probability, probability]))) == 1

    def token(self, masses: FloatArray) -> int:  # noqa: D102
        return self._answer(_possible(masses / masses.sum()))

    def select(self, plan: SelectionPlan, draft_token_ids: IntArray) -> int:  # noqa: D102
        def outcomes() -> _Answers:
            law = selection_law(plan, draft_token_ids)
            # Rounding is no outcome of its own.
            none = 1.0 - float(law.sum())
            return _possible(law) + ([(-1, none)] if none > 1e-15 * len(law) else [])

        key = ("selected", id(plan), draft_token_ids.tobytes())
        return self._answer(self._once(key, outcomes, plan))

    def _answer(self, answers: _Answers) -> int:
        """Give the answer that the script names."""
        place = len(self._taken)
        taken = self._script[place] if place < len(self._script) else 0
        self._taken.append(taken)
        self._counts.append(len(answers))
        index, probability = answers[taken]
        self.probability *= probability
        return index

    def _once(self, key: Any, work: Callable[[], Any], kept: Any = None) -> Any:
        """Look a result up; `kept` are the objects whose ids are part of the key."""
        if key not in self._known:
            self._known[key] = (work(), kept)
        return self._known[key][0]


def branches(
    run: Callable[[Choices], _Result], known: dict[Any, Any] | None = None
) -> Iterator[tuple[float, _Result]]:
    """Run a function once for every sequence of answers it can be given.

    Parameters
    ----------
    run : callable
        Leaves to chance only what it asks of the `Choices` it is called with, and depends on
        nothing else that changes.
    known : dict, optional
        Kept between calls with the same verifiers, it saves work.

    Returns
    -------
    iterator of (float, result)
        The probability of each run, and what it returned; the probabilities sum to 1.

    Raises
    ------
    UnsupportedError
        Above `MAX_BRANCHES` runs.

    Examples
    --------
    Throw a coin until it shows 1, three times at most:

    >>> coin = np.array([0.5, 0.5])
    >>> def throw(choices):
    ...     return next((k for k in range(3) if choices.token(coin) == 1), None)
    >>> [(float(p), k) for p, k in branches(throw)]
    [(0.125, None), (0.125, 2), (0.25, 1), (0.5, 0)]
    """
    known = {} if known is None else known
    script: list[int] = []
    for _ in range(MAX_BRANCHES):
        choices = EnumeratedChoices(script, known)
        result = run(choices)
        yield choices.probability, result
        following = choices.next_script()
        if following is None:
            return
        script = following
    raise UnsupportedError(f"more than {MAX_BRANCHES:,} branches; at most as many are followed")


def _possible(probs: FloatArray) -> _Answers:
    """List the indices of positive probability, each with its probability."""
    return [(index, prob) for index, prob in enumerate(probs.tolist()) if prob > 0.0]


def _plan_key(
    verifier: Verifier, target_probs: FloatArray, draft: DraftDistribution
) -> tuple[object, ...]:
    return (id(verifier), target_probs.tobytes(), *draft.law_key())
