"""Runs are born here, `pending`, each with its input and a `created` event."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import msgspec

from runtrue.lifecycle import Status
from runtrue.store.protocol import NewRun, Started
from runtrue.store.sqlite import facts
from runtrue.store.statements import load_statements

SQL = load_statements(Path(__file__).with_name("starting.sql"))


def start(connection: sqlite3.Connection, runs: Sequence[NewRun], now: int) -> list[Started]:
    """Insert the runs. One that exists under its id, or its workflow and key, is found instead, or is a conflict."""
    return [_start(connection, run, now) for run in runs]


def _start(connection: sqlite3.Connection, run: NewRun, now: int) -> Started:
    parent = run.parent
    row = {
        "id": run.id,
        "workflow": run.workflow,
        "version": run.version,
        "priority": run.priority,
        "ready_at": run.ready_at,
        "key": run.idempotency_key,
        "deadline_at": run.deadline_at,
        "parent_id": None if parent is None else parent.run_id,
        "parent_branch": None if parent is None else parent.branch,
        "parent_ordinal": None if parent is None else parent.ordinal,
        "parent_cancels": parent is not None and parent.cancels,
        "now": now,
    }
    try:
        connection.execute(SQL["add_run"], row)
    except sqlite3.IntegrityError:
        # The row is refused before anything is written. Its id or key is taken, or else the error is the caller's.
        found = connection.execute(SQL["same_start"], row | {"input": run.input}).fetchone()
        if found is None:
            raise
        return _found(run, *found)
    payloads: list[tuple[str, str, bytes | str]] = [(run.id, "input", run.input)]
    if run.tags:
        # As text: SQLite looks into it, and takes bytes for text of the database's own encoding, which may be UTF-16.
        payloads.append((run.id, "tags", msgspec.json.encode(run.tags).decode()))
    connection.executemany(SQL["add_payload"], payloads)
    data: dict[str, object] = {"by": run.actor, "workflow": run.workflow, "version": run.version}
    if parent is not None:
        data["parent"] = parent.run_id
    facts.add_events(connection, [facts.event(run.id, 1, now, "created", data)])
    return Started(run.id, True, Status.PENDING)


def _found(run: NewRun, run_id: str, status: str, same_workflow: int, same_input: int) -> Started:
    conflict = ""
    if not same_workflow:
        conflict = f"run {run_id} is of another workflow than {run.workflow}; choose another id"
    elif not same_input:
        under, what = ("this id", "id") if run_id == run.id else (f"key {run.idempotency_key}", "key")
        conflict = f"run {run_id} was started before under {under} with another input; choose another {what}"
    return Started(run_id, False, Status(status), conflict)
