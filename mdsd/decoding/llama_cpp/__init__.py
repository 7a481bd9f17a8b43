"""Language models in GGUF files, run by llama.cpp: no torch is needed.

`GGUFModel` makes a file a model for `mdsd.decoding.generate`, captures and comparisons. It keeps
the keys and values of what has been read, and reads a whole tree in one call.

This package can be imported without llama-cpp-python, which is looked for when a file is loaded.
"""

from __future__ import annotations

from mdsd.decoding.llama_cpp.gguf_model import GGUFModel
from mdsd.decoding.llama_cpp.tokenizer import GGUFTokenizer

__all__ = ["GGUFModel", "GGUFTokenizer"]
