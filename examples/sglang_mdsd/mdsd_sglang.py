"""SGLang's drafts, verified by mdsd: a plug-in for the entry point ``sglang.srt.plugins``.

Never run on a server: tested against stand-ins of SGLang's functions. Trees as SGLang drafts them
gain nothing, chains that it samples do, but every step waits for the host, which is too slow for
serving; one process; thresholds, grammars, penalties, biases, min-p, seeds and masks are left to
SGLang. The README has all limits.

`register` is what SGLang calls when it starts. From then on `Verification` is asked in the place of
``sglang.srt.speculative.eagle_utils.eagle_sample``, and either answers itself or asks that.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from mdsd.decoding.layouts import sglang_tree
from mdsd.decoding.verification import step_verification

TARGET = "sglang.srt.speculative.eagle_utils.eagle_sample"
"""The function that is hooked."""

LOG = logging.getLogger("mdsd_sglang")

Sampled = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""What `eagle_sample` returns: tokens by slot, emitted tokens of each request, accepted slots."""

_LEFT_ALONE = {
    "acc_additive_penalties": "penalties",
    "acc_scaling_penalties": "penalties",
    "logit_bias": "logit biases",
    "need_min_p_sampling": "min-p",
    "sampling_seed": "seeds of requests",
    "sampling_mask_batch_indices": "sampling masks",
    "has_custom_logit_processor": "custom logit processors",
}
"""What of a batch's sampling settings is left to SGLang, where it is set."""


