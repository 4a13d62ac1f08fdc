"""The strands of a run: the tasks that carry out its branches, and whether any of them is busy.

A strand that rests waits for somebody to rouse it. Whoever rouses a strand counts it as busy at once, before its task
has the floor again, so that "all rest" is never said of a run that is about to go on.
"""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from runtrue.clock import MICROSECOND, Clock
from runtrue.engine.signals import Unwound

if TYPE_CHECKING:
    from runtrue.engine.branch import Branch
    from runtrue.engine.threads import WorkflowThread


LENT_AGAIN_SECONDS = 0.05
"""How long code may take to make its next call after one that a task of somebody else has carried out."""


class Rest(Enum):
    """Why a strand rests."""

    ASLEEP = "asleep"
    """Until a time."""
    BLOCKED = "blocked"
    """Until what it waits for is there, or the deadline of that has passed."""
    QUEUED = "queued"
    """Until a thread of the pool is free."""
    JOINING = "joining"
    """Until the branches of its group have ended."""
    STOPPED = "stopped"
    """At a boundary: something was asked of the run."""
    REPLAYED = "replayed"
    """Its records are used up, and those of other strands may not be."""
    ENDED = "ended"
    """The workflow function is through."""


class Strand:
    """One line of execution. `branch` is the branch that it carries out, or carries out a call of."""

    __slots__ = (
        "branch",
        "due_at",
        "future",
        "in_code",
        "interrupted",
        "interruptible",
        "is_lent",
        "patience_seconds",
        "rest",
        "running_step",
        "task",
        "thread",
        "undelivered",
        "waits_at",
        "waits_for_child",
    )

    def __init__(self, branch: "Branch", task: "asyncio.Task[Any] | None") -> None:
        self.branch = branch
        self.task = task
        self.thread: WorkflowThread | None = None
        """The thread of the blocking function whose calls this strand carries out."""
        self.rest: Rest | None = None
        self.future: asyncio.Future[Any] | None = None
        self.due_at: int | None = None
        self.patience_seconds = 0.0
        """For so short a time until `due_at` the strand is worth keeping in memory."""
        self.in_code = False
        """The author's code has the floor: no step is in flight, no effect on its way."""
        self.is_lent = False
        """In code that waits for calls which tasks of somebody else carry out."""
        self.running_step: tuple[str, int, int] | None = None
        """Name, attempt and start of the step in flight. The heartbeat thread reads it."""
        self.interruptible = False
        self.interrupted = False
        self.undelivered: list[tuple[str, int]] = []
        """Waits whose branch has not made use of what they gave: if it is closed now, a message goes back."""
        self.waits_at: tuple[str, int] | None = None
        """The place of the wait that it is blocked on."""
        self.waits_for_child = False

    def make_use(self) -> None:
        """What the branch was given has an effect from now on: it does not go back, whatever becomes of the branch."""
        branch: Branch | None = self.branch
        self.undelivered = []
        while branch is not None:
            if branch.strand is not None:
                branch.strand.undelivered = []
            branch = branch.parent

    def interrupt(self) -> None:
        """Cancel what the task waits for; `take_interrupt` tells that it was us."""
        if self.task is not None and not self.task.done() and not self.interrupted:
            self.interrupted = True
            self.task.cancel()

    def take_interrupt(self) -> bool:
        """True if the engine itself interrupted the task; the task is then no longer marked as cancelled."""
        ours, self.interrupted = self.interrupted, False
        if ours and self.task is not None:
            self.task.uncancel()
        return ours


