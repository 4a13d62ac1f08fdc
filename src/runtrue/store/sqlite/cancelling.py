"""A run is ended from outside: by a verb, by its deadline, or because its parent does not want it any more."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from runtrue.lifecycle import TERMINAL, Command, HoldKind, Status
from runtrue.store.sqlite import facts, waits
from runtrue.store.statements import load_statements

SQL = load_statements(Path(__file__).with_name("cancelling.sql"))

Connection = sqlite3.Connection


def cancel(
    connection: Connection,
    run_id: str,
    now: int,
    *,
    actor: str,
    reason: str,
    cause: str,
    verb: Command = Command.CANCEL,
) -> Status | None:
    """Cancel or terminate a run. Returns the status that it has reached by this; None if it has changed nothing."""
    given = {"run_id": run_id, "actor": actor, "reason": reason, "now": now}
    row = connection.execute(SQL[verb], given).fetchone()
    if row is None:
        return None
    status = Status(row[0])
    type_ = "cancelled" if status is Status.CANCELLED else "cancel_requested"
    said: dict[str, object] = {"by": actor, "reason": reason, "cause": cause}
    close_all(connection, run_id, now, row[1], type_, said)
    if status in TERMINAL:
        waits.settle(connection, [run_id], now)
    return status


def close_all(
    connection: Connection,
    run_id: str,
    now: int,
    seq: int,
    type_: str,
    said: dict[str, object],
    answered: Sequence[tuple[str, str]] = (),
) -> None:
    """Close what still holds the run as moot, end its pause, and add the event of the status, at `seq`: what is `said`.

    The events of the holds stand before it, first those of the holds that were `answered` with fail.
    """
    actor = str(said["by"])
    moot = facts.close_holds(connection, run_id, now, actor=actor, outcome="moot", kinds=tuple(HoldKind))
    facts.end_pause(connection, run_id, now)
    first = seq - len(moot) - len(answered)
    events = facts.closed_events(run_id, first, now, answered, actor=actor, outcome="fail")
    events += facts.closed_events(run_id, first + len(answered), now, moot, actor=actor, outcome="moot")
    events.append(facts.event(run_id, seq, now, type_, said))
    facts.add_events(connection, events)
