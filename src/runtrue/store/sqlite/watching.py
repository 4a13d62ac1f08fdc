"""Tells subscribers that the database has changed: at once for our own commits, by a glance at the file for others'."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

from runtrue.clock import Clock
from runtrue.store.sqlite.connection import connect_reader
from runtrue.store.sqlite.forks import at_work

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
            glance = _Glance(self._path)
            self._glancing = asyncio.get_running_loop().create_task(self._look_on(glance))
            self._glancing.add_done_callback(lambda _: glance.close())

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

    async def _look_on(self, glance: "_Glance") -> None:
        while True:
            await self._clock.sleep(_GLANCE_SECONDS)
            if glance.differs():
                self.notify()


class _Glance:
    """Sees that the file was changed, by a number in a page of shared memory. A hint, so it never raises."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._seen: int | None = None
        self.differs()

    def differs(self) -> bool:
        """True if another connection has committed since the last look; False also where no look was possible."""
        try:
            with at_work:
                if self._connection is None:
                    self._connection = connect_reader(self._path, busy_seconds=0)
                version = int(self._connection.execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.Error:
            return False
        differs, self._seen = version != self._seen, version
        return differs

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
