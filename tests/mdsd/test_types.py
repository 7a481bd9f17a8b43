"""Calls as users write them: mypy checks this file, and what it accepts runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_type

import numpy as np
from numpy.typing import NDArray

import mdsd
from mdsd.analysis import plan_tree
from mdsd.decoding import TableModel, generate

if TYPE_CHECKING:
    import torch

P, Q = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]
Ids = NDArray[np.int64]


def one_position(target: NDArray[np.float32]) -> None:
    draft = mdsd.WithReplacement(np.array(Q), num_drafts=2)
    assert_type(mdsd.acceptance_bound(target, draft).value, float)
    plan = mdsd.get_verifier("optimal", tolerance=1e-6).plan(target, draft)
    assert_type(plan.verify([1, 2], rng=0).token_id, int)
    many = plan.verify_many(
        draft.sample(np.random.default_rng(0), size=4), uniforms=np.zeros((4, 4))
    )
    assert_type(many.accept_index, Ids)
    mdsd.IndependentDrafts([P, Q]), mdsd.IndependentDrafts(np.array([P, Q]))
    mdsd.IndependentDrafts([np.array(P), np.array(Q)])
    mdsd.ExplicitDraft([[0, 1], (2, 0)], probs=[0.5, 0.5], vocab_size=3)
    mdsd.acceptance_interval({"a": -0.4}, {"a": -0.9}, num_drafts=2)
    mdsd.acceptance_interval({7: -0.4}, [{7: -0.9}], draft="independent", num_drafts=1)


def many_positions(target: list[list[float]]) -> None:
    kind = mdsd.HybridDraft.kind(num_top=1)
    mdsd.acceptance_bounds(target, np.array([Q]), draft=kind, num_drafts=2)
    mdsd.acceptance_rates(target, [Q], draft="hybrid:1", num_drafts=2, verifier="rrs", seeds=[3])
    verifier = mdsd.RRSVerifier()
    mdsd.verify_batch(target, [Q], np.array([[1, 2]]), draft="hybrid:1", verifier=verifier, rng=0)


def decode(target: TableModel) -> None:
    calls: list[int] = []
    models = [target, target]
    plan = plan_tree([0.6, 0.2], node_budget=4)
    generate(target, target, [0], max_new_tokens=2, tree=[2, 1], callback=calls.extend)
    generate(target, target, np.array([0]), max_new_tokens=2, tree=plan, temperature=0.5, top_k=2)
    generate(target, models, (0,), max_new_tokens=2, draft="independent", num_drafts=2, rng=1)


def test_calls_run() -> None:
    one_position(np.array(P, dtype=np.float32))
    many_positions([P])
    decode(TableModel.from_logits([P, Q, P]))


def tensors(target: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Nothing runs here: mypy reads it, and torch's own types where torch is installed."""
    draft = mdsd.WithoutReplacement(target[0], num_drafts=2)
    mdsd.get_verifier("rrs").plan(mdsd.probs_from_logits(target[0]), draft).verify(ids[0])
    found = mdsd.verify_batch(target, target, ids, draft="greedy", verifier="greedy")
    rates: torch.Tensor = mdsd.acceptance_rates(target, target, num_drafts=2, verifier="kseq")
    tokens: torch.Tensor = found.token_ids
    return rates[tokens]


class Elsewhere:
    """What mdsd is told of an array of any other library."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


def wrong(target: list[list[float]], elsewhere: Elsewhere) -> None:
    """Every `ignore` is of use: mypy would say so of one that is not."""
    mdsd.acceptance_bounds(elsewhere, elsewhere, num_drafts="2")  # type: ignore[arg-type]
    mdsd.acceptance_bounds(target, object(), num_drafts=2)  # type: ignore[arg-type]
    mdsd.acceptance_rates(target, target, num_drafts=2, verifier=3)  # type: ignore[arg-type]
    mdsd.acceptance_bounds(target, target, draft=mdsd.GreedyDraft, num_drafts=2)  # type: ignore[arg-type]
    mdsd.acceptance_interval({"a": -0.4}, {7: -0.9}, num_drafts=2)  # type: ignore[misc]
    mdsd.acceptance_bound(elsewhere, mdsd.TopKDraft(P, 2))  # type: ignore[arg-type]
