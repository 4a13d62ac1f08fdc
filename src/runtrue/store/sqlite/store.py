"""The store on SQLite: one writer thread, readers beside it, several processes on one file."""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from runtrue.clock import Clock
from runtrue.errors import OutcomeUnknown
from runtrue.lifecycle import Status
from runtrue.records import (
    AttemptRecord,
    CommandRecord,
    Event,
    Hold,
    Message,
    Pause,
    RunRecord,
    StepRecord,
    Wait,
    WorkerRecord,
)
from runtrue.store.protocol import (
    Claimed,
    CommandReply,
    CommandRequest,
    EffectsReply,
    Finding,
    Heartbeat,
    NewRun,
    NewWorker,
    OwnedRun,
    RunEffects,
    RunFilter,
    SchemaStatus,
    Started,
    Swept,
)
from runtrue.store.sqlite import (
    checks,
    claiming,
    commands,
    journal,
    queries,
    schema,
    starting,
    sweeping,
    workers,
)
from runtrue.store.sqlite.location import parse_url, prepare
from runtrue.store.sqlite.place import Place
from runtrue.store.sqlite.readers import Readers
from runtrue.store.sqlite.watching import Watcher
from runtrue.store.sqlite.writer import Writer

Result = TypeVar("Result")
Connection = sqlite3.Connection


