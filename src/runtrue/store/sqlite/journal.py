"""The journal's side of the database: what many runs want recorded, written in one transaction.

First everything is tried at once. If something in it is refused, all is rolled back and each run is written by itself,
so that an effect which the database will never take costs its own run only, and a step that stands already is found.
"""

import dataclasses
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from runtrue.lifecycle import Status
from runtrue.records import AttemptRecord, StepRecord
from runtrue.store.protocol import ChildStart, EffectsReply, OpenWait, Recorded, RunEffects
from runtrue.store.sqlite import ends, waits
from runtrue.store.sqlite.connection import OWN_ERRORS
from runtrue.store.sqlite.rows import Rows, step_row
from runtrue.store.statements import load_statements

_SQL = load_statements(Path(__file__).with_name("journal.sql"))

_ADVANCE, _TOUCH, _RUNS = _SQL["advance"], _SQL["touch"], _SQL["runs"]
_encode = msgspec.json.Encoder().encode
_STATUS = {status.value: status for status in Status}


class ApartError(Exception):
    """Not every run of a batch passes the fence, or an effect is refused: record them one by one."""


def record(
    connection: sqlite3.Connection,
    worker_id: str,
    effects: Sequence[RunEffects],
    now: int,
    *,
    one_by_one: bool = False,
) -> list[EffectsReply]:
    """Record the effects of many runs within the open transaction; one reply for each, in order.

    All at once, unless `one_by_one`. Raises ApartError, or what the database says to a refused effect, if that cannot
    be: the caller rolls back and comes again with `one_by_one`, which raises nothing of the kind.
    """
    assert len({effect.run_id for effect in effects}) == len(effects), "a run may stand in a batch once"
    if one_by_one:
        return [_record_alone(connection, worker_id, effect, now) for effect in effects]
    replies = _record_together(connection, worker_id, effects, now)
    if replies is None:
        raise ApartError
    return replies


def _record_together(
    connection: sqlite3.Connection, worker_id: str, effects: Sequence[RunEffects], now: int
) -> list[EffectsReply] | None:
    """Record all at once. None if not every run passes the fence; what was changed by then must be rolled back."""
    ended = _end(connection, worker_id, [effect for effect in effects if effect.end is not None], now)
    going_on = [effect for effect in effects if effect.end is None]
    passed = _pass_fence(connection, worker_id, going_on, now)
    if passed is None:
        return None
    rows = Rows()
    after = iter(passed)
    replies = [
        _put_down(connection, effect, rows, now, *next(after)) if effect.end is None else next(ended)
        for effect in effects
    ]
    rows.insert(connection)
    return replies


def _end(
    connection: sqlite3.Connection, worker_id: str, effects: Sequence[RunEffects], now: int
) -> Iterator[EffectsReply]:
    """Carry out the ends of a batch, all that belongs to them included. Before the rest of the batch is recorded: a run
    in it that waits for one of these meets its end at once, and is told a wake counter that has counted it.
    """
    if not effects:
        return iter(())
    rows = Rows()
    replies = [ends.apply(connection, worker_id, effect, rows, now) for effect in effects]
    rows.insert(connection)
    waits.settle(connection, rows.ended, now)
    return iter(replies)


def _pass_fence(
    connection: sqlite3.Connection, worker_id: str, effects: Sequence[RunEffects], now: int
) -> list[tuple[str, int, int]] | None:
    """Raise the counters of all these runs under the fence; status, wake counter and event sequence of each then.

    None if the number of rows changed shows that one of them is fenced. Many rows by one statement and a read after
    it cost half of what a RETURNING of each row costs.
    """
    if not effects:
        return []
    advances: list[tuple[Any, ...]] = []
    touches: list[tuple[Any, ...]] = []
    for effect in effects:
        fence = (now, effect.run_id, effect.epoch, worker_id)
        steps = effect.steps
        if steps:
            digest = 0
            for step in steps:
                digest ^= step.digest
            count = len(steps)
            advances.append((count + len(effect.attempts), count, digest, digest, *fence))
        else:
            touches.append((len(effect.attempts), *fence))
    for statement, rows in ((_ADVANCE, advances), (_TOUCH, touches)):
        if rows and connection.executemany(statement, rows).rowcount != len(rows):
            return None
    run_ids = _encode([effect.run_id for effect in effects])
    return connection.execute(_RUNS, (run_ids.decode(),)).fetchall()


