"""Whether calling an object changes what it returns in later calls, as far as its code shows."""

from __future__ import annotations

import ast
import dis
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
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
        and of the methods that it calls, of the object and of those that it holds, shows none; what
        is only written, such as a record of the calls, is none. Code of transformers itself is not
        looked at, and there is none to look at where compiled code keeps the state.

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
    return _state_of(owner, [call], set())


def _state_of(owner: Any, calls: Iterable[Any], seen: set[int]) -> str | None:
    """Find what calls of some functions, the methods of an object, change and look at."""
    seen.add(id(owner))
    pending, written, read = list(calls), set[str](), set[str]()
    helpers: dict[int, tuple[Any, list[Any]]] = {}
    for code in pending:  # which grows
        if not isinstance(code, FunctionType) or code.__module__.startswith("transformers."):
            continue
        uses = _Uses(code, owner)
        written |= uses.written
        read |= uses.read
        methods = (inspect.getattr_static(type(owner), name, None) for name in sorted(uses.read))
        pending += [method for method in methods if method not in pending]
        for helper, method in uses.helpers:
            helpers.setdefault(id(helper), (helper, []))[1].append(method)
    found = min(written & read, default=None)
    for number, (helper, methods_called) in helpers.items():
        if found is None and number not in seen:
            found = _state_of(helper, methods_called, seen)
    return found


class _Uses:
    """What lives on after a call of a function: the names of what it writes, and of what it reads.

    These are attributes of its first argument and variables from outside.
    """

    def __init__(self, function: FunctionType, owner: Any) -> None:
        self._owner = owner
        self._first = next(iter(inspect.signature(function).parameters), "")
        outer = inspect.getclosurevars(function)
        found = {**outer.globals, **outer.nonlocals}
        self._outer = {name: it for name, it in found.items() if not inspect.ismodule(it)}
        self.helpers: list[tuple[Any, Any]] = []
        tree = _source_tree(function)
        if tree is None:
            self._look_at_code(function)
            return
        nodes: list[Any] = list(ast.walk(tree))
        written = [use for node in nodes for use in self._changed(node)]
        self.written = {name for use in written if (name := self._name(use))}
        self.read = {name for use in nodes if use not in written and (name := self._name(use))}
        for node in nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                held = self._held(node.func.value)
                method = inspect.getattr_static(type(held), node.func.attr, None)
                self.helpers.append((held, method))

    def _held(self, node: Any) -> Any:
        """Find the object that a piece of code stands for, or the first of those in a container."""
        if isinstance(node, ast.Subscript):
            held = self._held(node.value)
            values = held.values() if isinstance(held, dict) else held
            return next(iter(values), None) if isinstance(held, (dict, list, tuple)) else None
        name = self._name(node)
        if name is None:
            return None
        if isinstance(node, ast.Name):
            return self._outer[name]
        return getattr(self._owner, "__dict__", {}).get(name)

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


def _source_tree(function: FunctionType) -> ast.AST | None:
    """Parse the source of a function; None if there is none, or it is not that of its code."""
    try:
        source = textwrap.dedent(inspect.getsource(function))
        tree = ast.parse(source)
    except (OSError, SyntaxError):  # typed at a prompt, or part of a longer line
        return None
    code = function.__code__
    # A file that has changed since it was imported shows other lines.
    names = {*code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars}
    words = set(re.findall(r"\w+", source))
    known = {part for name in names if name.isidentifier() for part in name.split(".")}
    return tree if known - {"__class__"} <= words else None
