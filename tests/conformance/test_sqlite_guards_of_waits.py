"""What the database itself refuses about waits, messages, published values and parents, whoever writes to the file."""

import sqlite3
from pathlib import Path

import pytest
from tests.conformance.hands import execute
from tests.conformance.stage import RESULT, Stage, receive

from runtrue.lifecycle import Command, Status
from runtrue.store.protocol import Finish

RUN = "UPDATE runtrue_runs SET {} WHERE id = 'r'"
CLOSE_WAIT = "closed_at = 1, outcome = 'moot'"
RECEIVE = "received_at = 1, received_branch = '', received_ordinal = 1"


WAIT_CHANGES = [
    *("run_id = 's'", "branch = '1'", "ordinal = 9", "kind = 'child'", "name = 'x'", "subject = 'x'"),
    *("opened_at = 1", "deadline_at = 1"),
]
MESSAGE_CHANGES = [
    *("run_id = 's'", "seq = 9", "topic = 'x'", "request_id = 'x'", "sent_by = 'x'", "sent_at = 1", "body = x'31'")
]


@pytest.mark.parametrize(
    "change", [*WAIT_CHANGES, *(f"{change}, {CLOSE_WAIT}" for change in WAIT_CHANGES), "subject = subject"]
)
async def test_a_wait_changes_in_nothing_but_its_end(file_stage: Stage, path: Path, change: str):
    claimed = await file_stage.running()
    await file_stage.record(claimed, waits=[receive()])
    before = await file_stage.everything()
    for how in ("UPDATE", "UPDATE OR REPLACE"):
        with pytest.raises(sqlite3.IntegrityError, match="a wait is closed once and changes in nothing else"):
            execute(path, f"{how} runtrue_waits SET {change}")
    assert await file_stage.everything() == before


@pytest.mark.parametrize("change", [CLOSE_WAIT, "closed_at = NULL, outcome = NULL", "outcome = 'met'"])
async def test_a_wait_is_closed_once(file_stage: Stage, path: Path, change: str):
    claimed = await file_stage.running()
    await file_stage.record(claimed, waits=[receive()])
    execute(path, f"UPDATE runtrue_waits SET {CLOSE_WAIT}")
    with pytest.raises(sqlite3.IntegrityError, match="a wait is closed once"):
        execute(path, f"UPDATE runtrue_waits SET {change}")


@pytest.mark.parametrize("lie", ["closed_at = 1", "outcome = 'met'", "closed_at = 1, outcome = 'dinner'"])
async def test_a_wait_is_closed_with_an_outcome(file_stage: Stage, path: Path, lie: str):
    claimed = await file_stage.running()
    await file_stage.record(claimed, waits=[receive()])
    with pytest.raises(sqlite3.IntegrityError):
        execute(path, f"UPDATE runtrue_waits SET {lie}")


@pytest.mark.parametrize("how", ["INSERT", "INSERT OR REPLACE", "INSERT OR IGNORE"])
async def test_a_wait_is_opened_once_by_a_run_that_goes_on(file_stage: Stage, path: Path, how: str):
    claimed = await file_stage.running()
    await file_stage.record(claimed, waits=[receive()])
    await file_stage.make(Status.COMPLETED, "done")
    before = await file_stage.everything()
    for run_id, ordinal in (("r", 2), ("done", 1), ("nobody", 1)):
        values = f"'{run_id}', '', {ordinal}, 'receive', 'x', 'x', 1, NULL, NULL, NULL"
        with pytest.raises(sqlite3.IntegrityError, match="opened once, by a run that is not finished"):
            execute(path, f"{how} INTO runtrue_waits VALUES ({values})")
    assert await file_stage.everything() == before


@pytest.mark.parametrize(
    "change", [*MESSAGE_CHANGES, *(f"{change}, {RECEIVE}" for change in MESSAGE_CHANGES), "topic = topic"]
)
async def test_a_message_changes_in_nothing_but_in_being_received(file_stage: Stage, path: Path, change: str):
    await file_stage.start()
    await file_stage.verb(Command.SEND)
    before = await file_stage.everything()
    for how in ("UPDATE", "UPDATE OR REPLACE"):
        with pytest.raises(sqlite3.IntegrityError, match="received once and changes in nothing else"):
            execute(path, f"{how} runtrue_messages SET {change}")
    assert await file_stage.everything() == before


@pytest.mark.parametrize(
    "change", [RECEIVE, "received_at = NULL, received_branch = NULL, received_ordinal = NULL", "received_at = 2"]
)
async def test_a_message_is_received_once(file_stage: Stage, path: Path, change: str):
    await file_stage.start()
    await file_stage.verb(Command.SEND)
    execute(path, f"UPDATE runtrue_messages SET {RECEIVE}")
    with pytest.raises(sqlite3.IntegrityError, match="received once"):
        execute(path, f"UPDATE runtrue_messages SET {change}")


GIVE_BACK = "received_at = NULL, received_branch = NULL, received_ordinal = NULL"


