"""The table of the lifecycle, judged as data. What the store makes of it is tested with the store."""

import ast
import inspect
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from runtrue import lifecycle
from runtrue.lifecycle import (
    CLAIMABLE,
    CLOSED_BY_ANSWER,
    CLOSED_BY_RESUME,
    MOVES,
    OWNED,
    TABLE,
    TERMINAL,
    Answer,
    Cell,
    Command,
    HoldKind,
    Status,
    available_actions,
    cell,
    legal_moves,
    refusal,
    sources,
    targets,
)

ROOT = Path(__file__).resolve().parents[2]
CELLS = [(command, status) for command in Command for status in Status]
NAMES = [*(command.value for command in Command), *MOVES]

# The table as it was agreed, written a second time by hand: a change of one of the two alone is noticed.
# `name!` done, `name?` requested, `=!` and `=?` fulfilled or requested already, `!` changes something beside the
# status, `x` refused. In the order of Status.
AGREED = {
    Command.PAUSE: "paused! pausing? paused! =? ! x x x x",
    Command.RESUME: "x x x running! pending! x x x x",
    Command.CANCEL: "cancelled! cancelling? cancelled! cancelling? cancelled! =? x x =!",
    Command.TERMINATE: "cancelled! cancelled! cancelled! cancelled! cancelled! cancelled! x x =!",
    Command.ANSWER: "x x x x pending! x x x x",
    Command.SEND: "! ! pending! ! ! x x x x",
}


def short(found: Cell) -> str:
    if found.answer is Answer.REFUSED:
        return "x"
    mark = {Answer.DONE: "!", Answer.REQUESTED: "?"}[found.answer]
    return f"{found.to or ''}{mark}" if found.changes else f"={mark}"


@pytest.mark.parametrize("command", Command)
def test_the_table_says_what_was_agreed(command: Command):
    assert " ".join(short(cell(command, status)) for status in Status) == AGREED[command]


def test_the_table_has_a_cell_for_each_command_in_each_status():
    assert set(TABLE) == set(Command)
    for row in TABLE.values():
        assert list(row) == list(Status)


@pytest.mark.parametrize(("command", "status"), CELLS)
def test_a_refused_caller_reads_a_sentence_and_nobody_else_does(command: Command, status: Status):
    found, sentence = cell(command, status), refusal(command, status)
    if found.answer is not Answer.REFUSED:
        assert sentence == ""
        return
    assert len(sentence.split()) >= 4
    assert "{" not in sentence
    # The reader learns which status stands in the way.
    assert status.value in sentence or "being cancelled" in sentence
    assert found.to is None
    assert not found.changes


@pytest.mark.parametrize(("command", "status"), CELLS)
def test_a_cell_that_changes_nothing_leads_nowhere(command: Command, status: Status):
    found = cell(command, status)
    if not found.changes:
        assert found.to is None
    assert found.to is not status


@pytest.mark.parametrize(("command", "status"), CELLS)
def test_only_a_run_that_a_worker_owns_answers_requested(command: Command, status: Status):
    if cell(command, status).answer is Answer.REQUESTED:
        assert status in OWNED


def test_a_requested_command_leads_to_the_status_that_says_so():
    requested = {(c, cell(c, s).to) for c, s in CELLS if cell(c, s).answer is Answer.REQUESTED and cell(c, s).changes}
    assert requested == {(Command.PAUSE, Status.PAUSING), (Command.CANCEL, Status.CANCELLING)}


def test_terminal_is_never_left():
    assert not {(leaving, to) for leaving, to in legal_moves() if leaving in TERMINAL}
    for status in TERMINAL:
        assert available_actions(status) == ()


def test_an_acknowledged_cancel_leads_to_cancelled_only():
    assert {to for leaving, to in legal_moves() if leaving is Status.CANCELLING} == {Status.CANCELLED}


def test_each_owned_status_has_a_release_and_each_free_one_has_none():
    assert set(sources("release")) == OWNED
    for reached in targets("release").values():
        assert not set(reached) & OWNED


