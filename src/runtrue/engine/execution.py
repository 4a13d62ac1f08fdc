"""One claim of one run: the workflow function is called and replayed through what was recorded.

Its strands carry out its branches. While any of them is busy nothing is decided about the run; when all rest, one
decision is taken here, and nowhere else.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn
from weakref import WeakSet

from runtrue import codec
from runtrue.authoring import DefinedWorkflow, runtime_variable
from runtrue.clock import MICROSECOND
from runtrue.engine.branch import Branch, Settled
from runtrue.engine.calls import Calls
from runtrue.engine.history import History
from runtrue.engine.ports import EffectRefusedError, Host, Recorder
from runtrue.engine.signals import Unwound
from runtrue.engine.strands import Rest, Strand, Strands
from runtrue.engine.threads import WorkflowThread
from runtrue.engine.values import decode_input, fail_with, finish_with
from runtrue.errors import CancelRun, RuntrueError, WrongPlace
from runtrue.lifecycle import HoldKind, Status
from runtrue.records import AttemptRecord, Progress, StepRecord
from runtrue.store.protocol import (
    NEVER,
    Claimed,
    EffectsReply,
    End,
    Finish,
    ParkBlocked,
    ParkHeld,
    ParkRequested,
    Recorded,
    Release,
    RunEffects,
)

logger = logging.getLogger("runtrue.engine")


class Execution:
    """Executes one claimed run until it ends, parks, is released or is lost."""

    def __init__(
        self, claimed: Claimed, workflow: DefinedWorkflow[..., Any], host: Host, journal: Recorder, seen_beats: int
    ) -> None:
        self.run_id = claimed.run_id
        self.epoch = claimed.epoch
        self.status: Status = claimed.status
        self.host = host
        self.clock = host.clock
        self.claimed = claimed
        self.history = History(claimed)
        self.seen_beats = seen_beats
        """How many renewals had begun when this run was claimed; an earlier one knows nothing of it."""
        self.gone = False
        """The run is not ours any more: nothing may be started, nothing will be recorded."""
        self.may_execute = host.may_execute
        self.is_asked = False
        """Something is to be carried out at the next boundary, or the end of this execution is on its way."""
        self.replaying = not self.history.is_empty
        """Some strand may not have used up its records yet; none goes live before all have."""
        self.unwinding = False
        """The run was settled: whatever its code still does means nothing."""
        self.strands = Strands(self.clock, self._hear_quiet)
        self.root = Branch(self.history.places(""))
        self.open_waits: dict[tuple[str, int], Strand] = {}
        """Who waits for a message or a child, by the place of the wait."""
        self.tasks: set[asyncio.Task[Any]] = set()
        """The tasks of the items of groups."""
        self.threads: set[WorkflowThread] = set()
        """Threads of blocking code that are not through yet."""
        self.child_calls: WeakSet[Any] = WeakSet()
        """Calls of children, to tell an item of a group that is nothing else."""
        self._closers: list[Callable[[], None]] = []
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._workflow = workflow
        self._journal = journal
        self._wakeups = claimed.wakeups
        self._wish: Finish | None = None
        """How the code wants the run to end."""
        self._draining = False
        self._deciding: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._told_ended = False

    # ------------------------------------------------------------ what the worker tells
    def hear_row(self, status: Status, wakeups: int) -> None:
        """A renewal brought the row. Only requests are taken from it, and facts: a reply may be younger than it is."""
        if status is Status.CANCELLING or (status is Status.PAUSING and self.status is Status.RUNNING):
            self._set_status(status)
        self._hear_wakeups(wakeups)

    def hear_lost(self) -> None:
        """The run is not ours any more (terminated, swept, taken over). Steps in flight are told to stop."""
        self.gone = True
        self._journal.forget_notes(self.run_id)
        self.ask()
        self._interrupt_allowed()
        self.strands.see_whether_quiet()

    def hear_drain(self) -> None:
        """The worker is stopping: give the run back at the next boundary."""
        self._draining = True
        self.ask()
        self.strands.see_whether_quiet()

    def interrupt(self) -> None:
        """The drain's deadline has passed: interrupt the steps in flight; their attempts are not recorded."""
        self.hear_drain()
        for strand in list(self.strands.all):
            if strand.running_step is not None or (strand.in_code and not strand.is_lent):
                strand.interrupt()

    def nudge(self) -> None:
        """The run was settled, and its code clings to a task: interrupt whatever it waits for."""
        for strand in list(self.strands.all):
            strand.take_interrupt()
            strand.interrupt()

    def steps_in_flight(self) -> list[tuple[str, int, int]]:
        """Name, attempt and start of each step that is being executed. From any thread."""
        return [step for strand in list(self.strands.all) if (step := strand.running_step) is not None]

    def strand_of(self, task: "asyncio.Task[Any] | None") -> Strand | None:
        """The strand that a task carries out. From any thread."""
        return self.strands.of(task) if task is not None else None

    def _interrupt_allowed(self) -> None:
        # A step that did not ask to be interrupted finishes first. Code between steps has no effects to protect.
        self.strands.ignores_code = True
        for strand in list(self.strands.all):
            if strand.interruptible or (strand.in_code and not strand.is_lent):
                strand.interrupt()

    def _set_status(self, status: Status) -> None:
        self.status = status
        if status is Status.RUNNING:
            self.is_asked = self._is_wanted
            return
        self.ask()
        if status is Status.CANCELLING:
            self._interrupt_allowed()
        self.strands.see_whether_quiet()

    @property
    def _is_wanted(self) -> bool:
        return self.gone or self._draining or self._wish is not None or bool(self.history.mismatch)

    def ask(self) -> None:
        """Have every strand stop at its next boundary."""
        self.is_asked = True

    def cancel_requested(self) -> bool:
        """True once a cancel was asked, or the run is not ours any more."""
        return self.gone or self.status is Status.CANCELLING

    # ------------------------------------------------------------ the body of the task
    async def run(self) -> None:
        """Execute the run. Never raises but for the interpreter's own exit."""
        # Here and not where the task is made: an eager task runs before its maker holds it.
        strand = self.root.strand = self.strands.add(self.root, asyncio.current_task())
        try:
            await self._perform(strand)
        except Unwound:
            pass
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as broken:  # the worker relies on an execution never taking it down
            self.fail_itself(broken)
        finally:
            strand.running_step = None
            self.strands.remove(strand)
            self.tell_ended()
            await self._leave()

    def fail_itself(self, broken: BaseException) -> None:
        """The engine is at fault: the run is given back, and nothing more is said of it."""
        if not self.gone:
            logger.error("run %s: the engine itself failed; the run is given back", self.run_id, exc_info=broken)
        self._end_here(lost=True)

    async def _leave(self) -> None:
        """Wait until all code of the run is through."""
        try:
            while self.tasks:
                await asyncio.wait(self.tasks)
            for thread in list(self.threads):
                await thread.left.wait()
        finally:
            self.strands.drop_alarm()
            self.host.left(self)

    def tell_ended(self) -> None:
        """Give the slot back. Once, and as soon as the run is settled: code that clings must not keep it."""
        if not self._told_ended:
            self._told_ended = True
            self._journal.forget_notes(self.run_id)
            self.host.ended(self, None if self.gone else self.status)

    async def _perform(self, strand: Strand) -> NoReturn:
        runtime_variable.set(calls := Calls(self, self.root))
        try:
            strand.in_code = True
            result = await self._call_workflow(calls, strand)
        except (Unwound, KeyboardInterrupt):
            raise
        except asyncio.CancelledError:
            strand.in_code = False
            await self.hear_cancelled_error(strand)
            self._fail_cancelled_call()
        except BaseException as error:  # whatever leaves the workflow, SystemExit too, fails this run and no other
            if isinstance(error, GeneratorExit) and strand.task is not _current_task():
                raise  # the interpreter closes the coroutine: nothing can be awaited any more
            self.wish(self._end_of(error))
        else:
            self.wish(finish_with(self._workflow, result))
        self.strands.take_back(strand)
        strand.in_code = False
        if not self.unwinding:
            await self.strands.rest(strand, Rest.ENDED)
        # Nothing rouses it but the unwinding; code that has swallowed the signal and returned means nothing.
        raise Unwound

    def _end_of(self, error: BaseException) -> Finish:
        if isinstance(error, CancelRun):
            return Finish(Status.CANCELLED, reason=codec.clean_text(error.reason))
        return fail_with(self._workflow, error)

    async def _call_workflow(self, calls: Calls, strand: Strand) -> Any:
        try:
            args, kwargs = decode_input(self._workflow, self.claimed.input)
        except RuntrueError as unfit:
            if not self.history.is_empty:
                # It fitted once: the code has changed since, and a fitting version can take the run on.
                self.history.differ(str(unfit))
            raise
        function = self._workflow.fn
        if self._workflow.is_async:
            result = await function(*args, **kwargs)
        else:
            result = await self.on_thread(calls, strand, lambda: function(*args, **kwargs), self._workflow.name)
        if not self.unwinding:
            calls.require_awaited()
        return result

    async def on_thread(self, calls: Calls, strand: Strand, function: Any, name: str) -> Any:
        """Run blocking code of a branch on a thread of its own; the strand carries out what it asks for."""
        thread = strand.thread = WorkflowThread(calls, f"runtrue-{name}")
        self.threads.add(thread)
        try:
            return await thread.run(function)
        finally:
            if thread.left.is_set():
                self.threads.discard(thread)

    async def hear_cancelled_error(self, strand: Strand) -> None:
        """CancelledError came. Ours (a request, the drain, the run is lost): carry it out. Somebody else's: fail.

        Returns only if nobody cancelled the task: the code raised the error by itself.
        """
        if self.unwinding or strand.branch.closed:
            strand.take_interrupt()
            raise Unwound
        if strand.take_interrupt():
            # An interrupt is sent only with what cannot be withdrawn, so this does not return.
            await self.boundary(strand)
        if strand.task is not None and strand.task.cancelling() > 0:
            await self.fail_cancelled_call(strand)

    async def fail_cancelled_call(self, strand: Strand) -> NoReturn:
        """A call was cancelled by somebody else: the run fails, for a replay would not be."""
        if self.unwinding or strand.branch.closed:
            raise Unwound
        self._fail_cancelled_call()
        await self.stop(strand)

    def _fail_cancelled_call(self) -> None:
        if self.host.is_ending():
            # The program ends its event loop: a crash like any other, and no fault of the workflow's.
            self._end_here(lost=True)
            raise Unwound
        self.wish(
            Finish(
                Status.FAILED,
                codec.encode_error(
                    WrongPlace(
                        "a durable call was cancelled from outside, for example by asyncio.timeout or a TaskGroup; give the "
                        "step or wait a timeout= instead, and use rt.first or rt.gather: they are recorded, and the same "
                        "on every replay"
                    )
                ),
            )
        )

    # ------------------------------------------------------------ boundaries
    async def boundary(self, strand: Strand) -> None:
        """Stop here while something is asked of the run. Returns if it goes on, raises Unwound if not."""
        while True:
            if self.unwinding or strand.branch.closed:
                raise Unwound
            if not (self.is_asked or self.gone) and self.may_execute():
                return
            self.ask()
            await self.strands.rest(strand, Rest.STOPPED)

    async def stop(self, strand: Strand) -> NoReturn:
        """Stop here for good: the run has been told how to end."""
        while True:
            if self.unwinding or strand.branch.closed:
                raise Unwound
            await self.strands.rest(strand, Rest.STOPPED)

    def wish(self, end: Finish) -> None:
        """The code has come to this end; the first one counts. It is carried out once every strand has stopped."""
        if self._wish is None and not self.unwinding:
            self._wish = end
        self.ask()

    async def hold(self, strand: Strand) -> NoReturn:
        """The code does not fit the history: stop, so that the run can be held."""
        self.ask()
        await self.stop(strand)

    async def go_live(self, strand: Strand) -> None:
        """What must be so before a call has an effect: the replay is over, all drawn values are recorded, and every
        request is carried out.
        """
        settled = strand.branch.settled
        if settled is Settled.CLOSED:
            raise Unwound  # it was never begun, and never will be: the outcome of its group is recorded
        if settled is Settled.COUNTS:
            self.history.differ(f"the code of {self.history.workflow} makes a new call within a group that is over")
            await self.hold(strand)
        if self.replaying:
            await self.rest_replayed(strand)
        branch: Branch | None = strand.branch
        while branch is not None:
            if branch.unsettled or branch.settling:
                await self._settle(branch)
            branch = branch.parent
        if self.history.mismatch:
            await self.hold(strand)
        if self.is_asked or strand.branch.closed:
            await self.boundary(strand)

    async def rest_replayed(self, strand: Strand) -> None:
        """The records of this strand are used up: wait until those of all others are."""
        if len(self.strands.all) == 1:
            self.replaying = False
            return
        try:
            await self.strands.rest(strand, Rest.REPLAYED)
        except BaseException as cut:
            await self.hear_rest_cut(strand, cut)
            raise

    async def hear_rest_cut(self, strand: Strand, cut: BaseException) -> None:
        """What a strand rested on has raised. Raises what that means; returns if it means itself."""
        if isinstance(cut, asyncio.CancelledError):
            # An interrupt of ours is sent to code and steps, and may have come a moment too late for them.
            strand.take_interrupt()
            if self.is_asked or self.gone or strand.branch.closed:
                await self.boundary(strand)
            await self.fail_cancelled_call(strand)

    def close_when_replayed(self, close: Callable[[], None]) -> None:
        """Close branches, once every strand has passed what was recorded of it."""
        if self.replaying and not self.unwinding:
            self._closers.append(close)
        else:
            close()

    def close(self, branches: Sequence[Branch]) -> list[tuple[str, int]]:
        """Close branches and all within them. Returns the places of their open waits."""
        for branch in branches:
            branch.close()
        waits = [place for place, strand in self.open_waits.items() if strand.branch.closed]
        for strand in list(self.strands.all):
            if not strand.branch.closed:
                continue
            if strand.future is not None:
                self.strands.unwind(strand)
            elif strand.interruptible or (strand.in_code and not strand.is_lent):
                strand.interrupt()
        return waits

    def is_current(self, strand: Strand) -> bool:
        """True if the caller is the strand's own task."""
        return strand.task is not None and strand.task is _current_task()

    # ------------------------------------------------------------ the decision
    def _hear_quiet(self) -> None:
        if self._deciding is None and not self.unwinding:
            self._deciding = asyncio.create_task(self._decide(), name=f"runtrue-decision-{self.run_id}")

    async def _decide(self) -> None:
        """All strands rest: decide what becomes of the run, once more if the decision was overtaken."""
        try:
            while self.strands.is_quiet and not self.unwinding:
                end = self._next_end()
                if end is None:
                    break
                self.is_asked, self.strands.may_ring = True, False
                if not await self._settle_all():
                    await self._carry_out(end)
                self.strands.may_ring = True
                self.is_asked = self._is_wanted or self.status is not Status.RUNNING
                if not self.unwinding:
                    self.strands.ring()
        except Unwound:
            self._end_here(lost=True)
        except BaseException as broken:  # nobody else awaits this task
            self.fail_itself(broken)
            if isinstance(broken, (KeyboardInterrupt, SystemExit, asyncio.CancelledError)):
                raise
        finally:
            self._deciding = None

    def _next_end(self) -> End | None:
        """How this execution is to end now. None if it goes on: then strands were roused, or wait for a short time."""
        if self.gone or not self.may_execute():
            self._end_here(lost=True)
            return None
        if self._wish is not None:
            if self._wish.target is not Status.CANCELLED and self.status is not Status.CANCELLING:
                self.history.arrive_at_end()
                if self.history.mismatch:
                    return self._held()
            return self._wish
        if self.status is Status.CANCELLING:
            return Finish(Status.CANCELLED)
        if self.history.mismatch:
            return self._held()
        if self.status is Status.PAUSING:
            return ParkRequested()
        if self._draining:
            return Release()
        self.is_asked = False
        stopped = self.strands.resting(Rest.STOPPED)
        for strand in stopped:
            self.strands.rouse(strand)
        return None if stopped or self._end_replay() else self._park()

    def _held(self) -> ParkHeld:
        reason = codec.clean_text(self.history.mismatch)
        return ParkHeld(HoldKind.CODE_MISMATCH, reason, self._workflow.code_digest)

    def _end_replay(self) -> bool:
        """True if something was roused: every strand has used up its records, or a sleep is proved to be over."""
        if not self.replaying:
            return False
        asleep = [strand for strand in self.strands.resting(Rest.ASLEEP) if strand.due_at is not None]
        if self.history.unvisited and asleep:
            # Records that nobody has reached were made after a sleep, whatever the clock says now.
            self.strands.rouse(min(asleep, key=lambda strand: strand.due_at or 0), True)
            return True
        # Groups whose outcome is recorded, or decided by what is recorded, come to it before anybody goes live.
        closed = [strand for strand in self.strands.resting(*Rest) if strand.branch.settled is Settled.CLOSED]
        closed = [strand for strand in closed if strand.rest is not Rest.JOINING]
        for strand in closed:
            self.strands.unwind(strand)
        closers, self._closers = self._closers, []
        for close in closers:
            close()
        if closed or closers:
            return True
        self.replaying = False
        waiting = self.strands.resting(Rest.REPLAYED)
        for strand in waiting:
            self.strands.rouse(strand)
        return bool(waiting)

    def _park(self) -> ParkBlocked | None:
        """Park, unless the run goes on in memory after a short while."""
        if self.strands.resting(Rest.QUEUED):
            return None
        ready_at = NEVER
        if (first := self.strands.next_due()) is not None and first.due_at is not None:
            ready_at = first.due_at
            now = self.clock.now()
            for strand in self.strands.resting(Rest.ASLEEP, Rest.BLOCKED):
                if strand.due_at is not None and strand.due_at - now < strand.patience_seconds * MICROSECOND:
                    self.strands.set_alarm()
                    return None
        return ParkBlocked(self._wakeups, ready_at, self._by_any_child())

    def _by_any_child(self) -> bool:
        """False if nothing goes on before the last child that is waited for has ended: they are one group's."""
        groups: set[int] = set()
        for strand in self.open_waits.values():
            if strand.waits_for_child:
                group = strand.branch.group
                if group is None or strand.branch.wakes_alone or group.has_more:
                    return True
                groups.add(id(group))
        return len(groups) > 1

    async def _carry_out(self, end: End) -> None:
        """Record the end. Returns if the row does not fit it any more."""
        reply = await self.record(RunEffects(self.run_id, self.epoch, end=end))
        if reply.recorded is Recorded.CONDEMNED:
            await self._fail_condemned("the result", reply.error)
        elif reply.recorded is Recorded.OK:
            self._end_here(lost=False)

    async def _fail_condemned(self, what: str, why: str) -> None:
        """Fail the run with safe text, which is not tried again if it is refused."""
        self._condemn(what, why)
        assert self._wish is not None
        reply = await self.record(RunEffects(self.run_id, self.epoch, end=self._wish))
        self._end_here(lost=reply.recorded is not Recorded.OK)

    def _end_here(self, *, lost: bool) -> None:
        """The execution is over: unwind every strand."""
        if self.unwinding:
            return
        self.unwinding = self.is_asked = True
        self.gone = self.gone or lost
        self.strands.drop_alarm()
        # Now and not when the code is through: code that swallows the signal must not keep the slot.
        self.tell_ended()
        for strand in list(self.strands.all):
            if strand.future is not None:
                self.strands.unwind(strand)
            elif strand.in_code and not strand.is_lent:
                strand.interrupt()

    # ------------------------------------------------------------ recording
    async def record(self, effects: RunEffects) -> EffectsReply:
        """Hand effects to the journal; the reply's status is the run's newest. Raises Unwound if the run is lost."""
        if self.gone:
            self.host.count_fenced()
            self._lose()
        reply = await self._journal.record(effects)
        if reply.recorded is Recorded.FENCED or reply.status is None:
            self._lose()
        if reply.status is not self.status:
            self._set_status(reply.status)
        if reply.wakeups != self._wakeups:
            self._hear_wakeups(reply.wakeups)
        return reply

    def _lose(self) -> NoReturn:
        self.gone = True
        self.ask()
        self.strands.ignores_code = True
        raise Unwound

    async def record_for(self, strand: Strand, effects: RunEffects, what: str, *, stops: bool = True) -> EffectsReply:
        """Record what a strand has done, and stop at the boundary that the reply is (unless the caller does)."""
        try:
            reply = await self.record(effects)
        except asyncio.CancelledError:
            # Never ours: the worker interrupts steps and code, not the journal. The effect is on its way all the
            # same, and the end that follows is written after it.
            await self.fail_cancelled_call(strand)
        if reply.recorded is Recorded.CONDEMNED:
            self._condemn(what, reply.error)
            await self.stop(strand)
        if stops and (self.is_asked or strand.branch.closed):
            await self.boundary(strand)
        return reply

    def _condemn(self, what: str, why: str) -> None:
        """The database refuses an effect and always will: the run is to fail, whatever its code makes of that."""
        error = EffectRefusedError(codec.clean_text(f"the database refused {what}: {why}"))
        self._wish = Finish(Status.FAILED, codec.encode_error(error))
        self.ask()

    async def record_step(self, strand: Strand, record: StepRecord) -> StepRecord:
        """Record the outcome of a call and look at the boundary. Returns what is recorded: the first writer's."""
        what = f"the result of {record.kind} {record.name}"
        reply = await self.record_for(strand, RunEffects(self.run_id, self.epoch, [record]), what)
        return at_place(reply, record.branch, record.ordinal) or record if reply.existing else record

    async def record_attempt(self, strand: Strand, record: AttemptRecord) -> None:
        """Record that an attempt failed."""
        effects = RunEffects(self.run_id, self.epoch, attempts=[record])
        await self.record_for(strand, effects, f"a failed attempt of step {record.name}")

    async def _settle(self, branch: Branch) -> None:
        """Record the values that a branch has drawn, before anything that depends on them is started."""
        if branch.settling is not None:
            await branch.settling.wait()
        values, branch.unsettled = branch.unsettled, []
        if not values:
            return
        branch.settling = asyncio.Event()
        try:
            reply = await self.record(RunEffects(self.run_id, self.epoch, values))
            if reply.recorded is Recorded.CONDEMNED:
                self._condemn("a recorded value", reply.error)
        finally:
            branch.settling.set()
            branch.settling = None

    async def _settle_all(self) -> bool:
        """Record the values that are left. True if there were any: the reply may have brought a request."""
        found = False
        branches = [self.root]
        while branches:
            branch = branches.pop()
            branches += branch.items
            if branch.unsettled:
                found = True
                await self._settle(branch)
        return found

    # ------------------------------------------------------------ facts from outside
    def _hear_wakeups(self, wakeups: int) -> None:
        """The counter of facts has risen. It is believed only together with the facts themselves."""
        if wakeups <= self._wakeups or self.unwinding:
            return
        if not self.open_waits:
            # Whatever is waited for from now on is looked at when its wait is opened.
            self._wakeups = wakeups
        elif self._looking is None and not self.gone:
            self.strands.keep_busy()
            self._looking = asyncio.create_task(self._look_on(), name=f"runtrue-look-{self.run_id}")

    async def _look_on(self) -> None:
        try:
            await self.look()
        except Unwound:
            pass
        except Exception as broken:  # nobody else awaits this task
            self.fail_itself(broken)
        finally:
            self._looking = None
            self.strands.let_rest()

    async def look(self) -> None:
        """Look whether what is waited for is there, and rouse who waits for it."""
        reply = await self.record(RunEffects(self.run_id, self.epoch, looks=True))
        self._wakeups = max(self._wakeups, reply.wakeups)
        for step in reply.existing:
            strand = self.open_waits.pop((step.branch, step.ordinal), None)
            if strand is not None:
                self.strands.rouse(strand, step)

    def report(self, done: float | None, total: float | None, note: str) -> None:
        """Report progress with the next effect. From any thread: a `def` step has one of its own."""
        if self.gone or self.unwinding:
            return
        report = Progress(done, total, codec.clean_text(note, 1_000), self.clock.now())
        self._on_loop(self._journal.note_progress, self.run_id, self.epoch, report)

    def _on_loop(self, call: Callable[..., object], *args: object) -> None:
        # At once where that can be, so that it goes before the end that may follow.
        if threading.get_ident() == self._thread_id:
            call(*args)
        else:
            self._loop.call_soon_threadsafe(call, *args)

    def publish(self, key: str, body: bytes) -> None:
        """Publish a value with the next effect."""
        if not (self.gone or self.unwinding):
            self._journal.note_published(self.run_id, self.epoch, key, body)


def at_place(reply: EffectsReply, branch: str, ordinal: int) -> StepRecord | None:
    """The step of the reply that stands at this place."""
    return next((step for step in reply.existing if step.branch == branch and step.ordinal == ordinal), None)


def _current_task() -> "asyncio.Task[Any] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
