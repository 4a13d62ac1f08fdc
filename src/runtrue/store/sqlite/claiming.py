"""A worker takes runs that are due: by priority (low first), then ready_at, then id."""

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from runtrue.lifecycle import Status
from runtrue.records import AttemptRecord, StepRecord
from runtrue.store.protocol import Claimed
from runtrue.store.sqlite import facts, waits
from runtrue.store.statements import load_statements

SQL = load_statements(Path(__file__).with_name("claiming.sql"))

Serves = Sequence[tuple[str, str]]

_PRIORITY_BELOW_ALL = -(2**31) - 1


def claim(connection: sqlite3.Connection, worker_id: str, serves: Serves, limit: int, now: int) -> list[Claimed]:
    """Claim up to `limit` due runs for a worker whose row is `alive`, and read what is needed to execute them."""
    if connection.execute(SQL["is_alive"], (worker_id,)).fetchone() is None:
        return []
    run_ids = _candidates(connection, serves, limit, now)
    taken = connection.executemany(SQL["claim"], [(worker_id, now, now, run_id, now, now) for run_id in run_ids])
    # This transaction is the only writer, so all of them are still there; a claim that is half made must not be kept.
    assert not run_ids or taken.rowcount == len(run_ids)
    rows = connection.execute(SQL["claimed"], (msgspec.json.encode(run_ids).decode(),)).fetchall()
    claimed: list[Claimed] = []
    events: list[facts.EventRow] = []
    # Nothing can be recorded of a run that nobody had before.
    open_waits = waits.look(connection, [row[0] for row in rows if row[3] > 1], now)
    for run_id, workflow, version, epoch, status, wakeups, attempt, created_at, seq, parent_id, body, tags in rows:
        data: dict[str, object] = {"worker": worker_id, "epoch": epoch, "attempt": attempt}
        events.append(facts.event(run_id, seq, now, "claimed", data))
        steps, attempts = history(connection, run_id) if epoch > 1 else ([], [])
        claimed.append(
            Claimed(
                run_id=run_id,
                workflow=workflow,
                version=version,
                epoch=epoch,
                status=Status(status),
                wakeups=wakeups,
                attempt=attempt,
                input=body,
                tags=tags_of(tags),
                created_at=created_at,
                steps=steps,
                attempts=attempts,
                waits=open_waits.get(run_id, ()),
                parent_id=parent_id,
            )
        )
    facts.add_events(connection, events)
    return claimed


def next_ready_at(connection: sqlite3.Connection, serves: Serves, now: int) -> int | None:
    """The earliest ready_at of the pending and waiting runs of these workflows and versions."""
    found = [
        connection.execute(SQL["first_ready_at"], (workflow, version, priority, now)).fetchone()[0]
        for workflow, version in serves
        for priority in _priorities(connection, workflow, version)
    ]
    return min((ready_at for ready_at in found if ready_at is not None), default=None)


def history(connection: sqlite3.Connection, run_id: str) -> tuple[list[StepRecord], list[AttemptRecord]]:
    """The recorded steps and the failed attempts of a run, by place."""
    steps = [StepRecord(*row) for row in connection.execute(SQL["steps"], (run_id,))]
    attempts = [AttemptRecord(*row) for row in connection.execute(SQL["attempts"], (run_id,))]
    return steps, attempts


def tags_of(body: str | None) -> dict[str, str]:
    """The tags as they were recorded."""
    return {} if body is None else msgspec.json.decode(body, type=dict[str, str])


def _candidates(connection: sqlite3.Connection, serves: Serves, limit: int, now: int) -> list[str]:
    """Ids of due runs in the order of claims. Walks the priorities upwards until enough are found."""
    walks = {pair: _priorities(connection, *pair) for pair in serves}
    heads = {pair: next(walk, None) for pair, walk in walks.items()}
    chosen: list[str] = []
    while len(chosen) < limit:
        waiting = [priority for priority in heads.values() if priority is not None]
        if not waiting:
            break
        lowest = min(waiting)
        level: list[tuple[int, str]] = []
        for pair, priority in heads.items():
            if priority == lowest:
                level += connection.execute(
                    SQL["candidates"], (*pair, lowest, now, now, limit - len(chosen))
                ).fetchall()
                heads[pair] = next(walks[pair], None)
        level.sort()
        chosen += [run_id for _, run_id in level[: limit - len(chosen)]]
    return chosen


def _priorities(connection: sqlite3.Connection, workflow: str, version: str) -> Iterator[int]:
    """The distinct priorities among the claimable runs, upwards; each is one look into the index."""
    priority: int | None = _PRIORITY_BELOW_ALL
    while True:
        (priority,) = connection.execute(SQL["next_priority"], (workflow, version, priority)).fetchone()
        if priority is None:
            return
        yield priority
