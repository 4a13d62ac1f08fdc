"""Tells subscribers that the database has changed: at once for our own commits, by a glance at the file for others'."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

from runtrue.clock import Clock
from runtrue.store.sqlite.connection import connect_reader

_GLANCE_SECONDS = 0.02


class Watcher:
    """The subscribers of one store. The file is looked at only while there are some."""

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._subscribers: dict[int, Callable[[], None]] = {}
        self._subscriptions = 0
        self._glancing: asyncio.Task[None] | None = None

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` on the event loop after changes. Returns the unsubscriber, which may be called twice."""
        self._subscriptions += 1
        number = self._subscriptions
        self._subscribers[number] = callback
        if self._path is not None and self._glancing is None:
            # The first look is taken here: a commit that comes right after this call must make a difference.
            connection = connect_reader(self._path, busy_seconds=0)
            glance = self._glance(connection, _data_version(connection))
            self._glancing = asyncio.get_running_loop().create_task(glance)
            self._glancing.add_done_callback(lambda _: connection.close())

        def unsubscribe() -> None:
            self._subscribers.pop(number, None)
            if not self._subscribers:
                self._end_glancing()

        return unsubscribe

    def notify(self) -> None:
        """Call every subscriber."""
        for callback in list(self._subscribers.values()):
            callback()

    async def close(self) -> None:
        """Forget the subscribers and let go of the file."""
        self._subscribers.clear()
        glancing = self._glancing
        self._end_glancing()
        if glancing is not None:
            await asyncio.wait((glancing,))

    def _end_glancing(self) -> None:
        if self._glancing is not None:
            self._glancing.cancel()
            self._glancing = None

    async def _glance(self, connection: sqlite3.Connection, seen: int | None) -> None:
        while True:
            await self._clock.sleep(_GLANCE_SECONDS)
            version = _data_version(connection)
            if version is not None and version != seen:
                seen = version
                self.notify()


def _data_version(connection: sqlite3.Connection) -> int | None:
    """A number that differs once another connection has committed; it is read from a page of shared memory.

    None where the file could not be looked at just now: a hint that is late is not worth an error.
    """
    try:
        return int(connection.execute("PRAGMA data_version").fetchone()[0])
    except sqlite3.Error:
        return None
