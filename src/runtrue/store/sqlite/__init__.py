"""The store on SQLite."""

from runtrue.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
