"""What the database itself refuses, whoever writes to the file."""

import re
import sqlite3
from pathlib import Path

import pytest
from tests.conformance.hands import execute, without_triggers
from tests.conformance.stage import HOUR, RESULT, Stage, attempt, child_wait, receive, step

from runtrue.lifecycle import OWNED, TERMINAL, Command, Status, legal_moves
from runtrue.store.protocol import Finish, ParkBlocked, ParkRequested

REFUSED = re.compile("no such change of status|finished run never changes")
RUN = "UPDATE runtrue_runs SET {} WHERE id = 'r'"


def fitting(status: Status) -> str:
    """The columns that the checks tie to a status, so that only the move itself can be what is refused."""
    worker = "'w'" if status in OWNED else "NULL"
    finished = "7" if status in TERMINAL else "NULL"
    holds = {Status.PAUSED: 1, Status.PAUSING: 1}.get(status, 0)
    verb = {Status.PAUSING: "'pause'", Status.CANCELLING: "'cancel'"}.get(status, "request_verb")
    asked = "request_at = 1, request_by = '', request_reason = ''," if verb != "request_verb" else ""
    return (
        f"status = '{status}', worker_id = {worker}, finished_at = {finished}, open_run_holds = {holds}, {asked}"
        f"request_verb = {verb}"
    )


@pytest.mark.parametrize("to", Status)
@pytest.mark.parametrize("leaving", Status)
async def test_a_change_of_status_by_hand_works_only_where_the_lifecycle_has_it(
    file_stage: Stage, path: Path, leaving: Status, to: Status
):
    await file_stage.make(leaving)
    before = await file_stage.everything()
    if (leaving, to) in legal_moves() or (leaving is to and leaving not in TERMINAL):
        execute(path, RUN.format(fitting(to)))
        assert (await file_stage.run()).status is to
    else:
        with pytest.raises(sqlite3.IntegrityError, match=REFUSED):
            execute(path, RUN.format(fitting(to)))
        assert await file_stage.everything() == before


@pytest.mark.parametrize("status", sorted(TERMINAL))
@pytest.mark.parametrize(
    "change",
    [
        *("priority = 9", "steps_done = 99", "event_seq = event_seq", "updated_at = 1", "finished_at = 1"),
        *("finished_at = NULL", "request_reason = ''", "losses = 0", "status = status", "idempotency_key = 'k'"),
    ],
)
async def test_nothing_of_a_finished_run_changes(file_stage: Stage, path: Path, status: Status, change: str):
    await file_stage.make(status)
    before = await file_stage.everything()
    with pytest.raises(sqlite3.IntegrityError, match=r"never changes|CHECK"):
        execute(path, RUN.format(change))
    assert await file_stage.everything() == before


IDENTITY = [
    *("id", "workflow", "version", "idempotency_key", "created_at", "deadline_at"),
    *("parent_id", "parent_branch", "parent_ordinal", "parent_cancels"),
]


@pytest.mark.parametrize("column", IDENTITY)
async def test_the_identity_of_a_run_never_changes(file_stage: Stage, path: Path, column: str):
    await file_stage.start()
    for how in ("UPDATE", "UPDATE OR REPLACE", "UPDATE OR IGNORE"):
        with pytest.raises(sqlite3.IntegrityError, match="the identity of a run never changes"):
            execute(path, RUN.replace("UPDATE", how).format(f"{column} = 'other'"))


@pytest.mark.parametrize("status", [Status.RUNNING, Status.COMPLETED])
async def test_a_run_cannot_be_replaced_by_a_new_one(file_stage: Stage, path: Path, status: Status):
    claimed = await file_stage.make(status)
    assert claimed is not None
    before = await file_stage.everything()
    columns = "id, status, workflow, version, priority, ready_at, created_at, updated_at, idempotency_key"
    for how in ("INSERT", "INSERT OR REPLACE", "REPLACE"):
        with pytest.raises(sqlite3.IntegrityError):
            execute(path, f"{how} INTO runtrue_runs ({columns}) VALUES ('r', 'pending', 'flow', '1', 0, 0, 0, 0, NULL)")
    assert await file_stage.everything() == before


async def test_a_run_cannot_be_replaced_by_another_of_its_key(file_stage: Stage, path: Path):
    await file_stage.start(idempotency_key="k")
    columns = "id, status, workflow, version, priority, ready_at, created_at, updated_at, idempotency_key"
    with pytest.raises(sqlite3.IntegrityError, match="id and key of its own"):
        execute(path, f"REPLACE INTO runtrue_runs ({columns}) VALUES ('s', 'pending', 'flow', '1', 0, 0, 0, 0, 'k')")
    assert (await file_stage.run()).status is Status.PENDING


