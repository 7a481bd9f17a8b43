"""Logs of top log-probabilities: every layout as its server writes it, and all that is refused."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mdsd import acceptance_interval, datasets
from mdsd.datasets import TopLogprobs
from mdsd.errors import InvalidArgumentError, InvalidDistributionError

DRAFT = {" the": -0.4, " a": -1.3}
IDS = {"4": {"logprob": -0.4, "rank": 1}, "6": {"logprob": -1.3, "rank": 2}}


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Path]:
    def save(*lines: Any, name: str = "mine.jsonl") -> Path:
        path = tmp_path / name
        written = (line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
        path.write_bytes(b"".join(line + b"\n" for line in written))
        return path

    return save


@pytest.fixture
def read(save) -> Callable[..., list[Any]]:
    """Read one side of a line; the other has as much of the same kind."""

    def read(side: Any) -> list[Any]:
        log = datasets.read_jsonl(save({"target": side, "draft": side}))
        assert [p.target for p in log.positions] == [p.drafts["draft"] for p in log.positions]
        return [dict(position.target) for position in log.positions]

    return read


# --- layouts -------------------------------------------------------------------------------------

CHAT = json.loads("""
{
  "id": "chatcmpl-123",
  "object": "chat.completion",
  "created": 1702685778,
  "model": "gpt-4o-mini",
  "choices": [
    {
      "index": 0,
      "message": {"role": "assistant", "content": "Hello!"},
      "logprobs": {
        "content": [
          {
            "token": "Hello", "logprob": -0.31725305, "bytes": [72, 101, 108, 108, 111],
            "top_logprobs": [
              {"token": "Hello", "logprob": -0.31725305, "bytes": [72, 101, 108, 108, 111]},
              {"token": "Hi", "logprob": -1.3190403, "bytes": [72, 105]}
            ]
          },
          {
            "token": "!", "logprob": -4.2, "bytes": [33],
            "top_logprobs": [
              {"token": ",", "logprob": -0.4, "bytes": [44]},
              {"token": " there", "logprob": -1.9, "bytes": [32, 116, 104, 101, 114, 101]}
            ]
          }
        ],
        "refusal": null
      },
      "finish_reason": "stop"
    }
  ],
  "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
}
""")
CHAT_READ = [{"Hello": -0.31725305, "Hi": -1.3190403}, {",": -0.4, " there": -1.9}]

COMPLETION = json.loads("""
{
  "id": "cmpl-7",
  "object": "text_completion",
  "choices": [
    {
      "text": " cat sat",
      "index": 0,
      "logprobs": {
        "text_offset": [0, 4, 8],
        "token_logprobs": [null, -0.7, -6.5],
        "tokens": ["The", " cat", " sat"],
        "top_logprobs": [
          null,
          {" cat": -0.7, " dog": -1.1},
          {" is": -0.6, " was": -1.2, " sat": -6.5}
        ]
      },
      "finish_reason": "length"
    }
  ]
}
""")
COMPLETION_READ = [{" cat": -0.7, " dog": -1.1}, {" is": -0.6, " was": -1.2}]

VLLM = json.loads("""
[
  null,
  {
    "791": {"logprob": -3.679518699645996, "rank": 4, "decoded_token": "The"},
    "14924": {"logprob": -1.179518699645996, "rank": 1, "decoded_token": "Question"},
    "755": {"logprob": -2.179518699645996, "rank": 2, "decoded_token": "def"}
  },
  {
    "6864": {"logprob": -9.5, "rank": 812, "decoded_token": " capital"},
    "220": {"logprob": -0.5, "rank": 1, "decoded_token": " "},
    "1917": {"logprob": -2.25, "rank": 2, "decoded_token": " world"}
  },
  {
    "315": {"logprob": -0.125, "rank": 1, "decoded_token": " of"},
    "304": {"logprob": -3.0, "rank": 2, "decoded_token": null}
  }
]
""")
VLLM_READ = [
    {14924: -1.179518699645996, 755: -2.179518699645996},
    {220: -0.5, 1917: -2.25},
    {315: -0.125, 304: -3.0},
]

SGLANG = json.loads("""
{
  "text": " Paris.",
  "output_ids": [12366, 13],
  "meta_info": {
    "id": "5f2c", "finish_reason": {"type": "length", "length": 2}, "prompt_tokens": 2,
    "input_token_logprobs": [[null, 791, null], [-9.5, 6864, null]],
    "output_token_logprobs": [[-0.25, 12366, " Paris"], [-1.75, 13, "."]],
    "input_top_logprobs": [null, [[-0.5, 220, null], [-2.25, 1917, null]]],
    "output_top_logprobs": [
      [[-0.25, 12366, " Paris"], [-2.5, 264, " a"]],
      [[-0.875, 11, ","], [-1.75, 13, "."]]
    ]
  }
}
""")
SGLANG_READ = [{220: -0.5, 1917: -2.25}, {12366: -0.25, 264: -2.5}, {11: -0.875, 13: -1.75}]

LLAMA = json.loads(r"""
{
  "index": 0,
  "content": " 😀.",
  "tokens": [],
  "id_slot": 0,
  "stop": true,
  "model": "gpt-3.5-turbo",
  "tokens_predicted": 2,
  "generation_settings": {"n_probs": 3, "temperature": 1.0, "post_sampling_probs": false},
  "prompt": "<s>Hi",
  "stop_type": "limit",
  "timings": {"prompt_n": 2, "prompt_ms": 21.5},
  "completion_probabilities": [
    {
      "id": 29871, "token": " ", "bytes": [32], "logprob": -0.5,
      "top_logprobs": [
        {"id": 29871, "token": " ", "bytes": [32], "logprob": -0.5},
        {"id": 243, "token": "�", "bytes": [240], "logprob": -1.25},
        {"id": 263, "token": " a", "bytes": [32, 97], "logprob": -3.4028234663852886e+38}
      ]
    },
    {
      "id": 243, "token": "�", "bytes": [240], "logprob": -5.5,
      "top_logprobs": [
        {"id": 29991, "token": "!", "bytes": [33], "logprob": -0.75},
        {"id": 2, "token": "", "bytes": [], "logprob": -1.5},
        {"id": 29889, "token": ".", "bytes": [46], "logprob": -2.0}
      ]
    }
  ]
}
""")
LLAMA_READ = [{" ": -0.5, b"\xf0": -1.25}, {"!": -0.75}]

ENTRIES = CHAT["choices"][0]["logprobs"]["content"]
PLAIN = [{" cat": -0.7, " dog": -1.1}]
LAYOUTS = {
    "plain": (PLAIN[0], PLAIN),
    "plain-of-field-names": ({"content": -0.7, "logprobs": -1.5, "token": -3}, None),
    "plain-many": ([None, PLAIN[0], {}, PLAIN[0]], PLAIN * 2),
    "openai-chat": (CHAT, CHAT_READ),
    "openai-chat-logprobs": ({"logprobs": CHAT["choices"][0]["logprobs"]}, CHAT_READ),
    "openai-chat-content": (CHAT["choices"][0]["logprobs"], CHAT_READ),
    "openai-chat-entries": (ENTRIES, CHAT_READ),
    "openai-chat-entry": (ENTRIES[0], CHAT_READ[:1]),
    "openai-chat-top": (ENTRIES[1]["top_logprobs"], CHAT_READ[1:]),
    "openai-completion": (COMPLETION, COMPLETION_READ),
    "openai-completion-logprobs": (COMPLETION["choices"][0]["logprobs"], COMPLETION_READ),
    "vllm-prompt": ({"prompt_logprobs": VLLM, "outputs": []}, VLLM_READ),
    "vllm-prompt-list": (VLLM, VLLM_READ),
    "vllm-position": (VLLM[2], VLLM_READ[1:2]),
    "vllm-output": ({"logprobs": VLLM[1:], "prompt_logprobs": None}, VLLM_READ),
    "vllm-completion": (
        {"choices": [{"text": "", "logprobs": None, "prompt_logprobs": VLLM}]},
        VLLM_READ,
    ),
    "vllm-chat": (
        {"choices": [{"logprobs": None}], "prompt_logprobs": VLLM},
        VLLM_READ,
    ),
    "sglang": (SGLANG, SGLANG_READ),
    "sglang-position": (SGLANG["meta_info"]["output_top_logprobs"][0], SGLANG_READ[1:2]),
    "sglang-positions": (SGLANG["meta_info"]["output_top_logprobs"], SGLANG_READ[1:]),
    "sglang-positions-of-none": (
        [[], *SGLANG["meta_info"]["output_top_logprobs"]],
        SGLANG_READ[1:],
    ),
    "llama-server": (LLAMA, LLAMA_READ),
    "llama-server-positions": (LLAMA["completion_probabilities"], LLAMA_READ),
    "llama-server-chat": (
        {"choices": [{"logprobs": {"content": LLAMA["completion_probabilities"]}}]},
        LLAMA_READ,
    ),
    "llama-server-of-no-tokens": (
        {"prompt_logprobs": [LLAMA_READ[1], {}, None]} | {"content": ""},
        LLAMA_READ[1:],
    ),
}


@pytest.mark.parametrize(("side", "expected"), LAYOUTS.values(), ids=LAYOUTS)
def test_layout(read, side, expected):
    assert read(side) == ([side] if expected is None else expected)


def test_layouts_of_the_two_sides_may_differ(save):
    path = save({"target": CHAT, "draft": CHAT_READ}, {"target": VLLM, "draft": SGLANG})
    log = datasets.read_jsonl(path)
    assert [position.line for position in log.positions] == [1, 1, 2, 2, 2]
    assert dict(log.positions[0].target) == dict(log.positions[0].drafts["draft"])


def test_several_draft_models(save):
    first = {"target": DRAFT, "drafts": {"small": DRAFT, "tiny": {" a": -0.5}}}
    again = {"target": DRAFT, "drafts": {"tiny": {" the": -0.5}, "small": DRAFT}, "prompt": "x"}
    log = datasets.read_jsonl(save(first, again))
    assert log.draft_models == ("small", "tiny")
    assert [dict(p.drafts["tiny"]) for p in log.positions] == [{" a": -0.5}, {" the": -0.5}]


def test_result_is_frozen_and_counted(save):
    log = datasets.read_jsonl(save({"target": DRAFT, "draft": DRAFT}))
    assert (log.name, log.num_positions, log.draft_models) == ("mine", 1, ("draft",))
    (position,) = log.positions
    with pytest.raises(AttributeError):
        position.line = 3
    with pytest.raises(TypeError):
        position.target[" the"] = 0.0
    with pytest.raises(TypeError):
        position.drafts["draft"] = DRAFT


# --- which tokens are the most probable ones -----------------------------------------------------


def chat(*tokens: tuple[str, float], sampled: str | None = None) -> dict[str, Any]:
    """One entry of a chat endpoint."""
    top = [
        {"token": text, "logprob": value, "bytes": list(text.encode())} for text, value in tokens
    ]
    own = sampled or tokens[0][0]
    return {"token": own, "logprob": -1.0, "bytes": list(own.encode()), "top_logprobs": top}


def completion(sampled: str, **top: float) -> dict[str, Any]:
    return {"tokens": [sampled], "top_logprobs": [top]}


EXTRA = {
    # vLLM cuts the list to its length after putting the sampled token first.
    "first-though-least": (chat(("z", -9.0), ("a", -0.5), ("b", -2.0)), {"a": -0.5, "b": -2.0}),
    "first-and-not-least": (chat(("b", -2.0), ("a", -0.5), ("c", -3.0)), 3),
    "first-as-probable-as-the-next": (chat(("b", -2.0), ("a", -0.5), ("c", -2.0)), 3),
    "least-in-its-place": (chat(("a", -0.5), ("b", -2.0), sampled="b"), 2),
    "alone": (chat(("a", -0.8)), {}),
    "alone-with-most-of-the-mass": (chat(("a", -0.6)), {"a": -0.6}),
    "first-with-all-that-is-left": (chat(("b", math.log(0.3)), ("a", math.log(0.6))), 2),
    "not-in-the-list": (chat(("a", -0.5), ("b", -2.0), sampled="z"), 2),
    "completion-least": (completion("z", a=-0.5, z=-9.0), {"a": -0.5}),
    "completion-not-least": (completion("z", a=-0.5, z=-1.5, b=-9.0), 3),
    "completion-not-there": (completion("z", a=-0.5, b=-9.0), 2),
    "completion-alone": (completion("z", z=-9.0), {}),
    "plain-map": ({"a": -0.5, "z": -9.0}, 2),
    "gap-in-ranks": ({"1": {"logprob": -9.0, "rank": 7}, "2": {"logprob": -1.0, "rank": 2}}, {}),
    "only-the-prompt-token": ({"1": {"logprob": -9.0, "rank": 7}}, {}),
    "equal-ranks": (
        {
            "1": {"logprob": -1.5, "rank": 2},
            "2": {"logprob": -1.5, "rank": 1},
            "3": {"logprob": -1.5, "rank": 2},
        },
        3,
    ),
    "no-ranks": ({"1": {"logprob": -9.0}, "2": {"logprob": -1.0, "rank": None}}, 2),
    # -9999.0: outside the top at OpenAI, minus infinity at vLLM.
    "placeholder": ({"a": -0.5, "z": -9999.0}, {"a": -0.5}),
    "minus-infinity": ({"a": -0.5, "z": -math.inf}, {"a": -0.5}),
    # null: minus infinity at SGLang, which JSON cannot hold.
    "null": ({"a": -0.5, "b": None}, {"a": -0.5}),
    "null-of-a-field-name": ({"a": -0.5, "content": None, "logprobs": None}, {"a": -0.5}),
    "null-in-a-chat": ([{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": None}], 1),
    "null-by-id": ({"3": {"logprob": -0.5, "rank": 1}, "4": {"logprob": None, "rank": 2}}, 1),
    "null-sglang": ([[-0.5, 3, None], [None, 4, None]], {3: -0.5}),
    "null-sampled": (completion("z", a=-0.5, z=None), {"a": -0.5}),
    "null-first": ([[None, 4, None], [-0.5, 3, None]], {3: -0.5}),
    # The sampled token is listed first, and again in its rank.
    "twice-and-most-probable": (
        chat(("a", -0.2), ("a", -0.2), ("b", -2.5)),
        {"a": -0.2, "b": -2.5},
    ),
    "twice-and-least": (
        chat(("z", -3.5), ("a", -0.2), ("b", -2.5), ("z", -3.5)),
        {"a": -0.2, "b": -2.5, "z": -3.5},
    ),
    "twice-alone": (chat(("a", -0.9), ("a", -0.9)), {"a": -0.9}),
    "twice-by-bytes": (
        [
            {"token": "\ufffd", "logprob": -0.2, "bytes": [240, 159]},
            {"token": "bytes:\\xf0\\x9f", "logprob": -0.2, "bytes": None},
        ],
        {b"\xf0\x9f": -0.2},
    ),
    "twice-without-a-name": (chat(("\ufffd", -0.7), ("\ufffd", -0.7), ("a", -2.0)), {}),
    "twice-by-id": ([[-0.5, 3, None], [-0.5, 3, "a"], [-2.5, 4, None]], {3: -0.5, 4: -2.5}),
    "certain": ({"a": 0, "z": -9999}, {"a": 0.0}),
    "a-little-above-zero": ({"a": 4e-5}, {"a": 0.0}),
    # Texts that name no token.
    "no-text": ({"a": -0.9, "": -1.2, "b": -3.0}, {"a": -0.9}),
    "broken-text": ({"a": -0.9, "x\ufffd": -1.2, "b": -3.0}, {"a": -0.9}),
    "broken-text-of-no-mass": ({"a": -0.9, "\ufffd": -9999.0, "b": -3.0}, {"a": -0.9, "b": -3.0}),
    "equal-broken-texts": (
        [{"token": "a", "logprob": -0.9}, *2 * [{"token": "\ufffd", "logprob": -2.0}]],
        {"a": -0.9},
    ),
    "bytes-of-their-own": (
        [
            {"token": "\ufffd", "logprob": -0.9, "bytes": [240, 159]},
            {"token": "\ufffd", "logprob": -2.0, "bytes": [226]},
            {"token": "c", "logprob": -2.0, "bytes": None},
        ],
        {b"\xf0\x9f": -0.9, b"\xe2": -2.0, "c": -2.0},
    ),
    "escaped-bytes": (
        [{"token": "\\xf0\\x9f", "logprob": -0.1, "bytes": [240, 159]}],
        {b"\xf0\x9f": -0.1},
    ),
    "token-ids-as-texts": (
        chat(("token_id:7", -0.2), ("token_id:12", -3.0)),
        {7: -0.2, 12: -3.0},
    ),
    "half-a-surrogate": ({"\ud83d": -0.5}, 1),
    "no-escape-behind-the-prefix": ({"bytes:": -0.5, "bytes:ab": -1.5}, 2),
}


@pytest.mark.parametrize(("side", "expected"), EXTRA.values(), ids=EXTRA)
def test_most_probable_tokens(read, side, expected):
    (found,) = read(side)
    if isinstance(expected, int):
        assert len(found) == expected
    else:
        assert found == pytest.approx(expected)


def spelled(text: str, listed: bytes | None) -> list[dict[str, Any]]:
    return [{"token": text, "logprob": 0.0, "bytes": None if listed is None else list(listed)}]


SPELLINGS = {
    "text": (spelled(" é", " é".encode()), {" é": 0.0}),
    "part-of-a-character": (spelled("\ufffd", b"\xf0\x9f"), {r"bytes:\xf0\x9f": 0.0}),
    "escaped-text": (spelled(r"\xf0\x9f", b"\xf0\x9f"), {r"bytes:\xF0\x9F": 0.0}),
    "equal-bytes": (spelled(r"\xf0\x9f", b"\xf0\x9f"), spelled("\ufffd", b"\xf0\x9f")),
    "equal-bytes-that-are-text": (spelled(r"\xc3\xa9", b"\xc3\xa9"), {"é": 0.0}),
    "behind-a-space": (spelled(" \ufffd", b" \xe2\x80"), {r"bytes: \xe2\x80": 0.0}),
    "quotation-mark": ({r"bytes: \xe2\x80\x9c": 0.0}, {" “": 0.0}),
    "text-without-bytes": (spelled("<|end|>", b""), {"<|end|>": 0.0}),
    "half-a-surrogate": (spelled("?", b"\xed\xa0\xbd"), {"\ud83d": 0.0}),
    "completion": ({"tokens": [r"bytes:\xe2"], "top_logprobs": [{r"bytes:\xe2": 0.0}]}, "chat"),
}


@pytest.mark.parametrize(("target", "draft"), SPELLINGS.values(), ids=SPELLINGS)
def test_a_token_is_its_bytes(save, target, draft):
    if draft == "chat":
        entry = {"token": "\ufffd", "bytes": [226]}
        draft = {"content": [{**entry, "top_logprobs": [{**entry, "logprob": 0.0}]}]}
    (position,) = datasets.read_jsonl(save({"target": target, "draft": draft})).positions
    assert len(position.target) == 1
    assert position.target.keys() == position.drafts["draft"].keys()


def test_a_token_of_two_spellings_counts_once_in_an_interval(save):
    target = {r"bytes:\xf0\x9f": math.log(0.85), "a": math.log(0.15)}
    draft = [
        {"token": "\ufffd", "logprob": math.log(0.95), "bytes": [240, 159]},
        {"token": "a", "logprob": math.log(0.05), "bytes": [97]},
    ]
    (position,) = datasets.read_jsonl(save({"target": target, "draft": draft})).positions
    found = acceptance_interval(position.target, position.drafts["draft"], num_drafts=1)
    assert (found.lower, found.upper) == pytest.approx((0.9, 0.9), abs=1e-11)


def test_equal_keys_of_equal_values_are_one(save):
    line = b'{"target": {"a": -0.5, "b": -1.5, "a": -0.5}, "draft": {"a": -0.5}}'
    (position,) = datasets.read_jsonl(save(line)).positions
    assert dict(position.target) == {"a": -0.5, "b": -1.5}


def test_texts_that_differ_only_in_their_spelling_go_on_alike(save):
    target = [chat(("a", -0.1), sampled="é"), chat(("a", -0.1))]
    entry = target[0] | {"token": r"bytes:\xc3\xa9", "bytes": None}
    assert datasets.read_jsonl(save({"target": target, "draft": [entry, target[1]]})).num_positions


def test_the_last_sampled_tokens_of_a_line_may_differ(save):
    entry = ENTRIES[0] | {"token": "Hi"}
    log = datasets.read_jsonl(save({"target": ENTRIES[0], "draft": entry}))
    assert log.num_positions == 1


# --- lines ---------------------------------------------------------------------------------------


def test_blank_lines_carriage_returns_and_a_byte_order_mark(save):
    line = json.dumps({"target": DRAFT, "draft": DRAFT}).encode()
    path = save(b"", b"\xef\xbb\xbf" + line, name="bad.jsonl")
    with pytest.raises(InvalidArgumentError, match="line 2"):  # not at the beginning
        datasets.read_jsonl(path)
    path = save(b"\xef\xbb\xbf" + line + b"\r", b"", b"  \t\r", line)
    assert [position.line for position in datasets.read_jsonl(path).positions] == [1, 4]


def test_the_last_line_needs_no_end(save):
    path = save({"target": DRAFT, "draft": DRAFT})
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    assert datasets.read_jsonl(str(path)).num_positions == 1


def test_line_separators_of_unicode_end_no_line(save):
    line = '{"target": {"\u2028": -0.5}, "draft": {"\x85": -0.5}}'.encode()
    assert datasets.read_jsonl(save(line)).num_positions == 1


LINE = {"target": DRAFT, "draft": DRAFT}


def test_a_scanned_log_is_the_same(save):
    path = save(LINE, {"target": COMPLETION, "draft": COMPLETION}, LINE)
    held, scanned = datasets.read_jsonl(path), datasets.scan_jsonl(path)
    assert (scanned.name, scanned.draft_models) == (held.name, held.draft_models)
    assert scanned.num_positions == held.num_positions == len(scanned.positions)
    for _ in range(2):
        assert [(p.line, dict(p.target)) for p in scanned.positions] == [
            (p.line, dict(p.target)) for p in held.positions
        ]


def test_a_scanned_log_holds_no_lines(save):
    path = save(*[LINE] * 50)
    assert len(pickle.dumps(datasets.scan_jsonl(path))) < len(path.read_bytes()) / 5


def test_a_scanned_log_notices_changes(save):
    log = datasets.scan_jsonl(save(LINE))
    save(LINE, LINE)
    with pytest.raises(InvalidArgumentError, match=r"mine\.jsonl: has changed"):
        list(log.positions)


def test_nothing_is_scanned_that_cannot_be_read_again(tmp_path):
    mkfifo = getattr(__import__("os"), "mkfifo", None)
    if mkfifo is None:
        pytest.skip("no named pipes here")
    mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(
        InvalidArgumentError, match=r"pipe\.jsonl: is no file that can be read twice"
    ):
        datasets.scan_jsonl(tmp_path / "pipe.jsonl")


# --- errors --------------------------------------------------------------------------------------


def both(side: Any) -> dict[str, Any]:
    return {"target": DRAFT, "draft": side}


def entry(**changes: Any) -> dict[str, Any]:
    return {"token": "a", "logprob": -0.5, "bytes": [97]} | changes


SAMPLED = [chat(("a", -0.1), sampled="a"), chat(("a", -0.1), sampled="a")]
OTHER = [chat(("a", -0.1), sampled="b"), chat(("a", -0.1), sampled="a")]
BAD_LINES: dict[str, tuple[Any, list[str]]] = {
    "not-json": (b"target: 0.5", ["is no JSON", "column 1"]),
    "an-array-over-lines": (b"[", ["is no JSON"]),
    "cut-off": (b'{"target": {"a": -0.5', ["is no JSON", "column"]),
    "huge-integer": (b'{"target": ' + b"9" * 5000 + b"}", ["is no JSON that can be read"]),
    "deep": (b'{"target": ' + b"[" * 100_000, ["is nested too deeply"]),
    "deep-fields": (
        both({"logprobs": None}) | {"target": json.loads('{"logprobs":' * 900 + "1" + "}" * 900)},
        ["is nested too deeply"],
    ),
    "not-utf-8": (b'{"target": {"\xff": -0.5}}', ["is no text in UTF-8", "byte 14 is 0xff"]),
    "utf-16": ('{"target"'.encode("utf-16"), ["is no text in UTF-8", "byte 1 is 0x"]),
    "number": (3, ["is 3", "an object with target and draft"]),
    "list": ([], ["is []"]),
    "no-target": ({"draft": DRAFT}, ["needs target", "keys found: 'draft'"]),
    "no-draft": ({"target": DRAFT, "draft_0": DRAFT}, ["draft, drafts", "'draft_0'"]),
    "no-keys": ({}, ["keys found: none"]),
    "draft-and-drafts": (
        {"target": DRAFT, "draft": DRAFT, "drafts": {"a": DRAFT}},
        ["one of draft, drafts"],
    ),
    "drafts-list": ({"target": DRAFT, "drafts": [DRAFT]}, ["drafts is [", "by name"]),
    "drafts-empty": ({"target": DRAFT, "drafts": {}}, ["drafts is {}"]),
    "draft-name": ({"target": DRAFT, "drafts": {"a,b": DRAFT}}, ["'a,b'", "without commas"]),
    "draft-name-empty": ({"target": DRAFT, "drafts": {"": DRAFT}}, ["drafts has ''"]),
    "side-string": (both("a"), ["draft is 'a'", "map of token to log-probability"]),
    "side-number": (both(0.5), ["draft is 0.5"]),
    "one-side-null": (both(None), ["draft has no log-probabilities at position 0", "target has"]),
    "one-side-empty": (both({}), ["draft has no log-probabilities at position 0"]),
    "one-side-of-no-positions": (both([]), ["target has 1 positions but draft has 0"]),
    "position-null-on-one-side": (
        {"target": [DRAFT, DRAFT], "draft": [DRAFT, None]},
        ["draft has no log-probabilities at position 1"],
    ),
    "positions": (
        {"target": [DRAFT] * 2, "drafts": {"small": [DRAFT] * 3}},
        ["target has 2 positions but small has 3"],
    ),
    "mixed-vocabularies": (
        {"target": IDS, "draft": DRAFT},
        ["target has token ids and draft texts at position 0"],
    ),
    "mixed-drafts": (
        {"target": DRAFT, "drafts": {"one": DRAFT, "two": IDS}},
        ["two has token ids and target texts"],
    ),
    "mixed-in-one-map": (both({"token_id:3": -1.0, "a": -1.0}), ["by id and some by text"]),
    "sampled-differ": (
        {"target": SAMPLED, "draft": OTHER},
        ["target goes on with 'a' at position 0 but draft with 'b'"],
    ),
    "sampled-differ-sglang": (
        {
            "target": SGLANG,
            "draft": {
                "meta_info": SGLANG["meta_info"]
                | {"output_token_logprobs": [[-0.2, 264, None], [-1.0, 13, None]]}
            },
        },
        ["target goes on with 12366 at position 2 but draft with 264"],
    ),
    "choices": (both({"choices": [{}, {}]}), ["draft.choices has 2 entries", "one choice"]),
    "choices-empty": (both({"choices": []}), ["draft.choices has 0 entries"]),
    "nothing-in-a-response": (
        both({"choices": [{"logprobs": None}], "prompt_logprobs": None}),
        ["draft.choices[0].logprobs hold nothing"],
    ),
    "nothing-in-fields": (both({"logprobs": None}), ["draft.prompt_logprobs", "hold nothing"]),
    "both-fields": (
        both({"prompt_logprobs": VLLM, "logprobs": VLLM}),
        ["draft.prompt_logprobs and draft.logprobs are both given"],
    ),
    "content-null": (both({"logprobs": {"content": None}}), ["draft.logprobs.content is null"]),
    "content-without-top": (
        both({"content": [{"token": "a", "logprob": -0.5, "bytes": None}]}),
        ["draft.content[0] has no list of top_logprobs"],
    ),
    "completion-without-top": (
        both({"tokens": ["a"], "token_logprobs": [-0.5], "top_logprobs": None}),
        ["draft.top_logprobs has None", "each of 1 tokens"],
    ),
    "completion-of-other-length": (
        both({"tokens": ["a"], "top_logprobs": [DRAFT, DRAFT]}),
        ["draft.top_logprobs has 2 entries", "each of 1 tokens"],
    ),
    "completion-token": (
        both({"tokens": [3], "top_logprobs": [DRAFT]}),
        ["draft.tokens[0] is 3"],
    ),
    "sglang-without-top": (both({"meta_info": {}}), ["draft.meta_info", "top_logprobs_num"]),
    "llama-server-without-top": (
        both({key: value for key, value in LLAMA.items() if key != "completion_probabilities"}),
        ["draft.completion_probabilities is None", "ask for n_probs"],
    ),
    "llama-server-behind-filters": (
        both(
            {
                "content": " a",
                "completion_probabilities": [
                    {"id": 3, "token": " a", "bytes": [32, 97], "prob": 0.75, "top_probs": []}
                ],
            }
        ),
        ["draft.completion_probabilities[0] has no list of top_logprobs", "post_sampling_probs"],
    ),
    "llama-server-of-old": (
        both(
            {
                "completion_probabilities": [
                    {"content": " a", "probs": [{"prob": 0.75, "tok_str": " a"}]}
                ]
            }
        ),
        ["draft.completion_probabilities[0] has no list of top_logprobs"],
    ),
    "llama-server-null": (both({"completion_probabilities": None}), ["is None", "n_probs"]),
    "choice-without-logprobs": (both({"index": 0, "logprobs": None}), ["hold nothing"]),
    "sglang-field": (
        both({"meta_info": {"input_top_logprobs": 3}}),
        ["draft.meta_info.input_top_logprobs is 3"],
    ),
    "entry-without-token": (both([entry(), {"logprob": -1.0}]), ["draft[1] is", "with a token"]),
    "entry-without-logprob": (both([{"token": "a"}]), ["draft[0] has no logprob"]),
    "entry-of-another-kind": (both([entry(), 3]), ["draft[1] is 3"]),
    "entry-token": (both([entry(), entry(token=3)]), ["draft[1].token is 3", "string"]),
    "entry-bytes": (both([entry(bytes="a")]), ["draft[0].bytes is 'a'"]),
    "entry-bytes-range": (both([entry(bytes=[256])]), ["draft[0].bytes is [256]"]),
    "entry-bytes-number": (both([entry(bytes=10**15)]), ["draft[0].bytes is 1000000000000000"]),
    "id": (both({"a": {"logprob": -0.5}}), ["draft has the key 'a'", "token ids"]),
    "id-negative": (both({"-1": {"logprob": -0.5}}), ["draft has the key '-1'"]),
    "id-of-another-script": (both({"\u0663": {"logprob": -0.5}}), ["draft has the key"]),
    "id-too-long": (both({"9" * 30: {"logprob": -0.5}}), ["draft has the key"]),
    "id-mixed": (both({"3": {"logprob": -0.5}, "4": -1.0}), ["draft['4'] is -1.0"]),
    "id-without-logprob": (both({"3": {"rank": 1}}), ["draft['3'] is {'rank': 1}"]),
    "rank": (both({"3": {"logprob": -0.5, "rank": 0}}), ["draft['3'].rank is 0"]),
    "rank-bool": (both({"3": {"logprob": -0.5, "rank": True}}), ["draft['3'].rank is True"]),
    "rank-missing": (
        both({"3": {"logprob": -0.5, "rank": 1}, "4": {"logprob": -1.0}}),
        ["draft['4'].rank is None"],
    ),
    "triple": (both([[-0.5, 3, None], [-0.5]]), ["draft[1] is [-0.5]", "token id"]),
    "triple-text": (both([[-0.5, "a"]]), ["draft[0] is [-0.5, 'a']"]),
    "triple-id": (both([[-0.5, -3, None]]), ["draft[0] is [-0.5, -3, None]"]),
}
BAD_VALUES: dict[str, tuple[Any, list[str]]] = {
    "nan": (b'{"target": {"a": NaN}, "draft": {}}', ["target['a'] is nan", "log-probability"]),
    "infinity": (b'{"target": {"a": Infinity}, "draft": {}}', ["target['a'] is inf"]),
    "beyond-float": (b'{"target": {"a": 1e999}, "draft": {}}', ["target['a'] is inf"]),
    "positive": (both({"a": 0.25}), ["draft['a'] is 0.25", "<= 0"]),
    "logit": (both([entry(logprob=18.5)]), ["draft[0].logprob is 18.5"]),
    "string": (both({"a": "-0.5"}), ["draft['a'] is '-0.5'"]),
    "bool": (both({"a": False}), ["draft['a'] is False"]),
    "list": (both({"a": [-0.5]}), ["draft['a'] is [-0.5]"]),
    "vllm-nan": (
        b'{"target": [null, {"3": {"logprob": NaN, "rank": 1}}], "draft": {}}',
        ["target[1]['3'].logprob is nan"],
    ),
    "deep-in-a-response": (
        both({"choices": [{"logprobs": {"content": [{"top_logprobs": [entry(logprob=[])]}]}}]}),
        ["draft.choices[0].logprobs.content[0].top_logprobs[0].logprob is []"],
    ),
    "completion-value": (
        both({"tokens": ["a", "b"], "top_logprobs": [None, {"a": 2.0}]}),
        ["draft.top_logprobs[1]['a'] is 2.0"],
    ),
    "sum": (both({"a": -0.1, "b": -0.2}), ["draft holds probabilities that sum to 1.72357"]),
    "twice": (both([entry(), entry(logprob=-1.5)]), ["draft has the token 'a' twice"]),
    "twice-by-bytes": (
        both([entry(token="\ufffd", bytes=[226]), entry(token="\\xe2", bytes=[226], logprob=-3)]),
        [r"draft has the token b'\xe2' twice"],
    ),
    "twice-by-id": (both([[-0.5, 3, None], [-1.5, 3, "a"]]), ["draft has the token 3 twice"]),
    "twice-by-key": (
        both({"7": {"logprob": -0.5}, "07": {"logprob": -2.0}}),
        ["draft has the token 7 twice"],
    ),
    "twice-written-otherwise": (
        both({"é": -0.5, "bytes:\\xc3\\xa9": -1.5}),
        ["draft has the token 'é' twice"],
    ),
    "equal-keys": (
        b'{"target": {"a": -0.5, "b": -1.5, "a": -3.0}, "draft": {}}',
        ["has the key 'a' twice in one object"],
    ),
}


def check(path: Path, error: type[Exception], fragments: list[str]) -> None:
    for read in (datasets.read_jsonl, datasets.scan_jsonl):
        with pytest.raises(error) as caught:
            read(path)
        message = str(caught.value)
        assert caught.type is error
        assert message.startswith(f"{path}: ")
        assert "\n" not in message
        assert [fragment for fragment in fragments if fragment not in message] == [], message


def test_check_notices_a_missing_fragment(save):
    with pytest.raises(AssertionError):
        check(save(both("a")), InvalidArgumentError, ["all is well"])


@pytest.mark.parametrize(("line", "fragments"), BAD_LINES.values(), ids=BAD_LINES)
def test_bad_line(save, line, fragments):
    check(save(LINE, b"", line), InvalidArgumentError, ["line 3: ", *fragments])


@pytest.mark.parametrize(("line", "fragments"), BAD_VALUES.values(), ids=BAD_VALUES)
def test_bad_value(save, line, fragments):
    check(save(LINE, line), InvalidDistributionError, ["line 2: ", *fragments])


def test_a_cut_off_last_line_is_said_to_be_one(save):
    path = save(LINE, LINE)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    check(path, InvalidArgumentError, ["line 2: ", "is no JSON", "may be cut off"])
    path.write_bytes(whole.replace(b"}\n", b"\n"))
    with pytest.raises(InvalidArgumentError) as caught:
        datasets.read_jsonl(path)
    assert "cut off" not in str(caught.value)


def test_draft_models_are_the_same_on_all_lines(save):
    other = {"target": DRAFT, "drafts": {"small": DRAFT}}
    check(save(LINE, other), InvalidArgumentError, ["line 2: has the draft models small", "draft"])


@pytest.mark.parametrize(
    ("make", "fragment"),
    [
        (lambda path: None, "No such file"),
        (lambda path: path.mkdir(), "directory"),
        (lambda path: path.touch(), "is empty"),
        (lambda path: path.write_text("\n  \n"), "is empty"),
        (lambda path: path.write_text('{"target": null, "draft": [{}]}'), "has no position"),
    ],
    ids=["missing", "directory", "empty", "blank", "nothing-known"],
)
def test_bad_file(tmp_path, make, fragment):
    make(tmp_path / "data.jsonl")
    check(tmp_path / "data.jsonl", InvalidArgumentError, [fragment])


def test_the_draft_of_a_made_log_is_what_was_given():
    log = TopLogprobs("mine", ("draft",), ())
    assert (log.num_positions, repr(log)) == (
        0,
        "TopLogprobs(name='mine', draft_models=('draft',))",
    )
