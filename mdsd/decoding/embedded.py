"""A pair of n-gram models with nothing to download: trained on text that ships with Python."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import check_type, check_whole, shown
from mdsd.decoding.ngram import NGramModel
from mdsd.decoding.token_ids import read_sequence
from mdsd.errors import InvalidArgumentError, UnsupportedError

_TOPICS = (
    "assignment",
    "calls",
    "comparisons",
    "compound",
    "execmodel",
    "formatstrings",
    "import",
    "naming",
    "numbers",
    "objects",
    "specialnames",
    "string-methods",
    "strings",
    "types",
    "typesmapping",
    "typesseq",
)
"""Pages of Python's language reference as `help()` shows them; most others are parts of these."""

_VOCAB_SIZE = 4096
_TARGET_ORDER, _DRAFT_ORDER = 4, 2

_PIECES = re.compile(r" ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]|\s")
_RULES = re.compile(r"^[*=~-]{3,}$\n?", re.MULTILINE)


@dataclass(frozen=True)
class PieceVocabulary:
    """Words with the space before them, and single characters to spell the others with.

    Parameters
    ----------
    pieces : tuple of str
        Text of each token id; the first is empty, the end of a text.

    Raises
    ------
    InvalidArgumentError
        If `pieces` is no tuple of strings that are all different, the first one empty.

    Examples
    --------
    >>> vocabulary = PieceVocabulary(("", " ", "a", "b", " the"))
    >>> vocabulary.encode("ab the"), vocabulary.decode([4, 2])
    ([2, 3, 4], ' thea')
    """

    pieces: tuple[str, ...]
    _ids: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_type("pieces", self.pieces, tuple)
        ids = {piece: token for token, piece in enumerate(self.pieces) if isinstance(piece, str)}
        if len(ids) != len(self.pieces) or self.pieces[:1] != ("",):
            raise InvalidArgumentError(
                f"pieces is {shown(self.pieces)}; expected different strings, the first one empty"
            )
        object.__setattr__(self, "_ids", ids)

    @classmethod
    def fit(cls, text: str, vocab_size: int) -> PieceVocabulary:
        """Choose the most frequent pieces of a text.

        Parameters
        ----------
        text : str
        vocab_size : int
            Most pieces; the printable characters of ASCII and the line end are always among them.

        Returns
        -------
        PieceVocabulary

        Raises
        ------
        InvalidArgumentError
            If `text` is no str or `vocab_size` less than 97.
        """
        check_type("text", text, str)
        characters = ["\n", *map(chr, range(32, 127))]
        check_whole("vocab_size", vocab_size, 1 + len(characters))
        counts = Counter(_PIECES.findall(text))
        for character in characters:
            del counts[character]
        frequent = sorted(counts, key=lambda piece: (-counts[piece], piece))
        return cls(("", *characters, *frequent)[:vocab_size])

    @property
    def eos_token_id(self) -> int:
        """The token that ends a text."""
        return 0

    def encode(self, text: str) -> list[int]:
        """Turn text into token ids.

        Parameters
        ----------
        text : str

        Returns
        -------
        list of int

        Raises
        ------
        InvalidArgumentError
            If `text` is no str, or holds a character that no piece can spell.
        """
        check_type("text", text, str)
        found: list[int] = []
        for piece in _PIECES.findall(text):
            for part in (piece,) if piece in self._ids else piece:
                if part not in self._ids:
                    raise InvalidArgumentError(f"text holds {part!r}, which no piece can spell")
                found.append(self._ids[part])
        return found

    def decode(self, token_ids: ArrayLike) -> str:
        """Turn token ids into text.

        Parameters
        ----------
        token_ids : array_like of int, shape (T,)

        Returns
        -------
        str

        Raises
        ------
        InvalidTokenError
            If they are not integers, or one is out of range.
        """
        ids = read_sequence("token_ids", token_ids, len(self.pieces))
        return "".join(self.pieces[token] for token in ids)


@dataclass(frozen=True, eq=False)
class EmbeddedPair:
    """A target and a draft model over one vocabulary.

    Attributes
    ----------
    target, draft_model : NGramModel
        The target counts longer n-grams.
    vocabulary : PieceVocabulary
        Turns text into token ids and back.
    """

    target: NGramModel
    draft_model: NGramModel
    vocabulary: PieceVocabulary


@cache
def embedded_pair() -> EmbeddedPair:
    """Train the embedded pair: 4-grams against 2-grams of Python's language reference.

    Returns
    -------
    EmbeddedPair
        Over at most 4,096 pieces; trained at the first call, in well under a second.

    Raises
    ------
    UnsupportedError
        If this Python comes without the pages that `help()` shows.

    Notes
    -----
    The pages change a little from one version of Python to the next, and so do the models.

    Examples
    --------
    >>> pair = embedded_pair()
    >>> prompt = pair.vocabulary.encode("The operator")
    >>> pair.target.logits([prompt]).shape == (1, pair.target.vocab_size)
    True
    """
    texts = list(python_pages(_TOPICS).values())
    vocabulary = PieceVocabulary.fit("".join(texts), _VOCAB_SIZE)
    ids: list[int] = []
    for text in texts:
        ids += [*vocabulary.encode(text), vocabulary.eos_token_id]
    tokens, size = np.array(ids), len(vocabulary.pieces)
    return EmbeddedPair(
        NGramModel(tokens, size, _TARGET_ORDER),
        NGramModel(tokens, size, _DRAFT_ORDER),
        vocabulary,
    )


def python_pages(names: Sequence[str]) -> dict[str, str]:
    """Read pages of the documentation that comes with Python, as plain text.

    Parameters
    ----------
    names : sequence of str
        As `help()` takes them.

    Returns
    -------
    dict of str to str
        By name; without those that this Python does not have.

    Raises
    ------
    UnsupportedError
        If it has none of them.

    Examples
    --------
    >>> python_pages(["truth"])["truth"].splitlines()[0]
    'Truth Value Testing'
    """
    try:
        topics: dict[str, str] = import_module("pydoc_data.topics").topics
    except ImportError:
        topics = {}
    # Quotation marks and dashes differ between versions; plain text hardly does.
    pages = {
        name: _RULES.sub("", topics[name].encode("ascii", "ignore").decode())
        for name in names
        if name in topics
    }
    if not pages:
        raise UnsupportedError(
            "this Python has no pydoc_data.topics, whose text the embedded models are trained on"
        )
    return pages
