"""What one forward pass costs, in any unit of time, by the number of tokens in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mdsd._arguments import check_number, check_whole, shown
from mdsd.errors import InvalidArgumentError

Cost = float | Mapping[int, float] | Callable[[int], float]
"""One cost for any number of tokens, a measured table by number of tokens, or a function of it."""


def read_cost(value: Cost, name: str, *, positive: bool = False) -> Callable[[int], float]:
    """Read a cost in any of its three forms.

    Parameters
    ----------
    value : float, mapping of int to float, or callable
        A table is interpolated linearly between the numbers of tokens measured and never beyond
        the least and the largest of them.
    name : str
        What to call it in an error.
    positive : bool, default False
        Whether 0 is refused.

    Returns
    -------
    callable
        Cost of one forward pass over a number of tokens; raises `InvalidArgumentError` where a
        table ends or a function gives no such number.

    Raises
    ------
    InvalidArgumentError
        If it is no cost, or an entry of a table is none.

    Examples
    --------
    >>> cost = read_cost({1: 10.0, 5: 12.0}, "target_cost")
    >>> cost(1), cost(3)
    (10.0, 11.0)
    >>> cost(6)
    Traceback (most recent call last):
    ...
    mdsd.errors.InvalidArgumentError: target_cost ends at 5 tokens; the cost of 6 is needed
    """
    if isinstance(value, Mapping):
        return _table(value, name, positive)
    if callable(value):
        return lambda tokens: check_number(f"{name}({tokens})", value(tokens), positive=positive)
    others = ", a table or a function of the number of tokens"
    number = check_number(name, value, positive=positive, otherwise=others)
    return lambda tokens: number


def _table(table: Mapping[Any, Any], name: str, positive: bool) -> Callable[[int], float]:
    if not table:
        raise InvalidArgumentError(f"{name} is empty; expected costs by number of tokens")
    measured = sorted(
        (
            check_whole(f"number of tokens in {name}", tokens, 1),
            check_number(f"{name}[{shown(tokens)}]", cost, positive=positive),
        )
        for tokens, cost in table.items()
    )
    counts, costs = zip(*measured, strict=True)

    def interpolated(tokens: int) -> float:
        if not counts[0] <= tokens <= counts[-1]:
            verb, end = ("starts", counts[0]) if tokens < counts[0] else ("ends", counts[-1])
            plural = "" if end == 1 else "s"
            raise InvalidArgumentError(
                f"{name} {verb} at {end} token{plural}; the cost of {tokens} is needed"
            )
        return float(np.interp(tokens, counts, costs))

    return interpolated