@pytest.mark.parametrize("status", sorted(set(Status) - {Status.PENDING}))
async def test_a_run_is_born_pending_only(file_stage: Stage, path: Path, status: Status):
    columns = "id, status, workflow, version, priority, ready_at, created_at, updated_at, worker_id, finished_at"
    worker, finished = ("w" if status in OWNED else None), (1 if status in TERMINAL else None)
    with pytest.raises(sqlite3.IntegrityError, match="a run is born pending"):
        execute(
            path, f"INSERT INTO runtrue_runs ({columns}) VALUES ('s', ?, 'f', '1', 0, 0, 0, 0, ?, ?)",
            *(status, worker, finished),
        )  # fmt: skip


async def test_a_run_is_born_with_epoch_0_only(file_stage: Stage, path: Path):
    columns = "id, status, workflow, version, priority, ready_at, created_at, updated_at, epoch"
    with pytest.raises(sqlite3.IntegrityError, match="with epoch 0"):
        execute(path, f"INSERT INTO runtrue_runs ({columns}) VALUES ('s', 'pending', 'f', '1', 0, 0, 0, 0, 1)")


async def with_everything(stage: Stage, status: Status) -> None:
    """A run that has, or had, rows in every table, in this status."""
    claimed = await stage.running()
    await stage.record(claimed, step(1), published={"k": b"1"}, waits=[receive(3), receive(4)])
    await stage.record(claimed, attempts=[attempt(2)])
    await stage.verb(Command.SEND)
    await stage.record(claimed, looks=True)
    await stage.verb(Command.SEND)
    await stage.record(claimed, step(5, kind="first"), closed_waits=[("", 4)])
    await stage.verb(Command.PAUSE)
    if status is Status.PAUSING:
        return
    await stage.end(claimed, ParkRequested())
    if status is Status.PAUSED:
        return
    await stage.verb(Command.RESUME)
    if status is Status.PENDING:
        return
    (claimed,) = await stage.claim()
    if status is Status.WAITING:
        await stage.end(claimed, ParkBlocked(claimed.wakeups, stage.clock.now() + HOUR))
    elif status is Status.CANCELLING:
        await stage.verb(Command.CANCEL)
    elif status in TERMINAL:
        await stage.end(claimed, Finish(status, RESULT))


TABLES_OF_A_RUN = [
    *("run_payloads", "steps", "attempts", "events", "holds", "pauses", "commands", "waits", "messages", "published"),
]


@pytest.mark.parametrize("first", ["the run first", "the run last"])
@pytest.mark.parametrize("status", Status)
async def test_only_a_finished_run_may_be_deleted_with_what_belongs_to_it(
    file_stage: Stage, path: Path, status: Status, first: str
):
    await with_everything(file_stage, status)
    run = "DELETE FROM runtrue_runs WHERE id = 'r'"
    rows = [f"DELETE FROM runtrue_{table} WHERE run_id = 'r'" for table in TABLES_OF_A_RUN]
    for statement in [run, *rows] if first == "the run first" else [*rows, run]:
        if status in TERMINAL:
            execute(path, statement)
        elif status is not Status.PAUSING or "pauses" not in statement:
            with pytest.raises(sqlite3.IntegrityError, match="runtrue: "):
                execute(path, statement)
    assert await file_stage.store.check() == []


@pytest.mark.parametrize("table", ["steps", "run_payloads", "attempts", "events", "commands"])
@pytest.mark.parametrize("status", [Status.RUNNING, Status.COMPLETED])
async def test_what_was_recorded_never_changes(file_stage: Stage, path: Path, table: str, status: Status):
    await with_everything(file_stage, status)
    column = {"run_payloads": "body", "events": "data", "commands": "actor"}.get(table, "error")
    for how in ("UPDATE", "UPDATE OR REPLACE"):
        with pytest.raises(sqlite3.IntegrityError, match="never changes"):
            execute(path, f"{how} runtrue_{table} SET {column} = 'a lie'")


@pytest.mark.parametrize("status", [Status.RUNNING, Status.COMPLETED])
@pytest.mark.parametrize("how", ["INSERT OR REPLACE", "REPLACE", "INSERT"])
@pytest.mark.parametrize("table", ["steps", "run_payloads", "attempts", "events", "commands"])
async def test_what_was_recorded_is_never_replaced(file_stage: Stage, path: Path, table: str, how: str, status: Status):
    await with_everything(file_stage, status)
    before = await file_stage.everything()
    with pytest.raises(sqlite3.IntegrityError, match="never replaced"):
        execute(path, f"{how} INTO runtrue_{table} SELECT * FROM runtrue_{table} WHERE run_id = 'r'")
    assert await file_stage.everything() == before


