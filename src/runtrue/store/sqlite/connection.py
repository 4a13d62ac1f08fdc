"""Connections to the file, and what the database's errors mean to us."""

import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from runtrue.errors import StoreBusy, StoreError, StoreUnusable

BUSY_SECONDS = 1.8
"""How long anybody waits for the database before being told that it is busy. The promise to callers is 2 s."""

_STATEMENTS_CACHED = 256
_WAL_PAGES_BEFORE_CHECKPOINT = 4_000
_CACHE_KIB = 32 * 1024
"""Pages that the writer keeps in memory; with SQLite's own 2 MiB a busy file is read again and again."""
_WAL_BYTES_KEPT = 64 * 1024 * 1024

OWN_ERRORS = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    OverflowError,
    UnicodeEncodeError,
)
"""Errors that lie in what was to be written and come back at every try. Every other error is the database's."""

_UNUSABLE = frozenset(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR", "SQLITE_SCHEMA"))


def connect_writer(path: Path | None) -> sqlite3.Connection:
    """A connection that writes: write-ahead log, every commit on the disk before it is acknowledged.

    It never waits by itself: the one statement that may have to, BEGIN IMMEDIATE, brings its own bound.
    """
    connection = _connect(path, BUSY_SECONDS)
    try:
        _prepare_to_write(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare_to_write(connection: sqlite3.Connection, path: Path | None) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if path is not None and mode != "wal":
        raise StoreUnusable(f"{path} cannot have a write-ahead log (its journal mode stays {mode}); use a local disk")
    connection.execute("PRAGMA synchronous = FULL")
    # macOS: only a full fsync makes the drive write out its own cache. Without effect elsewhere.
    connection.execute("PRAGMA fullfsync = 1")
    connection.execute("PRAGMA checkpoint_fullfsync = 1")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES_BEFORE_CHECKPOINT}")
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES_KEPT}")
    connection.execute(f"PRAGMA cache_size = {-_CACHE_KIB}")
    connection.execute("PRAGMA busy_timeout = 0")


def connect_reader(path: Path, busy_seconds: float = BUSY_SECONDS) -> sqlite3.Connection:
    """A connection that cannot write. A read that meets a locked file is tried again for `busy_seconds`."""
    connection = _connect(path, busy_seconds)
    connection.execute("PRAGMA query_only = 1")
    return connection


def make_file(path: Path) -> None:
    """Make an empty database where there is none. The only way to one: no connection makes a file by being opened."""
    sqlite3.connect(_uri(path, "rwc"), uri=True).close()


def _connect(path: Path | None, busy_seconds: float) -> sqlite3.Connection:
    connection = sqlite3.connect(
        ":memory:" if path is None else _uri(path, "rw"),
        uri=path is not None,
        timeout=busy_seconds,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=_STATEMENTS_CACHED,
    )
    try:
        # RETURNING keeps its rows in a table for a moment. In a temporary file each such statement takes 60 µs more.
        connection.execute("PRAGMA temp_store = MEMORY")
    except BaseException:
        connection.close()
        raise
    return connection


def _uri(path: Path, mode: str) -> str:
    return f"file://{quote(os.fsencode(path))}?mode={mode}"


def is_busy(error: sqlite3.Error) -> bool:
    """True where somebody else holds the lock that was needed."""
    return (getattr(error, "sqlite_errorname", None) or "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def translate(error: sqlite3.Error, path: Path | None) -> StoreError:
    """What a database error means to the caller, where it is known that the transaction was rolled back."""
    where = "the database in memory" if path is None else str(path)
    name = getattr(error, "sqlite_errorname", None) or type(error).__name__
    if name == "SQLITE_NOTADB":
        return StoreUnusable(f"{where} is not a SQLite database; name another file")
    if name in _UNUSABLE or name.startswith("SQLITE_CORRUPT"):
        return StoreUnusable(f"{where} cannot be used: {error} ({name}); try `runtrue db status`, or restore a backup")
    if is_busy(error):
        return StoreBusy(f"{where} was busy; nothing was changed")
    return StoreBusy(f"{where} could not do it now: {error} ({name}); nothing was changed")
