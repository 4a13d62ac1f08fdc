"""Reads. Each runs in one read transaction, so that what it puts together belongs together."""

import heapq
import itertools
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from runtrue.lifecycle import Status
from runtrue.records import CommandRecord, Event, Hold, Message, Pause, Progress, Request, RunRecord, Wait
from runtrue.store.protocol import RunFilter
from runtrue.store.sqlite import facts
from runtrue.store.sqlite.claiming import tags_of
from runtrue.store.statements import load_statements

_SQL = load_statements(Path(__file__).with_name("queries.sql"))

Connection = sqlite3.Connection

_AFTER_ALL = (2**63 - 1, "")


def get(connection: Connection, run_id: str, payloads: bool) -> RunRecord | None:
    """One run, with its payloads if they are asked for; None where there is no such run."""
    bodies: dict[str, bytes] = {}
    if payloads:
        bodies = dict(connection.execute(_SQL["payloads"], {"run_id": run_id}).fetchall())
    found = _runs(connection, [run_id], bodies)
    return found[0] if found else None


def statuses(connection: Connection, run_ids: Sequence[str]) -> dict[str, tuple[Status, int]]:
    """Status and event sequence of each of these runs that exists."""
    rows = connection.execute(_SQL["statuses"], {"ids": _json(list(run_ids))})
    return {run_id: (Status(status), seq) for run_id, status, seq in rows}


def list_runs(connection: Connection, where: RunFilter, limit: int, before: tuple[int, str] | None) -> list[RunRecord]:
    """A page of runs, newest first. Several statuses are as many walks along the index, merged."""
    given: dict[str, object] = {
        "before_at": (before or _AFTER_ALL)[0],
        "before_id": (before or _AFTER_ALL)[1],
        "since": where.since if where.since is not None else 0,
        "workflow": where.workflow,
        "tags": _json(dict(where.tags)),
        "limit": limit,
    }
    if where.statuses:
        pages = [
            connection.execute(_SQL["page_of_status"], {**given, "status": status}).fetchall()
            for status in sorted(set(where.statuses))
        ]
    else:
        walk = "page" if where.workflow is None else "page_of_workflow"
        pages = [connection.execute(_SQL[walk], given).fetchall()]
    newest = itertools.islice(heapq.merge(*pages, reverse=True), limit)
    return _runs(connection, [run_id for _, run_id in newest], {})


def count_runs(connection: Connection) -> dict[Status, int]:
    """How many runs are in each status that occurs."""
    return {Status(status): count for status, count in connection.execute(_SQL["count"])}


def events(connection: Connection, run_id: str, after: int, limit: int) -> list[Event]:
    """What happened to a run after `after`: events, steps and failed attempts in the order of their commits."""
    row = connection.execute(_SQL["event_seq"], {"run_id": run_id}).fetchone()
    if row is None or row[0] <= after:
        return []
    rows = connection.execute(_SQL["events"], {"run_id": run_id, "after": after, "limit": limit})
    return [Event(run_id, seq, at, type_, msgspec.json.decode(data)) for seq, at, type_, data in rows]


def holds(connection: Connection, run_id: str | None, open_only: bool) -> list[Hold]:
    """The holds of a run, or of all runs, oldest first."""
    name = "holds_of_run" if run_id is not None else "open_holds" if open_only else "all_holds"
    given = {"run_id": run_id, "open_only": open_only} if run_id is not None else {}
    return [facts.hold_of(row) for row in connection.execute(_SQL[name], given)]


def pauses(connection: Connection, run_id: str) -> list[Pause]:
    """The pauses of a run, oldest first."""
    return [Pause(*row) for row in connection.execute(_SQL["pauses"], {"run_id": run_id})]


def commands(connection: Connection, run_id: str) -> list[CommandRecord]:
    """The commands given to a run, oldest first, refused ones too."""
    rows = connection.execute(_SQL["commands"], {"run_id": run_id})
    return [
        CommandRecord(run_id, request_id, verb, actor, reason, at, answer, Status(status))
        for request_id, verb, actor, reason, at, answer, status in rows
    ]


def waits(connection: Connection, run_id: str) -> list[Wait]:
    """The waits of a run by place, closed ones too."""
    return [Wait(*row) for row in connection.execute(_SQL["waits"], {"run_id": run_id})]


def messages(connection: Connection, run_id: str) -> list[Message]:
    """The messages that were sent to a run, oldest first."""
    return [Message(*row) for row in connection.execute(_SQL["messages"], {"run_id": run_id})]


def published(connection: Connection, run_id: str) -> dict[str, bytes]:
    """What a run has published, by key."""
    return dict(connection.execute(_SQL["published"], {"run_id": run_id}).fetchall())


def children(connection: Connection, run_id: str) -> list[RunRecord]:
    """The children of a run, oldest first."""
    run_ids = [child_id for (child_id,) in connection.execute(_SQL["children"], {"run_id": run_id})]
    return _runs(connection, run_ids, {})


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _runs(connection: Connection, run_ids: Sequence[str], bodies: dict[str, bytes]) -> list[RunRecord]:
    """The runs that exist, in the order of `run_ids`, each with the same `bodies`."""
    return [_run_of(row, bodies) for row in connection.execute(_SQL["runs"], {"ids": _json(list(run_ids))})]


# The columns of the statement `runs` that stand in the record as they are, in the statement's order.
_PLAIN = (
    *("id", "workflow", "version", "priority", "ready_at", "epoch", "worker_id", "wakeups", "open_run_holds"),
    *("event_seq", "steps_done", "losses", "attempt", "idempotency_key", "created_at", "started_at", "finished_at"),
    *("updated_at", "parent_id", "children_left", "deadline_at"),
)


def _run_of(row: tuple[Any, ...], bodies: dict[str, bytes]) -> RunRecord:
    status, verb, by, at, reason, done, total, note, reported_at, tags, *plain = row
    return RunRecord(
        status=Status(status),
        request=None if verb is None else Request(verb, by, at, reason),
        progress=None if reported_at is None else Progress(done, total, note, reported_at),
        tags=tags_of(tags),
        input=bodies.get("input"),
        output=bodies.get("output"),
        error=bodies.get("error"),
        **dict(zip(_PLAIN, plain, strict=True)),
    )
