"""TestApp: an App with its own clock, whose steps may be replaced and whose worker may be lost."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any, ParamSpec, Self, TypeVar

from runtrue.app import App
from runtrue.authoring import Duration, Step, Workflow, datetime_of, seconds_of
from runtrue.clock import MICROSECOND, Clock
from runtrue.engine.worker import Worker
from runtrue.errors import ConfigurationError
from runtrue.explain import explain
from runtrue.handles import RunHandle
from runtrue.lifecycle import HoldKind, Status
from runtrue.testing._clock import MACHINE, ManualClock
from runtrue.testing._handle import TimedRunHandle
from runtrue.testing._losses import Losses
from runtrue.testing._replay import replay
from runtrue.testing._steps import POINTS, Point, Steps
from runtrue.testing._time import Timekeeper

P = ParamSpec("P")
R = TypeVar("R")

LEASE_SECONDS = 50 * 365 * 86_400
"""A lease that outlasts whatever a test does to the clock: a worker is lost only where the test says so."""


class TestApp(App):
    """An App for tests: `async with TestApp(workflows=[...]) as app:` works like an App, and time stands still.

    The clock begins with the year 2026. It moves only by `advance`, and within `result` of the app's handles; a sleep
    of two days costs as much as one of a second. Every wait of a workflow leaves memory, however short it is, so that
    each one of them is replayed. The database is in memory unless `database` names a file.

    `state`: what `rt.state` finds, one object or a tuple of them, in place of a lifespan. `check_roundtrip`: workflows
    see the results of steps as they will be read back, so that what the record loses shows in the first test.
    `patience`: how long, by the machine's own clock, a wait lasts in which nothing happens, before it gives up.
    """

    __test__ = False

    def __init__(
        self,
        *,
        workflows: Sequence[Workflow[..., Any] | ModuleType | str] = (),
        database: str | Path = "sqlite://",
        state: object = None,
        check_roundtrip: bool = True,
        patience: Duration = 10,
    ) -> None:
        def lifespan() -> AbstractAsyncContextManager[Any]:
            return nullcontext(state)

        super().__init__(
            database,
            workflows=workflows,
            lifespan=None if state is None else lifespan,
            lease=LEASE_SECONDS,
            drain=0,
            stall_limit=0,
        )
        self._patience_seconds = seconds_of("TestApp: patience", patience)
        self._copies_results = check_roundtrip
        self._own_clock = ManualClock()
        self.clock: Clock = self._own_clock
        self._losses = Losses(self.clock, self._answer_holds)
        self._steps = Steps(self._losses, self._lose_worker, self._stir)
        self._hooks = self._steps
        self._on_ended = self._hear_ended
        self._timekeeper: Timekeeper | None = None
        self._unsubscribe: Callable[[], None] = _nothing

    # ------------------------------------------------------------ life
    async def open(self) -> Self:
        """Open the database and start the worker; the clock goes on from where it stands."""
        self._own_clock.hold_still()
        await super().open()
        worker = self._lively()
        self._timekeeper = Timekeeper(
            self._own_clock,
            self._steps,
            self._losses,
            self.store,
            worker,
            tuple(self._registry),
            patience_seconds=self._patience_seconds,
            why=self._why,
        )
        self._unsubscribe = self.store.subscribe(self._hear_change)
        return self

    async def close(self) -> None:
        """Give the runs back, interrupting steps in flight, and close the database. Idempotent."""
        self._unsubscribe()
        self._unsubscribe = _nothing
        self._timekeeper = None
        await self._losses.end()
        # What a worker has to wait for at its end, no test is there to let pass.
        self._own_clock.run_freely()
        worker = self._worker
        await super().close()
        if worker is not None:
            # A step that did not let itself be interrupted may come back yet; the lease would let it write for years.
            worker.vanish()
        self._steps.forget_flights()

    def handle(self, run_id: str, workflow: Workflow[..., R] | None = None) -> RunHandle[R]:
        """A handle whose `result` lets time pass, and whose `wait` does not."""
        return TimedRunHandle(self, run_id, workflow, self._time)

    async def changed(self, seconds: float = 1.0) -> None:
        """Return soon after the database changed, at the latest after `seconds`, by the machine's own clock."""
        changed = asyncio.Event()
        unsubscribe = self.store.subscribe(changed.set)
        try:
            async with MACHINE.timeout(seconds):
                await changed.wait()
        except TimeoutError:
            pass
        finally:
            unsubscribe()

    # ------------------------------------------------------------ time
    def now(self) -> datetime:
        """The time of the app's clock. Aware, UTC."""
        return datetime_of(self.clock.now())

    async def advance(self, duration: Duration, /) -> datetime:
        """Let time pass, and return the new time.

        The clock stops at every moment on the way at which something is due, in the order of these moments, and the
        worker does all that it can before the clock goes on. A step that is at work is waited for only a moment (a
        tenth of a second, for real), so that a timeout can be brought on.
        """
        end = self.clock.now() + round(seconds_of("advance", duration) * MICROSECOND)
        await self._time().advance_to(end)
        return self.now()

    # ------------------------------------------------------------ steps
    def replace(self, step: Step[P, R], fake: Callable[P, R] | Callable[P, Awaitable[R]], /) -> None:
        """Call `fake`, `async def` or `def`, wherever a run would call the function of the step.

        Retries, timeouts and the record of the result remain those of the step. A step that is called outside of a
        workflow, or by another step, is its own function all the same: no run carries it out.
        """
        self._steps.replace(step, fake)

    def calls(self, step: Step[..., Any], /) -> list[Mapping[str, Any]]:
        """The arguments, by name, of each attempt of the step so far, in order; those of its fake too.

        Attempts whose result was lost with the worker count, one before which the worker was lost does not. The
        arguments are the objects that were handed over: whoever changes one changes what is told here.
        """
        return self._steps.calls(step)

    # ------------------------------------------------------------ losses
    def crash(self, step: Step[..., Any], /, *, when: Point = "after_effect", times: int = 1) -> None:
        """Lose the worker, as if its process were killed, when an attempt of this step next comes to this point.

        `before`: the function is not called. `after_effect`: it has come back, and its result is lost. `after_commit`:
        the outcome is recorded, and the workflow does not go on. `times`: so many times one after the other.

        All runs that the worker has are lost with it, and swept at once. Another worker begins, and they are recovered
        without anybody's help: at once after the first loss, later after a second and more, which only `advance` and
        `result` let pass; the fifth loss without a newly recorded step holds the run.
        """
        if when not in POINTS:
            raise ConfigurationError(f"crash: when must be one of {', '.join(POINTS)}, not {when!r}")
        if type(times) is not int or times < 1:
            raise ConfigurationError(f"crash: times must be a whole number from 1, not {times!r}")
        self._steps.strike(step, when, times)

    @contextmanager
    def crash_everywhere(self) -> Generator[Sequence[tuple[str, Point]], None, None]:
        """Within this block the worker is lost once at each of the three points of each call of a step.

        A call that nothing disturbs has three losses behind it when its result reaches the workflow: one before its
        function was called, one after it, one after the commit. So its function is called twice. A call is told by its
        place in its run, so its later attempts do not count anew. Side by side, branches lose more: each loss is one of
        all of them, and calls that were committed together have the loss after that in common. Runs that are held
        because they keep losing their worker are told to try again. Take the results within the block, by `result`,
        which lets pass the waits that follow the second and each further loss in a row.

        Gives a list that grows: the name of the step and the point, for each loss.
        """
        if self._steps.strikes_everywhere:
            raise ConfigurationError("crash_everywhere: the worker is lost everywhere already; leave that block first")
        struck: list[tuple[str, Point]] = []
        self._steps.strike_everywhere(struck)
        try:
            yield struck
        finally:
            self._steps.strike_everywhere(None)

    async def restart(self) -> None:
        """Lose the worker where it stands, as if its process were killed, and begin another. Returns when it has begun.

        Code that was executing is interrupted, and nothing that it still does is recorded.
        """
        self._lose_worker()
        await self._losses.recovered()

    async def replay(self, run_id: str, /) -> None:
        """Execute the workflow function of a run, finished or not, against its recorded history; record nothing.

        No step is called. Raises ReplayMismatch, which names both sides, if the code asks for something else than was
        recorded, does not reach all that was recorded, or goes on where a completed run had ended. Also NotFound.
        """
        run = await self.service.get(run_id)
        workflow = self._registry.get((run.workflow, run.version))
        if workflow is None:
            served = ", ".join(f"{name}@{version}" for name, version in self._registry) or "none"
            raise ConfigurationError(
                f"run {run_id} is one of {run.workflow}@{run.version}, which this TestApp does not serve: {served}"
            )
        steps, attempts = await self.service.steps(run_id)
        waits = await self.store.waits(run_id)
        await replay(run, workflow, steps, attempts, waits, self._lively(), patience_seconds=self._patience_seconds)

    # ------------------------------------------------------------ what the parts ask
    def _time(self) -> Timekeeper:
        if self._timekeeper is None:
            raise ConfigurationError("this TestApp is not open; use `async with`")
        return self._timekeeper

    def _lively(self) -> Worker:
        if self._worker is None:
            raise ConfigurationError("this TestApp is not open; use `async with`")
        return self._worker

    def _lose_worker(self) -> None:
        self._steps.forget_flights()
        self._losses.begin(self.store, self._lively())
        self._stir()

    def _stir(self) -> None:
        if self._timekeeper is not None:
            self._timekeeper.stir()

    def _hear_ended(self, run_id: str, status: Status) -> None:
        del status
        self._steps.forget_flights(run_id)
        self._stir()

    def _hear_change(self) -> None:
        if self._timekeeper is not None:
            self._timekeeper.hint()
        if self._steps.in_flight:
            # A long step hears of a cancel with the next renewal, and no time passes until then.
            self._own_clock.nudge_threads()

    async def _answer_holds(self) -> None:
        if not self._steps.strikes_everywhere:
            return
        for hold in await self.store.holds(open_only=True):
            if hold.kind is HoldKind.KEEPS_LOSING_ITS_WORKER:
                await self.service.answer(hold.run_id, hold.id, "retry", reason="crash_everywhere")

    async def _why(self, run_id: str) -> str:
        run = await self.service.get(run_id)
        steps, attempts = await self.service.steps(run_id)
        holds, workers = await self.store.holds(run_id, open_only=True), await self.store.workers()
        waits = await self.store.waits(run_id)
        return explain(
            run, now=self.clock.now(), holds=holds, workers=workers, steps=steps, attempts=attempts, waits=waits
        )


def _nothing() -> None:
    """Nobody subscribed."""