async def test_a_message_is_given_back_only_if_its_wait_is_moot_and_its_run_goes_on(file_stage: Stage, path: Path):
    claimed = await file_stage.running()
    await file_stage.record(claimed, waits=[receive(1), receive(2, "nothing", gives_up=b"{}")])
    await file_stage.verb(Command.SEND)
    await file_stage.record(claimed, looks=True)
    with pytest.raises(sqlite3.IntegrityError, match="received once"):
        execute(path, f"UPDATE runtrue_messages SET {GIVE_BACK}")
    for change in ("outcome = 'expired'", "outcome = 'moot', closed_at = 9", "outcome = 'moot', closed_at = NULL"):
        with pytest.raises(sqlite3.IntegrityError, match="a wait is closed once"):
            execute(path, f"UPDATE runtrue_waits SET {change} WHERE outcome = 'met'")
    with pytest.raises(sqlite3.IntegrityError, match="a wait is closed once"):
        execute(path, "UPDATE runtrue_waits SET outcome = 'moot' WHERE outcome = 'expired'")
    await file_stage.end(claimed, Finish(Status.COMPLETED, RESULT))
    with pytest.raises(sqlite3.IntegrityError, match="a wait is closed once"):
        execute(path, "UPDATE runtrue_waits SET outcome = 'moot' WHERE outcome = 'met'")


@pytest.mark.parametrize("change", MESSAGE_CHANGES)
async def test_a_message_that_is_given_back_changes_in_nothing_else(file_stage: Stage, path: Path, change: str):
    claimed = await file_stage.running()
    await file_stage.verb(Command.SEND)
    await file_stage.record(claimed, waits=[receive(1)])
    execute(path, "UPDATE runtrue_waits SET outcome = 'moot'")
    with pytest.raises(sqlite3.IntegrityError, match="changes in nothing else"):
        execute(path, f"UPDATE runtrue_messages SET {GIVE_BACK}, {change}")
    execute(path, f"UPDATE runtrue_messages SET {GIVE_BACK}")


@pytest.mark.parametrize("how", ["INSERT", "INSERT OR REPLACE", "INSERT OR IGNORE"])
async def test_a_message_is_sent_once_to_a_run_that_goes_on(file_stage: Stage, path: Path, how: str):
    await file_stage.start()
    await file_stage.verb(Command.SEND, request_id="mine")
    await file_stage.make(Status.COMPLETED, "done")
    before = await file_stage.everything()
    for run_id, seq, request_id in (("r", 2, "new"), ("r", 9, "mine"), ("done", 9, "new"), ("nobody", 9, "new")):
        values = f"'{run_id}', {seq}, 't', '{request_id}', '', 1, NULL, NULL, NULL, x'31'"
        with pytest.raises(sqlite3.IntegrityError, match="sent once, to a run that is not finished"):
            execute(path, f"{how} INTO runtrue_messages VALUES ({values})")
    with pytest.raises(sqlite3.IntegrityError, match="sent once"):
        execute(path, f"{how} INTO runtrue_messages VALUES ('r', 9, 't', 'new', '', 1, 1, '', 1, x'31')")
    assert await file_stage.everything() == before


async def test_what_a_finished_run_has_published_never_changes(file_stage: Stage, path: Path):
    claimed = await file_stage.running()
    await file_stage.record(claimed, published={"k": b"1"})
    with pytest.raises(sqlite3.IntegrityError, match="has published never changes"):
        execute(path, "UPDATE runtrue_published SET key = 'other'")
    await file_stage.end(claimed, Finish(Status.COMPLETED, RESULT))
    for how in ("INSERT", "INSERT OR REPLACE"):
        with pytest.raises(sqlite3.IntegrityError, match="only a run that is not finished publishes"):
            execute(path, f"{how} INTO runtrue_published VALUES ('r', 'k', 1, x'32')")
    with pytest.raises(sqlite3.IntegrityError, match="has published never changes"):
        execute(path, "UPDATE runtrue_published SET body = x'32'")
    assert await file_stage.store.published("r") == {"k": b"1"}


@pytest.mark.parametrize(
    "lie",
    [
        *("children_left = -1", "any_child_wakes = 2"),
        "status = 'cancelled', worker_id = NULL, finished_at = 1, children_left = 1",
    ],
)
async def test_a_run_cannot_lie_about_its_children(file_stage: Stage, path: Path, lie: str):
    await file_stage.running()
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        execute(path, RUN.format(lie))


@pytest.mark.parametrize("given", ["'p', NULL, 1, 0", "'p', '', NULL, 0", "NULL, '', NULL, 0", "'p', '', 1, 2"])
async def test_a_parent_is_named_with_its_place(file_stage: Stage, path: Path, given: str):
    columns = "id, status, workflow, version, priority, ready_at, created_at, updated_at"
    link = "parent_id, parent_branch, parent_ordinal, parent_cancels"
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        execute(
            path,
            f"INSERT INTO runtrue_runs ({columns}, {link}) VALUES ('s', 'pending', 'f', '1', 0, 0, 0, 0, {given})",
        )
    assert await file_stage.store.get("s") is None
