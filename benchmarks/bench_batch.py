"""Batches of 64 positions, in multiples of 64 argsorts of one row's ratios; and a peer's RRS."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

import mdsd

ROWS = 64
NUM_DRAFTS = 4

DRAFTS = {
    "with_replacement": mdsd.WithReplacement,
    "without_replacement": mdsd.WithoutReplacement,
    "greedy": mdsd.GreedyDraft,
    "spechub": lambda draft_probs, _: mdsd.SpecHubDraft(draft_probs),
    "top_k": mdsd.TopKDraft,
}

PAIRS = [
    ("single", "with_replacement"),
    ("naive", "with_replacement"),
    ("naive_tree", "with_replacement"),
    ("rrs", "with_replacement"),
    ("rrs", "without_replacement"),
    ("kseq", "with_replacement"),
    ("optimal", "with_replacement"),
    ("greedy", "greedy"),
    ("spechub", "spechub"),
]


@dataclass(frozen=True)
class Batch:
    """Rows like the one that `peaked` has, and the sorts that a batch is measured against."""

    target: np.ndarray
    draft: np.ndarray
    argsort_seconds: float


@pytest.fixture(scope="session")
def batch(peaked, make_laws):
    target, draft = make_laws(np.random.default_rng(1), (ROWS, len(peaked.target)))
    return Batch(target, draft, ROWS * peaked.argsort_seconds)


def num_drafts(verifier, draft):
    return 1 if verifier == "single" else 2 if draft == "spechub" else NUM_DRAFTS


def drawn(batch, draft, n):
    return np.array([DRAFTS[draft](q, n).sample(row) for row, q in enumerate(batch.draft)])


@pytest.mark.parametrize("draft", DRAFTS)
def test_bounds(measure, batch, draft):
    if draft == "without_replacement" and batch.target.shape[1] > 32_000:
        pytest.skip("seconds a batch: see bench_bounds for one row")
    measure(
        lambda: mdsd.acceptance_bounds(
            batch.target, batch.draft, draft=draft, num_drafts=num_drafts(None, draft)
        ),
        batch,
        quality=lambda bounds: f"mean bound {bounds.mean():.6f}",
    )


@pytest.mark.parametrize(("verifier", "draft"), [*PAIRS, ("naive", "without_replacement")])
def test_rates(measure, batch, verifier, draft):
    if verifier == "naive" and draft == "without_replacement" and batch.target.shape[1] > 32_000:
        pytest.skip("seconds a batch")
    chosen = mdsd.get_verifier(verifier)
    if verifier == "rrs":
        chosen = mdsd.RRSVerifier(monte_carlo_paths=256)
    measure(
        lambda: mdsd.acceptance_rates(
            batch.target,
            batch.draft,
            draft=draft,
            num_drafts=num_drafts(verifier, draft),
            verifier=chosen,
            seeds=np.arange(ROWS),
        ),
        batch,
        quality=lambda rates: f"mean rate {rates.mean():.6f}",
    )


@pytest.mark.parametrize(("verifier", "draft"), PAIRS)
def test_verify(measure, batch, verifier, draft):
    n = num_drafts(verifier, draft)
    ids = drawn(batch, draft, n)

    def verify():
        return mdsd.verify_batch(
            batch.target, batch.draft, ids, draft=draft, verifier=verifier, rng=0
        )

    measure(verify, batch, quality=lambda found: f"accepted {(found.accept_index >= 0).sum()}/64")


@pytest.mark.parametrize(("verifier", "draft"), PAIRS)
def test_plans_one_by_one(measure, batch, verifier, draft):
    """What a batch replaces; four rows, counted as 64."""
    n, rows = num_drafts(verifier, draft), 4
    ids = drawn(batch, draft, n)
    chosen = mdsd.get_verifier(verifier)

    def verify():
        laws = [DRAFTS[draft](q, n) for q in batch.draft[:rows]]
        plans = [chosen.plan(p, law) for p, law in zip(batch.target, laws, strict=False)]
        return [plan.verify(row, 0) for plan, row in zip(plans, ids, strict=False)]

    share = replace(batch, argsort_seconds=batch.argsort_seconds * rows / ROWS)
    measure(verify, share, quality=lambda found: f"{len(found)} rows")


def test_rrs_without_replacement_of_economize(measure, batch):
    """The same tuples in its recursive rejection of trees, a root with n children.

    It needs the law of every draft as a tensor (B, n, V), made outside the clock, and draws in
    float32 one token more where a draft was accepted.
    """
    verifiers = pytest.importorskip("economize.decoding.verifiers")
    import torch
    from economize.decoding.protocols import Draft

    n = NUM_DRAFTS
    ids = drawn(batch, "without_replacement", n)
    laws = np.empty((ROWS, n, batch.draft.shape[1]), dtype=np.float32)
    left = batch.draft.copy()
    for k in range(n):
        laws[:, k] = left / left.sum(axis=1, keepdims=True)
        np.put_along_axis(left, ids[:, k : k + 1], 0.0, axis=1)
    target = torch.tensor(batch.target, dtype=torch.float32)[:, None].expand(-1, n + 1, -1)
    draft = Draft(torch.tensor(ids), [n] * ROWS, torch.full((ROWS, n), -1), torch.tensor(laws))

    class Given:
        """A selector to which the target's probabilities are known."""

        greedy = False

        def select_many(self, logits):
            return None

        def distribution(self, logits, history):
            return logits

        def distributions(self, logits):
            return logits

    verifier = object.__new__(verifiers.RejectionVerifier)
    measure(
        lambda: verifier.verify_tree(target, draft, Given()),
        batch,
        quality=lambda found: f"accepted {sum(map(bool, found[0]))}/64",
    )
