"""What servers write of laws that are known: intervals hold the truth, the top is what is kept."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

import mdsd
from mdsd import acceptance_interval
from mdsd.datasets.logs import known
from mdsd.datasets.logs.lines import read_line

VOCABULARY = [b" the", b"a", "é".encode(), b"\xf0\x9f", b" \xe2\x80", b"\n", b"bytes:", b"\\"]
KINDS = ("with_replacement", "without_replacement", "greedy")


def text_of(token: bytes) -> str:
    return token.decode("utf-8", "replace")


def escaped(token: bytes) -> str:
    """As OpenAI's completions write it, whole characters too in some answers."""
    if token.isascii():
        return token.decode()
    return "bytes:" + "".join(chr(b) if b < 128 else f"\\x{b:02x}" for b in token)


def name_of(token: bytes) -> str | bytes:
    try:
        return token.decode()
    except UnicodeDecodeError:
        return token


class Law:
    """A law, and what a server knows of it: its k most probable tokens and a sampled one."""

    def __init__(self, probs: np.ndarray, k: int, sampled: int) -> None:
        self.probs, self.k, self.sampled = probs, k, sampled
        self.ranked = np.argsort(-probs, kind="stable").tolist()
        self.top = self.ranked[:k]

    def logprob(self, token: int, of_zero: float | None = -9999.0) -> float | None:
        p = float(self.probs[token])
        return math.log(p) if p > 0.0 else of_zero

    def entry(self, token: int, listed: Callable[[bytes], Sequence[int] | None]) -> dict[str, Any]:
        raw = VOCABULARY[token]
        value = self.logprob(token, -3.4028234663852886e38)
        return {"token": text_of(raw), "logprob": value, "bytes": (got := listed(raw)) and [*got]}

    def chat(self, tokens: list[int], listed: Callable[[bytes], Any] = list) -> dict[str, Any]:
        entries = [self.entry(token, listed) for token in tokens]
        return {"content": [self.entry(self.sampled, listed) | {"top_logprobs": entries}]}


def openai_chat(law: Law) -> Any:
    return {"choices": [{"logprobs": law.chat(law.top)}]}


def openai_completion(law: Law) -> Any:
    listed = law.top if law.sampled in law.top else [*law.top, law.sampled]
    top = {escaped(VOCABULARY[token]): law.logprob(token) for token in listed}
    return {"tokens": [escaped(VOCABULARY[law.sampled])], "top_logprobs": [top]}


def vllm_chat(law: Law) -> Any:
    rest = [token for token in law.top if token != law.sampled]
    listed = [law.sampled, *rest][: max(law.k, 1)]
    return law.chat(listed, lambda raw: list(text_of(raw).encode()))


def vllm_chat_twice(law: Law) -> Any:
    return law.chat([law.sampled, *law.top], lambda raw: list(text_of(raw).encode()))


def llama_server(law: Law) -> Any:
    content = law.chat(law.top)["content"]
    return {"content": "...", "tokens": [], "completion_probabilities": content}


def plain_map(law: Law) -> Any:
    """The position of a completion alone, which does not say what was sampled."""
    return openai_completion(law)["top_logprobs"][0]


def vllm_prompt(law: Law) -> Any:
    return {
        "prompt_logprobs": [
            None,
            {
                str(token): {"logprob": law.logprob(token), "rank": law.ranked.index(token) + 1}
                for token in [law.sampled, *law.top]
            },
        ]
    }


def sglang(law: Law) -> Any:
    value = law.logprob(law.sampled, None)
    return {
        "meta_info": {
            "input_token_logprobs": [[None, 1, None], [value, law.sampled, None]],
            "input_top_logprobs": [None, [[law.logprob(x, None), x, None] for x in law.top]],
        }
    }


BY_TEXT = openai_chat, openai_completion, vllm_chat, vllm_chat_twice, llama_server, plain_map
BY_ID = vllm_prompt, sglang


def random_law(rng: np.random.Generator) -> Law:
    probs = rng.dirichlet(np.full(len(VOCABULARY), rng.choice([0.3, 1.0])))
    probs[rng.random(len(probs)) < 0.15] = 0.0
    probs[0] += 1.0 - probs.sum()
    sampled = int(rng.choice(np.flatnonzero(probs > 0.0)))
    return Law(probs, int(rng.integers(1, len(probs) + 1)), sampled)


def read(law: Law, draft: Law, layouts: tuple[Any, Any]) -> list[dict[Any, float]] | None:
    sides = [layout(side) for layout, side in zip(layouts, (law, draft), strict=True)]
    line = json.dumps(dict(zip(("target", "draft"), sides, strict=True))).encode()
    _, positions = read_line(line, 1)
    if not positions:
        return None
    (position,) = positions
    return [dict(position.target), dict(position.drafts["draft"])]


def instances(family: tuple[Any, ...], count: int = 60) -> Any:
    rng = np.random.default_rng(0)
    for _ in range(count):
        laws = random_law(rng), random_law(rng)
        layouts = tuple(family[rng.integers(len(family))] for _ in laws)
        found = read(*laws, layouts)
        if found is not None:
            yield laws, layouts, found


def outside(family: tuple[Any, ...]) -> list[float]:
    """How far the truth lies outside of its interval, for every kind."""
    distances = []
    for (target, draft), _, found in instances(family):
        logs = [log or {"nobody knows": -math.inf} for log in found]
        for kind in KINDS:
            for n in range(1, 4):
                if kind != "with_replacement" and np.count_nonzero(draft.probs) < n:
                    continue
                bound = partial(mdsd.acceptance_bounds, draft=kind, num_drafts=n)
                (value,) = bound([target.probs], [draft.probs])
                interval = acceptance_interval(*logs, draft=kind, num_drafts=n)
                distances.append(max(interval.lower - value, value - interval.upper))
    return distances


@pytest.mark.parametrize("family", [BY_TEXT, BY_ID], ids=["texts", "ids"])
def test_intervals_hold_the_truth_whatever_the_servers(family):
    distances = outside(family)
    assert len(distances) > 400
    assert max(distances) <= 0.0


def test_a_token_of_two_names_is_caught(monkeypatch):
    """Negative control: escapes taken for texts."""
    monkeypatch.setattr(known, "_ESCAPED", re.compile("(?!)"))
    assert sum(distance > 0.05 for distance in outside(BY_TEXT)) > 10


@pytest.mark.parametrize("family", [BY_TEXT, BY_ID], ids=["texts", "ids"])
def test_what_is_kept_is_the_top(family):
    """All others are at most as probable as the last kept, in a plain map as the last but one."""
    for laws, layouts, found in instances(family):
        for law, layout, kept in zip(laws, layouts, found, strict=True):
            names = [name_of(token) for token in VOCABULARY]
            by_name = dict(zip(names if family is BY_TEXT else range(99), law.probs, strict=False))
            for name, logprob in kept.items():
                assert math.exp(logprob) == pytest.approx(by_name[name], rel=1e-12)
            ranked = sorted(kept, key=kept.__getitem__, reverse=True)
            sure = ranked[:-1] if layout is plain_map else ranked
            others = [p for name, p in by_name.items() if name not in sure]
            assert not sure or not others or by_name[sure[-1]] >= max(others)