def register() -> None:
    """Put `Verification` in SGLang's place; ``load_plugins`` calls this in each process."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    seed = os.environ.get("MDSD_SGLANG_SEED")
    verification = Verification(
        os.environ.get("MDSD_SGLANG_VERIFIER"), None if seed is None else int(seed)
    )
    HookRegistry.register(TARGET, verification, HookType.AROUND)


class Verification:
    """Stands in the place of ``eagle_sample``, with the function itself as its first argument.

    Parameters
    ----------
    verifier : str, optional
        For drafts that were drawn by chance: any name that `mdsd.decoding.generate` takes. By
        default ``block`` for chains and ``layers`` for trees.
    seed : int, optional
        Fresh entropy by default.

    Notes
    -----
    Tokens that were chosen without chance, as in SGLang's trees, are verified by the rule that
    accepts the child that a draw from the target hits. No lossless rule accepts more of them: what
    is emitted begins with the tokens of a node with the target's probability of these, so that the
    node is accepted no more often, and by this rule it is accepted as often.
    """

    def __init__(self, verifier: str | None = None, seed: int | None = None) -> None:
        self.of_chains = step_verification(verifier or "block")
        self.of_trees = step_verification(verifier or "layers")
        self.rng = np.random.default_rng(seed)
        self._told: set[str] = set()

    def __call__(
        self,
        original: Callable[..., Sampled],
        verify_input: Any,
        batch: Any,
        logits_output: Any,
        *rest: Any,
        **options: Any,
    ) -> Sampled:
        """Verify a step, or leave it to SGLang.

        Parameters
        ----------
        original : callable
            ``eagle_sample``, as it was.
        verify_input : EagleVerifyInput
        batch : ScheduleBatch
        logits_output : LogitsProcessorOutput
        *rest, **options
            A mask of a grammar and what else later versions take.

        Returns
        -------
        predict : tensor of int32, shape (B * N,)
            At the slot of each accepted node the token emitted after it, 0 elsewhere.
        accept_lens : tensor of int32, shape (B,)
            Tokens emitted for each request: accepted drafts and one more.
        accept_index : tensor of int32, shape (B, max_tree_depth)
            Slots of the accepted path, the root first, padded with -1.
        """
        settings = batch.sampling_info
        if batch.forward_mode.is_idle() or settings.is_all_greedy:
            return original(verify_input, batch, logits_output, *rest, **options)
        given = [value for value in (*rest, *options.values()) if value is not None]
        for reason in reasons_to_leave(verify_input, settings, logits_output, given):
            if reason not in self._told:
                self._told.add(reason)
                LOG.warning("steps with %s are left to SGLang", reason)
            return original(verify_input, batch, logits_output, *rest, **options)
        return self.sample(verify_input, settings, logits_output.next_token_logits)

    def sample(self, verify_input: Any, settings: Any, logits: torch.Tensor) -> Sampled:
        """Verify a step; see `__call__`.

        Parameters
        ----------
        verify_input : EagleVerifyInput
        settings : SamplingBatchInfo
        logits : tensor, shape (B * N, V)
        """
        count = int(verify_input.draft_token_num)
        candidates = verify_input.draft_token.reshape(-1, count)
        probs = target_probs(logits, settings, count).reshape(*candidates.shape, -1)
        found = sglang_tree(
            candidates=candidates,
            retrieve_index=_either(verify_input, "retrieve_index", "retrive_index"),
            retrieve_next_token=_either(verify_input, "retrieve_next_token", "retrive_next_token"),
            retrieve_next_sibling=_either(
                verify_input, "retrieve_next_sibling", "retrive_next_sibling"
            ),
            target_probs=probs,
            num_speculative_tokens=_width(verify_input),
            rng=self.rng,
            **self._draft(verify_input, probs),
        )
        predict = found.predicts.clamp_min(0)
        return tuple(part.to(torch.int32) for part in (predict, found.emitted, found.accept_index))

    def _draft(self, verify_input: Any, probs: torch.Tensor) -> dict[str, Any]:
        """Say how the drafts came about, and by which rule they are verified."""
        drafted = getattr(verify_input, "draft_probs", None)
        if drafted is None:
            return {"draft": "deterministic", "verifier": "naive"}
        tree = hasattr(verify_input, "mdsd_draft")
        # SGLang's chains have a row for each draft; the last node has no children.
        missing = probs.shape[1] - drafted.shape[1]
        rows = torch.cat([drafted, drafted.new_zeros(len(drafted), missing, drafted.shape[2])], 1)
        return {
            "draft": verify_input.mdsd_draft if tree else "with_replacement",
            "draft_probs": rows.to(probs.dtype),
            "verifier": self.of_trees if tree else self.of_chains,
        }


def reasons_to_leave(
    verify_input: Any, settings: Any, logits_output: Any, given: list[Any]
) -> Iterator[str]:
    """Name what a step has that is left to SGLang.

    Parameters
    ----------
    verify_input, settings, logits_output
        As for `Verification`.
    given : list
        What was given beside them.
    """
    if given:
        yield "a grammar or another argument behind the logits"
    for name, words in _LEFT_ALONE.items():
        value = getattr(settings, name, None)
        if value is not None and value is not False:
            yield words
    if float(os.environ.get("SGLANG_SIMULATE_ACC_LEN") or 0) > 0:
        yield "simulated acceptance"
    if _ranks() > 1:
        yield "more than one rank"
    drafted = getattr(verify_input, "draft_probs", None)
    if drafted is None:
        if _thresholds() != (1.0, 1.0):
            yield "thresholds below 1"
    elif drafted.shape[-1] != logits_output.next_token_logits.shape[-1]:
        yield "draft probabilities of another vocabulary"
    elif not hasattr(verify_input, "mdsd_draft") and _branching(verify_input) != 1:
        yield "draft probabilities of a tree that do not say how they were drawn from"


def target_probs(logits: torch.Tensor, settings: Any, count: int) -> torch.Tensor:
    """Turn logits into what tokens are drawn from, as SGLang does: temperature, top-k, top-p.

    Parameters
    ----------
    logits : tensor, shape (B * N, V)
    settings : SamplingBatchInfo
        ``temperatures``, ``top_ks`` and ``top_ps`` of B requests.
    count : int
        N.

    Returns
    -------
    tensor, shape (B * N, V)
        Of float32, or of float64 if the logits are. All tokens that tie with the last one kept are
        kept.
    """

    def rows(values: torch.Tensor) -> torch.Tensor:
        return values.reshape(-1, 1).repeat_interleave(count, dim=0)

    scores = logits.to(torch.promote_types(logits.dtype, torch.float32))
    probs = torch.softmax(scores / rows(settings.temperatures), dim=-1)
    if settings.need_top_k_sampling:
        ranks = rows(settings.top_ks).long().clamp(1, probs.shape[1])
        largest = torch.topk(probs, int(ranks.max()), dim=-1).values
        probs = _at_least(probs, largest.gather(1, ranks - 1))
    if settings.need_top_p_sampling:
        ordered = probs.sort(dim=-1, descending=True).values
        before = ordered.cumsum(dim=-1) - ordered
        kept = (before < rows(settings.top_ps)).sum(dim=-1, keepdim=True).clamp_min(1)
        probs = _at_least(probs, ordered.gather(1, kept - 1))
    return probs


def _at_least(probs: torch.Tensor, least: torch.Tensor) -> torch.Tensor:
    """Keep what is at least so likely, and normalise."""
    kept = torch.where(probs >= least, probs, 0.0)
    return kept / kept.sum(dim=-1, keepdim=True)


def _either(owner: Any, *names: str) -> Any:
    """Give the first attribute that there is: versions spell them differently."""
    return next(getattr(owner, name) for name in names if hasattr(owner, name))


def _width(verify_input: Any) -> int:
    """Give the width of `accept_index`: most nodes of a path, the root included."""
    width = getattr(verify_input, "max_tree_depth", None)
    return int(verify_input.spec_steps + 1 if width is None else width)


def _branching(verify_input: Any) -> int:
    return int(_either(verify_input, "tree_topk", "topk"))


def _ranks() -> int:
    ready = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_world_size() if ready else 1


def _thresholds() -> tuple[float, float]:
    """Read SGLang's thresholds of acceptance, wherever this version keeps them."""
    try:
        from sglang.srt.runtime_context import get_spec as settings
    except ImportError:
        from sglang.srt.server_args import get_global_server_args as settings
    found = settings()
    return (
        float(found.speculative_accept_threshold_single),
        float(found.speculative_accept_threshold_acc),
    )
