"""Which cases wait for parts of the library that do not exist yet; no case is forgotten."""

from __future__ import annotations

import ast

import pytest

from .reading import CASES, FOLDER, decoded

COMMAND_LINE = "tests/mdsd/test_cli.py, which has the cases of the command line"

WAITING: dict[str, str] = {}
"""Cases without a test in this folder, and what each of them waits for."""

WAITING_IN_PART: dict[str, str] = {}
"""Cases of which a part is tested in this folder, and what the rest waits for."""

COMMAND_LINE_CASES = {name for name, case in CASES.items() if case.kind == "cli"}


def cases_covered(source: str) -> set[str]:
    """Ids given to the `covers...` decorators of the test functions of a module.

    Read from the source, so that it does not matter which modules a run collects.
    """
    tree = ast.parse(source)
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found: set[str] = set()
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef) or not function.name.startswith("test_"):
            continue
        for decorator in function.decorator_list:
            if not isinstance(decorator, ast.Call) or not isinstance(decorator.func, ast.Name):
                continue
            if not decorator.func.id.startswith("covers"):
                continue
            for argument in decorator.args:
                value = argument
                if isinstance(argument, ast.Starred):
                    value = constants[argument.value.id]
                found.update(_strings(value))
    return found


def _strings(node: ast.expr) -> list[str]:
    value = ast.literal_eval(node)
    return [value] if isinstance(value, str) else list(value)


COVERED: set[str] = set()
for _path in sorted(FOLDER.glob("test_*_cases.py")):
    COVERED |= cases_covered(_path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("case_id", CASES)
def test_case_is_covered_or_waits(case_id):
    places = [case_id in COVERED, case_id in WAITING, case_id in COMMAND_LINE_CASES]
    assert sum(places) == 1, dict(zip(("covered", "waiting", "cli"), places, strict=True))


def test_every_id_is_a_case():
    assert set(CASES) >= COVERED | set(WAITING) | set(WAITING_IN_PART)
    assert set(WAITING_IN_PART) <= COVERED


def test_cases_of_the_command_line():
    assert {name for name in CASES if name.startswith("cli-")} == COMMAND_LINE_CASES


class TestHelpers:
    SOURCE = """
TABLES = ("a", "b")
@covers("c")
@each("x")
def test_one(case): ...
@covers_rows(*TABLES)
def test_two(case): ...
@covers("helper")
def helper(case): ...
@other("d")
def test_three(): ...
class TestGroup:
    @covers_plans("e", "f")
    def test_four(self, case): ...
"""

    def test_what_counts_as_covered(self):
        assert cases_covered(self.SOURCE) == {"a", "b", "c", "e", "f"}

    def test_decoded_floats(self):
        text, (infinite, nan, words) = (
            decoded({"rows": ["inf", "nan", "infinite"]}),
            decoded(["-inf", "nan", {"nan": "nan"}]),
        )
        assert text["rows"][0] == float("inf")
        assert text["rows"][1] != text["rows"][1]
        assert text["rows"][2] == "infinite"
        assert infinite == float("-inf")
        assert nan != nan
        assert list(words) == ["nan"]