async def test_an_event_is_not_replaced_by_its_number_either(file_stage: Stage, path: Path):
    await file_stage.start()
    columns = "run_id, seq, at, type, data"
    with pytest.raises(sqlite3.IntegrityError, match="never replaced"):
        execute(path, f"REPLACE INTO runtrue_events ({columns}) VALUES ('r', 1, 1, 'forged', '{{}}')")


# ---------------------------------------------------------------- holds and pauses
CLOSING = "closed_at = 1, closed_by = 'me', outcome = 'resumed'"


@pytest.mark.parametrize("status", [Status.PAUSED, Status.PAUSING])
async def test_a_hold_that_its_run_counts_is_not_closed_by_hand(file_stage: Stage, path: Path, status: Status):
    await file_stage.make(status)
    before = await file_stage.everything()
    with pytest.raises(sqlite3.IntegrityError, match="counts this hold as open; resume, answer or cancel it"):
        execute(path, f"UPDATE runtrue_holds SET {CLOSING}")
    assert await file_stage.everything() == before


@pytest.mark.parametrize(
    "change",
    [
        *("id = 'h'", "run_id = 's'", "kind = 'code_mismatch'", "opened_at = 1", "opened_by = 'me'", "reason = ''"),
        "code_digest = 'x'",
    ],
)
async def test_a_hold_changes_in_nothing_but_its_end(file_stage: Stage, path: Path, change: str):
    await file_stage.make(Status.PAUSED)
    with pytest.raises(sqlite3.IntegrityError, match="changes in nothing else"):
        execute(path, f"UPDATE runtrue_holds SET {change}")


async def test_a_hold_is_closed_once(file_stage: Stage, path: Path):
    await file_stage.make(Status.PAUSED)
    await file_stage.verb(Command.RESUME)
    for change in (CLOSING, "closed_at = NULL, closed_by = NULL, outcome = NULL", "outcome = 'moot'"):
        with pytest.raises(sqlite3.IntegrityError, match="is closed once"):
            execute(path, f"UPDATE runtrue_holds SET {change}")


@pytest.mark.parametrize("how", ["INSERT", "INSERT OR REPLACE"])
@pytest.mark.parametrize("hold", ["id", "'another'"])
@pytest.mark.parametrize("closed", ["NULL, NULL, NULL", "1, 'me', 'moot'"])
async def test_a_hold_that_its_run_does_not_count_is_not_opened(
    file_stage: Stage, path: Path, how: str, hold: str, closed: str
):
    await file_stage.make(Status.PAUSED)
    before = await file_stage.everything()
    values = f"{hold}, run_id, 'code_mismatch', 1, '', '', {closed}, ''"
    with pytest.raises(sqlite3.IntegrityError, match="opened once, and only if its run counts it"):
        execute(path, f"{how} INTO runtrue_holds SELECT {values} FROM runtrue_holds")
    assert await file_stage.everything() == before


async def test_the_pause_of_a_paused_run_is_not_ended_by_hand(file_stage: Stage, path: Path):
    await file_stage.make(Status.PAUSED)
    with pytest.raises(sqlite3.IntegrityError, match="the run is paused; resume, answer or cancel it"):
        execute(path, "UPDATE runtrue_pauses SET ended_at = 1")


@pytest.mark.parametrize(
    "change", ["digest = 5", "steps_done = 5", "wakeups = 5", "epoch = 5", "id = 'p'", "run_id = 's'"]
)
@pytest.mark.parametrize("ended", [False, True])
async def test_the_snapshot_of_a_pause_never_changes(file_stage: Stage, path: Path, change: str, ended: bool):
    await file_stage.make(Status.PAUSED)
    if ended:
        await file_stage.verb(Command.RESUME)
    with pytest.raises(sqlite3.IntegrityError, match="changes in nothing else"):
        execute(path, f"UPDATE runtrue_pauses SET {change}")


async def test_a_pause_ends_once(file_stage: Stage, path: Path):
    await file_stage.make(Status.PAUSED)
    await file_stage.verb(Command.RESUME)
    for ended_at in ("NULL", "1"):
        with pytest.raises(sqlite3.IntegrityError, match="a pause ends once"):
            execute(path, f"UPDATE runtrue_pauses SET ended_at = {ended_at}")


