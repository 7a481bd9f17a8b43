"""`mdsd decode` and `mdsd capture` with GGUF files, and no torch."""

from __future__ import annotations

import json
import shlex

import numpy as np
import pytest

from mdsd.datasets import read_capture

from ..commands import assert_refused, printed, run, run_alone

pytest.importorskip("llama_cpp")
pytest.importorskip("gguf")


def decoded(files, arguments, target="target"):
    command = ["decode", "--target", str(files / f"{target}.gguf"), "--prompt", "w1 w2", "--json"]
    return run(shlex.join([*command, *map(str, arguments)]))


def report_of(files, *arguments, **options):
    return json.loads(printed(decoded(files, arguments, **options)))


@pytest.mark.parametrize("draft", ["draft", "other"])
@pytest.mark.parametrize("verifier", ["rrs", "layers"])
def test_greedy_text_does_not_depend_on_the_draft_model(files, load, draft, verifier):
    model = load(files / "target.gguf")
    text = prompt = model.tokenizer.encode("w1 w2")
    for _ in range(10):
        text = [*text, int(model.logits([text])[0].argmax())]
    said = model.tokenizer.decode(text)[len(model.tokenizer.decode(prompt)) :]
    report = report_of(
        files,
        *["--draft-model", files / f"{draft}.gguf", "--verifier", verifier],
        *["--temperature", "0", "--max-new-tokens", "10"],
    )
    assert report["text"] == said
    assert report["settings"]["target"] == str(files / "target.gguf")


def test_a_draft_model_that_is_the_target_is_always_accepted(files):
    (row,) = report_of(
        files,
        *["--draft-model", files / "target.gguf", "--max-new-tokens", "16", "--tree", "1,1,1"],
        *["--draft", "with_replacement", "--verifier", "single"],
    )["rows"]
    # Rounding of one token and of several is not the same.
    assert min(row["acceptance_by_depth"]) > 0.9
    assert row["tokens"] == 16


@pytest.mark.parametrize(
    ("target", "draft", "words"),
    [
        ("nothere", "draft", ["nothere.gguf: No such file"]),
        ("target", "text", ["text.gguf: is no GGUF file"]),
        ("cut", "draft", ["cut.gguf: cannot be loaded"]),
        ("encoder", "draft", ["encoder.gguf: reads texts in both directions"]),
        ("short", "draft", ["made for texts of 12"]),
    ],
)
def test_what_is_refused_is_one_line(files, target, draft, words):
    result = decoded(files, ["--draft-model", files / f"{draft}.gguf"], target=target)
    assert_refused(result, *words)


def test_captures_are_softmaxes_of_plain_evaluation(files, load, plain, tmp_path):
    command = ["capture", tmp_path / "out", "--target", files / "target.gguf", "--top-k", "0"]
    for draft in ("draft", "short"):
        command += ["--draft-model", files / f"{draft}.gguf"]
    printed(run(shlex.join(map(str, [*command, "--prompts", files / "prompts.txt"]))))
    data = read_capture(tmp_path / "out")
    assert list(data.draft_tables) == ["draft", "short"]
    encode = load(files / "target.gguf").tokenizer.encode
    texts = [encode(t) for t in (files / "prompts.txt").read_text().strip().split("\n\n")]
    for name, table in {"target": data.target_table, "draft": data.draft_tables["draft"]}.items():
        read = plain(files / f"{name}.gguf")
        logits = np.concatenate([read(text)[:-1] for text in texts]).astype(np.float64)
        top = logits.max(axis=1, keepdims=True)
        expected = logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True))
        np.testing.assert_allclose(table, expected, atol=1e-4)
    header = json.loads((tmp_path / "out" / "capture.json").read_text())
    described = header["provenance"]["models"]
    assert described["target"]["architecture"] == "llama"
    assert described["target"]["sha256"] != described["draft_0"]["sha256"]
    assert "llama-cpp-python" in header["provenance"]["versions"]
    assert str(files) not in json.dumps(header)


def test_decode_and_capture_of_smollm2_without_torch(smollm2, files, tmp_path):
    """In processes of their own; the text is that of greedy decoding, whatever is drafted."""
    options = ["--target", str(smollm2), "--draft-model", str(files / "target.gguf")]
    text, imported = run_alone(
        *["decode", *options, "--prompt", "The capital of France is", "--temperature", "0"],
        *["--max-new-tokens", "4"],
    )
    assert text.startswith("The capital of France is Paris.")
    assert "llama_cpp" in imported
    assert imported.isdisjoint({"torch", "transformers"})
    said, imported = run_alone(
        *["capture", str(tmp_path / "out"), *options],
        *["--prompts", str(files / "prompts.txt"), "--positions", "5"],
    )
    assert "5 positions" in said
    assert imported.isdisjoint({"torch", "transformers"})
