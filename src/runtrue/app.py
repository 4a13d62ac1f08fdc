"""App: a Client that also executes runs: worker and sweeper in this process."""

import asyncio
import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self, cast

from runtrue.authoring import DefinedWorkflow, Duration, StepInfo, Workflow, seconds_of
from runtrue.client import Client
from runtrue.client_sync import SyncClient
from runtrue.engine.ports import StepHooks
from runtrue.engine.sweeper import SWEEP_SECONDS, Sweeper
from runtrue.engine.worker import Worker
from runtrue.errors import ConfigurationError, StoreUnusable
from runtrue.lifecycle import Status
from runtrue.lifespan import Lifespan, find_state

LEASE_SECONDS = 15.0
DRAIN_SECONDS = 30.0
STALL_LIMIT_SECONDS = 900.0
SLOTS = 100
THREADS = 32


class App(Client):
    """Everything a process needs to run workflows: `async with app:` opens the database and starts a worker.

    `workflows`: workflows, or modules (or their names) whose workflows are all served. `slots`: how many runs this
    process executes at a time. `threads`: how many `def` steps that are called with `.aio` run at a time. `lease`:
    after how long without a sign of life a worker counts as lost; long ones survive long freezes, short ones take
    over sooner. `drain`: how long a stopping worker waits for steps in flight.

    `lifespan`: a function that returns an async context manager. It is entered when the App is opened, before the
    worker starts, and left after the drain; what it yields, one object or a tuple of them, is found by
    `rt.state(Type)`. `around_step`: called with the StepInfo of each attempt of a step; the context manager that it
    returns is entered around the attempt, where that runs: on the loop, or on the thread of a `def` step.

    `with app:` opens it in a background thread, and gives a SyncClient over it.
    """

    def __init__(
        self,
        database: str | Path | None = None,
        *,
        workflows: Sequence[Workflow[..., Any] | ModuleType | str] = (),
        slots: int = SLOTS,
        threads: int = THREADS,
        lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None = None,
        around_step: Callable[[StepInfo], AbstractContextManager[None]] | None = None,
        lease: Duration = LEASE_SECONDS,
        drain: Duration = DRAIN_SECONDS,
        stall_limit: Duration = STALL_LIMIT_SECONDS,
        actor: str = "",
    ) -> None:
        super().__init__(database, actor=actor)
        for name, count, most in (("slots", slots, 100_000), ("threads", threads, 1_000)):
            if type(count) is not int or not 1 <= count <= most:
                raise ConfigurationError(f"App: {name} must be a whole number from 1 to {most:,}, not {count!r}")
        for name, function in (("lifespan", lifespan), ("around_step", around_step)):
            if function is not None and not callable(function):
                raise ConfigurationError(f"App: {name}= takes a function, not {_kind_of(function)}")
        self._registry = _register(workflows)
        self._workflows = self._registry
        self._slots = slots
        self._threads = threads
        self._lifespan = lifespan
        self._around_step = around_step
        self._lease_seconds = seconds_of("App: lease", lease)
        if self._lease_seconds < 0.5:
            raise ConfigurationError(
                f"App: a lease of {self._lease_seconds:g} s is too short; half a second is the least"
            )
        self._drain_seconds = seconds_of("App: drain", drain)
        self._stall_limit_seconds = seconds_of("App: stall_limit", stall_limit)
        self._copies_results = False
        self._exits_when_stalled = False
        self._on_ended: Callable[[str, Status], None] = _stay_silent
        self._worker: Worker | None = None
        self._sweeper: Sweeper | None = None
        self._living: Lifespan | None = None
        self._state: tuple[object, ...] = ()
        self._hooks: StepHooks | None = None
        self._blocking: SyncClient | None = None
        self._unusable: StoreUnusable | None = None
        self._stop = asyncio.Event()

    @property
    def workflows(self) -> Sequence[DefinedWorkflow[..., Any]]:
        """The workflows that this App serves."""
        return tuple(self._registry.values())

    @property
    def worker_id(self) -> str:
        """The id of the running worker; empty while the App is closed. A worker that lost its lease gets a new one."""
        return self._worker.id if self._worker is not None else ""

    def with_settings(
        self,
        *,
        database: str | None = None,
        slots: int | None = None,
        lease: float | None = None,
        copies_results: bool = False,
        exits_when_stalled: bool = False,
        on_ended: Callable[[str, Status], None] | None = None,
    ) -> Self:
        """The same App, not open, with settings of the command line in place of its own.

        `copies_results`: workflows see a step's result as it will be read back, so that what the record loses shows
        at once. `exits_when_stalled`: the process ends when its event loop has stood still for `stall_limit`.
        `on_ended` is called on the loop with each run that the worker has let go of, and the status it committed.
        """
        changed = type(self)(
            database if database is not None else self._database_argument,
            workflows=self.workflows,
            slots=self._slots if slots is None else slots,
            threads=self._threads,
            lifespan=self._lifespan,
            around_step=self._around_step,
            lease=self._lease_seconds if lease is None else lease,
            drain=self._drain_seconds,
            stall_limit=self._stall_limit_seconds,
            actor=self._actor,
        )
        changed._copies_results = copies_results  # noqa: SLF001  a twin of this App
        changed._exits_when_stalled = exits_when_stalled  # noqa: SLF001  a twin of this App
        changed._on_ended = on_ended or _stay_silent  # noqa: SLF001  a twin of this App
        return changed

    # ------------------------------------------------------------ life
    async def open(self) -> Self:
        """Open the database, enter the lifespan, and start worker and sweeper."""
        await super().open()
        watcher = self.watcher

        def tell(run_id: str, status: Status) -> None:
            watcher.tell(run_id, status)
            self._on_ended(run_id, status)

        try:
            if self._lifespan is not None:
                self._living = Lifespan(self._lifespan)
                self._state = await self._living.enter()
            self._worker = Worker(
                self.store,
                self.clock,
                self._registry,
                slots=self._slots,
                lease_seconds=self._lease_seconds,
                stall_limit_seconds=self._stall_limit_seconds,
                outside=self.service,
                threads=self._threads,
                state=lambda wanted: find_state(self._state, wanted),
                around_step=self._around_step,
                hooks=self._hooks,
                copies_results=self._copies_results,
                on_ended=tell,
                on_stalled=_exit_stalled if self._exits_when_stalled else _stay,
                on_unusable=self._give_up,
            )
            await self._worker.start()
            self._sweeper = Sweeper(
                self.store,
                self.clock,
                sweep_seconds=min(SWEEP_SECONDS, self._lease_seconds / 3),
                on_swept=self._worker.wake,
            )
            self._sweeper.start()
        except BaseException:  # whoever called open() must not be left with half an App
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Drain the worker, leave the lifespan, then close the database. Idempotent. Raises what leaving raises."""
        worker, sweeper, living = self._worker, self._sweeper, self._living
        self._worker = self._sweeper = self._living = None
        if worker is not None:
            await worker.drain(self._drain_seconds)
        if sweeper is not None:
            await sweeper.stop()
        try:
            if living is not None:
                await living.leave()
        finally:
            self._stop, self._unusable = asyncio.Event(), None
            await super().close()

    async def serve(self) -> None:
        """Open, execute runs until `request_drain` is called, drain and close.

        Raises StoreUnusable when the database is lost for good meanwhile.
        """
        async with self:
            await self.until_drain()

    async def until_drain(self) -> None:
        """Return when a drain is requested. Raises StoreUnusable when the database is lost for good."""
        await self._stop.wait()
        if self._unusable is not None:
            raise self._unusable

    def request_drain(self) -> None:
        """Let `serve` end: no new claims, runs are given back at their next step boundary."""
        self._stop.set()

    def _give_up(self, error: StoreUnusable) -> None:
        """The worker met a database that no further attempt can use; whoever serves must not go on as if it worked."""
        self._unusable = error
        self._stop.set()

    # ------------------------------------------------------------ for programs without a loop
    def __enter__(self) -> SyncClient:
        """Open the App in a background thread. What is returned starts runs here, and talks to them."""
        if self._blocking is not None:
            raise ConfigurationError("this App is open already; close it first")
        blocking = SyncClient.like(self, lambda: self)
        self._blocking = blocking
        try:
            return blocking.__enter__()
        except BaseException:
            self._blocking = None
            raise

    def __exit__(self, et: type[BaseException] | None, ev: BaseException | None, tb: TracebackType | None, /) -> None:
        blocking, self._blocking = self._blocking, None
        if blocking is not None:
            blocking.close()

    def client(self) -> Client:
        """A Client for this App's database, not open. It executes nothing."""
        self._refuse_in_memory()
        return self.twin()

    def sync_client(self) -> SyncClient:
        """A SyncClient for this App's database. It executes nothing."""
        self._refuse_in_memory()
        return SyncClient.like(self, self.twin)

    def _refuse_in_memory(self) -> None:
        if self.database.value == "sqlite://":
            raise ConfigurationError(
                "the database of this App is in memory, where no other client can see it; use the App"
            )

    def run_forever(self) -> None:
        """Serve in a loop of its own until SIGTERM or SIGINT, then drain. Blocks; for programs without a loop.

        Raises StoreUnusable when the database is lost for good meanwhile.
        """

        async def serve() -> None:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.request_drain)
            await self.serve()

        asyncio.run(serve())


