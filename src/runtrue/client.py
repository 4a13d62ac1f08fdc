"""Client: start runs, look at them, and give them commands. It executes nothing."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Literal, ParamSpec, Self, TypeAlias, TypeVar, cast, overload

from runtrue import codec
from runtrue.authoring import Duration, RunSettings, Workflow, datetime_of, seconds_of
from runtrue.clock import Clock, SystemClock
from runtrue.config import Setting, resolve_database
from runtrue.errors import (
    ConfigurationError,
    ErrorInfo,
    ResultTimeout,
    RunCancelled,
    RunFailed,
)
from runtrue.lifecycle import TERMINAL, Status
from runtrue.records import Event, Hold, RunRecord
from runtrue.service import Outcome, Service, StartOptions
from runtrue.store import Store, open_store
from runtrue.store.protocol import NewRun
from runtrue.watcher import RunWatcher

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

WaitFor: TypeAlias = Literal["finished", "paused", "waiting", "completed", "failed", "cancelled"]
START_BATCH = 500


@dataclass(frozen=True, slots=True)
class Run(Generic[R_co]):
    """A run as its row was when it was read. `output` is set once it is completed, `error` once it has failed."""

    id: str
    workflow: str
    version: str
    status: Status
    attempt: int
    steps_done: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    output: R_co | None = None
    error: ErrorInfo | None = None
    reason: str = ""
    """Why a pause or cancel was asked, as whoever asked it wrote."""


class RunHandle(Generic[R_co]):
    """A run, seen from outside. It holds an id; every call asks the database."""

    def __init__(self, client: "Client", run_id: str, result_type: Any = Any) -> None:
        self._client = client
        self._id = run_id
        self._result_type = result_type

    def __repr__(self) -> str:
        return f"<run {self._id}>"

    @property
    def id(self) -> str:
        """The run's id."""
        return self._id

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the end and return what the workflow returned.

        Raises RunFailed, RunCancelled, or ResultTimeout after `timeout`: the wait ends, the run goes on.
        """
        await self._reach(TERMINAL, timeout)
        run = await self._client.service.get(self._id)
        if run.status is Status.COMPLETED:
            return codec.decode(run.output or b"null", self._result_type, what=f"the result of run {self._id}")
        if run.status is Status.FAILED:
            raise RunFailed(self._id, codec.decode_error(run.error or b"{}"))
        raise RunCancelled(self._id, run.request.reason if run.request else "")

    async def status(self) -> Status:
        """The run's status now. Raises NotFound."""
        return (await self._client.service.get(self._id, payloads=False)).status

    async def info(self) -> Run[R_co]:
        """The run as its row is now. Raises NotFound."""
        return _run_of(await self._client.service.get(self._id), self._result_type)

    async def wait(self, until: WaitFor = "finished", /, *, timeout: Duration | None = None) -> Run[R_co]:
        """Wait until the run has this status, or has ended otherwise; look at the status of what is returned.

        Raises ResultTimeout after `timeout`. A status that lasts only a moment may be missed.
        """
        if until != "finished" and until not in _WAITABLE:
            raise ConfigurationError(
                f"run {self._id}: cannot wait for {until!r}; one of finished, {', '.join(_WAITABLE)}"
            )
        await self._reach(TERMINAL if until == "finished" else frozenset({Status(until)}), timeout)
        return await self.info()

    async def pause(self, *, reason: str = "", request_id: str = "") -> Outcome:
        """Pause: at once if no worker has the run, else at its next step boundary. Raises Refused."""
        return await self._client.service.pause(self._id, reason=reason, request_id=request_id)

    async def resume(self, *, reason: str = "", request_id: str = "", pause_id: str | None = None) -> Outcome:
        """Resume a paused run or withdraw a pause request. Raises Refused."""
        return await self._client.service.resume(self._id, reason=reason, request_id=request_id, pause_id=pause_id)

    async def cancel(self, *, reason: str = "", request_id: str = "", wait: bool = False) -> Outcome:
        """Cancel: at once if no worker has the run, else at its next step boundary. Raises Refused if it is too late.

        With `wait` the call returns when the run has ended, with the outcome as it is then.
        """
        service = self._client.service
        outcome = await service.cancel(self._id, reason=reason, request_id=request_id)
        if wait and not outcome.done:
            await self._reach(TERMINAL, None)
            outcome = await service.cancel(self._id, reason=reason)
        return outcome

    async def terminate(self, *, reason: str = "", request_id: str = "") -> Outcome:
        """End the run as cancelled now; its worker is fenced out. Raises Refused if it is too late."""
        return await self._client.service.terminate(self._id, reason=reason, request_id=request_id)

    async def answer(self, hold_id: str, value: str, *, reason: str = "", request_id: str = "") -> Outcome:
        """Answer an open hold: `retry` or `fail` for a run that keeps losing its worker."""
        return await self._client.service.answer(self._id, hold_id, value, reason=reason, request_id=request_id)

    async def holds(self) -> list[Hold]:
        """The open holds of the run."""
        return await self._client.service.holds(self._id)

    async def events(self, *, after: int = 0, follow: bool = False) -> AsyncIterator[Event]:
        """What happened to the run after event `after`, in order; with `follow` until the run has ended."""
        while True:
            status = await self.status()
            for event in await self._all_after(after):
                after = event.seq
                yield event
            if status in TERMINAL or not follow:
                return
            await self._client.changed()

    async def _all_after(self, after: int) -> list[Event]:
        found: list[Event] = []
        while True:
            page = await self._client.service.events(self._id, after=after, limit=1_000)
            found.extend(page)
            if len(page) < 1_000:
                return found
            after = page[-1].seq

    async def _reach(self, wanted: frozenset[Status], timeout: Duration | None) -> Status:
        if timeout is None:
            return await self._client.watcher.wait(self._id, wanted)
        seconds = seconds_of("timeout", timeout)
        limit: asyncio.Timeout | None = None
        try:
            async with self._client.clock.timeout(seconds) as limit:
                return await self._client.watcher.wait(self._id, wanted)
        except TimeoutError:
            if limit is None or not limit.expired():
                raise
        raise ResultTimeout(self._id, await self.status())


