"""From logits to what tokens are drawn from, by one rule for target and draft models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from mdsd._frozen import frozen
from mdsd._probabilities import as_float_array
from mdsd._typing import AnyArray, BoolArray, FloatArray, TensorLike
from mdsd.decoding.drafted import Rows
from mdsd.errors import InvalidArgumentError, InvalidDistributionError
from mdsd.filters import Filters

LogitsProcessor = Callable[[list[int], AnyArray], TensorLike]
"""Called with a prefix and the logits (V,) of the token that follows; returns the logits to use."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn from logits: a processor, then filters.

    Parameters
    ----------
    filters : Filters
    logits_processor : callable, optional
        Called with a prefix (list of int) and its logits (V,), both its own; returns the logits to
        use.

    Raises
    ------
    InvalidArgumentError
        If `logits_processor` cannot be called.

    Examples
    --------
    >>> Sampling(Filters(top_k=1)).probs([[3]], [[0.0, 2.0, 1.0]], "target").tolist()
    [[0.0, 1.0, 0.0]]
    """

    filters: Filters = field(default_factory=Filters)
    logits_processor: LogitsProcessor | None = None

    def __post_init__(self) -> None:
        if self.logits_processor is not None and not callable(self.logits_processor):
            raise InvalidArgumentError(
                f"logits_processor is {type(self.logits_processor).__name__}; "
                "expected a function of a prefix and its logits"
            )

    def probs(
        self,
        prefixes: Sequence[list[int]],
        logits: ArrayLike,
        name: str,
        *,
        may_be_empty: bool = False,
    ) -> FloatArray:
        """Give the distributions that the tokens after some prefixes are drawn from.

        Parameters
        ----------
        prefixes : sequence of lists of int, length B
        logits : array_like, shape (B, V)
        name : str
            Model they come from, for errors.
        may_be_empty : bool, default False
            Have rows without a token left be 0, and not an error.

        Returns
        -------
        ndarray of float64, shape (B, V)

        Raises
        ------
        InvalidDistributionError
            If a row holds NaN or plus infinity or has no token left.
        """
        rows, process = np.asarray(logits), self.logits_processor
        if process is not None:
            pairs = zip(map(list, prefixes), rows, strict=True)
            rows = np.stack(
                [
                    row if may_be_empty and _is_empty(row) else _processed(process, prefix, row)
                    for prefix, row in pairs
                ]
            )
        if may_be_empty and (empty := _is_empty(rows)).any():
            probs = np.zeros(rows.shape)
            if not empty.all():
                own = replace(self, logits_processor=None)
                probs[~empty] = own.probs([], rows[~empty], name)
            return probs
        try:
            return self.filters.of_logits(rows)
        except InvalidDistributionError as error:
            raise InvalidDistributionError(f"{name}: {error}") from None


def _processed(process: LogitsProcessor, prefix: list[int], row: AnyArray) -> AnyArray:
    changed, _ = as_float_array(process(prefix, row.copy()), "logits_processor")
    if changed.shape != row.shape:
        raise InvalidDistributionError(
            f"logits_processor returned shape {changed.shape}; expected {row.shape}"
        )
    return changed


def _is_empty(logits: AnyArray) -> BoolArray:
    """Tell which rows, (..., V), have no token left."""
    return np.asarray((logits == -np.inf).all(axis=-1))


class FilteredRows:
    """Distributions of the token after each node of a tree, worked out when they are asked for.

    At a large vocabulary the filters cost more than a verification, and a verification level by
    level visits one node of each level only.

    Parameters
    ----------
    sampling : Sampling
    prefixes : list of lists of int, length N + 1
        Tokens up to each node.
    logits : ndarray, shape (N + 1, V), or anything indexed like one
    name : str
        Model they come from, for errors.

    Examples
    --------
    >>> import numpy as np
    >>> rows = FilteredRows(Sampling(), [[0], [0, 1]], np.zeros((2, 4)), "target")
    >>> len(rows), rows[1].tolist()
    (2, [0.25, 0.25, 0.25, 0.25])
    """

    def __init__(
        self, sampling: Sampling, prefixes: list[list[int]], logits: Rows, name: str
    ) -> None:
        self._sampling, self._name = sampling, name
        self._prefixes, self._logits = prefixes, logits
        self._known: dict[int, FloatArray] = {}

    def __len__(self) -> int:
        return len(self._prefixes)

    def __getitem__(self, node: int) -> FloatArray:
        if node not in self._known:
            prefix, logits = self._prefixes[node], self._logits[node]
            row = self._sampling.probs([prefix], logits[np.newaxis], self._name)[0]
            self._known[node] = frozen(row)
        return self._known[node]

    def anew(self) -> FilteredRows:
        """Give the same rows with nothing worked out yet, to measure how long that takes."""
        return FilteredRows(self._sampling, self._prefixes, self._logits, self._name)
