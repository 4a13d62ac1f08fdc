"""Threads that read beside the writer, each with a connection of its own."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from runtrue.errors import StoreError
from runtrue.store.sqlite.connection import connect_reader
from runtrue.store.sqlite.forks import at_work
from runtrue.store.sqlite.place import Place

Result = TypeVar("Result")

_THREADS = 2


class Readers:
    """Runs reads, each in one read transaction that ends with the call: an open one would let the log grow."""

    def __init__(self, path: Path, place: Place) -> None:
        self._path = path
        self._place = place
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="runtrue-reader")
        self._own = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._closed = False

    async def run(self, read: Callable[[sqlite3.Connection], Result]) -> Result:
        """Run `read` on one of the threads. Raises StoreBusy if the file stayed locked, StoreUnusable if it is lost."""
        if self._closed:
            raise StoreError(f"the store on {self._path} is closed; open it again")
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, read)

    def _read(self, read: Callable[[sqlite3.Connection], Result]) -> Result:
        try:
            with at_work:
                connection = self._connection()
                connection.execute("BEGIN")
                try:
                    result = read(connection)
                finally:
                    connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise self._place.translate(error) from error
        self._place.check()
        return result

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._own, "connection", None)
        if connection is None:
            self._place.check()
            connection = connect_reader(self._path)
            try:
                self._place.enter(connection)
            except BaseException:
                self._place.close(connection)
                raise
            self._own.connection = connection
            self._connections.append(connection)
        return connection

    async def close(self) -> None:
        """Let the running reads end, then close."""
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(None, self._pool.shutdown)
        while self._connections:
            self._place.close(self._connections.pop())
