"""A file that does not stand where it was opened, a log that others would delete, and the names of files."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conformance.hands import execute, hands_on
from tests.conformance.stage import INPUT, LEASE, Stage
from tests.support.manual_clock import ManualClock
from tests.support.waiting import until

from runtrue.errors import OutcomeUnknown, StoreUnusable
from runtrue.lifecycle import Command, Status
from runtrue.store import open_store
from runtrue.store.protocol import Heartbeat, NewRun
from runtrue.store.sqlite import connection, place

LINUX = sys.platform == "linux"


def log(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def delete(path: Path) -> None:
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink()


def move_away(path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))


def put_back(path: Path) -> None:
    path.with_name("elsewhere.db").rename(path)


def replace(path: Path) -> None:
    other = path.with_name("backup.db")
    shutil.copy(path, other)
    other.replace(path)


def delete_log(path: Path) -> None:
    log(path).unlink()


def files_of(folder: Path) -> set[str]:
    return {found.name for found in folder.iterdir()}


def another_process(path: Path, statement: str) -> str:
    """What another process reads, which opens and closes the file: our own would share our locks."""
    program = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); "
    program += "print(c.execute(sys.argv[2]).fetchall()); c.close()"
    done = subprocess.run(
        [sys.executable, "-c", program, str(path), statement], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize("lose", [delete, move_away, replace, delete_log])
async def test_a_file_that_was_lost_is_told_to_everybody(file_stage: Stage, path: Path, lose: Callable[[Path], None]):
    await file_stage.running()
    lose(path)
    there = files_of(path.parent)
    calls = [
        lambda: file_stage.verb(Command.CANCEL),
        lambda: file_stage.store.start([NewRun("new", "flow", "1", INPUT, 0)]),
        lambda: file_stage.store.get("r"),
        lambda: asyncio.to_thread(file_stage.store.renew, Heartbeat("w", LEASE, 0)),
        file_stage.store.tidy,
        file_stage.store.sweep,
    ]
    for call in calls:
        with pytest.raises(StoreUnusable, match=r"was moved, deleted or replaced .* nothing was changed\. Restart"):
            await call()
    assert files_of(path.parent) == there, "nobody makes a new file"


async def test_a_file_that_was_put_back_is_not_written_on(file_stage: Stage, path: Path):
    await file_stage.start()
    move_away(path)
    with pytest.raises(StoreUnusable):
        await file_stage.store.get("r")
    put_back(path)
    for call in (file_stage.store.get, file_stage.start):
        with pytest.raises(StoreUnusable):
            await call("r")


async def test_a_watching_store_makes_no_file_where_one_was_deleted(file_stage: Stage, path: Path):
    await file_stage.start()
    delete(path)
    leave = file_stage.store.subscribe(lambda: None)
    await until(lambda: file_stage.store._watcher._glancing is not None, "it looks")
    leave()
    assert path.name not in files_of(path.parent)


async def test_a_file_that_was_deleted_before_the_first_write_is_not_made_anew(path: Path):
    await (await open_store(f"sqlite:///{path}", clock=ManualClock())).close()
    store = await open_store(f"sqlite:///{path}", clock=ManualClock())
    move_away(path)
    with pytest.raises(StoreUnusable, match="was moved, deleted or replaced"):
        await store.start([NewRun("new", "flow", "1", INPUT, 0)])
    assert path.name not in files_of(path.parent)
    await store.close()


async def test_a_file_that_is_lost_during_a_commit_leaves_its_outcome_unknown(file_stage: Stage, path: Path):
    await file_stage.start()

    def lose(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE runtrue_runs SET priority = 9")
        delete(path)

    with pytest.raises(OutcomeUnknown, match="was lost during the commit"):
        await file_stage.store._writer.run(lose)


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a system without locks that outlive the closing of another descriptor."""
    monkeypatch.setattr(place, "_lock_descriptors", lambda *_: None)


async def test_a_log_that_another_process_deleted_is_noticed(no_locks: None, file_stage: Stage, path: Path):
    await file_stage.start("a")
    shutil.copy(path, path.with_name("backup.db"))
    assert another_process(path, "SELECT count(*) FROM runtrue_runs") == "[(1,)]"
    assert not log(path).exists(), "the copy has dropped our locks"
    with pytest.raises(StoreUnusable):
        await file_stage.start("b")


