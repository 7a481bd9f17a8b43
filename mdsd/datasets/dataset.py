"""The distributions of a target and of its drafts on the same positions, in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import ArrayLike

from mdsd._arguments import shown
from mdsd._frozen import FrozenArrays
from mdsd._shown import Shown, Words
from mdsd._typing import FloatArray, IntArray
from mdsd.datasets.given import fields_of_arrays
from mdsd.datasets.mistaken import warn_of_probs
from mdsd.datasets.tables import Kind


@dataclass(frozen=True, eq=False, repr=False)
class Dataset(Shown, FrozenArrays):
    """Distributions of a target and of its drafts at N positions, over the same K tokens each.

    Column k of a row is the same token for the target and for every draft. The columns may be a
    selection of the vocabulary that differs from row to row: `token_ids` says which tokens they
    are, and the kept masses how much of each model's probability they hold.

    Attributes
    ----------
    name : str
        Name of the data set, or the file's name without its ending.
    target_table : ndarray of float64, shape (N, K)
        The target's logits or probabilities, as `target_kind` says. A logit of -inf is a token of
        probability 0; padding is one, too.
    draft_tables : mapping of str to ndarray of float64, shape (N, K)
        The same for each draft model, in the order of the file; `draft_kind` says which.
    token_ids : ndarray of int64, shape (N, K)
        The vocabulary id of each column, -1 at padding.
    target_kept_mass : ndarray of float64, shape (N,)
        Probability, under the full distribution of the target, of the tokens in the row; 1 where
        the row is the whole vocabulary.
    draft_kept_mass : mapping of str to ndarray of float64, shape (N,)
        The same for each draft model.
    provenance : mapping
        Where the numbers come from; empty if the file does not say.
    target_kind, draft_kind : {"logits", "probs"}
        Whether the arrays of that side hold logits or probabilities.
    text_ids : ndarray of int64, shape (N,), or None
        Number of the text that each position is of, where the data say: positions of one text have
        much in common, which standard errors by text allow for.

    Warns
    -----
    UserWarning
        If no logit of a model is negative and they sum to 1 in every row: then they may be
        probabilities, which make nearly flat laws if they are taken for logits.

    Examples
    --------
    >>> from mdsd import datasets
    >>> data = datasets.load("smollm2")
    >>> data.num_positions, list(data.draft_tables)
    (144, ['drop2', 'drop3', 'context32', 'context8', 'ngram'])
    """

    name: str
    target_table: FloatArray
    draft_tables: Mapping[str, FloatArray]
    token_ids: IntArray
    target_kept_mass: FloatArray
    draft_kept_mass: Mapping[str, FloatArray]
    provenance: Mapping[str, Any]
    target_kind: Kind
    draft_kind: Kind
    text_ids: IntArray | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        target = (
            (self.target_table, self.target_kept_mass) if self.target_kind == "logits" else None
        )
        drafts = self.draft_tables if self.draft_kind == "logits" else {}
        masses = self.draft_kept_mass
        warn_of_probs(
            self.name,
            target,
            {model: (table, masses.get(model, 1.0)) for model, table in drafts.items()},
        )

    @classmethod
    def from_arrays(
        cls,
        *,
        target_probs: ArrayLike | None = None,
        target_logits: ArrayLike | None = None,
        draft_probs: ArrayLike | Mapping[str, ArrayLike] | None = None,
        draft_logits: ArrayLike | Mapping[str, ArrayLike] | None = None,
        token_ids: ArrayLike | None = None,
        target_kept_mass: ArrayLike | None = None,
        draft_kept_mass: ArrayLike | Mapping[str, ArrayLike] | None = None,
        text_ids: ArrayLike | None = None,
        provenance: Mapping[str, Any] | None = None,
        name: str = "arrays",
    ) -> Dataset:
        """Make a data set of arrays in memory.

        Parameters
        ----------
        target_probs, target_logits : array_like, shape (N, V)
            One of the two.
        draft_probs, draft_logits : mapping of str to array_like, shape (N, V)
            One of the two: a table for each draft model, by its name. Or one array, of shape (N, V)
            or (M, N, V), for models that are called draft_0, draft_1, ...
        token_ids : array_like of int, shape (N, V), optional
            0 to V - 1 in each row if None.
        target_kept_mass : array_like, shape (N,), optional
            1 if None.
        draft_kept_mass : mapping of str to array_like, shape (N,), optional
            For the same models; or one array of shape (M, N).
        text_ids : array_like of int or str, shape (N,), optional
            Which text each position is of; errors of means are then by text.
        provenance : mapping, optional
            Where the numbers come from.
        name : str, default "arrays"
            What studies call it.

        Returns
        -------
        Dataset
            Of copies: float64, read-only; probabilities are renormalised as by `read_npz`.

        Raises
        ------
        InvalidArgumentError
            If neither or both of two were given, or an argument contradicts another.
        InvalidDistributionError
            If an array is not a table of distributions; argument, row and value are named.

        Examples
        --------
        >>> from mdsd.datasets import Dataset
        >>> target = [[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]
        >>> Dataset.from_arrays(
        ...     target_probs=target,
        ...     draft_logits={"small": [[0.0, 0.5, 0.1], [0.2, 0.1, 1.0]]},
        ... )  # doctest: +NORMALIZE_WHITESPACE
        Dataset(name='arrays', num_positions=2, vocab_size=3, target_kind='probs',
                draft_kind='logits', draft_models=['small'])
        """
        arrays = {
            "target_probs": target_probs,
            "target_logits": target_logits,
            "draft_probs": draft_probs,
            "draft_logits": draft_logits,
            "token_ids": token_ids,
            "target_kept_mass": target_kept_mass,
            "draft_kept_mass": draft_kept_mass,
            "text_ids": text_ids,
        }
        return cls(**fields_of_arrays(arrays, provenance, name))

    @property
    def num_positions(self) -> int:
        """N, the number of rows."""
        return len(self.target_table)

    @property
    def vocab_size(self) -> int:
        """K, the number of columns."""
        return int(self.target_table.shape[1])

    def _facts(self) -> dict[str, object]:
        return {
            "name": self.name,
            "num_positions": self.num_positions,
            "vocab_size": self.vocab_size,
            "target_kind": self.target_kind,
            "draft_kind": self.draft_kind,
            "draft_models": Words(shown(list(self.draft_tables))),
            **({} if self.text_ids is None else {"num_texts": len(set(self.text_ids.tolist()))}),
        }
