"""Whether calling an object changes what it returns in later calls, as far as its code shows."""

from __future__ import annotations

import ast
import dis
import inspect
import textwrap
from collections.abc import Iterator
from types import FunctionType
from typing import Any

STATELESS = "stateless"
"""An object with this attribute, true, is taken at its word."""


def kept_state(function: Any) -> str | None:
    """Find something that calls of an object both change and look at.

    Parameters
    ----------
    function : callable
        A function, a bound method, or an object with ``__call__``.

    Returns
    -------
    str or None
        Its name: an attribute, or a variable outside of the function. None if the code, of the call
        and of the object's own methods that it calls, shows none; what is only written, such as a
        record of the calls, is none. Code of transformers itself is not looked at.

    Examples
    --------
    >>> class Counter:
    ...     calls = 0
    ...     def __call__(self, prefix):
    ...         self.calls += 1
    ...         return self.calls > 3
    >>> class Recorder:
    ...     def __init__(self):
    ...         self.seen = []
    ...     def __call__(self, prefix):
    ...         self.seen.append(prefix)
    >>> kept_state(Counter()), kept_state(Recorder())
    ('calls', None)
    """
    if getattr(function, STATELESS, False):
        return None
    owner = getattr(function, "__self__", function)
    call = getattr(function, "__func__", function)
    if not isinstance(call, FunctionType):
        call = inspect.getattr_static(type(function), "__call__", None)
    pending, written, read = [call], set[str](), set[str]()
    for code in pending:  # which grows
        if not isinstance(code, FunctionType) or code.__module__.startswith("transformers."):
            continue
        uses = _Uses(code)
        written |= uses.written
        read |= uses.read
        methods = (inspect.getattr_static(type(owner), name, None) for name in sorted(uses.read))
        pending += [method for method in methods if method not in pending]
    return min(written & read, default=None)


class _Uses:
    """What lives on after a call of a function: the names of what it writes, and of what it reads.

    These are attributes of its first argument and variables from outside.
    """

    def __init__(self, function: FunctionType) -> None:
        self._first = next(iter(inspect.signature(function).parameters), "")
        outer = inspect.getclosurevars(function)
        found = {**outer.globals, **outer.nonlocals}.items()
        self._outer = {name for name, value in found if not inspect.ismodule(value)}
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        except (OSError, SyntaxError):  # typed at a prompt, or part of a longer line
            self._look_at_code(function)
            return
        nodes: list[Any] = list(ast.walk(tree))
        written = [use for node in nodes for use in self._changed(node)]
        self.written = {name for use in written if (name := self._name(use))}
        self.read = {name for use in nodes if use not in written and (name := self._name(use))}

    def _look_at_code(self, function: FunctionType) -> None:
        """Do without the source: with attributes of any object, and with nothing in them."""
        steps = list(dis.get_instructions(function))
        inside = [step for step in steps if step.opname.endswith(("_ATTR", "_METHOD"))]
        self.written = {str(step.argval) for step in inside if step.opname == "STORE_ATTR"}
        self.read = {str(step.argval) for step in inside if step.opname != "STORE_ATTR"}
        for step in steps:
            if step.opname in ("STORE_DEREF", "STORE_GLOBAL") and step.argval in self._outer:
                self.written.add(step.argval)
                self.read.add(step.argval)

    def _name(self, node: Any) -> str | None:
        """Name what a piece of code stands for, if that lives on."""
        if isinstance(node, ast.Name) and node.id in self._outer:
            return node.id
        own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        return node.attr if own and node.value.id == self._first else None

    def _changed(self, node: Any) -> Iterator[Any]:
        """Give the pieces of code that stand for what a statement changes, or changes inside."""
        targets: list[Any] = []
        if isinstance(node, (ast.Assign, ast.Delete)):
            targets = list(node.targets)
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.For)):
            targets = [node.target]
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            # Called for what it does: nobody takes its answer.
            called = node.value.func
            if isinstance(called, ast.Attribute) and self._name(called) is None:
                targets = [called.value]
        while targets:
            target = targets.pop()
            if isinstance(target, (ast.Tuple, ast.List)):
                targets += target.elts
            elif self._name(target):
                yield target
            elif isinstance(target, (ast.Attribute, ast.Subscript, ast.Starred)):
                targets.append(target.value)
            elif isinstance(target, ast.Call):
                targets.append(target.func)
