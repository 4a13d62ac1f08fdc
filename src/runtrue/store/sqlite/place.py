"""Whether the database still stands where it was opened, and what keeps its log from being deleted under us."""

import contextlib
import ctypes
import fcntl
import os
import sqlite3
import struct
import sys
import threading
from collections import Counter
from pathlib import Path

from runtrue.errors import StoreError, StoreUnusable
from runtrue.store.sqlite.connection import translate

Identity = tuple[int, int]

_SHARED_RANGE = (0x40000002, 510)
"""The bytes of the database file that SQLite locks: whoever has all of them to itself may delete the log."""

_guard = threading.Lock()
_holders: Counter[Identity] = Counter()
"""How many stores of this process have each file open."""


class Place:
    """The file and the log that a store has opened; all of them in memory where `path` is None.

    SQLite never notices that the file was deleted or that another was moved over it, and goes on writing where no name
    leads. The same happens when the log is deleted: any code that opens and closes the file (a copy, a look at its
    first bytes) drops the locks of the whole process on it, and the next process that closes the database takes itself
    for the last one.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._log = None if path is None else path.with_name(f"{path.name}-wal")
        self._opened: dict[Path, Identity] = {}
        self._held: Identity | None = None
        self._lost = False

    def enter(self, connection: sqlite3.Connection) -> None:
        """Remember what `connection` has opened. Raises StoreUnusable if it is another file than before."""
        if self._path is None or self._log is None:
            return
        connection.execute("PRAGMA schema_version").fetchone()  # the first read opens the log
        with _guard:
            found = {name: _identity(name) for name in (self._path, self._log)}
            self._opened = {name: opened for name, opened in found.items() if opened is not None} | self._opened
        self.check()
        if len(self._opened) == 2:  # While there is no log, a lock would keep others from beginning one.
            self._hold(self._opened[self._path])

    def lost(self) -> bool:
        """True once the file or its log stands there no more; then for good."""
        if not self._lost:
            self._lost = any(_identity(name) != opened for name, opened in self._opened.items())
        return self._lost

    def check(self) -> None:
        """Raise StoreUnusable if the place is lost."""
        if self.lost():
            raise StoreUnusable(
                f"{self._path} was moved, deleted or replaced while it was open, or its log {self._log} was; "
                "nothing was changed. Restart every process that uses it"
            )

    def translate(self, error: sqlite3.Error) -> StoreError:
        """What a database error means to the caller, where it is known that the transaction was rolled back."""
        try:
            self.check()
        except StoreUnusable as lost:
            return lost
        return translate(error, self._path)

    def leave(self) -> None:
        """Let whoever closes last fold the log into the file. To be called before the connections are closed."""
        with _guard:
            if self._held is None or self.lost():
                return
            _holders[self._held] -= 1
            if not _holders[self._held]:
                del _holders[self._held]
                _lock_descriptors(self._held, fcntl.F_UNLCK)
            self._held = None

    def close(self, connection: sqlite3.Connection) -> None:
        """Close `connection`, but none to a place that is lost.

        To close it, SQLite would write the log that it still has over what others have written since. So it is kept
        until the process is gone, also from the interpreter's own tidying at the end.
        """
        if self.lost():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        else:
            connection.close()

    def _hold(self, file: Identity) -> None:
        with _guard:
            if self._held is None:
                self._held = file
                _holders[file] += 1
            _lock_descriptors(file, fcntl.F_RDLCK)


def _identity(name: Path) -> Identity | None:
    try:
        found = name.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _lock_descriptors(file: Identity, kind: int) -> None:
    """Lock (or unlock) the file as SQLite does to read, in a way that no `close` of another descriptor undoes.

    Such a lock belongs to the open descriptor, so it is put on each that SQLite has. Only Linux has them, and a list
    of the descriptors; elsewhere a log that was deleted is noticed, not prevented.
    """
    if sys.platform != "linux":
        return
    request = struct.pack("hhqqi4x", kind, os.SEEK_SET, *_SHARED_RANGE, 0)
    with contextlib.suppress(OSError):  # no descriptor is left for the look
        for descriptor in Path("/proc/self/fd").iterdir():
            if _identity(descriptor) == file:
                with contextlib.suppress(OSError):  # closed meanwhile, or one that only writes
                    fcntl.fcntl(int(descriptor.name), fcntl.F_OFD_SETLK, request)