class Strands:
    """All strands of one execution. `on_quiet` is called when the last busy one comes to rest, or may have."""

    def __init__(self, clock: Clock, on_quiet: Callable[[], None]) -> None:
        self.all: set[Strand] = set()
        self.ignores_code = False
        """The run is lost or being cancelled: what the author's code does between its calls does not count as busy."""
        self.may_ring = True
        """False while the end of the execution is on its way: nobody is roused by the clock meanwhile."""
        self._clock = clock
        self._on_quiet = on_quiet
        self._loop = asyncio.get_running_loop()
        self._busy = 0
        self._by_task: dict[asyncio.Task[Any] | None, Strand] = {}
        self._numbers = itertools.count()
        self._due: list[tuple[int, int, Strand, asyncio.Future[Any]]] = []
        self._alarm: asyncio.Task[None] | None = None
        self._alarm_at = 0
        self._lending: set[asyncio.Task[None]] = set()

    def add(self, branch: "Branch", task: "asyncio.Task[Any] | None") -> Strand:
        """A new strand, busy."""
        strand = Strand(branch, task)
        self.all.add(strand)
        branch.strands.add(strand)
        self._by_task[task] = strand
        self._busy += 1
        return strand

    def remove(self, strand: Strand) -> None:
        """The strand's task is through."""
        if strand in self.all:
            self.all.discard(strand)
            strand.branch.strands.discard(strand)
            self._by_task.pop(strand.task, None)
            if strand.rest is None and not strand.is_lent:
                self._busy -= 1
            self.see_whether_quiet()

    def of(self, task: "asyncio.Task[Any] | None") -> Strand | None:
        """The strand that this task carries out."""
        return self._by_task.get(task)

    # ------------------------------------------------------------ resting
    async def rest(self, strand: Strand, why: Rest, due_at: int | None = None, patience_seconds: float = 0.0) -> Any:
        """Wait until the strand is roused; what it is roused with. At `due_at` that is None."""
        future: asyncio.Future[Any] = self._loop.create_future()
        strand.rest, strand.future = why, future
        strand.due_at, strand.patience_seconds = due_at, patience_seconds
        self._busy -= 1
        if due_at is not None:
            heapq.heappush(self._due, (due_at, next(self._numbers), strand, future))
            if self._busy:
                self.set_alarm()
        self.see_whether_quiet()
        try:
            return await future
        finally:
            if strand.future is future:  # somebody cancelled the task
                self._rise(strand)

    def rouse(self, strand: Strand, outcome: object = None) -> None:
        """Let a resting strand go on, with `outcome`."""
        future = strand.future
        if future is not None:
            self._rise(strand)
            if not future.done():
                future.set_result(outcome)

    def unwind(self, strand: Strand) -> None:
        """Let a resting strand go on with Unwound."""
        future = strand.future
        if future is not None:
            self._rise(strand)
            if not future.done():
                future.set_exception(Unwound())

    def _rise(self, strand: Strand) -> None:
        strand.rest = strand.future = strand.due_at = None
        self._busy += 1

    def resting(self, *why: Rest) -> list[Strand]:
        """The strands that rest for one of these reasons."""
        return [strand for strand in self.all if strand.rest in why]

    # ------------------------------------------------------------ busy or quiet
    @property
    def is_quiet(self) -> bool:
        """True while no strand can go on by itself."""
        if self._busy == 0:
            return True
        if not self.ignores_code:
            return False
        return self._busy == sum(strand.in_code and not strand.is_lent and strand.rest is None for strand in self.all)

    def see_whether_quiet(self) -> None:
        """Have somebody look, if the last busy strand may have come to rest."""
        if self._busy == 0 or self.ignores_code:
            self._on_quiet()

    def keep_busy(self) -> None:
        """Something is on its way that may rouse strands: the run is not quiet until `let_rest`."""
        self._busy += 1

    def let_rest(self) -> None:
        self._busy -= 1
        self.see_whether_quiet()

    def lend(self, strand: Strand) -> None:
        """The strand's code waits for calls that other tasks carry out, as far as can be known."""
        if strand.in_code and not strand.is_lent:
            strand.is_lent = True
            self._busy -= 1
            self.see_whether_quiet()

    def lend_again(self, strand: Strand) -> None:
        """One of several such calls has ended. If the code makes nothing of it in a moment, it waits for the others."""

        async def wait_and_lend() -> None:
            await self._clock.sleep(LENT_AGAIN_SECONDS)
            if strand in self.all and strand.branch.errands:
                self.lend(strand)

        task = self._loop.create_task(wait_and_lend(), name="runtrue-lend")
        self._lending.add(task)
        task.add_done_callback(self._lending.discard)

    def take_back(self, strand: Strand) -> None:
        """The strand's code has the floor again, or may have it at any moment."""
        if strand.is_lent:
            strand.is_lent = False
            self._busy += 1

    # ------------------------------------------------------------ the alarm
    def next_due(self) -> Strand | None:
        """The resting strand whose time comes first."""
        while self._due:
            _, _, strand, future = self._due[0]
            if strand.future is future:
                return strand
            heapq.heappop(self._due)
        return None

    def set_alarm(self) -> None:
        """See to it that strands are roused when their time has come."""
        strand = self.next_due()
        if strand is None or strand.due_at is None:
            return
        if self._alarm is not None and not self._alarm.done():
            if self._alarm_at <= strand.due_at:
                return
            self._alarm.cancel()
        self._alarm_at = strand.due_at
        self._alarm = self._loop.create_task(self._ring_at(strand.due_at), name="runtrue-alarm")

    def drop_alarm(self) -> None:
        for task in self._lending:
            task.cancel()
        if self._alarm is not None:
            self._alarm.cancel()

    async def _ring_at(self, at: int) -> None:
        while True:
            remaining = (at - self._clock.now()) / MICROSECOND
            if remaining <= 0:
                break
            await self._clock.sleep(remaining)
        self._alarm = None
        self.ring()

    def ring(self) -> None:
        """Rouse the strands whose time has come, and set the alarm for the next one."""
        if not self.may_ring:
            return
        now = self._clock.now()
        while (strand := self.next_due()) is not None and strand.due_at is not None and strand.due_at <= now:
            heapq.heappop(self._due)
            self.rouse(strand)
        self.set_alarm()
