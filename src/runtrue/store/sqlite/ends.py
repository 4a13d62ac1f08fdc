"""How a worker lets go of a run: it parks, releases or finishes it."""

import sqlite3
from pathlib import Path
from typing import Any

from runtrue.lifecycle import TERMINAL, HoldKind, Status
from runtrue.store.protocol import (
    EffectsReply,
    End,
    Finish,
    ParkBlocked,
    ParkHeld,
    ParkRequested,
    Recorded,
    Release,
    RunEffects,
)
from runtrue.store.sqlite import facts
from runtrue.store.sqlite.rows import Rows
from runtrue.store.statements import load_statements

_SQL = load_statements(Path(__file__).with_name("ends.sql"))

_EVENT_OF = {
    Status.PENDING: "released",
    Status.WAITING: "waiting",
    Status.PAUSED: "paused",
    Status.COMPLETED: "completed",
    Status.FAILED: "failed",
    Status.CANCELLED: "cancelled",
}
_PAYLOAD_OF = {Status.COMPLETED: "output", Status.FAILED: "error"}


def apply(connection: sqlite3.Connection, worker_id: str, effect: RunEffects, rows: Rows, now: int) -> EffectsReply:
    """Carry out the end of one run, guarded by fence and status, and put what it brings into `rows`."""
    end = effect.end
    assert end is not None
    statement, parameters = _statement(end)
    fence = {"run_id": effect.run_id, "epoch": effect.epoch, "worker_id": worker_id, "now": now}
    row = connection.execute(_SQL[statement], {**fence, **parameters}).fetchone()
    if row is None:
        return _not_applied(connection, worker_id, effect)
    status, wakeups, seq = Status(row[0]), row[1], row[2]
    data: dict[str, object] = {"worker": worker_id, "epoch": effect.epoch}
    match end:
        case ParkHeld():
            hold = {"actor": worker_id, "reason": end.reason, "code_digest": end.code_digest}
            rows.events.append(facts.open_hold(connection, effect.run_id, seq - 1, end.kind, now, **hold))
            data |= {"cause": end.kind, "reason": end.reason}
        case ParkBlocked():
            data["ready_at"] = end.ready_at
        case Finish():
            _finish(connection, effect.run_id, end, status, rows, now, asked=row[3], seq=seq, by=worker_id)
            if end.reason:
                data["reason"] = end.reason
        case ParkRequested() | Release():
            data["cause"] = "requested" if isinstance(end, ParkRequested) else "released"
    if status is Status.PAUSED:
        data["pause_id"] = facts.open_pause(connection, effect.run_id, now)
    rows.events.append(facts.event(effect.run_id, seq, now, _EVENT_OF[status], data))
    if status in TERMINAL:
        rows.ended.append(effect.run_id)
    return EffectsReply(Recorded.OK, status, wakeups)


def _statement(end: End) -> tuple[str, dict[str, Any]]:
    match end:
        case ParkRequested():
            return "park_requested", {}
        case ParkBlocked():
            return "park_blocked", {
                "wakeups": end.wakeups,
                "ready_at": end.ready_at,
                "by_any_child": end.by_any_child,
            }
        case ParkHeld():
            return "park_held", {}
        case Release():
            return "release", {}
        case Finish():
            return f"finish_{end.target}", {"reason": end.reason}


def _finish(
    connection: sqlite3.Connection,
    run_id: str,
    end: Finish,
    status: Status,
    rows: Rows,
    now: int,
    *,
    asked: str | None,
    seq: int,
    by: str,
) -> None:
    """Keep the payload, but for a run that ended cancelled, and close a pause that it never reached."""
    if end.payload is not None and status in _PAYLOAD_OF:
        rows.payloads.append((run_id, _PAYLOAD_OF[status], end.payload))
    if asked is not None:
        moot = facts.close_holds(connection, run_id, now, actor=by, outcome="moot", kinds=tuple(HoldKind))
        rows.events += facts.closed_events(run_id, seq - len(moot), now, moot, actor=by, outcome="moot")


def _not_applied(connection: sqlite3.Connection, worker_id: str, effect: RunEffects) -> EffectsReply:
    """No row fitted: the end is refused, or the run is another's, or this very end was committed before.

    The last is how a batch whose commit was not acknowledged is met when it comes again: the run's last event is then
    the one of this worker under this epoch.
    """
    row = connection.execute(_SQL["run"], (effect.run_id,)).fetchone()
    if row is None:
        return EffectsReply(Recorded.FENCED, None)
    status, wakeups, seq, epoch, owner = Status(row[0]), row[1], row[2], row[3], row[4]
    if owner == worker_id and epoch == effect.epoch:
        return EffectsReply(Recorded.REFUSED, status, wakeups)
    type_, data = facts.last_event(connection, effect.run_id, seq)
    fence = {"worker": worker_id, "epoch": effect.epoch}
    by_this_end = type_ == _EVENT_OF.get(status) and fence.items() <= data.items()
    return EffectsReply(Recorded.OK if by_this_end else Recorded.FENCED, status, wakeups)
