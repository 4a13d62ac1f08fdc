"""The tables of guards fit the code and the tests, and the script that removes guards tells what survived."""

import ast
from functools import cache
from pathlib import Path

import pytest
from scripts.mutations import ROOT, Guard, main, read_guards, without

GUARDS = read_guards()


def test_no_two_guards_share_a_name():
    names = [guard.name for guard in GUARDS]
    assert len(set(names)) == len(names) > 150


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_guard_stands_where_its_table_says_and_its_tests_exist(guard: Guard):
    text = (ROOT / guard.file).read_text(encoding="utf-8")
    mutant = without(guard, text)
    assert mutant != text
    if guard.file.endswith(".py"):
        ast.parse(mutant)
    assert guard.breaks
    for test in guard.tests:
        file, _, name = test.partition("::")
        assert (ROOT / file).is_file(), test
        assert not name or name in functions_of(file), test


@cache
def functions_of(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


# ---------------------------------------------------------------- on a project of three lines
CODE = "def half(number):\n    assert number % 2 == 0\n    assert number < 100\n    return number // 2\n"
TESTS = """
import pytest
from halves import half

def test_odd():
    with pytest.raises(AssertionError):
        half(3)

def test_even():
    assert half(4) == 2
"""
ODD = """
[[guard]]
name = "odd"
breaks = "halves are lost"
file = "src/halves.py"
old = "    assert number % 2 == 0"
new = "    pass"
tests = ["tests/test_halves.py"]
"""
LARGE = ODD.replace('"odd"', '"large"').replace("number % 2 == 0", "number < 100")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name, text in {"src/halves.py": CODE, "tests/test_halves.py": TESTS, "scripts/mutations/all.toml": ODD}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_a_guard_that_a_test_watches_is_told_with_the_test(project: Path, capsys: pytest.CaptureFixture[str]):
    page = project / "proof.md"
    assert main(["--report", str(page)], project) == 0
    assert "odd: test_odd\n1 of 1 guards are watched" in capsys.readouterr().out
    assert "| odd | halves are lost | `test_odd` |" in page.read_text()
    assert (project / "src/halves.py").read_text() == CODE, "the project itself is left alone"


def test_a_guard_that_no_test_watches_or_that_is_not_there_has_survived(
    project: Path, capsys: pytest.CaptureFixture[str]
):
    gone = LARGE.replace('"large"', '"large and gone"').replace("< 100", "< 999")
    (project / "scripts/mutations/all.toml").write_text(ODD + LARGE + gone)
    assert main(["--only", "large"], project) == 1
    out = capsys.readouterr().out
    assert "its text occurs 0 times in src/halves.py, not once" in out
    assert out.endswith("0 of 2 guards are watched\nsurvived: large; large and gone\n")


def test_tests_that_are_red_by_themselves_prove_nothing(project: Path, capsys: pytest.CaptureFixture[str]):
    (project / "tests/test_halves.py").write_text(TESTS + "\ndef test_wrong():\n    assert half(4) == 3\n")
    assert main([], project) == 1
    assert capsys.readouterr().out == "red before anything is removed: test_wrong\n"


def test_guards_are_listed_and_none_is_removed(project: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["--list"], project) == 0
    assert capsys.readouterr().out == "odd  (src/halves.py)\n"
