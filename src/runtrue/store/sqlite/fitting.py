"""A worker brings code for runs whose code did not fit their history: they may try again."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import msgspec

from runtrue.lifecycle import HoldKind
from runtrue.store.sqlite import facts
from runtrue.store.statements import load_statements

SQL = load_statements(Path(__file__).with_name("fitting.sql"))


def let_go(
    connection: sqlite3.Connection, worker_id: str, code_digests: Sequence[tuple[str, str, str]], now: int
) -> None:
    """Close the `code_mismatch` holds of runs that this code, (workflow, version, digest), has never been held by.

    A run whose snapshot does not fit its recorded steps stays paused, as it would for a person who resumes it.
    """
    given = {"code_digests": msgspec.json.encode(code_digests).decode()}
    for run_id, closing in connection.execute(SQL["may_fit"], given).fetchall() if code_digests else ():
        if not facts.why_snapshot_unfit(connection, run_id):
            _let_go(connection, run_id, worker_id, closing, now)


def _let_go(connection: sqlite3.Connection, run_id: str, worker_id: str, closing: int, now: int) -> None:
    row = connection.execute(SQL["code_fits"], {"run_id": run_id, "closing": closing, "now": now}).fetchone()
    if row is None:
        return
    seq, still_open = row
    kinds = (HoldKind.CODE_MISMATCH,)
    closed = facts.close_holds(connection, run_id, now, actor=worker_id, outcome="resumed", kinds=kinds)
    first = seq - closing + (1 if still_open else 0)
    events = facts.closed_events(run_id, first, now, closed, actor=worker_id, outcome="resumed")
    if not still_open:
        facts.end_pause(connection, run_id, now)
        data: dict[str, object] = {"by": worker_id, "reason": "it brings other code", "cause": "code_fits"}
        events.append(facts.event(run_id, seq, now, "resumed", data))
    facts.add_events(connection, events)
