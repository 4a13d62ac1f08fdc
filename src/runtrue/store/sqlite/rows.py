"""Rows that wait to be inserted, table by table, so that many runs share one statement."""

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runtrue.records import StepRecord
from runtrue.store.sqlite import facts
from runtrue.store.statements import load_statements

_SQL = load_statements(Path(__file__).with_name("rows.sql"))


@dataclass(slots=True)
class Rows:
    """What is to be inserted once the runs of a batch have passed the fence, by table; and which runs have ended."""

    steps: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    attempts: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    progress: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    payloads: list[tuple[str, str, bytes]] = field(default_factory=list[tuple[str, str, bytes]])
    events: list[facts.EventRow] = field(default_factory=list[facts.EventRow])
    ended: list[str] = field(default_factory=list[str])

    def insert(self, connection: sqlite3.Connection) -> None:
        if self.steps:
            connection.executemany(_SQL["add_step"], self.steps)
        if self.attempts:
            connection.executemany(_SQL["add_attempt"], self.attempts)
        if self.progress:
            connection.executemany(_SQL["set_progress"], self.progress)
        if self.payloads:
            connection.executemany(_SQL["add_payload"], self.payloads)
        if self.events:
            facts.add_events(connection, self.events)


def step_row(run_id: str, step: StepRecord) -> tuple[Any, ...]:
    """A step as `Rows.steps` holds it."""
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