def load_app(target: str) -> App:
    """The App in `target`: a file or a dotted module, with `:attribute` where it holds several.

    Raises ConfigurationError that says what was found instead.
    """
    place, _, attribute = target.partition(":")
    module = _load_module(place)
    apps = {name: value for name, value in vars(module).items() if isinstance(value, App)}
    distinct = {id(app): name for name, app in apps.items()}
    choice = ", ".join(f"{place}:{name}" for name in sorted(distinct.values()))
    if attribute and not hasattr(module, attribute):
        raise ConfigurationError(f"{place} has no `{attribute}`; its Apps: {choice or 'none'}")
    if attribute:
        found = getattr(module, attribute)
        if not isinstance(found, App):
            raise ConfigurationError(f"{attribute} in {place} is {_kind_of(found)}, not an rt.App")
        return found
    if len(distinct) == 1:
        return next(iter(apps.values()))
    if distinct:
        raise ConfigurationError(f"{place} holds several Apps; say which: {choice}")
    raise ConfigurationError(f"{place} holds no rt.App; add one: app = rt.App(workflows=[...])")


def _load_module(place: str) -> ModuleType:
    """Import a file or a dotted module. An error inside it leaves as it is, with its own traceback."""
    if place.endswith(".py") or "/" in place:
        path = Path(place).resolve()
        if not path.is_file():
            raise ConfigurationError(f"there is no file {path}")
        sys.path.insert(0, str(path.parent))
        try:
            module = importlib.import_module(path.stem)
        finally:
            sys.path.remove(str(path.parent))
        found = getattr(module, "__file__", None)
        if found is None or Path(found).resolve() != path:
            holder = found or "a module of Python itself"
            raise ConfigurationError(
                f"{place} cannot be imported: the name {path.stem} is taken by {holder}; rename the file"
            )
        return module
    if not all(part.isidentifier() for part in place.split(".")):
        raise ConfigurationError(f"{place!a} names no module; give a file such as orders.py, or a dotted module")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as missing:
        if missing.name is None or not (place == missing.name or place.startswith(f"{missing.name}.")):
            raise
        raise ConfigurationError(
            f"there is no module {place}; give a file such as orders.py, or a dotted module"
        ) from None


