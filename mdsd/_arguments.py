"""What every check of an argument shares: reading it, and naming it and its value in one line."""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

import numpy as np

from mdsd._typing import AnyArray, BoolArray, FloatArray
from mdsd.errors import InvalidArgumentError, MdsdError

MOST_WHOLE = 2**31 - 1
"""Largest whole number that a size or a count may be."""


class _Short(reprlib.Repr):
    """Values as Python writes them, cut to what fits a message."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxstring = self.maxother = self.maxlong = 80

    def repr_int(self, x: int, level: int) -> str:
        try:
            return super().repr_int(x, level)
        except ValueError:  # Python refuses to write very long ones
            return f"an integer of {x.bit_length()} bits"


_SHORT = _Short()


def one_line(text: object) -> str:
    """Join the lines of a text, such as that of another library's error."""
    return " ".join(str(text).split())


def shown(value: object) -> str:
    r"""Write a value for a message: in one line, and cut if it is long.

    Examples
    --------
    >>> shown("a\nb"), shown(list(range(100)))
    ("'a\\nb'", '[0, 1, 2, 3, 4, 5, ...]')
    """
    return one_line(_SHORT.repr(value))


def row_name(name: str, row: Iterable[int]) -> str:
    """Name a row of an argument; without row numbers, the argument.

    Examples
    --------
    >>> row_name("logits", (2, 0)), row_name("logits", ())
    ('logits row 2, 0', 'logits')
    """
    place = ", ".join(str(int(index)) for index in row)
    return f"{name} row {place}" if place else name


def refuse_entries(
    name: str,
    values: AnyArray,
    wrong: BoolArray,
    expected: str,
    error: type[MdsdError] = InvalidArgumentError,
) -> None:
    """Refuse an array some entries of which are wrong.

    Parameters
    ----------
    name : str
        What to call it in an error.
    values, wrong : ndarray of one shape, and of bool
        The entries, and whether each of them is wrong.
    expected : str
        What ends the message.
    error : type of MdsdError, default InvalidArgumentError

    Raises
    ------
    MdsdError
        Of the class given, naming row, index and value of the first wrong entry.

    Examples
    --------
    >>> refuse_entries("rates", np.array([0.5, 2.0]), np.array([False, True]), "expected <= 1")
    Traceback (most recent call last):
    ...
    mdsd.errors.InvalidArgumentError: rates: index 1 is 2.0; expected <= 1
    """
    if wrong.any():
        *row, column = index = tuple(np.argwhere(wrong)[0])
        raise error(
            f"{row_name(name, row)}: index {column} is {values[index].item()!r}; {expected}"
        )