def test_each_owned_status_can_finish_in_each_way():
    for name in ("finish_completed", "finish_failed", "finish_cancelled"):
        assert set(sources(name)) == OWNED
        assert {to for reached in targets(name).values() for to in reached} <= TERMINAL


def test_a_run_becomes_owned_by_a_claim_and_by_nothing_else():
    assert set(sources("claim")) == CLAIMABLE
    into = {(leaving, to) for leaving, to in legal_moves() if to in OWNED and leaving not in OWNED}
    assert into == {(status, Status.RUNNING) for status in CLAIMABLE}


def test_a_pause_that_was_asked_is_the_only_ground_to_park_as_requested():
    assert sources("park_requested") == (Status.PAUSING,)


def test_a_run_cannot_wait_while_a_pause_is_asked():
    assert targets("park_blocked")[Status.PAUSING] == (Status.PAUSED,)


@pytest.mark.parametrize("status", Status)
def test_each_status_is_reached_and_each_open_one_can_end_in_each_way(status: Status):
    assert status is Status.PENDING or any(to is status for _, to in legal_moves())
    reached, edge = {status}, {status}
    while edge:
        edge = {to for leaving, to in legal_moves() if leaving in edge} - reached
        reached |= edge
    if status in TERMINAL:
        assert reached == {status}
    elif status is Status.CANCELLING:
        assert reached & TERMINAL == {Status.CANCELLED}
    else:
        assert reached >= TERMINAL


def test_legal_moves_are_those_of_the_table_and_the_engine_and_never_stand_still():
    expected = {(leaving, to) for name in NAMES for leaving, reached in targets(name).items() for to in reached}
    assert legal_moves() == expected
    assert not [move for move in legal_moves() if move[0] is move[1]]


@pytest.mark.parametrize("name", NAMES)
def test_sources_are_the_keys_of_targets_in_the_order_of_the_table(name: str):
    assert set(sources(name)) == set(targets(name))
    places = [list(Status).index(status) for status in sources(name)]
    assert all(before < after for before, after in pairwise(places))
    assert sources(name)


def test_a_command_is_available_exactly_where_it_would_change_something():
    for command, status in CELLS:
        assert (command in available_actions(status)) == cell(command, status).changes


def test_available_actions_of_each_status():
    pause, resume, cancel, terminate, answer, send = Command
    assert {status: available_actions(status) for status in Status} == {
        Status.PENDING: (pause, cancel, terminate, send),
        Status.RUNNING: (pause, cancel, terminate, send),
        Status.WAITING: (pause, cancel, terminate, send),
        Status.PAUSING: (resume, cancel, terminate, send),
        Status.PAUSED: (pause, resume, cancel, terminate, answer, send),
        Status.CANCELLING: (terminate,),
        Status.COMPLETED: (),
        Status.FAILED: (),
        Status.CANCELLED: (),
    }


@pytest.mark.parametrize("kind", HoldKind)
def test_each_hold_is_closed_either_by_resume_or_by_an_answer(kind: HoldKind):
    assert (kind in CLOSED_BY_RESUME) != (kind in CLOSED_BY_ANSWER)
    for answers in CLOSED_BY_ANSWER.values():
        assert answers


def test_a_name_that_is_neither_command_nor_move_is_refused():
    for name in ("claims", "", "PAUSE"):
        with pytest.raises((KeyError, ValueError)):
            targets(name)


def test_no_command_and_move_share_a_name_or_a_meaning_that_is_missing():
    assert not {command.value for command in Command} & set(MOVES)
    for name, move in MOVES.items():
        assert name == move.name
        assert move.meaning


def test_the_lifecycle_imports_nothing_of_ours():
    imported = [node for node in ast.walk(ast.parse(inspect.getsource(lifecycle))) if isinstance(node, ast.ImportFrom)]
    assert not [node.module for node in imported if node.level or (node.module or "").startswith("runtrue")]


def test_the_page_about_the_lifecycle_is_up_to_date():
    check = [sys.executable, str(ROOT / "scripts" / "lifecycle_diagram.py"), "--check"]
    done = subprocess.run(check, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
