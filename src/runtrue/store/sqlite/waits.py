"""What a run waits for: messages, and the ends of its children.

A wait is looked at when it is opened, when its run asks for a look, and when the run is claimed. What is met is
recorded as a step at the place of the wait, in the same transaction. `children_left` on the run's row counts its open
waits for children that have not ended: it is lowered when the child ends, which is told to whoever waits, and not once
more when the wait is met.
"""

import sqlite3
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from runtrue import codec
from runtrue.errors import Conflict, NotFound
from runtrue.lifecycle import TERMINAL, Status
from runtrue.records import StepRecord, Wait
from runtrue.store.protocol import ChildStart, OpenWait, RunEffects
from runtrue.store.sqlite import facts, starting
from runtrue.store.sqlite.connection import OWN_ERRORS
from runtrue.store.sqlite.rows import Rows, step_row
from runtrue.store.statements import load_statements

SQL = load_statements(Path(__file__).with_name("waits.sql"))

Connection = sqlite3.Connection

_encode = msgspec.json.Encoder().encode


def apply(connection: Connection, effect: RunEffects, rows: Rows, now: int) -> tuple[list[StepRecord], int]:
    """Carry out what a run that has passed the fence wants beside its steps: children, waits, values to publish.

    Returns the steps that stand at the places of these, recorded now or before, and by how much this has raised the
    wake counter.
    """
    book = _Book(connection, effect.run_id, now)
    for branch, ordinal in effect.closed_waits:
        book.close_as_moot(branch, ordinal)
    for child in effect.children:
        book.start(child)
    for opening in effect.waits:
        book.open(opening)
    if effect.looks:
        effect.met = book.look_again(effect.met)
    if effect.published:
        published = [(effect.run_id, key, body, now) for key, body in effect.published.items()]
        connection.executemany(SQL["publish"], published)
    book.enter(rows)
    return book.standing + book.steps, book.given_back


def look(connection: Connection, run_ids: Sequence[str], now: int) -> dict[str, list[Wait]]:
    """Meet what can be met for runs that were just claimed. Returns the waits that stay open, by run.

    Rows that do not fit each other (a hand has written to the file) cost their own run its look, and no other run its
    claim.
    """
    if not run_ids:
        return {}
    still_open: dict[str, list[Wait]] = {}
    for (run_id,) in connection.execute(SQL["who_waits"], {"run_ids": _encode(run_ids).decode()}).fetchall():
        book, rows = _Book(connection, run_id, now), Rows()
        connection.execute("SAVEPOINT look")
        try:
            still_open[run_id] = book.look()
            book.enter(rows)
            rows.insert(connection)
        except OWN_ERRORS:
            connection.execute("ROLLBACK TO look")
            still_open[run_id] = []
        connection.execute("RELEASE look")
    return still_open


def place_taken(connection: Connection, run_id: str, branch: str, ordinal: int) -> StepRecord | Wait | None:
    """What stands at a place: the step, or else the wait that is registered there."""
    given = {"run_id": run_id, "branch": branch, "ordinal": ordinal}
    row = connection.execute(SQL["step_at"], given).fetchone()
    if row is not None:
        return StepRecord(*row)
    row = connection.execute(SQL["wait_at"], given).fetchone()
    return None if row is None else Wait(*row)


def settle(connection: Connection, ended: Collection[str], now: int) -> None:
    """Tell those who wait for these runs that they have ended, and close what they waited for themselves.

    To be called once for each run that has reached a terminal status, when its payloads are written. A wait for it
    stays open: its own run meets it.
    """
    if not ended:
        return
    given = {"ended": _encode(list(ended)).decode(), "now": now}
    connection.execute(SQL["close_moot"], given)
    events: list[facts.EventRow] = []
    for run_id, count, unsuccessful, child in connection.execute(SQL["parents"], given).fetchall():
        parent = {"run_id": run_id, "count": count, "now": now}
        woken = connection.execute(SQL["wake_parent"], parent | {"unsuccessful": unsuccessful}).fetchone()
        if woken is None:
            connection.execute(SQL["tell_parent"], parent)
        else:
            events.append(facts.event(run_id, woken[0], now, "woken", {"cause": "child", "child": child}))
    facts.add_events(connection, events)