@pytest.mark.parametrize("how", ["INSERT", "INSERT OR REPLACE"])
@pytest.mark.parametrize(("status", "pause"), [(Status.PAUSED, "id"), (Status.PAUSED, "'p'"), (Status.PENDING, "'p'")])
async def test_a_pause_begins_once_with_a_run_that_is_paused(
    file_stage: Stage, path: Path, how: str, status: Status, pause: str
):
    await file_stage.make(Status.PAUSED)
    if status is Status.PENDING:
        await file_stage.verb(Command.RESUME)
    before = await file_stage.everything()
    with pytest.raises(sqlite3.IntegrityError, match="begins with a run that is paused, once"):
        execute(path, f"{how} INTO runtrue_pauses SELECT {pause}, run_id, 1, NULL, 1, 9, 9, 9, 9 FROM runtrue_pauses")
    assert await file_stage.everything() == before


# ---------------------------------------------------------------- fences
@pytest.mark.parametrize("status", [Status.RUNNING, Status.WAITING, Status.CANCELLING])
async def test_the_epoch_of_a_run_only_rises(file_stage: Stage, path: Path, status: Status):
    await file_stage.make(status)
    with pytest.raises(sqlite3.IntegrityError, match="the epoch of a run only rises"):
        execute(path, RUN.format("epoch = epoch - 1"))
    execute(path, RUN.format("epoch = epoch + 1"))


@pytest.mark.parametrize("gone", ["lost", "stopped"])
async def test_a_worker_that_is_gone_never_comes_back(file_stage: Stage, path: Path, gone: str):
    await file_stage.worker("w")
    await file_stage.worker("other")
    if gone == "lost":
        await file_stage.lose("w")
        await file_stage.store.sweep()
    else:
        await file_stage.store.retire_worker("w")
    before = await file_stage.store.workers()
    assert before[1].status == gone or before[0].status == gone
    for how in ("UPDATE", "UPDATE OR REPLACE"):
        for change in ("status = 'alive'", "id = 'new'"):
            with pytest.raises(sqlite3.IntegrityError, match="never comes back"):
                execute(path, f"{how} runtrue_workers SET {change} WHERE id = 'w'")
    with pytest.raises(sqlite3.IntegrityError, match="never comes back"):
        execute(path, "UPDATE OR REPLACE runtrue_workers SET id = 'w' WHERE id = 'other'")
    columns = "id, host, pid, status, started_at, heartbeat_at, lease_until, loop_seen_at, slots, serves"
    with pytest.raises(sqlite3.IntegrityError, match="a worker id is never used twice"):
        execute(path, f"REPLACE INTO runtrue_workers ({columns}) VALUES ('w', 'h', 1, 'alive', 1, 1, 1, 1, 1, '[]')")
    assert await file_stage.store.workers() == before


@pytest.mark.parametrize(
    ("status", "lie"),
    [
        (Status.PENDING, "worker_id = 'w'"),
        (Status.RUNNING, "worker_id = NULL"),
        (Status.RUNNING, "finished_at = 1"),
        (Status.PAUSED, "open_run_holds = 0"),
        (Status.PAUSED, "open_run_holds = -1"),
        (Status.PAUSING, "request_verb = NULL, request_at = NULL, request_by = NULL, request_reason = NULL"),
        (Status.CANCELLING, "request_verb = 'pause'"),
        (Status.PENDING, "request_verb = 'cancel'"),
        (Status.RUNNING, "status = 'completed', worker_id = NULL"),
        (Status.PAUSING, "status = 'completed', worker_id = NULL, finished_at = 1"),
    ],
)
async def test_columns_that_contradict_each_other_are_refused(file_stage: Stage, path: Path, status: Status, lie: str):
    await file_stage.make(status)
    with pytest.raises(sqlite3.IntegrityError, match="CHECK constraint failed"):
        execute(path, RUN.format(lie))


async def test_a_run_has_one_open_operators_hold_and_one_active_pause(file_stage: Stage, path: Path):
    await file_stage.make(Status.PAUSED)
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        without_triggers(
            path,
            "INSERT INTO runtrue_holds SELECT 'h', run_id, kind, 1, '', '', NULL, NULL, NULL, '' FROM runtrue_holds",
        )
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        without_triggers(
            path, "INSERT INTO runtrue_pauses SELECT 'p', run_id, 1, NULL, 1, 0, 0, 0, 0 FROM runtrue_pauses"
        )


