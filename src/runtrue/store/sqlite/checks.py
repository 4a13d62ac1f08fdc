"""Looks for broken promises in a live database."""

import itertools
import sqlite3
from pathlib import Path

from runtrue.clock import MICROSECOND
from runtrue.store.protocol import NEVER, Finding
from runtrue.store.statements import load_statements

_SQL = load_statements(Path(__file__).with_name("checks.sql"))

_GRACE = 10 * MICROSECOND
"""A run may be without an alive owner for so long: sweepers need a moment."""


def check(connection: sqlite3.Connection, now: int) -> list[Finding]:
    """Every broken promise that the rows themselves can tell of. Reads all runs."""
    given = {"grace": _GRACE, "now": now, "never": NEVER}
    findings = [
        Finding(name.replace("_", " "), run_id, problem)
        for name, statement in _SQL.items()
        if name != "digests"
        for run_id, problem in connection.execute(statement, given)
    ]
    return findings + _recount(connection)


def _recount(connection: sqlite3.Connection) -> list[Finding]:
    """Compare each run's count and digest of its history with its recorded steps."""
    findings: list[Finding] = []
    rows = connection.execute(_SQL["digests"])
    for (run_id, steps_done, history_digest), steps in itertools.groupby(rows, key=lambda row: row[:3]):
        count = digest = 0
        for *_, step_digest in steps:
            if step_digest is not None:
                count += 1
                digest ^= step_digest
        if count != steps_done:
            findings.append(Finding("steps are counted", run_id, f"counts {steps_done} steps, {count} are recorded"))
        elif digest != history_digest:
            findings.append(Finding("steps are unchanged", run_id, "its steps do not fit the digest of its history"))
    return findings
