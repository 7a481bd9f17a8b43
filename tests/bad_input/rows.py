"""Bad input, argument by argument: refused before any work, by one line that names it.

Each test module of this folder has a row for each argument of the public callables it is about and
each kind of bad value. The class of the error is exact, the message is one line that names the
argument and the value (and the row, where there are several), nothing warns and no input changes.
`test_completeness.py` reads the public signatures and fails for an argument without a row.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from mdsd.errors import MdsdError


@dataclass(frozen=True, eq=False)
class Row:
    """One call that must be refused.

    `run` is called with `value`; `words` are what the message must hold.
    """

    call: str
    parameter: str
    kind: str
    run: Callable[[Any], object]
    value: Any
    error: type[MdsdError]
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.call}-{self.parameter}-{self.kind}"

    def check(self) -> None:
        """Check that the call is refused, without a warning and with its value as it was."""
        before = state_of(self.value)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            with pytest.raises(MdsdError) as caught:
                self.run(self.value)
        message = str(caught.value)
        assert caught.type is self.error
        assert [word for word in self.words if word not in message] == [], message
        assert len(message.splitlines()) == 1, message
        assert [str(warning.message) for warning in warned] == []
        assert state_of(self.value) == before


Values = Mapping[str, tuple[Any, ...]]
"""Bad values by kind: the value, then words that a message about it holds."""


def rows(
    call: str,
    parameter: str,
    run: Callable[[Any], object],
    error: type[MdsdError],
    values: Values,
    *,
    named: str | None = None,
    without: tuple[str, ...] = (),
) -> list[Row]:
    """Make the rows of one argument; `named` is what messages call it, if not by its name."""
    return [
        Row(
            call,
            parameter,
            kind,
            run,
            value,
            error,
            (parameter if named is None else named, *words),
        )
        for kind, (value, *words) in values.items()
        if kind not in without
    ]


def state_of(value: Any) -> Any:
    """Give what must not change about an argument."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.flags.writeable, value.tobytes()
    return repr(value)