# ---------------------------------------------------------------- damage that is found
DAMAGES = [
    ("DELETE FROM runtrue_pauses", "paused means resumable", "is paused without an active pause"),
    ("DELETE FROM runtrue_holds", "paused means resumable", "is paused without an open hold"),
    ("UPDATE runtrue_runs SET status = 'pending' WHERE id = 'paused'", "paused means resumable", "and is not paused"),
    ("DELETE FROM runtrue_holds", "holds are counted", "counts 1 open holds, there are 0"),
    ("UPDATE runtrue_workers SET lease_until = 0", "no zombies", "is running and its worker w is overdue"),
    ("DELETE FROM runtrue_workers", "no zombies", "is running and its worker w is not known"),
    ("DELETE FROM runtrue_events WHERE type = 'claimed'", "history is whole", "counts 4 happenings, 3 are recorded"),
    ("UPDATE runtrue_runs SET event_seq = 9 WHERE id = 'done'", "history is whole", "the last one is 4"),
    ("DELETE FROM runtrue_run_payloads WHERE kind = 'output'", "an end has its payload", "its result is not recorded"),
    ("DELETE FROM runtrue_run_payloads WHERE kind = 'input'", "an end has its payload", "has no recorded input"),
    ("DELETE FROM runtrue_steps", "steps are counted", "counts 1 steps, 0 are recorded"),
    ("UPDATE runtrue_steps SET digest = 5 WHERE run_id = 'done'", "steps are unchanged", "do not fit the digest"),
    ("UPDATE runtrue_runs SET children_left = 7 WHERE id = 'parent'", "children are counted", "counts 7 children"),
    ("UPDATE runtrue_runs SET children_left = 1 WHERE id = 'done'", "children are counted", "there are 0"),
    (
        "UPDATE runtrue_waits SET closed_at = NULL, outcome = NULL WHERE run_id = 'over'",
        "waits end with their run",
        "is completed and still waits at 3.0.2",
    ),
    ("DELETE FROM runtrue_steps WHERE kind = 'receive'", "a wait has its result", "was met, and no step there"),
    ("DELETE FROM runtrue_waits WHERE run_id = 'hears'", "no lost wakeups", "waits for nothing"),
    (
        "INSERT INTO runtrue_messages VALUES ('hears', 9, 'topic', 'q', '', 1, NULL, NULL, NULL, x'31')",
        "no lost wakeups",
        "waits for a message of topic topic and has one",
    ),
    (
        "UPDATE runtrue_runs SET status = 'failed', finished_at = 1, worker_id = NULL WHERE id = 'running'",
        "no lost wakeups",
        "waits for run running, which is failed",
    ),
    (
        "UPDATE runtrue_runs SET status = 'completed', finished_at = 1, worker_id = NULL WHERE id = 'running'",
        "children are counted",
        "counts 1 children that it waits for, there are 0",
    ),
]


@pytest.mark.parametrize(("damage", "promise", "problem"), DAMAGES, ids=[f"{d[1]}: {d[2]}" for d in DAMAGES])
async def test_a_broken_promise_is_found(file_stage: Stage, path: Path, damage: str, promise: str, problem: str):
    await file_stage.make(Status.COMPLETED, "done")
    await file_stage.make(Status.PAUSED, "paused")
    await file_stage.make(Status.RUNNING, "running")
    await file_stage.waiting(receive(), run_id="hears")
    await file_stage.waiting(child_wait("running"), run_id="parent", by_any_child=False)
    over = await file_stage.running("over")
    await file_stage.verb(Command.SEND, "over")
    await file_stage.record(over, waits=[receive(1, branch="3.0"), receive(2, branch="3.0")])
    await file_stage.end(over, Finish(Status.COMPLETED, RESULT))
    assert await file_stage.store.check() == []
    without_triggers(path, damage)
    findings = await file_stage.store.check()
    assert any(finding.promise == promise and problem in finding.problem for finding in findings), findings


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM runtrue_steps WHERE ordinal = 2",
        "UPDATE runtrue_steps SET digest = digest + 1 WHERE ordinal = 1",
        "INSERT INTO runtrue_steps SELECT run_id, branch, 9, 9, 7, name, kind, 1, 1, 1, 1, '', '' FROM runtrue_steps LIMIT 1",  # noqa: E501
    ],
)
async def test_a_snapshot_that_does_not_fit_the_steps_leaves_the_run_paused_and_says_so(
    file_stage: Stage, path: Path, damage: str
):
    await file_stage.paused_at_boundary(steps=2)
    without_triggers(path, damage)
    before = await file_stage.everything()
    reply = await file_stage.verb(Command.RESUME)
    assert (reply.answer, reply.status) == ("refused", Status.PAUSED)
    assert "does not fit the recorded steps" in reply.refusal
    assert await file_stage.everything() == before
    assert (await file_stage.verb(Command.CANCEL)).status is Status.CANCELLED
