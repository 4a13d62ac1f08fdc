"""Laying hands on a SQLite file, as a person with the sqlite3 shell could."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def hands_on(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection of its own, with nothing set, that commits each statement."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=5)
    try:
        yield connection
    finally:
        connection.close()


def execute(path: Path, statement: str, *parameters: object) -> list[tuple[object, ...]]:
    with hands_on(path) as connection:
        return connection.execute(statement, parameters).fetchall()


def without_triggers(path: Path, statement: str, *parameters: object) -> None:
    """Damage that the triggers would refuse: what a broken disk or a hand without care leaves behind."""
    with hands_on(path) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        try:
            connection.execute(statement, parameters)
        finally:
            for _, text in triggers:
                connection.execute(text)
