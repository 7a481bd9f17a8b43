"""`tools/smollm2_models.py`, with a tiny model in the place of SmolLM2."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from ..commands import printed, run
from .folders import WORDS, tiny_llama, word_tokenizer

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    return import_module("smollm2_models")


def logits(model):
    with torch.no_grad():
        return model(torch.tensor([[2, 3, 4, 5]]), use_cache=False).logits


def test_copies_lack_layers(tool):
    model = tiny_llama(0, layers=4)
    copy, cut = tool.without_layers(model, ()), tool.without_layers(model, (1, 2))
    assert torch.equal(logits(copy), logits(model))
    assert not torch.equal(logits(cut), logits(model))
    layers = model.model.layers
    model.model.layers = torch.nn.ModuleList([layers[0], layers[3]])
    model.config.num_hidden_layers = 2
    assert torch.equal(logits(cut), logits(model))


def test_folders_can_be_captured(tool, tmp_path, monkeypatch, capsys):
    model, tokenizer = tiny_llama(0, layers=30), word_tokenizer(WORDS)
    monkeypatch.setattr(tool, "load_model", lambda: (model, tokenizer, tmp_path / "weights.gguf"))
    tool.main([str(tmp_path / "models")])
    assert "target, drop2, drop3; 31 prompts" in capsys.readouterr().out
    folders = {name: tmp_path / "models" / name for name in ("target", "drop2", "drop3")}
    said = printed(
        run(
            f"capture {tmp_path}/out --target {folders['target']} --draft-model {folders['drop2']} "
            f"--draft-model {folders['drop3']} --prompts {tmp_path}/models/prompts.jsonl "
            "--positions 50"
        )
    )
    assert "50 positions" in said
    with pytest.raises(SystemExit):
        tool.main([str(tmp_path / "models")])
    assert "no empty folder" in capsys.readouterr().err
