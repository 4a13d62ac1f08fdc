"""A connection that fails when it is told to."""

import sqlite3
from collections.abc import Callable


class FaultyConnection(sqlite3.Connection):
    """Fails when it is told to: `fault` maps a statement's first word to what happens in its stead."""

    fault: tuple[str, Callable[[sqlite3.Connection, str], object]] | None = None

    def execute(self, sql: str, parameters: object = (), /) -> sqlite3.Cursor:  # type: ignore[override]
        if self.fault is not None and sql.startswith(self.fault[0]):
            happens = self.fault[1]
            FaultyConnection.fault = None
            happens(self, sql)
        return super().execute(sql, parameters)  # type: ignore[arg-type]


def error(text: str, name: str) -> sqlite3.OperationalError:
    made = sqlite3.OperationalError(text)
    made.sqlite_errorname = name  # type: ignore[misc]
    return made