def _put_down(
    connection: sqlite3.Connection, effect: RunEffects, rows: Rows, now: int, status: str, wakeups: int, seq: int
) -> EffectsReply:
    """Number what a run that has passed the fence brings, and put it into `rows`. `seq` has counted it."""
    run_id = effect.run_id
    seq -= len(effect.steps) + len(effect.attempts)
    for step in effect.steps:
        seq += 1
        step.seq = seq
        rows.steps.append(step_row(run_id, step))
    for attempt in effect.attempts:
        seq += 1
        attempt.seq = seq
        rows.attempts.append(_attempt_row(run_id, attempt))
    progress = effect.progress
    if progress is not None:
        rows.progress.append((run_id, progress.done, progress.total, progress.note, progress.at))
    reply = EffectsReply(Recorded.OK, _STATUS[status], wakeups)
    if effect.waits or effect.children or effect.looks or effect.closed_waits or effect.published:
        reply.existing, raised = waits.apply(connection, effect, rows, now)
        reply.wakeups += raised
    return reply


def _not_recorded(connection: sqlite3.Connection, run_id: str, recorded: Recorded) -> EffectsReply:
    """A reply with the row's own status and counter, None where there is no row."""
    row = connection.execute(_SQL["run"], (run_id,)).fetchone()
    return EffectsReply(recorded, None) if row is None else EffectsReply(recorded, _STATUS[row[0]], row[1])


def _record_alone(connection: sqlite3.Connection, worker_id: str, effect: RunEffects, now: int) -> EffectsReply:
    """Record one run by itself: without the steps and attempts that stand already, and condemned if it is refused."""
    connection.execute("SAVEPOINT run")
    try:
        missing, existing = _split(connection, effect)
        replies = _record_together(connection, worker_id, [missing], now)
        if replies is None:
            reply = _not_recorded(connection, effect.run_id, Recorded.FENCED)
        else:
            reply = replies[0]
            reply.existing = [*existing, *reply.existing]
            effect.met = missing.met
    except OWN_ERRORS as error:
        connection.execute("ROLLBACK TO run")
        reply = _not_recorded(connection, effect.run_id, Recorded.CONDEMNED)
        reply.error = f"{type(error).__name__}: {error}"
    connection.execute("RELEASE run")
    return reply


def _split(connection: sqlite3.Connection, effect: RunEffects) -> tuple[RunEffects, list[StepRecord]]:
    """The effects without what is recorded at the same places already, and the steps recorded there.

    A child that was started already and is waited for leaves its wait, to be asked for.
    """
    run_id = effect.run_id
    steps: list[StepRecord] = []
    attempts: list[AttemptRecord] = []
    existing: list[StepRecord] = []
    for step in effect.steps:
        row = connection.execute(_SQL["step_at"], (run_id, step.branch, step.ordinal)).fetchone()
        if row is None:
            steps.append(step)
        else:
            existing.append(StepRecord(*row))
    for attempt in effect.attempts:
        place = (run_id, attempt.branch, attempt.ordinal, attempt.attempt)
        if connection.execute(_SQL["has_attempt"], place).fetchone() is None:
            attempts.append(attempt)
    children: list[ChildStart] = []
    openings = list(effect.waits)
    for child in effect.children:
        place = child.wait or child.record
        assert place is not None, "a child is started at a place"
        found = waits.place_taken(connection, run_id, place.branch, place.ordinal)
        if isinstance(found, StepRecord):
            existing.append(found)
        elif found is not None:
            openings.append(OpenWait(found))
        else:
            children.append(child)
    missing = dataclasses.replace(effect, steps=steps, attempts=attempts, children=children, waits=openings)
    return missing, existing


def _attempt_row(run_id: str, attempt: AttemptRecord) -> tuple[Any, ...]:
    return (
        run_id,
        attempt.branch,
        attempt.ordinal,
        attempt.attempt,
        attempt.seq,
        attempt.name,
        attempt.started_at,
        attempt.failed_at,
        attempt.next_at,
        attempt.error,
    )
