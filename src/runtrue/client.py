"""Client: start runs, look at them, and give them commands. It executes nothing."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, cast, overload

from runtrue.authoring import RunSettings, Workflow, ref
from runtrue.clock import Clock, SystemClock
from runtrue.config import Setting, resolve_database
from runtrue.errors import ConfigurationError
from runtrue.handles import Run, RunHandle, WaitFor, run_of
from runtrue.lifecycle import Status
from runtrue.service import Service, StartOptions
from runtrue.store import Store, open_store
from runtrue.store.protocol import NewRun
from runtrue.watcher import RunWatcher

__all__ = ["Client", "Run", "RunHandle", "WaitFor"]

P = ParamSpec("P")
R = TypeVar("R")

START_BATCH = 500


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
        self._workflows: Mapping[tuple[str, str], Workflow[..., Any]] = {}
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
        """Open the database, bringing its schema up to date. Raises StoreUnusable; ConfigurationError if it is open."""
        if self._opening or self._store is not None:
            self._refuse_after_fork()
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
        if self._process_id != os.getpid():
            return  # what was inherited over a fork is its parent's to close
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
        self._refuse_after_fork()
        return self._store

    def _refuse_after_fork(self) -> None:
        if self._store is not None and self._process_id != os.getpid():
            raise ConfigurationError(f"this {type(self).__name__} was opened before the fork; open one in the child")

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

    def twin(self) -> "Client":
        """A Client with the same settings, not open, that executes nothing."""
        made = Client(self._database_argument, actor=self._actor, create=self._create)
        made._workflows, made.clock = self._workflows, self.clock
        return made

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
        chosen = cast("Workflow[..., Any]", workflow)
        if isinstance(workflow, str):
            chosen = self._known(workflow) or ref(workflow)
        encoded = chosen.encode_input(args, kwargs)
        started = await self.service.start(chosen.name, chosen.version, encoded, _options(chosen.run_settings))
        return self.handle(started.run_id, chosen)

    async def start_many(self, workflow: Workflow[P, R], inputs: Sequence[Mapping[str, Any]], /) -> list[RunHandle[R]]:
        """Start a run for each input (arguments by name), in transactions of many. Ids are made, not given.

        Returns when all are committed. If the process dies on the way, a first part of them is started.
        """
        options = _options(workflow.run_settings)
        if options.id is not None or options.idempotency_key is not None:
            raise ConfigurationError(f"start_many({workflow.name}): one id or key cannot serve many runs")
        version = workflow.version or await self.service.served_version(workflow.name)
        new: list[NewRun] = [
            self.service.new_run(workflow.name, version, workflow.encode_input((), dict(given)), options)
            for given in inputs
        ]
        for start in range(0, len(new), START_BATCH):
            await self.service.start_many(new[start : start + START_BATCH])
        return [self.handle(run.id, workflow) for run in new]

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
        return self.handle(run.id, workflow or self._known(run.workflow, run.version))

    def handle(self, run_id: str, workflow: Workflow[..., R] | None = None) -> RunHandle[R]:
        """A handle of the run of this id, which is not looked up; the result is decoded as that of `workflow`."""
        return RunHandle(self, run_id, workflow)

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
        return [run_of(run, Any) for run in page.runs]

    def _known(self, workflow: str, version: str | None = None) -> Workflow[..., Any] | None:
        """The workflow of this name, where the code of it is at hand."""
        if version is not None:
            return self._workflows.get((workflow, version))
        found = [known for (name, _), known in self._workflows.items() if name == workflow]
        return found[-1] if found else None


def _options(settings: RunSettings) -> StartOptions:
    return StartOptions(
        id=settings.id,
        idempotency_key=settings.idempotency_key,
        priority=settings.priority,
        delay=settings.delay,
        at=settings.at,
        deadline=settings.deadline,
        tags=settings.tags,
    )
