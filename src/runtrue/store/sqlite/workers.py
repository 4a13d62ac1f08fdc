"""The rows of the workers: registration, renewal of the lease, farewell."""

import sqlite3
from pathlib import Path
from typing import Any

import msgspec

from runtrue.errors import Conflict
from runtrue.lifecycle import Status
from runtrue.records import InFlight, WorkerRecord
from runtrue.store.protocol import Heartbeat, NewWorker, OwnedRun
from runtrue.store.sqlite import fitting
from runtrue.store.statements import load_statements

_SQL = load_statements(Path(__file__).with_name("workers.sql"))


def register(connection: sqlite3.Connection, worker: NewWorker, now: int) -> None:
    """Insert the row of a new worker, alive for its lease, and let runs try again whose code did not fit before.

    Raises Conflict for an id that was used before.
    """
    row = {
        "id": worker.id,
        "host": worker.host,
        "pid": worker.pid,
        "now": now,
        "lease_until": now + worker.lease,
        "slots": worker.slots,
        "serves": msgspec.json.encode(list(worker.serves)).decode(),
    }
    try:
        connection.execute(_SQL["register"], row)
    except sqlite3.IntegrityError:
        raise Conflict(f"worker id {worker.id} was used before; every opened worker needs a new one") from None
    fitting.let_go(connection, worker.id, worker.code_digests, now)


def renew(connection: sqlite3.Connection, beat: Heartbeat, now: int) -> list[OwnedRun] | None:
    """Renew the lease of an alive worker. None for any other: it must drop its runs."""
    row = {
        "id": beat.worker_id,
        "now": now,
        "lease_until": now + beat.lease,
        "loop_seen_at": beat.loop_seen_at,
        "in_flight": msgspec.json.encode(list(beat.in_flight)).decode(),
        "stalled_in": beat.stalled_in,
        "fenced_writes": beat.fenced_writes,
    }
    if connection.execute(_SQL["renew"], row).rowcount != 1:
        return None
    owned = connection.execute(_SQL["owned_runs"], {"id": beat.worker_id})
    return [OwnedRun(run_id, epoch, Status(status), wakeups) for run_id, epoch, status, wakeups in owned]


def retire(connection: sqlite3.Connection, worker_id: str, now: int) -> None:
    """The worker has said goodbye. One that was lost before stays lost."""
    connection.execute(_SQL["retire"], {"id": worker_id, "now": now})


def workers(connection: sqlite3.Connection) -> list[WorkerRecord]:
    """All workers that ever registered, oldest first."""
    return [_worker_of(row) for row in connection.execute(_SQL["workers"])]


# The columns of the statement `workers` that stand in the record as they are, in the statement's order.
_PLAIN = (
    *("id", "host", "pid", "status", "started_at", "heartbeat_at", "lease_until", "loop_seen_at", "slots"),
    *("stalled_in", "runs_held", "fenced_writes"),
)


def _worker_of(row: tuple[Any, ...]) -> WorkerRecord:
    serves, in_flight, *plain = row
    return WorkerRecord(
        serves=msgspec.json.decode(serves, type=list[str]),
        in_flight=msgspec.json.decode(in_flight, type=list[InFlight]),
        **dict(zip(_PLAIN, plain, strict=True)),
    )
