"""Made-up captures for tests and benchmarks: softmax laws, with drafts near the target."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mdsd.datasets import CapturedPosition, CaptureHeader, CaptureWriter

VOCAB_SIZE = 50_000


def synthetic_header(
    *, draft_models: Sequence[str] = ("draft",), vocab_size: int = VOCAB_SIZE, tokens: int = 64
) -> CaptureHeader:
    return CaptureHeader(
        target="target",
        draft_models=tuple(draft_models),
        vocab_size=vocab_size,
        tokenizer_hash="sha256:synthetic",
        top_k=max(tokens // 2, 1),
        provenance={"made": "at random"},
    )


def synthetic_positions(
    count: int,
    *,
    tokens: int = 64,
    num_drafts: int = 1,
    vocab_size: int = VOCAB_SIZE,
    seed: int = 0,
    first: int = 0,
) -> list[CapturedPosition]:
    """Draw positions of at most `tokens` tokens; every tenth begins a text.

    The longest rows have `tokens`, the shortest a twentieth less. Target and draft agree with a
    probability of about 2/3, and the tokens have 95 to 100 percent of the mass.
    """
    rng = np.random.default_rng([seed, first])
    logits = np.empty((1 + num_drafts, count, tokens), dtype=np.float32)
    logits[0] = 3.5 * rng.standard_normal((count, tokens), dtype=np.float32)
    noise = rng.standard_normal((num_drafts, count, tokens), dtype=np.float32)
    logits[1:] = logits[0] + noise
    lengths = rng.integers(tokens - tokens // 20, tokens + 1, count)
    logits[:, np.arange(tokens) >= lengths[:, np.newaxis]] = -np.inf
    logits -= logits.max(axis=-1, keepdims=True)
    kept = rng.uniform(0.95, 1.0, (1 + num_drafts, count))
    mass = np.exp(logits).sum(axis=-1, dtype=np.float64)
    logits += np.log(kept / mass)[..., np.newaxis].astype(np.float32)
    gaps = rng.integers(1, vocab_size // tokens + 1, (count, tokens))
    ids = np.cumsum(gaps, axis=1) - 1
    return [
        CapturedPosition(
            text=(first + row) // 10,
            token=(first + row) % 10,
            token_ids=ids[row, :length],
            target_logprobs=logits[0, row, :length],
            draft_logprobs=logits[1:, row, :length],
            target_kept_mass=float(kept[0, row]),
            draft_kept_mass=kept[1:, row],
        )
        for row, length in enumerate(lengths)
    ]


def write_synthetic_capture(
    folder: Path,
    positions: int,
    *,
    tokens: int = 64,
    draft_models: Sequence[str] = ("draft",),
    vocab_size: int = VOCAB_SIZE,
    seed: int = 0,
    positions_per_shard: int = 1000,
) -> Path:
    """Write a capture of as many positions, or go on with one until it has them."""
    header = synthetic_header(draft_models=draft_models, vocab_size=vocab_size, tokens=tokens)
    writer = CaptureWriter(folder, header)
    while writer.num_positions < positions:
        writer.write_shard(
            synthetic_positions(
                min(positions_per_shard, positions - writer.num_positions),
                tokens=tokens,
                num_drafts=len(draft_models),
                vocab_size=vocab_size,
                seed=seed,
                first=writer.num_positions,
            )
        )
    return folder
