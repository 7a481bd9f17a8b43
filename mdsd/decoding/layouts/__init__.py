"""Verification in the array layouts of serving engines, for numpy arrays and torch tensors.

Each function takes an engine's arrays as they are, draws with `rng` or takes `uniforms`, and
returns a frozen result of the same kind of arrays, on the same device. In all of them

- padding is -1 and never used as an index: a chain or a path ends at its first -1;
- *drafted* counts the drafts before padding, *accepted* those that were kept, without the extra
  token of a step, *emitted* is accepted + 1; counts under an engine's name say what they count;
- how drafts were drawn is never assumed: without `draft_probs` it takes
  ``draft="deterministic"``;
- everything that counts is checked before anything is drawn, and nothing else is looked at;
- no row of a batch depends on the others.

>>> from mdsd.decoding.layouts import flashinfer_chain
>>> found = flashinfer_chain([[[0.0, 1.0]]], [[1]], [[[0.0, 1.0], [1.0, 0.0]]], rng=0)
>>> found.token_ids.tolist()
[[1, 0]]
"""

from mdsd.decoding.layouts.eagle import EagleTree, eagle_tree
from mdsd.decoding.layouts.flashinfer import FlashInferChain, flashinfer_chain
from mdsd.decoding.layouts.sglang import SglangTree, sglang_tree
from mdsd.decoding.layouts.vllm import VllmFlattened, vllm_flattened

__all__ = [
    "EagleTree",
    "FlashInferChain",
    "SglangTree",
    "VllmFlattened",
    "eagle_tree",
    "flashinfer_chain",
    "sglang_tree",
    "vllm_flattened",
]