class Client:
    """Starts runs and talks to them. `async with Client(...)`, or `open` and `close`.

    Without a database it is RUNTRUE_DATABASE_URL, else `database` under [tool.runtrue] in pyproject.toml, else
    `sqlite:///runtrue.db`. Making a Client opens nothing. `create=False` refuses a file that does not exist.
    """

    def __init__(self, database: str | Path | None = None, *, actor: str = "", create: bool = True) -> None:
        self._database_argument = database
        self._actor = actor
        self._create = create
        self._setting: Setting | None = None
        self._store: Store | None = None
        self._service: Service | None = None
        self._watcher: RunWatcher | None = None
        self._process_id = 0
        self._opening = False
        self.clock: Clock = SystemClock()

    # ------------------------------------------------------------ life
    @property
    def database(self) -> Setting:
        """The database URL and where it was set."""
        if self._setting is None:
            self._setting = resolve_database(None, self._database_argument)
        return self._setting

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, et: type[BaseException] | None, ev: BaseException | None, tb: TracebackType | None, /
    ) -> None:
        await self.close()

    async def open(self) -> Self:
        """Open the database, bringing its schema up to date. Raises StoreUnusable."""
        if self._store is not None or self._opening:
            raise ConfigurationError(f"this {type(self).__name__} is open already; close it first")
        self._opening = True
        try:
            self._store = await open_store(self.database.value, clock=self.clock, create=self._create)
        finally:
            self._opening = False
        self._process_id = os.getpid()
        self._service = Service(self._store, self.clock, self._actor)
        self._watcher = RunWatcher(self._store, self.clock)
        return self

    async def close(self) -> None:
        """Close the database. Idempotent."""
        store, watcher = self._store, self._watcher
        self._store = self._service = self._watcher = None
        if watcher is not None:
            await watcher.close()
        if store is not None:
            await store.close()

    @property
    def store(self) -> Store:
        """The open database. Raises ConfigurationError before `open`, and in a forked child."""
        if self._store is None:
            name = type(self).__name__
            raise ConfigurationError(f"this {name} is not open; use `async with` or `await {name.lower()}.open()`")
        if self._process_id != os.getpid():
            raise ConfigurationError(f"this {type(self).__name__} was opened before the fork; open one in the child")
        return self._store

    @property
    def service(self) -> Service:
        """The verbs and queries."""
        assert self.store is not None
        assert self._service is not None
        return self._service

    @property
    def watcher(self) -> RunWatcher:
        """Waits for runs."""
        assert self.store is not None
        assert self._watcher is not None
        return self._watcher

    async def changed(self, seconds: float = 1.0) -> None:
        """Return soon after the database changed, at the latest after `seconds`."""
        changed = asyncio.Event()
        unsubscribe = self.store.subscribe(changed.set)
        try:
            async with self.clock.timeout(seconds):
                await changed.wait()
        except TimeoutError:
            pass
        finally:
            unsubscribe()

    # ------------------------------------------------------------ runs
    @overload
    async def start(self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> RunHandle[R]: ...
    @overload
    async def start(self, workflow: str, /, *args: Any, **kwargs: Any) -> RunHandle[Any]: ...
    async def start(self, workflow: Any, /, *args: Any, **kwargs: Any) -> RunHandle[Any]:
        """Start a run. Returns when it is committed.

        A start with an id (or idempotency key) that was used before gives the same run if workflow and input are the
        same, and raises Conflict otherwise. By name, without the workflow's code, the arguments go by keyword.
        """
        if not isinstance(workflow, (str, Workflow)):
            raise ConfigurationError(f"start takes a workflow or its name, not {type(workflow).__name__}")
        if isinstance(workflow, str):
            known = self._known(workflow)
            if known is None:
                encoded = _encode_by_name(workflow, args, kwargs)
                started = await self.service.start(workflow, None, encoded, StartOptions())
                return RunHandle(self, started.run_id)
            workflow = known
        chosen = cast("Workflow[..., Any]", workflow)
        encoded = _encode_input(chosen, args, kwargs)
        started = await self.service.start(chosen.name, chosen.version, encoded, _options(chosen.run_settings))
        return RunHandle(self, started.run_id, chosen.result_type)

    async def start_many(self, workflow: Workflow[P, R], inputs: Sequence[Mapping[str, Any]], /) -> list[RunHandle[R]]:
        """Start a run for each input (arguments by name), in transactions of many. Ids are made, not given.

        Returns when all are committed. If the process dies on the way, a first part of them is started.
        """
        options = _options(workflow.run_settings)
        if options.id is not None or options.idempotency_key is not None:
            raise ConfigurationError(f"start_many({workflow.name}): one id or key cannot serve many runs")
        new: list[NewRun] = [
            self.service.new_run(workflow.name, workflow.version, _encode_input(workflow, (), dict(given)), options)
            for given in inputs
        ]
        for start in range(0, len(new), START_BATCH):
            await self.service.start_many(new[start : start + START_BATCH])
        return [RunHandle(self, run.id, workflow.result_type) for run in new]

    @overload
    async def run(self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def run(self, workflow: str, /, *args: Any, **kwargs: Any) -> Any: ...
    async def run(self, workflow: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Start a run and wait for its result."""
        handle: RunHandle[Any] = await self.start(workflow, *args, **kwargs)
        return await handle.result()

    @overload
    async def get(self, id: str, /) -> RunHandle[Any]: ...
    @overload
    async def get(self, id: str, workflow: Workflow[..., R], /) -> RunHandle[R]: ...
    async def get(self, id: str, workflow: Workflow[..., Any] | None = None, /) -> RunHandle[Any]:  # noqa: A002
        """Find a run again. Raises NotFound; ConfigurationError if it is a run of another workflow."""
        run = await self.service.get(id, payloads=False)
        if workflow is not None and workflow.name != run.workflow:
            raise ConfigurationError(f"run {id} is a run of {run.workflow}, not of {workflow.name}")
        known = workflow or self._known(run.workflow, run.version)
        return RunHandle(self, run.id, known.result_type if known is not None else Any)

    async def runs(
        self,
        *,
        status: Status | Sequence[Status] | None = None,
        workflow: str | None = None,
        tag: Mapping[str, str] | None = None,
        limit: int = 100,
    ) -> list[Run[Any]]:
        """The newest runs that match, without their payloads."""
        statuses = () if status is None else (status,) if isinstance(status, Status) else tuple(status)
        page = await self.service.list_runs(statuses=statuses, workflow=workflow, tags=tag, limit=limit)
        return [_run_of(run, Any) for run in page.runs]

    def _known(self, workflow: str, version: str | None = None) -> Workflow[..., Any] | None:
        """The workflow of this name, where the code of it is at hand."""
        del workflow, version
        return None


_WAITABLE = ("paused", "waiting", "completed", "failed", "cancelled")


def _options(settings: RunSettings) -> StartOptions:
    return StartOptions(
        id=settings.id,
        idempotency_key=settings.idempotency_key,
        priority=settings.priority,
        delay=settings.delay,
        at=settings.at,
        tags=settings.tags,
    )


def _encode_input(workflow: Workflow[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    what = f"the input of {workflow.name}"
    return codec.encode_arguments(workflow.signature, workflow.hints, args, kwargs, what=what)


def _encode_by_name(workflow: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    if args:
        raise ConfigurationError(
            f"workflow {workflow!a} is started by name, without its code: give its arguments by keyword"
        )
    return codec.encode(kwargs, what=f"the input of {workflow}")


def _run_of(run: RunRecord, result_type: Any) -> Run[Any]:
    output = None
    if run.output is not None:
        output = codec.decode(run.output, result_type, what=f"the result of run {run.id}")
    return Run(
        id=run.id,
        workflow=run.workflow,
        version=run.version,
        status=run.status,
        attempt=run.attempt,
        steps_done=run.steps_done,
        created_at=datetime_of(run.created_at),
        started_at=None if run.started_at is None else datetime_of(run.started_at),
        finished_at=None if run.finished_at is None else datetime_of(run.finished_at),
        tags=run.tags,
        output=output,
        error=None if run.error is None else codec.decode_error(run.error),
        reason=run.request.reason if run.request else "",
    )
