"""The loader of .sql files, and the guards that it fills in from the lifecycle table."""

import re
import sqlite3
from pathlib import Path

import pytest

from runtrue import lifecycle
from runtrue.lifecycle import CLAIMABLE, MOVES, OWNED, TERMINAL, Answer, Command, Status
from runtrue.store.statements import fill_guards, load_statements

NAMES = [*Command, *MOVES]
HAVE_ONE_TARGET = [name for name in NAMES if all(len(to) == 1 for to in lifecycle.targets(name).values())]


def load(tmp_path: Path, text: str) -> dict[str, str]:
    file = tmp_path / "some.sql"
    file.write_text(text)
    return load_statements(file)


def value(expression: str, status: str = "") -> object:
    connection = sqlite3.connect(":memory:")
    try:
        return connection.execute(f"SELECT {expression} FROM (SELECT ? AS status)", (status,)).fetchone()[0]
    finally:
        connection.close()


def test_a_file_gives_its_statements_by_name_without_comments_and_semicolons(tmp_path: Path):
    text = (
        "-- About the file.\n\n-- name: one\nSELECT 1;\n\n-- Why two.\n-- name: two\nSELECT '--',\n    -- why\n    2\n"
    )
    assert load(tmp_path, text) == {"one": "SELECT 1", "two": "SELECT '--',\n    2"}


def test_a_trigger_keeps_the_semicolons_inside(tmp_path: Path):
    assert load(tmp_path, "-- name: t\nCREATE TRIGGER t BEGIN SELECT 1; END;\n") == {
        "t": "CREATE TRIGGER t BEGIN SELECT 1; END"
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("-- name: one\nSELECT 1\n-- name: one\nSELECT 2\n", "the name one is given twice"),
        ("SELECT 1\n-- name: one\nSELECT 2\n", "text before the first `-- name:` line"),
        ("-- name: one\nSELECT {{nonsense}}\n", "no placeholder {{nonsense}} is known"),
        ("-- name: one\nSELECT {{from}}\n", "no placeholder {{from}} is known"),
        ("-- name: one\nSELECT {{to:park_blocked}}\n", "leads to several statuses"),
    ],
)
def test_a_mistake_in_a_file_is_named(tmp_path: Path, text: str, why: str):
    with pytest.raises(ValueError, match=re.escape(why)):
        load(tmp_path, text)


def test_a_move_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="nonsense"):
        fill_guards("{{from:nonsense}}")


@pytest.mark.parametrize("name", NAMES)
def test_a_guard_admits_the_statuses_that_the_table_lets_go(name: str):
    guard = fill_guards(f"status IN ({{{{from:{name}}}}})")
    assert [status for status in Status if value(guard, status)] == list(lifecycle.sources(name))


@pytest.mark.parametrize("name", HAVE_ONE_TARGET)
def test_a_target_is_where_the_table_leads(name: str):
    target = fill_guards(f"{{{{to:{name}}}}}")
    reached = {status: value(target, status) for status in Status}
    expected = lifecycle.targets(name)
    assert reached == {status: expected[status][0] if status in expected else None for status in Status}


@pytest.mark.parametrize("command", Command)
def test_the_statuses_that_accept_a_command_are_those_whose_answer_is_no_refusal(command: Command):
    guard = fill_guards(f"status IN ({{{{accepts:{command}}}}})")
    accepting = [status for status in Status if lifecycle.cell(command, status).answer is not Answer.REFUSED]
    assert [status for status in Status if value(guard, status)] == accepting


@pytest.mark.parametrize(("name", "statuses"), [("terminal", TERMINAL), ("owned", OWNED), ("claimable", CLAIMABLE)])
def test_sets_of_statuses_are_lists(name: str, statuses: frozenset[Status]):
    guard = fill_guards(f"status IN ({{{{{name}}}}})")
    assert {status for status in Status if value(guard, status)} == statuses


def test_the_legal_moves_are_words_of_one_text():
    words = value(fill_guards("{{legal_moves}}"))
    assert isinstance(words, str)
    assert words[0] == words[-1] == " "
    assert {tuple(word.split(">")) for word in words.split()} == lifecycle.legal_moves()
