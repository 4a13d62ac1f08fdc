"""How the connections of a store are set."""

import sqlite3
from pathlib import Path

import pytest
from tests.conformance.stage import Stage
from tests.support.manual_clock import ManualClock

from runtrue.store import open_store


async def test_every_commit_is_on_the_disk_before_it_is_acknowledged(file_stage: Stage):
    """A test cannot cut the power; it can ask the connection that writes what it promises. 2 is FULL."""

    def settings(connection: sqlite3.Connection) -> list[object]:
        names = ("synchronous", "fullfsync", "checkpoint_fullfsync", "journal_mode")
        return [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names]

    assert await file_stage.store._writer.run(settings) == [2, 1, 1, "wal"]


async def test_a_reading_connection_cannot_write(file_stage: Stage):
    await file_stage.start()

    def write(connection: sqlite3.Connection) -> None:
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            connection.execute("UPDATE runtrue_runs SET priority = 9")

    await file_stage.store._readers.run(write)


async def test_a_read_transaction_is_over_when_its_call_returns(path: Path, clock: ManualClock):
    """One that stayed open would let the write-ahead log grow for as long."""
    store = await open_store(f"sqlite:///{path}", clock=clock)
    await store.count_runs()
    connections = store._readers._connections
    assert [connection.in_transaction for connection in connections] == [False] * len(connections) != []
    await store.close()