class SqliteStore:
    """Implements Store. In memory there is one connection, and reads pass through the writer as well."""

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._watcher = Watcher(path, clock)
        place = Place(path)
        self._writer = Writer(path, place, self._watcher.notify)
        self._readers = None if path is None else Readers(path, place)

    @classmethod
    async def open(cls, url: str, *, clock: Clock, create: bool = True) -> Self:
        """Open the database at `url` and bring its schema up to date.

        Raises StoreUnusable with what to do, ConfigurationError for a URL that names no file, StoreBusy where somebody
        else writes to the file all the time.
        """
        path = parse_url(url)
        await asyncio.get_running_loop().run_in_executor(None, partial(prepare, path, create=create))
        store = cls(path, clock)
        try:
            await store.migrate()
        except BaseException:
            await store.close()
            raise
        return store

    async def close(self) -> None:
        await self._watcher.close()
        await self._writer.close()
        if self._readers is not None:
            await self._readers.close()

    # ---------------------------------------------------------------- schema
    async def migrate(self) -> SchemaStatus:
        # A look first: whoever only wants to read must not have to wait for somebody who writes.
        if self._path is not None and await self._read(schema.is_current):
            return self._schema_status(schema.LATEST)
        version = await self._write(schema.migrate)
        return self._schema_status(version)

    async def schema_status(self) -> SchemaStatus:
        return self._schema_status(await self._read(schema.version_of))

    def _schema_status(self, version: int) -> SchemaStatus:
        location = "memory" if self._path is None else str(self._path)
        return SchemaStatus(version, schema.LATEST, location, f"SQLite {sqlite3.sqlite_version}")

    # ---------------------------------------------------------------- runs from outside
    async def start(self, runs: Sequence[NewRun]) -> list[Started]:
        return await self._write(lambda connection, now: starting.start(connection, runs, now))

    async def get(self, run_id: str, *, payloads: bool = True) -> RunRecord | None:
        return await self._read(lambda connection: queries.get(connection, run_id, payloads))

    async def statuses(self, run_ids: Sequence[str]) -> dict[str, tuple[Status, int]]:
        return await self._read(lambda connection: queries.statuses(connection, run_ids))

    async def list_runs(self, where: RunFilter, limit: int, before: tuple[int, str] | None = None) -> list[RunRecord]:
        return await self._read(lambda connection: queries.list_runs(connection, where, limit, before))

    async def count_runs(self) -> dict[Status, int]:
        return await self._read(queries.count_runs)

    async def steps(self, run_id: str) -> tuple[list[StepRecord], list[AttemptRecord]]:
        return await self._read(lambda connection: claiming.history(connection, run_id))

    async def events(self, run_id: str, after: int = 0, limit: int = 1000) -> list[Event]:
        return await self._read(lambda connection: queries.events(connection, run_id, after, limit))

    async def holds(self, run_id: str | None = None, *, open_only: bool = False) -> list[Hold]:
        return await self._read(lambda connection: queries.holds(connection, run_id, open_only))

    async def pauses(self, run_id: str) -> list[Pause]:
        return await self._read(lambda connection: queries.pauses(connection, run_id))

    async def commands(self, run_id: str) -> list[CommandRecord]:
        return await self._read(lambda connection: queries.commands(connection, run_id))

    async def waits(self, run_id: str) -> list[Wait]:
        return await self._read(lambda connection: queries.waits(connection, run_id))

    async def messages(self, run_id: str) -> list[Message]:
        return await self._read(lambda connection: queries.messages(connection, run_id))

    async def published(self, run_id: str) -> dict[str, bytes]:
        return await self._read(lambda connection: queries.published(connection, run_id))

    async def children(self, run_id: str) -> list[RunRecord]:
        return await self._read(lambda connection: queries.children(connection, run_id))

    async def command(self, request: CommandRequest) -> CommandReply:
        try:
            return await self._writer.run(
                lambda connection: commands.carry_out(connection, request, self._clock.now()), impatient=True
            )
        except OutcomeUnknown as error:
            error.request_id = request.request_id
            raise

    # ---------------------------------------------------------------- workers
    async def register_worker(self, worker: NewWorker) -> None:
        await self._write(lambda connection, now: workers.register(connection, worker, now))

    def renew(self, beat: Heartbeat) -> list[OwnedRun] | None:
        return self._writer.run_from_thread(lambda connection: workers.renew(connection, beat, self._clock.now()))

    async def retire_worker(self, worker_id: str) -> None:
        await self._write(lambda connection, now: workers.retire(connection, worker_id, now))

    async def workers(self) -> list[WorkerRecord]:
        return await self._read(workers.workers)

    async def claim(self, worker_id: str, serves: Sequence[tuple[str, str]], limit: int) -> list[Claimed]:
        return await self._write_quietly(
            lambda connection, now: claiming.claim(connection, worker_id, serves, limit, now)
        )

    async def next_ready_at(self, serves: Sequence[tuple[str, str]]) -> int | None:
        return await self._read(lambda connection: claiming.next_ready_at(connection, serves, self._clock.now()))

    async def record(self, worker_id: str, effects: Sequence[RunEffects]) -> list[EffectsReply]:
        writer = self._writer
        return await self._write_quietly(
            lambda connection, now: journal.record(connection, worker_id, effects, now, one_by_one=writer.one_by_one)
        )

    async def sweep(self, limit: int = 500) -> Swept:
        return await self._write(lambda connection, now: sweeping.sweep(connection, limit, now))

    # ---------------------------------------------------------------- upkeep
    async def check(self) -> list[Finding]:
        return await self._read(lambda connection: checks.check(connection, self._clock.now()))

    async def tidy(self) -> None:
        await self._writer.run(_shorten_log, outside=True)

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        return self._watcher.subscribe(callback)

    # ---------------------------------------------------------------- how
    async def _write(self, work: Callable[[Connection, int], Result]) -> Result:
        return await self._writer.run(lambda connection: work(connection, self._clock.now()))

    async def _write_quietly(self, work: Callable[[Connection, int], Result]) -> Result:
        """For what a worker writes at every step: the subscribers of this store hear of it at their next glance at the
        file, fifty times a second at most, and not with each commit.
        """
        quiet = self._path is not None
        return await self._writer.run(lambda connection: work(connection, self._clock.now()), quiet=quiet)

    async def _read(self, read: Callable[[Connection], Result]) -> Result:
        return await (self._readers or self._writer).run(read)


def _shorten_log(connection: Connection) -> None:
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
