"""How the connections of a store are set."""

import sqlite3

import pytest
from tests.conformance.stage import Stage


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


async def test_a_read_transaction_is_over_when_its_call_returns(file_stage: Stage):
    """One that stayed open would let the write-ahead log grow for as long."""
    await file_stage.store.count_runs()
    connections = file_stage.store._readers._connections
    assert [connection.in_transaction for connection in connections] == [False] * len(connections) != []
