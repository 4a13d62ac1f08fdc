"""Puts right the runs whose worker is gone, and cancels those whose time is over or whose parent does not want them.

Any number of sweepers may do it at once.
"""

import sqlite3
from pathlib import Path

import msgspec

from runtrue.lifecycle import TERMINAL, HoldKind, Status
from runtrue.records import InFlight
from runtrue.store.protocol import LOSSES_BEFORE_HOLD, Swept
from runtrue.store.sqlite import cancelling, facts, waits
from runtrue.store.statements import load_statements

_SQL = load_statements(Path(__file__).with_name("sweeping.sql"))

_ACTOR = "sweeper"
_CAUSE_OF = {"lost": "its lease ran out", "stopped": "it stopped before it let go of the run", None: "its row is gone"}


def sweep(connection: sqlite3.Connection, limit: int, now: int) -> Swept:
    """Mark workers lost first, which is final, then release up to `limit` runs that no alive worker owns.

    Then cancel up to `limit` runs that are past their deadline or whose parent does not want them any more.
    """
    lost = [worker_id for (worker_id,) in connection.execute(_SQL["lose_workers"], {"now": now}).fetchall()]
    orphans = connection.execute(_SQL["orphans"], {"limit": limit}).fetchall()
    held = [
        _release(connection, run_id, epoch, worker_id, worker_status, now)
        for run_id, epoch, worker_id, worker_status in orphans
    ]
    cancelled = _cancel(connection, limit, now)
    more = len(orphans) == limit or cancelled == limit
    return Swept(lost, len(orphans), sum(held), more=more, runs_cancelled=cancelled)


def _cancel(connection: sqlite3.Connection, limit: int, now: int) -> int:
    """Cancel overdue runs, then forsaken children, down through the generations. Returns how many."""
    overdue = connection.execute(_SQL["overdue"], {"now": now, "limit": limit}).fetchall()
    for (run_id,) in overdue:
        cancelling.cancel(connection, run_id, now, actor="deadline", reason="its deadline has passed", cause="deadline")
    count = len(overdue)
    while count < limit:
        forsaken = connection.execute(_SQL["forsaken"], {"limit": limit - count}).fetchall()
        if not forsaken:
            break
        for run_id, parent_id, why in forsaken:
            reason = f"its parent {parent_id} {why}"
            cancelling.cancel(connection, run_id, now, actor="parent", reason=reason, cause="parent")
        count += len(forsaken)
    return count


def _release(
    connection: sqlite3.Connection, run_id: str, epoch: int, worker_id: str, worker_status: str | None, now: int
) -> bool:
    """Release one run, guarded by the epoch and worker it was found with. True if it was put under a hold."""
    given = {"run_id": run_id, "epoch": epoch, "worker_id": worker_id, "now": now}
    row = connection.execute(_SQL["hold_orphan"], given | {"losses_before_hold": LOSSES_BEFORE_HOLD}).fetchone()
    held = row is not None
    status, seq, losses, ready_at = row or connection.execute(_SQL["release_orphan"], given).fetchone()
    lost: dict[str, object] = {"worker": worker_id, "epoch": epoch, "cause": _CAUSE_OF[worker_status], "losses": losses}
    if status == Status.PENDING:
        facts.add_events(connection, [facts.event(run_id, seq, now, "worker_lost", lost | {"ready_at": ready_at})])
        return False
    events = [facts.event(run_id, seq - 2 if held else seq - 1, now, "worker_lost", lost)]
    data: dict[str, object] = {"by": _ACTOR, "cause": "worker_lost"}
    if held:
        kind = HoldKind.KEEPS_LOSING_ITS_WORKER
        reason = f"{losses} workers were lost without a newly recorded step{_last_seen(connection, run_id, worker_id)}"
        events.append(facts.open_hold(connection, run_id, seq - 1, kind, now, actor=_ACTOR, reason=reason))
        data |= {"cause": kind, "reason": reason}
    if status == Status.PAUSED:
        data["pause_id"] = facts.open_pause(connection, run_id, now)
    facts.add_events(connection, [*events, facts.event(run_id, seq, now, status, data)])
    if status in TERMINAL:
        waits.settle(connection, [run_id], now)
    return held


def _last_seen(connection: sqlite3.Connection, run_id: str, worker_id: str) -> str:
    """Which step of the run the lost worker told with its last heartbeat: most likely the one that takes it down."""
    row = connection.execute(_SQL["in_flight"], {"worker_id": worker_id}).fetchone()
    told = [] if row is None else msgspec.json.decode(row[0], type=list[InFlight])
    return next(
        (
            f"; the last one was in step {step.step} (attempt {step.attempt}) at its last heartbeat"
            for step in told
            if step.run_id == run_id
        ),
        "",
    )
