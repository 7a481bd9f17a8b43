"""The vocabulary of a GGUF file: texts as token ids, and what tokens stand for."""

from __future__ import annotations

import ctypes
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mdsd._arguments import check_type
from mdsd.decoding.token_ids import read_sequence
from mdsd.errors import InvalidArgumentError, UnsupportedError

if TYPE_CHECKING:
    from mdsd.decoding.llama_cpp._loaded import LoadedModel


class GGUFTokenizer:
    """The tokenizer of a GGUF file, as llama.cpp runs it.

    Attributes
    ----------
    vocab_size : int
        V.
    pieces : list of bytes
        What each token stands for: text in UTF-8 or a part of it; of control tokens their names.
    eos_token_ids : tuple of int
        Tokens that end a text.
    unk_token_id : int or None
        The token of what has no other.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        self._loaded = loaded
        self.vocab_size = loaded.vocab_size

    def encode(self, text: str) -> list[int]:
        """Turn text into token ids, with those that the model wants before and behind it.

        Names of control tokens in the text are read as these, as in tokenizers of transformers.

        Parameters
        ----------
        text : str

        Returns
        -------
        list of int

        Raises
        ------
        InvalidArgumentError
            If it is no Unicode text, or no string.
        UnsupportedError
            If the file has no tokenizer.
        """
        check_type("text", text, str)
        try:
            given = text.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(f"the text is no Unicode text: {error.reason}") from None
        self._check()
        count = len(given) + 8
        while True:
            found = (ctypes.c_int32 * count)()
            number = self._ask("llama_tokenize", given, len(given), found, count, True, True)
            if number >= 0:
                return list(found[:number])
            count = -number

    def decode(self, token_ids: list[int]) -> str:
        """Turn token ids into text, without control tokens.

        Parameters
        ----------
        token_ids : list of int

        Returns
        -------
        str
            Of bytes that are no UTF-8, replacement characters.

        Raises
        ------
        InvalidTokenError
            If they are not integers in ``0 .. V - 1``.
        UnsupportedError
            If the file has no tokenizer.
        """
        self._check()
        ids = read_sequence("token_ids", token_ids, self.vocab_size)
        pieces = [b"" if self._is_hidden[token] else self.pieces[token] for token in ids]
        text = b"".join(pieces)
        if self._adds_space and text.startswith(b" "):
            text = text[1:]
        return text.decode(errors="replace")

    def get_vocab(self) -> dict[str, int]:
        """Give token ids by what the file calls the tokens, as tokenizers of transformers do."""
        texts = (self._ask("llama_vocab_get_text", token) for token in range(self.vocab_size))
        found: dict[str, int] = {}
        for token, text in enumerate(texts):
            found.setdefault((text or b"").decode(errors="replace"), token)
        return found

    def get_pieces(self) -> dict[tuple[bytes, int, int], int]:
        """Give token ids by what tells tokens apart, in files of any kind.

        Returns
        -------
        dict of tuple to int
            The text that a token stands for, whether that is the name of a control token, and how
            many others before it stand for the same; those of single bytes come last.
        """
        byte = self._loaded.library.LLAMA_TOKEN_ATTR_BYTE
        order = sorted(range(self.vocab_size), key=lambda t: bool(self._attributes[t] & byte))
        counts: dict[tuple[bytes, int], int] = {}
        found = {}
        for token in order:
            key = self.pieces[token], int(self._is_hidden[token])
            counts[key] = number = counts.get(key, -1) + 1
            found[*key, number] = token
        return found

    @cached_property
    def pieces(self) -> list[bytes]:
        """What each token stands for."""
        return [self._piece(token) for token in range(self.vocab_size)]

    @cached_property
    def _attributes(self) -> list[int]:
        return [int(self._ask("llama_vocab_get_attr", t)) for t in range(self.vocab_size)]

    @cached_property
    def _is_hidden(self) -> list[bool]:
        library = self._loaded.library
        hidden = library.LLAMA_TOKEN_ATTR_CONTROL | library.LLAMA_TOKEN_ATTR_UNKNOWN
        return [bool(found & hidden) for found in self._attributes]

    @cached_property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Tokens that end a text."""
        return tuple(
            token for token in range(self.vocab_size) if self._ask("llama_vocab_is_eog", token)
        )

    @cached_property
    def unk_token_id(self) -> int | None:
        """The token of what has no other."""
        unknown = self._loaded.library.LLAMA_TOKEN_ATTR_UNKNOWN
        return next((t for t, found in enumerate(self._attributes) if found & unknown), None)

    @cached_property
    def _adds_space(self) -> bool:
        """Whether a space is put before a text."""
        first = next((t for t in self.encode("a") if not self._is_hidden[t]), None)
        return first is not None and self.pieces[first].startswith(b" ")

    def _piece(self, token: int) -> bytes:
        size = 64
        while True:
            found = ctypes.create_string_buffer(size)
            number = self._ask("llama_token_to_piece", token, found, size, 0, True)
            if number >= 0:
                return found.raw[:number]
            size = -number

    def _check(self) -> None:
        library = self._loaded.library
        if self._ask("llama_vocab_type") == library.LLAMA_VOCAB_TYPE_NONE:
            raise UnsupportedError(f"{self._loaded.name}: holds no tokenizer")

    def _ask(self, name: str, *arguments: Any) -> Any:
        with self._loaded.lock:
            return getattr(self._loaded.library, name)(self._loaded.vocabulary, *arguments)
