"""Lets the worker of a TestApp do all that it can at one time, and then moves the clock to the next."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from runtrue.clock import wait_for_event
from runtrue.engine.worker import Worker
from runtrue.errors import ResultTimeout
from runtrue.lifecycle import TERMINAL, Status
from runtrue.store import Store
from runtrue.store.protocol import NEVER, RunFilter
from runtrue.testing._clock import MACHINE, ManualClock
from runtrue.testing._errors import Standstill
from runtrue.testing._losses import Losses
from runtrue.testing._steps import Steps

T = TypeVar("T")

LOOK_APART_SECONDS = 0.02
"""The longest time between two looks whether the worker has come to rest, should every hint be lost."""
MOMENT_SECONDS = 0.1
"""So long, of the machine's time, steps at work are waited for before `advance` goes on without them."""
GRACE_SECONDS = 1.0
"""So long, of the machine's time, `wait` waits for another task of the test to bring what the worker cannot."""
MOVES_IN_VAIN_MAX = 10_000
"""So often the clock is moved for other runs alone, which may go round in circles for ever."""
UNFINISHED = tuple(status for status in Status if status not in TERMINAL)
RUNS_PER_LOOK = 1_000


class Timekeeper:
    """Moves the clock of one open TestApp. `why` tells why a run does not move."""

    def __init__(
        self,
        clock: ManualClock,
        steps: Steps,
        losses: Losses,
        store: Store,
        worker: Worker,
        serves: Sequence[tuple[str, str]],
        *,
        patience_seconds: float,
        why: Callable[[str], Awaitable[str]],
    ) -> None:
        self._clock = clock
        self._steps = steps
        self._losses = losses
        self._store = store
        self._worker = worker
        self._serves = serves
        self._patience_seconds = patience_seconds
        self._why = why
        self._stirs = 0
        self._hint = asyncio.Event()

    def stir(self) -> None:
        """Something has happened: a step began or ended, a run was let go of."""
        self._stirs += 1
        self._hint.set()

    def hint(self) -> None:
        """Something may have happened."""
        self._hint.set()

    # ------------------------------------------------------------ at one time
    async def settle(self, *, overtakes_steps: bool = False) -> None:
        """Return when nothing can happen any more without time passing.

        Steps at work are waited for; with `overtakes_steps` only for a moment. Raises Standstill if the worker
        does not come to rest though nothing happens.
        """
        seen, since = -1, 0.0
        while True:
            stirs = self._stirs
            if stirs != seen:
                seen, since = stirs, MACHINE.steady()
            self._hint.clear()
            if await self._is_settled() and stirs == self._stirs:
                return
            idle_seconds = MACHINE.steady() - since
            if overtakes_steps and idle_seconds >= MOMENT_SECONDS and self._only_steps_are_at_work():
                return
            if idle_seconds >= self._patience_seconds:
                raise Standstill(self._at_work())
            await wait_for_event(MACHINE, self._hint, LOOK_APART_SECONDS)

    async def _is_settled(self) -> bool:
        if self._losses.is_under_way or not self._worker.is_idle:
            return False
        swept = await self._store.sweep()
        due_at = await self._store.next_ready_at(self._serves)
        is_due = due_at is not None and due_at <= self._clock.now()
        if is_due or swept.more or swept.runs_released or swept.runs_held or swept.runs_cancelled:
            self._worker.wake()
            return False
        return self._worker.is_idle and not self._losses.is_under_way

    def _only_steps_are_at_work(self) -> bool:
        return len({info.run_id for info in self._steps.in_flight.values()}) >= self._worker.running

    def _at_work(self) -> str:
        """Why the worker has not come to rest."""
        steps = [f"step {info.name} of run {info.run_id}" for info in self._steps.in_flight.values()]
        if self._worker.is_idle:
            return f"a run is due, and worker {self._worker.id} has not taken it within {self._patience_seconds:g} s"
        if not steps:
            return f"the worker has been busy for {self._patience_seconds:g} s in code that is no step"
        return (
            f"{' and '.join(steps)} did not come back within {self._patience_seconds:g} s; the clock does not move "
            "while a step is at work: `replace` it, let it go on, or move the clock by `advance`"
        )

    # ------------------------------------------------------------ from one time to the next
    async def next_at(self) -> int | None:
        """When time brings something next: a sleep, a timeout, a deadline. None if never."""
        moments = [await self._store.next_ready_at(self._serves), self._clock.next_alarm(), await self._next_deadline()]
        now = self._clock.now()
        return min((at for at in moments if at is not None and now < at < NEVER), default=None)

    async def _next_deadline(self) -> int | None:
        deadlines: list[int] = []
        before: tuple[int, str] | None = None
        while True:
            page = await self._store.list_runs(RunFilter(UNFINISHED), RUNS_PER_LOOK, before)
            deadlines += [run.deadline_at for run in page if run.deadline_at is not None]
            if len(page) < RUNS_PER_LOOK:
                return min(deadlines, default=None)
            before = page[-1].created_at, page[-1].id

    async def advance_to(self, end: int) -> None:
        """Move the clock to `end`, and stop at every moment on the way at which something is due."""
        await self.settle(overtakes_steps=True)
        while (at := await self.next_at()) is not None and at <= end:
            self._clock.move_to(at)
            await self.settle(overtakes_steps=True)
        self._clock.move_to(end)
        await self.settle(overtakes_steps=True)

    async def until_ended(self, run_id: str, give_up_at: int | None) -> None:
        """Move the clock until the run has ended. Raises Standstill if time cannot bring that.

        Raises ResultTimeout if it has not ended at `give_up_at`, where the clock then stands.
        """
        seen, moves = -1, 0
        while True:
            await self.settle()
            run = await self._store.get(run_id, payloads=False)
            if run is None or run.status in TERMINAL:
                return
            if give_up_at is not None and give_up_at <= self._clock.now():
                raise ResultTimeout(run_id, run.status)
            at = await self.next_at()
            if give_up_at is not None and (at is None or at > give_up_at):
                at = give_up_at
            if at is None or (run.status is Status.PAUSED and run.deadline_at is None and give_up_at is None):
                raise Standstill(f"run {run_id} is {run.status}, and no time ends that: {await self._why(run_id)}")
            has_time_of_its_own = run.deadline_at is not None or self._clock.now() < run.ready_at < NEVER
            moves = moves + 1 if run.event_seq == seen and not has_time_of_its_own else 0
            seen = run.event_seq
            if moves > MOVES_IN_VAIN_MAX:
                raise Standstill(
                    f"the clock was moved {moves:,} times for other runs, and run {run_id} is still {run.status}: "
                    f"{await self._why(run_id)}"
                )
            self._clock.move_to(at)

    # ------------------------------------------------------------ without time
    async def without_time(self, run_id: str, what: str, arriving: Awaitable[T]) -> T:
        """What is `arriving`, the clock standing still. Raises Standstill if the worker alone cannot bring it."""
        waiting = asyncio.ensure_future(arriving)
        settling: asyncio.Future[None] | None = None
        try:
            while not waiting.done():
                settling = asyncio.ensure_future(self.settle())
                await asyncio.wait((waiting, settling), return_when=asyncio.FIRST_COMPLETED)
                if waiting.done():
                    break
                settling.result()
                before = self._stirs, self._clock.now()
                await asyncio.wait((waiting,), timeout=GRACE_SECONDS)
                if not waiting.done() and before == (self._stirs, self._clock.now()):
                    run = await self._store.get(run_id, payloads=False)
                    status = run.status if run is not None else "gone"
                    raise Standstill(
                        f"run {run_id} is {status}, not {what}: {await self._why(run_id)}. wait() does not move the "
                        "clock; `await app.advance(...)` and `await run.result()` do"
                    )
            return waiting.result()
        finally:
            for future in (waiting, settling):
                if future is not None:
                    future.cancel()
            await asyncio.gather(waiting, *([settling] if settling else []), return_exceptions=True)
