"""What a decoder asks of a model, and the smallest model there is: a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import check_whole
from mdsd._frozen import FrozenArrays, frozen
from mdsd._probabilities import as_float_array, check_probs
from mdsd._typing import AnyArray, FloatArray, TensorLike
from mdsd.errors import InvalidArgumentError, InvalidDistributionError, InvalidTokenError
from mdsd.filters import probs_from_logits


@runtime_checkable
class Model(Protocol):
    """A language model: any object with these two members.

    Attributes
    ----------
    vocab_size : int
        V, the number of token ids.

    Examples
    --------
    A model that knows nothing:

    >>> import numpy as np
    >>> class Uniform:
    ...     vocab_size = 5
    ...     def logits(self, prefixes):
    ...         return np.zeros((len(prefixes), self.vocab_size))
    >>> isinstance(Uniform(), Model)
    True
    """

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""

    def logits(self, prefixes: list[list[int]]) -> TensorLike:
        """Give the logits of the token that follows each prefix.

        Parameters
        ----------
        prefixes : list of lists of int
            Token ids from the beginning of the text on, prompt included; not to be modified. All
            prefixes of one call belong together: the nodes of one tree, or of one level of it.

        Returns
        -------
        array_like of float, shape (B, V)
            Unnormalised log-probabilities; minus infinity for a token that cannot follow.
        """


class TableModel(FrozenArrays):
    """A Markov chain: the distribution of the next token depends on the last one only.

    Parameters
    ----------
    probs : array_like, shape (V, V)
        Row a is the distribution of the token that follows token a.

    Raises
    ------
    InvalidDistributionError
        If `probs` is not square, or a row is not a probability vector.

    Examples
    --------
    >>> model = TableModel([[0.25, 0.75], [1.0, 0.0]])
    >>> model.vocab_size, model.logits([[1, 0]]).round(4).tolist()
    (2, [[-1.3863, -0.2877]])
    """

    def __init__(self, probs: ArrayLike) -> None:
        table = check_probs(probs, "probs", ndim=2)
        if table.shape[0] != table.shape[1]:
            raise InvalidDistributionError(f"probs has shape {table.shape}; expected (V, V)")
        with np.errstate(divide="ignore"):
            self._logits = frozen(np.log(table))

    @classmethod
    def from_logits(cls, logits: ArrayLike) -> TableModel:
        """Make the model from a table of logits.

        Parameters
        ----------
        logits : array_like, shape (V, V)
            Row a belongs to the token that follows token a; minus infinity masks a token.

        Returns
        -------
        TableModel

        Raises
        ------
        InvalidDistributionError
            If the table is not square, or a row holds NaN or plus infinity or has no token left.
        """
        return cls(probs_from_logits(logits))

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return len(self._logits)

    def logits(self, prefixes: Sequence[Sequence[int]]) -> FloatArray:
        """Give the row of the last token of each prefix.

        Parameters
        ----------
        prefixes : sequence of sequences of int
            At least one token each.

        Returns
        -------
        ndarray of float64, shape (B, V)

        Raises
        ------
        InvalidTokenError
            If a prefix is empty, or its last token is no token id of the table.
        """
        return np.asarray(self._logits[[self._last(k, p) for k, p in enumerate(prefixes)]])

    def _last(self, row: int, prefix: Sequence[int]) -> int:
        last = prefix[-1] if len(prefix) else -1
        if not 0 <= last < self.vocab_size:
            ending = f"ends in {last}" if len(prefix) else "is empty"
            raise InvalidTokenError(
                f"prefixes row {row} {ending}; expected a last token in 0..{self.vocab_size - 1}"
            )
        return int(last)


def check_model(name: str, model: Any) -> Any:
    """Check that an argument can be asked for logits.

    Raises
    ------
    InvalidArgumentError
        Naming the argument and what it lacks.
    """
    if isinstance(model, type) or not isinstance(model, Model) or not callable(model.logits):
        raise InvalidArgumentError(
            f"{name} is {type(model).__name__}; expected a model with vocab_size and "
            "logits(prefixes)"
        )
    check_whole(f"vocab_size of {name}", model.vocab_size, 1)
    return model


def model_logits(name: str, model: Model, prefixes: list[list[int]]) -> AnyArray:
    """Ask a model for logits, in one call, and check the form of what it returns.

    Parameters
    ----------
    name : str
        What to call the model in an error.
    model : Model
    prefixes : list of lists of int

    Returns
    -------
    ndarray, shape (B, V)

    Raises
    ------
    InvalidDistributionError
        If it returns something else than (B, V) numbers.
    """
    label = f"logits of {name}"
    rows, _ = as_float_array(model.logits(prefixes), label)
    expected = (len(prefixes), model.vocab_size)
    if rows.shape != expected:
        raise InvalidDistributionError(f"{label} has shape {rows.shape}; expected {expected}")
    return rows
