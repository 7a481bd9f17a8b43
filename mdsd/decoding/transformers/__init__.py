"""Multi-draft speculative decoding for causal language models of transformers.

`multi_draft` is a decoding method for ``generate``, given to it as ``custom_generate``; `CausalLM`
makes a model of transformers one for `mdsd.decoding.generate`. Both keep the keys and values of
what has been read, and have a whole tree read in one forward: its tokens see their own path only,
by a 4-D attention mask, and stand at the positions of their depth.

This package can be imported without torch and transformers, which are looked for when they are
first needed.
"""

from __future__ import annotations

from mdsd.decoding.transformers.causal_lm import CausalLM
from mdsd.decoding.transformers.generation import multi_draft

__all__ = ["CausalLM", "multi_draft"]
