"""A database that somebody else keeps, and commits whose outcome nobody knows."""

import asyncio
import fcntl
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.conformance.faulty import FaultyConnection, error
from tests.conformance.hands import hands_on
from tests.conformance.stage import INPUT, LEASE, RESULT, Stage, step
from tests.support.manual_clock import ManualClock
from tests.support.waiting import CLOCK, until

from runtrue.errors import OutcomeUnknown, StoreBusy, StoreError
from runtrue.lifecycle import Command, Status
from runtrue.store import open_store
from runtrue.store.protocol import Finish, Heartbeat, NewRun, Recorded, RunEffects
from runtrue.store.sqlite import SqliteStore, writer

PATIENCE_SECONDS = 2.0


@contextmanager
def somebody_writes(path: Path) -> Iterator[None]:
    with hands_on(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


@contextmanager
def somebody_writes_in_turn(path: Path) -> Iterator[None]:
    with Path(f"{path}.turn").open() as turn, somebody_writes(path):
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield


async def taken_up(stage: Stage) -> None:
    """Return once the writer's thread stands before the obstacle with what was handed in."""
    assert isinstance(stage.store, SqliteStore)
    jobs = stage.store._writer._jobs
    await asyncio.sleep(0)  # it is handed in now
    await until(jobs.empty, "the writer takes the work up")


OBSTACLES = [somebody_writes, somebody_writes_in_turn]


@pytest.mark.parametrize("obstacle", OBSTACLES)
async def test_a_busy_database_is_told_within_two_seconds_and_nothing_happens_later(
    file_stage: Stage, path: Path, obstacle: Callable[[Path], Iterator[None]]
):
    claimed = await file_stage.make(Status.RUNNING)
    assert claimed is not None
    before = await file_stage.everything()
    with obstacle(path):  # type: ignore[attr-defined]
        began = CLOCK.steady()
        outcomes = await asyncio.gather(
            file_stage.verb(Command.CANCEL),
            file_stage.store.start([NewRun("new", "flow", "1", INPUT, 0)]),
            file_stage.record(claimed, step(2)),
            asyncio.to_thread(file_stage.store.renew, Heartbeat("w", LEASE, 0)),
            return_exceptions=True,
        )
        assert CLOCK.steady() - began < PATIENCE_SECONDS + 1.0, "with a second for a machine that is busy itself"
        assert [type(outcome) for outcome in outcomes] == [StoreBusy] * 4
        assert all("nothing was changed" in str(outcome) for outcome in outcomes)
        assert await file_stage.everything() == before, "reading goes on meanwhile"
    assert await file_stage.renew() is not None, "and the writer is well"
    assert await file_stage.everything() == before
    assert await file_stage.store.get("new") is None
    assert len(await file_stage.store.commands("r")) == 0


@pytest.mark.parametrize("obstacle", OBSTACLES)
async def test_a_command_waits_for_a_database_that_is_busy_for_a_moment(
    file_stage: Stage, path: Path, obstacle: Callable[[Path], Iterator[None]]
):
    await file_stage.start()
    with obstacle(path):  # type: ignore[attr-defined]
        verb = asyncio.ensure_future(file_stage.verb(Command.CANCEL))
        await taken_up(file_stage)
        assert not verb.done()
    assert (await verb).status is Status.CANCELLED


@pytest.mark.parametrize("obstacle", OBSTACLES)
async def test_a_busy_database_that_is_up_to_date_can_be_opened_and_read(
    file_stage: Stage, path: Path, obstacle: Callable[[Path], Iterator[None]]
):
    await file_stage.start()
    with obstacle(path):  # type: ignore[attr-defined]
        store = await open_store(f"sqlite:///{path}", clock=ManualClock())
        found = await store.get("r")
        await store.close()
    assert found is not None


@pytest.mark.parametrize("obstacle", OBSTACLES)
async def test_opening_a_busy_database_that_lacks_the_schema_is_refused_in_time(
    tmp_path: Path, obstacle: Callable[[Path], Iterator[None]]
):
    bare = tmp_path / "bare.db"
    sqlite3.connect(bare).execute("PRAGMA journal_mode = WAL").connection.close()
    Path(f"{bare}.turn").touch()  # noqa: ASYNC240
    with obstacle(bare), pytest.raises(StoreBusy):  # type: ignore[attr-defined]
        await open_store(f"sqlite:///{bare}", clock=ManualClock())


@pytest.mark.parametrize("obstacle", OBSTACLES)
async def test_a_store_whose_caller_was_told_busy_is_closed_without_waiting_again(
    file_stage: Stage, path: Path, obstacle: Callable[[Path], Iterator[None]]
):
    await file_stage.start()
    with obstacle(path):  # type: ignore[attr-defined]
        with pytest.raises(StoreBusy):
            await file_stage.verb(Command.CANCEL)
        told = CLOCK.steady()
        await file_stage.store.close()
        assert CLOCK.steady() - told < writer.BUSY_SECONDS / 2


async def test_a_caller_who_gives_up_takes_the_work_back(file_stage: Stage, path: Path):
    await file_stage.start()
    with somebody_writes(path):
        verb = asyncio.ensure_future(file_stage.verb(Command.CANCEL))
        await taken_up(file_stage)
        verb.cancel()
        await asyncio.wait((verb,))
    await file_stage.start("other")
    assert (await file_stage.run()).status is Status.PENDING


async def test_a_job_that_fails_costs_those_beside_it_nothing(file_stage: Stage):
    await file_stage.start()
    outcomes = await asyncio.gather(
        file_stage.start("a"),
        file_stage.verb(Command.PAUSE, reason=None),
        file_stage.store.start([NewRun("b", "flow", "1", INPUT, 0), NewRun("bad", "flow", "1", INPUT, 0, 2**40)]),
        file_stage.start("c"),
        return_exceptions=True,
    )
    assert [isinstance(outcome, StoreError) for outcome in outcomes] == [False, True, True, False]
    assert set(await file_stage.store.statuses(["a", "b", "c"])) == {"a", "c"}
    assert (await file_stage.run()).status is Status.PENDING


# ---------------------------------------------------------------- faults
def fails_before(connection: sqlite3.Connection, sql: str) -> None:
    raise error("database or disk is full", "SQLITE_FULL")


def fails_after(connection: sqlite3.Connection, sql: str) -> None:
    sqlite3.Connection.execute(connection, sql)
    raise error("disk I/O error", "SQLITE_IOERR_FSYNC")


async def test_a_commit_that_the_database_took_back_changed_nothing(
    faulty_stage: Stage, faulty: type[FaultyConnection]
):
    claimed = await faulty_stage.running()
    before = await faulty_stage.everything()
    faulty.fault = ("COMMIT", fails_before)
    with pytest.raises(StoreBusy, match=r"disk is full \(SQLITE_FULL\); nothing was changed"):
        await faulty_stage.record(claimed, step(1))
    assert await faulty_stage.everything() == before
    assert (await faulty_stage.record(claimed, step(1))).recorded is Recorded.OK


async def test_a_commit_whose_answer_was_lost_is_settled_by_sending_it_again(
    faulty_stage: Stage, faulty: type[FaultyConnection]
):
    claimed = await faulty_stage.running()
    for effects in (
        RunEffects("r", claimed.epoch, steps=[step(1), step(2)]),
        RunEffects("r", claimed.epoch, end=Finish(Status.COMPLETED, RESULT)),
    ):
        faulty.fault = ("COMMIT", fails_after)
        with pytest.raises(OutcomeUnknown, match="whether it holds is not known"):
            await faulty_stage.store.record("w", [effects])
        after = await faulty_stage.everything()
        (reply,) = await faulty_stage.store.record("w", [effects])
        assert reply.recorded is Recorded.OK
        assert await faulty_stage.everything() == after
    assert (await faulty_stage.run()).status is Status.COMPLETED
    assert await faulty_stage.store.check() == []


async def test_a_command_whose_answer_was_lost_is_settled_by_its_request_id(
    faulty_stage: Stage, faulty: type[FaultyConnection]
):
    await faulty_stage.start()
    faulty.fault = ("COMMIT", fails_after)
    with pytest.raises(OutcomeUnknown) as lost:
        await faulty_stage.verb(Command.PAUSE, request_id="mine")
    assert lost.value.request_id == "mine"
    reply = await faulty_stage.verb(Command.PAUSE, request_id="mine")
    assert (reply.repeated, reply.status) == (True, Status.PAUSED)


async def test_a_command_whose_commit_hangs_is_told_in_time_that_nobody_knows(
    faulty_stage: Stage, faulty: type[FaultyConnection]
):
    await faulty_stage.start()
    disk = threading.Event()
    faulty.fault = ("COMMIT", lambda *_: disk.wait())
    began = CLOCK.steady()
    with pytest.raises(OutcomeUnknown, match="has not answered in time"):
        await faulty_stage.verb(Command.PAUSE, request_id="mine")
    assert CLOCK.steady() - began < PATIENCE_SECONDS + 1.0, "with a second for a machine that is busy itself"
    disk.set()
    assert (await faulty_stage.verb(Command.PAUSE, request_id="mine")).repeated


async def test_a_disk_that_fails_in_the_middle_condemns_nobody(faulty_stage: Stage, faulty: type[FaultyConnection]):
    claims = [await faulty_stage.running(run_id) for run_id in ("a", "b")]
    effects = [RunEffects(one.run_id, one.epoch, steps=[step(1)]) for one in claims]
    faulty.fault = ("SELECT status, wakeups, event_seq FROM json_each", fails_before)
    with pytest.raises(StoreBusy):
        await faulty_stage.store.record("w", effects)
    assert [(await faulty_stage.run(run_id)).steps_done for run_id in ("a", "b")] == [0, 0]
    assert [reply.recorded for reply in await faulty_stage.store.record("w", effects)] == [Recorded.OK] * 2


@pytest.mark.parametrize("statement", range(1, 12))
async def test_an_error_at_any_statement_of_a_pause_leaves_all_or_nothing(
    faulty_stage: Stage, faulty: type[FaultyConnection], statement: int
):
    await faulty_stage.start()
    before = await faulty_stage.everything()
    left = statement

    def count_down(connection: sqlite3.Connection, sql: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise error("disk I/O error", "SQLITE_IOERR_WRITE")
        faulty.fault = ("", count_down)

    faulty.fault = ("", count_down)
    try:
        reply = await faulty_stage.verb(Command.PAUSE)
    except StoreBusy:
        faulty.fault = None
        assert await faulty_stage.everything() == before
        assert await faulty_stage.store.commands("r") == []
    else:
        faulty.fault = None
        assert reply.status is (await faulty_stage.run()).status is Status.PAUSED
    assert await faulty_stage.store.check() == []
    assert (await faulty_stage.verb(Command.CANCEL)).status is Status.CANCELLED
    assert writer.BUSY_SECONDS < PATIENCE_SECONDS