@dataclass(slots=True)
class _Book:
    """What is recorded of one run in one transaction beside what its worker brings."""

    connection: Connection
    run_id: str
    now: int
    steps: list[StepRecord] = field(default_factory=list[StepRecord])
    standing: list[StepRecord] = field(default_factory=list[StepRecord])
    """Steps that were recorded before at the places which are asked for."""
    children: int = 0
    """By how much `children_left` changes."""
    given_back: int = 0
    """How many messages somebody else may receive again."""

    def start(self, start: ChildStart) -> None:
        """Start a child at a place where nothing stands yet; a place that is taken is refused by the database."""
        (started,) = starting.start(self.connection, [start.run], self.now)
        wait, record = start.wait, start.record
        why = started.conflict
        if started.run_id == self.run_id:
            why = f"run {self.run_id} cannot be its own child; choose another id"
        if wait is not None:
            wait.subject = started.run_id
            outcome = _not_a_run(Conflict(why)) if why else None if started.created else self._outcome(wait)
            self._register(wait, outcome, "met")
        elif record is not None:
            record.output, record.error = (
                (None, _not_a_run(Conflict(why)).error) if why else (_encode(started.run_id), None)
            )
            record.digest = codec.place_digest(record.branch, record.ordinal, record.output, record.error)
            self.steps.append(record)

    def open(self, opening: OpenWait) -> None:
        """Open a wait, or ask for one that is registered: meet it, or give it up if it shall not stay open."""
        wait = opening.wait
        found = place_taken(self.connection, self.run_id, wait.branch, wait.ordinal)
        if isinstance(found, StepRecord):
            self.standing.append(found)
            return
        registered = found is not None and found.closed_at is None
        wait = found if found is not None and registered else wait
        outcome = self._outcome(wait)
        how = "met"
        if outcome is None and opening.gives_up is not None:
            outcome, how = _Outcome(None, opening.gives_up), "expired"
        if not registered:
            self._register(wait, outcome, how)
        elif outcome is not None:
            self.close(wait.branch, wait.ordinal, how)
            self._record(wait, outcome)

    def look(self) -> list[Wait]:
        """Meet all open waits that can be met. Returns the others."""
        rows = self.connection.execute(SQL["open_waits"], {"run_id": self.run_id}).fetchall()
        return [wait for *row, may_be_met in rows if not self._meet(wait := Wait(*row), may_be_met)]

    def look_again(self, met: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """As `look`. What a try before this one has met at `met` is met again, or stands if that try was committed.

        Returns the places that were met by now.
        """
        for branch, ordinal in met:
            found = place_taken(self.connection, self.run_id, branch, ordinal)
            if isinstance(found, StepRecord):
                self.standing.append(found)
        self.look()
        return [(step.branch, step.ordinal) for step in self.standing + self.steps]

    def close(self, branch: str, ordinal: int, outcome: str) -> bool:
        """Close a wait, if it is open."""
        given = {"run_id": self.run_id, "branch": branch, "ordinal": ordinal, "now": self.now, "outcome": outcome}
        row = self.connection.execute(SQL["close_wait"], given).fetchone()
        if row is not None:
            self.children -= row[0]
        return row is not None

    def close_as_moot(self, branch: str, ordinal: int) -> None:
        """Close a wait that nobody needs any more. If a message has met it, that is given back."""
        if self.close(branch, ordinal, "moot"):
            return
        place = {"run_id": self.run_id, "branch": branch, "ordinal": ordinal}
        if self.connection.execute(SQL["unmeet"], place).fetchone() is not None:
            self.connection.execute(SQL["give_back"], place)
            self.given_back += 1

    def enter(self, rows: Rows) -> None:
        """Count what was recorded on the run's row, and number it."""
        if not (self.steps or self.children or self.given_back):
            return
        digest = 0
        for step in self.steps:
            digest ^= step.digest
        count = len(self.steps)
        given = {
            "run_id": self.run_id,
            "count": count,
            "children": self.children,
            "given_back": self.given_back,
            "digest": digest,
            "now": self.now,
        }
        (seq,) = self.connection.execute(SQL["advance"], given).fetchone()
        for step_seq, step in enumerate(self.steps, seq - count + 1):
            step.seq = step_seq
            rows.steps.append(step_row(self.run_id, step))

    # ------------------------------------------------------------ how
    def _meet(self, wait: Wait, may_be_met: bool) -> bool:
        outcome = self._outcome(wait) if may_be_met else None
        if outcome is None:
            return False
        self.close(wait.branch, wait.ordinal, "met")
        self._record(wait, outcome)
        return True

    def _register(self, wait: Wait, outcome: "_Outcome | None", how: str) -> None:
        """A wait of which nothing is known yet: open, or closed at once with its outcome."""
        given = {
            "run_id": self.run_id,
            "branch": wait.branch,
            "ordinal": wait.ordinal,
            "kind": wait.kind,
            "name": wait.name,
            "subject": wait.subject,
            "opened_at": wait.opened_at,
            "deadline_at": wait.deadline_at,
            "closed_at": None if outcome is None else self.now,
            "outcome": None if outcome is None else how,
        }
        self.connection.execute(SQL["add_wait"], given)
        if outcome is not None:
            self._record(wait, outcome)
        elif wait.kind == "child":
            self.children += 1

    def _record(self, wait: Wait, outcome: "_Outcome") -> None:
        self.steps.append(
            StepRecord(
                branch=wait.branch,
                ordinal=wait.ordinal,
                name=wait.name,
                kind=wait.kind,
                attempt=outcome.attempt,
                output=outcome.output,
                error=outcome.error,
                started_at=wait.opened_at,
                finished_at=self.now,
                digest=codec.place_digest(wait.branch, wait.ordinal, outcome.output, outcome.error),
            )
        )

    def _outcome(self, wait: Wait) -> "_Outcome | None":
        """What a wait is met with; None if it is not met. Takes the message that meets it."""
        if wait.kind == "child":
            return _end_of(self.connection, wait.subject)
        place = {"run_id": self.run_id, "branch": wait.branch, "ordinal": wait.ordinal}
        given = {**place, "topic": wait.subject, "now": self.now}
        row = self.connection.execute(SQL["take_message"], given).fetchone()
        return None if row is None else _Outcome(row[0], None)


class _Outcome(NamedTuple):
    """What is recorded at the place of a wait."""

    output: bytes | None
    error: bytes | None
    attempt: int = 1


def _not_a_run(error: Exception) -> _Outcome:
    """A child that was not started, or is not there: its parent gets the error itself, not that of a run."""
    return _Outcome(None, codec.encode_error(error), attempt=0)


def _end_of(connection: Connection, run_id: str) -> _Outcome | None:
    """The end of a run, as its parent meets it; None while it has not ended."""
    row = connection.execute(SQL["child"], {"run_id": run_id}).fetchone()
    if row is None:
        return _not_a_run(NotFound(f"no run {run_id}; it was never started, or deleted since"))
    status, reason, output, error = Status(row[0]), *row[1:]
    if status not in TERMINAL:
        return None
    return _Outcome(None, codec.encode_cancelled(reason)) if status is Status.CANCELLED else _Outcome(output, error)