def suggestion(name: object, known: Iterable[str]) -> str:
    """End a message about an unknown name with the known one that is meant, if one is close."""
    close = get_close_matches(str(name), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def check_name(what: str, name: Any, known: Iterable[str]) -> str:
    """Check that a name is one of those known.

    Raises
    ------
    InvalidArgumentError
        Naming what is meant, if a known name is close.
    """
    names = tuple(known)
    if not isinstance(name, str) or name not in names:
        raise InvalidArgumentError(
            f"{what} is {shown(name)}; expected one of {', '.join(names)}{suggestion(name, names)}"
        )
    return name


def check_whole(
    name: str, value: Any, least: int, most: float = MOST_WHOLE, *, otherwise: str = ""
) -> int:
    """Check a whole number; bool is none.

    Parameters
    ----------
    name : str
        What to call the argument in an error.
    value : object
    least, most : int
        Its range; ``math.inf`` for no upper end.
    otherwise : str, default ""
        What else the caller accepts, for the message, such as ``" or None"``.

    Raises
    ------
    InvalidArgumentError
        If it is no Python or numpy integer within the range.
    """
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or not least <= value <= most:
        ceiling = f" and <= {most}" if whole and value > most else ""
        raise InvalidArgumentError(
            f"{name} is {shown(value)}; expected an integer >= {least}{ceiling}{otherwise}"
        )
    return int(value)


def check_number(name: str, value: Any, *, positive: bool = False, otherwise: str = "") -> float:
    """Check a finite number >= 0; bool is none.

    Parameters
    ----------
    name : str
        What to call the argument in an error.
    value : object
    positive : bool, default False
        Whether 0 is refused.
    otherwise : str, default ""
        What else the caller accepts, for the message.

    Raises
    ------
    InvalidArgumentError
        If it is no Python or numpy number within the range.
    """
    number = read_number(value)
    if not 0.0 <= number < math.inf or (positive and number == 0.0):
        least = "> 0" if positive else ">= 0"
        raise InvalidArgumentError(
            f"{name} is {shown(value)}; expected a finite number {least}{otherwise}"
        )
    return number


def read_number(value: Any) -> float:
    """Read a real number: NaN for what is none, infinity beyond the range of float64."""
    real = isinstance(value, (int, float, np.integer, np.floating))
    if not real or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def read_array(value: Any, name: str, error: type[MdsdError]) -> AnyArray:
    """Read an argument as an array of whatever type it has.

    Raises
    ------
    MdsdError
        Of the class given, whatever the conversion raised: a tensor that requires a gradient or
        lives on another device has errors of its own.
    """
    try:
        return np.asarray(value)
    except Exception as reason:  # anyone's __array__ is called
        raise error(f"{name} cannot be read as an array: {one_line(reason)}") from None


def read_numbers(
    value: Any,
    name: str,
    fits: Callable[[tuple[int, ...]], bool],
    shape: str,
    *,
    closed: bool = True,
) -> FloatArray:
    """Read an array of numbers from 0 to 1.

    Parameters
    ----------
    value : array_like
    name : str
        What to call it in an error.
    fits : callable
        Whether a shape is one that is expected.
    shape : str
        That shape in words.
    closed : bool, default True
        Whether 1 is one of them.

    Returns
    -------
    ndarray of float64

    Raises
    ------
    InvalidArgumentError
        If it holds something else than such numbers, naming the first, or has another shape.

    Examples
    --------
    >>> read_numbers([1, 0.5], "rates", lambda shape: shape == (2,), "(2,)").tolist()
    [1.0, 0.5]
    """
    if is_bfloat16_tensor(value):
        value = value.float()  # numpy has no such type; every bfloat16 is a float32
    array = read_array(value, name, InvalidArgumentError)
    expected = f"expected numbers in [0, 1{']' if closed else ')'}"
    if array.dtype.kind not in "fiu" and array.dtype.name != "bfloat16":  # that of ml_dtypes
        raise InvalidArgumentError(f"{name} holds {array.dtype.name} values; {expected}")
    if not fits(array.shape):
        raise InvalidArgumentError(f"{name} has shape {array.shape}; expected {shape}")
    with np.errstate(over="ignore"):
        numbers = array.astype(np.float64, copy=False)
    below = numbers <= 1.0 if closed else numbers < 1.0
    refuse_entries(name, numbers, ~((numbers >= 0.0) & below), expected)
    return numbers


def is_bfloat16_tensor(values: Any) -> bool:
    """Tell whether an argument is a torch tensor of the one type that numpy cannot read."""
    return str(getattr(values, "dtype", None)) == "torch.bfloat16"


def read_json_object(name: str, value: Any) -> dict[str, Any]:
    """Copy a mapping by way of JSON, so that it equals what is read back.

    Raises
    ------
    InvalidArgumentError
        If it is none, or JSON cannot hold it.
    """
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(f"{name} is {shown(value)}; expected a mapping")
    try:
        found: dict[str, Any] = json.loads(json.dumps(dict(value), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{name} cannot be JSON: {one_line(error)}") from None
    return found


def check_type(name: str, value: Any, kind: type) -> None:
    """Check that an argument is an object of the library.

    Raises
    ------
    InvalidArgumentError
        Naming the type it has and the one expected.
    """
    if not isinstance(value, kind):
        raise InvalidArgumentError(f"{name} is {type(value).__name__}; expected a {kind.__name__}")
