"""TensorRT-LLM's relaxed acceptance: what is nearly the likeliest token is accepted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from mdsd._arguments import check_number, check_whole
from mdsd._typing import FloatArray
from mdsd.engines.base import SingleDraftRule
from mdsd.engines.typical import likeliest


@dataclass(frozen=True)
class RelaxedAcceptance(SingleDraftRule):
    """Accept a draft among the target's top k, less likely than the first by delta at most.

    Else the likeliest token is emitted.

    Parameters
    ----------
    top_k : int
        k >= 1; ties go to the lowest id.
    delta : float
        Finite and >= 0.

    Raises
    ------
    InvalidArgumentError
        If `top_k` is no integer >= 1, or `delta` no finite number >= 0.

    Notes
    -----
    NVIDIA, "DeepSeek R1 MTP Implementation and Optimization", and the kernel
    ``mtpRelaxedAcceptanceKernel`` of TensorRT-LLM: ``relaxed_topk`` and ``relaxed_delta`` of
    ``MTPDecodingConfig``, 10 and 0.6 in NVIDIA's example. It is an option for thinking phases of
    greedy decoding; with its defaults, 1 and 0, the output is greedy. The engine takes the softmax
    of the logits; here p is the target that is given, at its temperature.

    Examples
    --------
    >>> from mdsd import TopKDraft
    >>> draft = TopKDraft([0.2, 0.5, 0.3], 1)
    >>> for rule in RelaxedAcceptance(1, 0.0), RelaxedAcceptance(10, 0.6):
    ...     print(rule.outcome([0.5, 0.3, 0.2], draft).output_law.tolist())
    [1.0, 0.0, 0.0]
    [0.0, 1.0, 0.0]
    """

    top_k: int = 10
    delta: float = 0.6

    name = "relaxed"
    source = 'NVIDIA, "DeepSeek R1 MTP Implementation and Optimization"'
    used_by = "TensorRT-LLM, in thinking phases"
    drafts = ("top_k",)

    def __post_init__(self) -> None:
        vars(self).update(
            top_k=check_whole("top_k", self.top_k, 1), delta=check_number("delta", self.delta)
        )

    @classmethod
    def examples(cls) -> tuple[Self, ...]:  # noqa: D102
        return tuple(cls(top_k, delta) for top_k, delta in ((1, 0.0), (5, 0.3), (10, 0.6)))

    @property
    def lossless(self) -> bool:  # noqa: D102
        return False

    def accept_and_redraw(  # noqa: D102
        self, target_probs: FloatArray, draft_probs: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        law = likeliest(target_probs)
        top = np.argsort(-target_probs, kind="stable")[: self.top_k]
        accept = law.copy()
        accept[top[target_probs[top] >= target_probs[top[0]] - self.delta]] = 1.0
        return accept, law
