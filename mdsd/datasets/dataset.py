"""The distributions of a target and of its drafts on the same positions, in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mdsd._arguments import shown
from mdsd._frozen import FrozenArrays
from mdsd._typing import FloatArray, IntArray
from mdsd.datasets.mistaken import warn_of_probs
from mdsd.errors import InvalidArgumentError

Kind = Literal["logits", "probs"]


@dataclass(frozen=True, eq=False)
class Dataset(FrozenArrays):
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
    target_table: FloatArray = field(repr=False)
    draft_tables: Mapping[str, FloatArray] = field(repr=False)
    token_ids: IntArray = field(repr=False)
    target_kept_mass: FloatArray = field(repr=False)
    draft_kept_mass: Mapping[str, FloatArray] = field(repr=False)
    provenance: Mapping[str, Any] = field(repr=False)
    target_kind: Kind
    draft_kind: Kind

    def __post_init__(self) -> None:
        super().__post_init__()
        warn_of_probs(self)

    @property
    def num_positions(self) -> int:
        """N, the number of rows."""
        return len(self.target_table)

    @property
    def vocab_size(self) -> int:
        """K, the number of columns."""
        return int(self.target_table.shape[1])


def check_model_names(what: str, names: Iterable[Any]) -> None:
    """Check that names can stand in lists on the command line, in tables and in files.

    Raises
    ------
    InvalidArgumentError
        If one is no str, not printable, holds a comma, or comes twice.
    """
    seen: set[str] = set()
    for name in names:
        if not isinstance(name, str) or name in seen:
            raise InvalidArgumentError(f"{what} holds {shown(name)}; expected different strings")
        if name != name.strip() or not name or not name.isprintable() or "," in name:
            raise InvalidArgumentError(
                f"{what} holds {shown(name)}; expected printable names without commas"
            )
        seen.add(name)