LOSING = """
import asyncio, os, pathlib, subprocess, sys
from runtrue.clock import SystemClock
from runtrue.errors import StoreUnusable
from runtrue.store import open_store
from runtrue.store.protocol import NewRun
from runtrue.store.sqlite import place

place._lock_descriptors = lambda *_: None

async def main(path, other):
    store = await open_store(f"sqlite:///{path}", clock=SystemClock())
    await store.start([NewRun("a", "flow", "1", b"{}", 0)])
    await store.tidy()
    await store.start([NewRun("b", "flow", "1", b"{}", 0)])
    await store.count_runs()
    os.unlink(f"{path}-wal")
    os.unlink(f"{path}-shm")
    subprocess.run([sys.executable, "-c", other, path], check=True)
    try:
        await store.count_runs()
    except StoreUnusable:
        await store.close()

asyncio.run(main(*sys.argv[1:]))
"""
ANOTHER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("UPDATE runtrue_runs SET priority = 7")
connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
connection.close()
"""


def test_a_store_that_lost_its_log_does_not_write_it_over_what_others_wrote(path: Path):
    """SQLite itself would: the last who closes folds its log into the file, also the one that was deleted."""
    subprocess.run([sys.executable, "-c", LOSING, str(path), ANOTHER], check=True)
    assert execute(path, "SELECT id, priority FROM runtrue_runs") == [("a", 7)]
    assert execute(path, "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.skipif(not LINUX, reason="only Linux has locks that no close of another descriptor undoes")
async def test_a_copy_made_by_this_process_does_not_cost_the_log(file_stage: Stage, path: Path):
    """Any close of the file drops the locks of the whole process on it, and the next who closes deletes the log."""
    await file_stage.running()
    shutil.copy(path, path.with_name("backup.db"))
    assert another_process(path, "SELECT count(*) FROM runtrue_runs") == "[(1,)]"
    assert log(path).exists()
    await file_stage.start("after")
    assert (await file_stage.verb(Command.CANCEL)).status is Status.CANCELLING
    assert (
        another_process(path, "SELECT id, status FROM runtrue_runs ORDER BY id")
        == "[('after', 'pending'), ('r', 'cancelling')]"
    )


async def test_the_log_is_folded_into_the_file_by_the_last_store_that_closes(path: Path):
    one, other = [await open_store(f"sqlite:///{path}", clock=ManualClock()) for _ in range(2)]
    await one.start([NewRun("r", "flow", "1", INPUT, 0)])
    await one.close()
    assert log(path).exists()
    shutil.copy(path, path.with_name("backup.db"))
    assert another_process(path, "SELECT count(*) FROM runtrue_runs") == "[(1,)]"
    assert log(path).exists() or not LINUX, "the other one holds it still"
    await other.start([NewRun("s", "flow", "1", INPUT, 0)])
    await other.close()
    assert not log(path).exists()


async def test_a_connection_of_the_users_own_keeps_its_locks_when_a_store_closes(path: Path):
    store = await open_store(f"sqlite:///{path}", clock=ManualClock())
    await store.start([NewRun("r", "flow", "1", INPUT, 0)])
    with hands_on(path) as own:
        assert own.execute("SELECT count(*) FROM runtrue_runs").fetchone() == (1,)
        await store.close()
        another_process(path, "SELECT count(*) FROM runtrue_runs")
        assert log(path).exists()
        own.execute("CREATE TABLE mine (x)")
    assert execute(path, "SELECT count(*) FROM mine") == [(0,)]


# ---------------------------------------------------------------- names
@pytest.mark.parametrize(
    "name", [b"a ?mode=memory&b#c%20.db", b"%.db", b"not \xff utf-8.db", "zürich.db".encode(), b":memory:", b"a:b.db"]
)
async def test_a_file_may_have_any_name(tmp_path: Path, name: bytes):
    path = tmp_path / os.fsdecode(name)
    for _ in range(2):
        store = await open_store(f"sqlite:///{path}", clock=ManualClock())
        await store.count_runs()
        await store.close()
    assert files_of(tmp_path) == {path.name, f"{path.name}.turn"}


async def test_a_file_that_cannot_be_made_is_told(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connection, "_uri", lambda path, mode: f"file:///nowhere/x.db?mode={mode}")
    with pytest.raises(StoreUnusable, match="cannot be made: unable to open database file; name another file"):
        await open_store(f"sqlite:///{path}", clock=ManualClock())