Registry = dict[tuple[str, str], DefinedWorkflow[..., Any]]


def _register(given: Sequence[Workflow[..., Any] | ModuleType | str]) -> Registry:
    registry: Registry = {}
    for entry in given:
        for workflow in _workflows_of(entry):
            known = registry.get((workflow.name, workflow.version))
            if known is not None and known.fn != workflow.fn:  # a method is another object at each access
                raise ConfigurationError(f"App: two workflows are called {workflow.name}@{workflow.version}")
            workflow.resolve()
            registry[workflow.name, workflow.version] = workflow
    return registry


def _workflows_of(entry: object) -> Sequence[DefinedWorkflow[..., Any]]:
    if isinstance(entry, DefinedWorkflow):
        workflow = cast("DefinedWorkflow[..., Any]", entry)
        if workflow.lacks_instance:
            owner, _, name = workflow.function.__qualname__.rpartition("<locals>.")[2].rpartition(".")
            raise ConfigurationError(f"App: {owner}.{name} is a method; give that of an instance: {owner}(...).{name}")
        return [workflow]
    if isinstance(entry, Workflow):
        name = cast("Workflow[..., Any]", entry).name
        raise ConfigurationError(f"App: workflow {name} is known by its name only; give the function itself")
    if not isinstance(entry, (str, ModuleType)):
        raise ConfigurationError(f"App: workflows= takes workflows and modules, not {_kind_of(entry)}")
    module = _load_module(entry) if isinstance(entry, str) else entry
    found: list[DefinedWorkflow[..., Any]] = [
        value for value in vars(module).values() if isinstance(value, DefinedWorkflow) and not value.lacks_instance
    ]
    if not found:
        raise ConfigurationError(f"App: module {module.__name__} holds no workflow")
    return found


def _kind_of(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def _stay(where: str) -> None:
    """An App inside somebody else's process gives its lease up and leaves the process alone."""
    del where


def _stay_silent(run_id: str, status: Status) -> None:
    """Only a process of the command line tells of the runs that have ended."""
    del run_id, status


def _exit_stalled(where: str) -> None:
    """The process serves nothing but this worker: a new one can take its runs, this one cannot go on."""
    sys.stderr.write(f"runtrue: the event loop stands still in {where}; this worker ends\n")
    sys.stderr.flush()
    os._exit(70)
