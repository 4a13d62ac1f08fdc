"""What a change of a run brings with it in the same transaction: events, holds, the pause with its manifest.

An event's place in its run is `event_seq`, which the statement that changes the run has raised beforehand. Holds tell
of their opening and closing in events of their own; the event of the status comes last, so that whoever reads up to
a terminal event has read everything.
"""

import sqlite3
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec

from runtrue import ids
from runtrue.errors import StoreError
from runtrue.lifecycle import HoldKind
from runtrue.records import Hold
from runtrue.store.statements import load_statements

SQL = load_statements(Path(__file__).with_name("facts.sql"))

EventRow = tuple[str, int, int, str, str]

_encode = msgspec.json.Encoder().encode


def event(run_id: str, seq: int, at: int, type_: str, data: dict[str, object]) -> EventRow:
    """The row of an event. `data` must be ready for JSON."""
    return (run_id, seq, at, type_, _encode(data).decode())


def add_events(connection: sqlite3.Connection, rows: Collection[EventRow]) -> None:
    """Append events in the order given."""
    connection.executemany(SQL["add_event"], rows)


def last_event(connection: sqlite3.Connection, run_id: str, seq: int) -> tuple[str, dict[str, object]]:
    """Type and data of the event at `seq`; empty where something else stands there."""
    row = connection.execute(SQL["last_event"], {"run_id": run_id, "seq": seq}).fetchone()
    return ("", {}) if row is None else (row[0], msgspec.json.decode(row[1]))


def open_hold(
    connection: sqlite3.Connection,
    run_id: str,
    seq: int,
    kind: HoldKind,
    now: int,
    *,
    actor: str,
    reason: str,
    code_digest: str = "",
) -> EventRow:
    """Open a hold; its event at `seq` is the caller's to add. The statement that held the run has counted it."""
    hold_id = ids.new_hold_id()
    given = {"id": hold_id, "run_id": run_id, "kind": kind, "now": now, "actor": actor, "reason": reason}
    connection.execute(SQL["open_hold"], given | {"code_digest": code_digest})
    data: dict[str, object] = {"hold_id": hold_id, "kind": kind, "by": actor, "reason": reason}
    return event(run_id, seq, now, "hold_opened", data)


def close_holds(
    connection: sqlite3.Connection, run_id: str, now: int, *, actor: str, outcome: str, kinds: Collection[HoldKind]
) -> list[tuple[str, str]]:
    """Close the open holds of these kinds. Returns (id, kind) of each; their events are the caller's to add."""
    closing = {"run_id": run_id, "now": now, "actor": actor, "outcome": outcome, "kinds": _encode(list(kinds)).decode()}
    return connection.execute(SQL["close_holds"], closing).fetchall()


def closed_events(
    run_id: str, first_seq: int, now: int, closed: Sequence[tuple[str, str]], *, actor: str, outcome: str
) -> list[EventRow]:
    """One `hold_closed` event for each hold, from `first_seq` on."""
    return [
        event(run_id, seq, now, "hold_closed", {"hold_id": hold_id, "kind": kind, "by": actor, "outcome": outcome})
        for seq, (hold_id, kind) in enumerate(closed, first_seq)
    ]


def open_holds(connection: sqlite3.Connection, run_id: str) -> list[Hold]:
    """The holds of the run that are open, oldest first."""
    return [hold_of(row) for row in connection.execute(SQL["open_holds"], {"run_id": run_id})]


def hold_of(row: tuple[Any, ...]) -> Hold:
    """A row of the holds table, in the order of the record's fields."""
    hold_id, run_id, kind, *rest = row
    return Hold(hold_id, run_id, HoldKind(kind), *rest)


def open_pause(connection: sqlite3.Connection, run_id: str, now: int) -> str:
    """Commit to the pause of a run that the same transaction has made `paused`. Returns the pause's id."""
    pause_id = ids.new_pause_id()
    done = connection.execute(SQL["open_pause"], {"id": pause_id, "run_id": run_id, "now": now})
    if done.rowcount != 1:
        raise StoreError(f"run {run_id} is not paused, so no pause can be recorded; nothing was changed")
    return pause_id


def end_pause(connection: sqlite3.Connection, run_id: str, now: int) -> None:
    """End the active pause, if there is one."""
    connection.execute(SQL["end_pause"], {"run_id": run_id, "now": now})


def active_pause(connection: sqlite3.Connection, run_id: str) -> tuple[str, int, int] | None:
    """Id, number of steps and digest of the active pause."""
    return connection.execute(SQL["active_pause"], {"run_id": run_id}).fetchone()


def recount_history(connection: sqlite3.Connection, run_id: str) -> tuple[int, int]:
    """Number and combined digest of the steps that are recorded, read from the steps themselves."""
    count = digest = 0
    for (step_digest,) in connection.execute(SQL["step_digests"], {"run_id": run_id}):
        count += 1
        digest ^= step_digest
    return count, digest


def why_snapshot_unfit(connection: sqlite3.Connection, run_id: str) -> str:
    """Why the active pause's snapshot does not fit the steps that are recorded; empty where it does."""
    active = active_pause(connection, run_id)
    if active is None:
        return ""
    pause_id, steps_done, digest = active
    found, found_digest = recount_history(connection, run_id)
    if (found, found_digest) == (steps_done, digest):
        return ""
    return (
        f"the snapshot of pause {pause_id} does not fit the recorded steps ({steps_done} steps with digest {digest:x} "
        f"then, {found} with {found_digest:x} now), so the run stays paused; restore the steps or cancel the run"
    )
