"""Migrations and triggers."""

import sqlite3
from pathlib import Path

from runtrue.errors import StoreUnusable
from runtrue.store.statements import load_statements

_HERE = Path(__file__).parent
_SQL = load_statements(_HERE / "schema.sql")
_TRIGGERS = load_statements(_HERE / "triggers.sql")
_MIGRATIONS = sorted((_HERE / "migrations").glob("[0-9]*.sql"))

LATEST = len(_MIGRATIONS)


def version_of(connection: sqlite3.Connection) -> int:
    """The version of the schema in this database; 0 where there is none yet."""
    if not connection.execute(_SQL["has_version_table"]).fetchone()[0]:
        return 0
    return int(connection.execute(_SQL["version"]).fetchone()[0])


def is_current(connection: sqlite3.Connection) -> bool:
    """True where nothing is left to do: the latest version, and the triggers as this code has them."""
    return version_of(connection) == LATEST and _present_triggers(connection) == _TRIGGERS


def migrate(connection: sqlite3.Connection, now: int) -> int:
    """Bring the schema up to LATEST within the transaction that is open, and the triggers to their present text.

    Whoever comes second finds the work done: the transaction is the only writer. Raises StoreUnusable for a schema
    that is newer than this code.
    """
    version = version_of(connection)
    if version > LATEST:
        raise StoreUnusable(
            f"the database has schema {version}, this runtrue knows {LATEST} at most; "
            "install the newer runtrue that made it, or use another file"
        )
    for number in range(version + 1, LATEST + 1):
        connection.execute(_SQL["version_table"])
        for statement in _statements(_MIGRATIONS[number - 1].read_text(encoding="utf-8")):
            connection.execute(statement)
        connection.execute(_SQL["applied"], {"version": number, "now": now})
    _renew_triggers(connection)
    return LATEST


def _statements(script: str) -> list[str]:
    """The statements of a script, as SQLite itself tells where one ends: no semicolon in a text or trigger misleads."""
    statements: list[str] = []
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            statements.append(statement)
            statement = ""
    return statements


def _renew_triggers(connection: sqlite3.Connection) -> None:
    present = _present_triggers(connection)
    if present == _TRIGGERS:
        return
    for name, table in connection.execute(_SQL["triggers_of_others"]):
        if name in _TRIGGERS:
            raise StoreUnusable(f"the trigger {name} on the table {table} has a name that runtrue needs; rename it")
    for name in present:
        connection.execute(f'DROP TRIGGER "{name}"')
    for text in _TRIGGERS.values():
        connection.execute(text)


def _present_triggers(connection: sqlite3.Connection) -> dict[str, str]:
    return dict(connection.execute(_SQL["triggers"]).fetchall())
