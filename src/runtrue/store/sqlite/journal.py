"""The journal's side of the database: what many runs want recorded, written in one transaction.

First everything is tried at once. If something in it is refused, all is rolled back and each run is written by itself,
so that an effect which the database will never take costs its own run only, and a step that stands already is found.
"""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runtrue.lifecycle import Status
from runtrue.records import AttemptRecord, StepRecord
from runtrue.store.protocol import EffectsReply, Recorded, RunEffects
from runtrue.store.sqlite import ends
from runtrue.store.sqlite.connection import OWN_ERRORS
from runtrue.store.sqlite.rows import Rows
from runtrue.store.statements import load_statements

SQL = load_statements(Path(__file__).with_name("journal.sql"))

_ADVANCE, _TOUCH, _RUN = SQL["advance"], SQL["touch"], SQL["run"]
_STATUS = {status.value: status for status in Status}


def record(
    connection: sqlite3.Connection, worker_id: str, effects: Sequence[RunEffects], now: int
) -> list[EffectsReply]:
    """Record the effects of many runs within the open transaction; one reply for each, in order."""
    connection.execute("SAVEPOINT batch")
    try:
        rows = Rows()
        replies = [_apply(connection, worker_id, effect, rows, now) for effect in effects]
        rows.insert(connection)
    except OWN_ERRORS:
        connection.execute("ROLLBACK TO batch")
        replies = [_record_alone(connection, worker_id, effect, now) for effect in effects]
    connection.execute("RELEASE batch")
    return replies


def _apply(connection: sqlite3.Connection, worker_id: str, effect: RunEffects, rows: Rows, now: int) -> EffectsReply:
    """Pass the fence for one run and put what it brings into `rows`."""
    if effect.end is not None:
        return ends.apply(connection, worker_id, effect, rows, now)
    run_id, steps, attempts = effect.run_id, effect.steps, effect.attempts
    fence = (now, run_id, effect.epoch, worker_id)
    if steps:
        digest = 0
        for step in steps:
            digest ^= step.digest
        count = len(steps)
        row = connection.execute(_ADVANCE, (count + len(attempts), count, digest, digest, *fence)).fetchone()
    else:
        row = connection.execute(_TOUCH, (len(attempts), *fence)).fetchone()
    if row is None:
        return _not_recorded(connection, run_id, Recorded.FENCED)
    status, wakeups, seq = row
    seq -= len(steps) + len(attempts)
    for step in steps:
        seq += 1
        step.seq = seq
        rows.steps.append(_step_row(run_id, step))
    for attempt in attempts:
        seq += 1
        attempt.seq = seq
        rows.attempts.append(_attempt_row(run_id, attempt))
    progress = effect.progress
    if progress is not None:
        rows.progress.append((run_id, progress.done, progress.total, progress.note, progress.at))
    return EffectsReply(Recorded.OK, _STATUS[status], wakeups)


def _not_recorded(connection: sqlite3.Connection, run_id: str, recorded: Recorded) -> EffectsReply:
    """A reply with the row's own status and counter, None where there is no row."""
    row = connection.execute(_RUN, (run_id,)).fetchone()
    return EffectsReply(recorded, None) if row is None else EffectsReply(recorded, _STATUS[row[0]], row[1])


def _record_alone(connection: sqlite3.Connection, worker_id: str, effect: RunEffects, now: int) -> EffectsReply:
    """Record one run by itself: without the steps and attempts that stand already, and condemned if it is refused."""
    connection.execute("SAVEPOINT run")
    try:
        missing, existing = _split(connection, effect)
        rows = Rows()
        reply = _apply(connection, worker_id, missing, rows, now)
        rows.insert(connection)
        if reply.recorded is Recorded.OK:
            reply.existing = existing
    except OWN_ERRORS as error:
        connection.execute("ROLLBACK TO run")
        reply = _not_recorded(connection, effect.run_id, Recorded.CONDEMNED)
        reply.error = f"{type(error).__name__}: {error}"
    connection.execute("RELEASE run")
    return reply


def _split(connection: sqlite3.Connection, effect: RunEffects) -> tuple[RunEffects, list[StepRecord]]:
    """The effects without what is recorded at the same places already, and the steps recorded there."""
    run_id = effect.run_id
    missing = RunEffects(run_id, effect.epoch, progress=effect.progress, end=effect.end)
    existing: list[StepRecord] = []
    for step in effect.steps:
        row = connection.execute(SQL["step_at"], (run_id, step.branch, step.ordinal)).fetchone()
        if row is None:
            missing.steps.append(step)
        else:
            existing.append(StepRecord(*row))
    for attempt in effect.attempts:
        place = (run_id, attempt.branch, attempt.ordinal, attempt.attempt)
        if connection.execute(SQL["has_attempt"], place).fetchone() is None:
            missing.attempts.append(attempt)
    return missing, existing


def _step_row(run_id: str, step: StepRecord) -> tuple[Any, ...]:
    return (
        run_id,
        step.branch,
        step.ordinal,
        step.seq,
        step.digest,
        step.name,
        step.kind,
        step.attempt,
        step.started_at,
        step.finished_at,
        step.wake_at,
        step.output,
        step.error,
    )


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
