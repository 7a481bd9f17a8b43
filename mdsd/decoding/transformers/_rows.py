"""Models of transformers asked about several texts at once, each with a tree of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from mdsd._typing import BoolArray, IntArray
from mdsd.decoding.rows import Prefixes
from mdsd.decoding.transformers._caches import CACHE_KEYWORDS, keep_slots, new_cache
from mdsd.decoding.transformers._support import forward_parameters
from mdsd.decoding.transformers._texts import CachedText
from mdsd.errors import InvalidTokenError, UnsupportedError


class CachedRows:
    """A causal language model of transformers, with the keys and values of what it has read.

    Parameters
    ----------
    name : str
        What to call the model in an error.
    model : PreTrainedModel
        That `check_causal` lets pass.
    num_rows : int
    chunk : int, optional
        Most tokens of each prompt to read in one forward; by default all.
    cache : DynamicCache, optional
        An empty one to use.
    """

    def __init__(
        self, name: str, model: Any, num_rows: int, chunk: int | None = None, cache: Any = None
    ) -> None:
        self.name, self._model, self._chunk = name, model, chunk
        self.cache = new_cache(model) if cache is None else cache
        names = forward_parameters(model)
        self._cache_keyword = next(keyword for keyword in CACHE_KEYWORDS if keyword in names)
        self._cuts_logits = "logits_to_keep" in names
        self._texts = [CachedText() for _ in range(num_rows)]
        self._slots = 0  # of the cache

    def logits(self, prefixes: Prefixes) -> list[Any]:
        """Give the logits after some prefixes of each row, in one forward.

        Parameters
        ----------
        prefixes : sequence of lists of lists of int, length B
            Each as long as one token at least; in the first call the row's prompt comes first, and
            is read ahead in chunks.

        Returns
        -------
        list of tensor, length B
            Of shape (number of the row's prefixes, V), on the model's device.

        Raises
        ------
        InvalidTokenError
            If a prefix is empty.
        UnsupportedError
            If the model has not put into the cache what it has read.
        """
        for row, wanted in enumerate(prefixes):
            if not all(wanted):
                raise InvalidTokenError(
                    f"{self.name} is asked about row {row} with no token to read; give a "
                    "MappedModel an unknown_token_id"
                )
        if self._chunk is not None:
            self._read([asked[0][:-1] if asked else [] for asked in prefixes], self._chunk)
        plans = [text.unread(asked) for text, asked in zip(self._texts, prefixes, strict=True)]
        width = max(len(new) for new, _ in plans)
        token_ids, positions = np.zeros((2, len(plans), width), dtype=np.int64)
        visible = np.zeros((len(plans), width, self._slots + width), dtype=np.bool_)
        first = width - 1  # whose logits are wanted
        for row, (new, asked) in enumerate(plans):
            start = width - len(new)
            # What fills up the row sees itself, since it must see something, and nobody sees it.
            filling = np.arange(start)
            visible[row, filling, self._slots + filling] = True
            for column, branch in enumerate(new, start):
                branch.slot = self._slots + column
                token_ids[row, column], positions[row, column] = branch.token_id, branch.position
                self._texts[row].see(visible[row], branch, self._slots)
            first = min([first, *(branch.slot - self._slots for branch in asked)])
        logits = self._forward(token_ids, positions, visible, width - first)
        first += self._slots
        self._slots += width
        return [
            logits[row, [branch.slot - first for branch in asked]]
            for row, (_, asked) in enumerate(plans)
        ]

    def _read(self, prompts: list[list[int]], most: int) -> None:
        """Read prompts ahead, at most so many tokens of each in one forward."""
        self._chunk = None
        for start in range(0, max(map(len, prompts)), most):
            self.logits([[text[: start + most]] if len(text) > start else [] for text in prompts])
            self.keep(list(range(len(prompts))), prompts)

    def _forward(
        self, token_ids: IntArray, positions: IntArray, visible: BoolArray, num_logits: int
    ) -> Any:
        """Run the model; give the logits, (B, `num_logits`, V), of the last tokens."""
        import torch

        device = self._model.device
        arguments = {
            "input_ids": torch.as_tensor(token_ids, device=device),
            "position_ids": torch.as_tensor(positions, device=device),
            "attention_mask": self._mask(visible),
            self._cache_keyword: self.cache,
            "use_cache": True,
            "return_dict": True,
        }
        if self._cuts_logits:
            arguments["logits_to_keep"] = num_logits
        with torch.no_grad():
            logits = self._model(**arguments).logits
        read = self.cache.get_seq_length()
        if read != visible.shape[-1]:
            raise UnsupportedError(
                f"{self.name} ({type(self._model).__name__}) has {read} slots in its cache after "
                f"reading {visible.shape[-1]}; only models that use the cache they are given are "
                "supported"
            )
        return logits[:, -num_logits:]

    def _mask(self, visible: BoolArray) -> Any:
        """Write what is visible in the form that the attention takes: (B, 1, T, S)."""
        import torch

        mask = torch.as_tensor(visible[:, np.newaxis], device=self._model.device)
        if self._model.config.get_text_config(decoder=True)._attn_implementation == "sdpa":
            return mask
        lowest = torch.finfo(self._model.dtype).min
        added = torch.zeros(mask.shape, dtype=self._model.dtype, device=mask.device)
        return added.masked_fill(~mask, lowest)

    def keep(self, rows: list[int], prefixes: list[list[int]]) -> None:
        """Go on with some of the rows, each from what has been read of a prefix.

        Parameters
        ----------
        rows : list of int
        prefixes : list of lists of int, as many
        """
        self._texts = [self._texts[row] for row in rows]
        kept = [text.keep(prefix) for text, prefix in zip(self._texts, prefixes, strict=True)]
        slots = np.tile(np.arange(max(map(len, kept), default=0)), (len(kept), 1))
        for row, places in enumerate(kept):
            slots[row, : len(places)] = places
        keep_slots(self.cache, rows, slots)
        self._slots = slots.shape[1]
