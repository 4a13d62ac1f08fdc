"""The one thread that writes: what it was told to leave, and what failed half way."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import pytest
from tests.conformance.faulty import FaultyConnection, error
from tests.conformance.hands import execute, hands_on
from tests.conformance.stage import Stage
from tests.support.manual_clock import ManualClock

from runtrue.errors import StoreBusy, StoreError
from runtrue.lifecycle import Command, Status
from runtrue.store import open_store
from runtrue.store.sqlite import writer


async def test_all_who_were_told_busy_are_left_undone_those_behind_the_first_too(file_stage: Stage, path: Path):
    names = ("a", "b", "c")
    for name in names:
        await file_stage.start(name)
    with hands_on(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        verbs = (file_stage.verb(Command.CANCEL, name, not_after=2**62) for name in names)
        told = await asyncio.gather(*verbs, return_exceptions=True)
        connection.execute("ROLLBACK")
    assert [type(error) for error in told] == [StoreBusy] * 3
    await file_stage.start("after")
    assert [(await file_stage.run(name)).status for name in names] == [Status.PENDING] * 3


@pytest.mark.parametrize("others", [0, 3])
async def test_a_job_that_fails_half_way_leaves_nothing_of_itself(file_stage: Stage, others: int):
    await file_stage.start()

    def half(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE runtrue_runs SET priority = 9 WHERE id = 'r'")
        raise ValueError("half way")

    beside = [file_stage.start(f"other-{number}") for number in range(others)]
    writer = file_stage.store._writer
    outcome, *rest = await asyncio.gather(writer.run(half), *beside, return_exceptions=True)
    assert str(outcome) == "half way"
    assert rest == [None] * others
    assert (await file_stage.run()).priority == 0


# ---------------------------------------------------------------- the second pass: a failure costs its job alone
def fails(connection: sqlite3.Connection) -> None:
    raise ValueError("it fails")


class Counted:
    """Work that knows how often it was carried out, and returns it with what it read."""

    def __init__(self, fails_at: int = 0) -> None:
        self.times = 0
        self.fails_at = fails_at

    def __call__(self, connection: sqlite3.Connection) -> tuple[int, int]:
        self.times += 1
        if self.times == self.fails_at:
            raise ValueError("this time it fails")
        (found,) = connection.execute("SELECT priority FROM runtrue_runs WHERE id = 'r'").fetchone()
        connection.execute("UPDATE runtrue_runs SET priority = priority + 1 WHERE id = 'r'")
        return self.times, found


async def together(stage: Stage, *works: object) -> list[object]:
    """What becomes of work that is handed in at once, so that it shares a transaction."""
    writer = stage.store._writer
    return await asyncio.gather(*(writer.run(work) for work in works), return_exceptions=True)  # type: ignore[arg-type]


async def test_nothing_of_the_first_pass_is_kept_and_its_results_are_not_told(faulty_stage: Stage):
    await faulty_stage.start()
    works = Counted(), Counted(fails_at=2), Counted()
    outcomes = await together(faulty_stage, *works, fails)
    assert outcomes[0] == (2, 0)
    assert str(outcomes[1]) == "this time it fails"
    assert outcomes[2] == (2, 1)
    assert (await faulty_stage.run()).priority == 2


async def test_what_was_changed_between_the_passes_is_seen_by_the_second(
    faulty_stage: Stage, path: Path, faulty: type[FaultyConnection]
):
    await faulty_stage.start()

    def somebody_comes_between(connection: sqlite3.Connection, sql: str) -> None:
        sqlite3.Connection.execute(connection, sql)
        execute(path, "UPDATE runtrue_runs SET priority = 40")
        sqlite3.Connection.execute(connection, "BEGIN")

    faulty.fault = ("ROLLBACK", somebody_comes_between)
    outcomes = await together(faulty_stage, Counted(), fails)
    assert outcomes[0] == (2, 40)
    assert (await faulty_stage.run()).priority == 41


async def test_who_cannot_begin_a_second_time_is_told_busy_and_nothing_is_changed(
    faulty_stage: Stage, path: Path, faulty: type[FaultyConnection]
):
    await faulty_stage.start()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:

        def somebody_stays(connection: sqlite3.Connection, sql: str) -> None:
            sqlite3.Connection.execute(connection, sql)
            other.execute("BEGIN IMMEDIATE")
            sqlite3.Connection.execute(connection, "BEGIN")

        faulty.fault = ("ROLLBACK", somebody_stays)
        outcomes = await together(faulty_stage, Counted(), fails)
        other.execute("ROLLBACK")
    assert [type(outcome) for outcome in outcomes] == [StoreBusy] * 2
    assert (await faulty_stage.run()).priority == 0
    assert await together(faulty_stage, Counted()) == [(1, 0)], "and the writer is well"


async def test_an_error_learnt_in_a_transaction_that_is_void_is_not_told(
    faulty_stage: Stage, faulty: type[FaultyConnection]
):
    """It may have been refused for what another job of the transaction did, and that is undone."""
    await faulty_stage.start()

    def disk_is_full(connection: sqlite3.Connection, sql: str) -> None:
        raise error("database or disk is full", "SQLITE_FULL")

    faulty.fault = ("COMMIT", disk_is_full)
    outcomes = await together(faulty_stage, Counted(), fails)
    assert [type(outcome) for outcome in outcomes] == [StoreBusy] * 2
    assert (await faulty_stage.run()).priority == 0


async def test_a_transaction_that_could_not_be_rolled_back_is_before_the_next_one(
    faulty_stage: Stage, faulty: type[FaultyConnection]
):
    await faulty_stage.start()

    def disk_fails(connection: sqlite3.Connection, sql: str) -> None:
        faulty.fault = ("ROLLBACK", disk_fails_again)
        raise error("disk I/O error", "SQLITE_IOERR")

    def disk_fails_again(connection: sqlite3.Connection, sql: str) -> None:
        raise error("disk I/O error", "SQLITE_IOERR")

    faulty.fault = ("UPDATE", disk_fails)
    (outcome,) = await together(faulty_stage, Counted())
    assert isinstance(outcome, StoreError)
    assert await together(faulty_stage, Counted()) == [(1, 0)]


async def test_an_error_of_any_kind_outside_a_transaction_is_its_callers_and_the_writer_goes_on(file_stage: Stage):
    with pytest.raises(ValueError, match="it fails"):
        await file_stage.store._writer.run(fails, outside=True)
    await file_stage.start()


async def test_an_error_of_any_kind_while_connecting_is_its_callers_and_the_writer_goes_on(
    path: Path, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
):
    await (await open_store(f"sqlite:///{path}", clock=clock)).close()
    stage = Stage(await open_store(f"sqlite:///{path}", clock=clock), clock)

    def cannot(_: Path) -> sqlite3.Connection:
        monkeypatch.undo()
        raise ValueError("no connection")

    monkeypatch.setattr(writer, "connect_writer", cannot)
    with pytest.raises(ValueError, match="no connection"):
        await stage.start()
    await stage.start()
    await stage.store.close()
