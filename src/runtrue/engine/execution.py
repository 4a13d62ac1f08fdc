"""One claim of one run: the workflow function is called and replayed through what was recorded.

The identity of a durable call is its place, fixed when the call is made: the branch (one so far, the empty text) and
the ordinal of the call within it. A call at a recorded place returns the record; the first call beyond them is live.
"""

import asyncio
import logging
from typing import Any, NoReturn

from runtrue import codec
from runtrue.authoring import AsyncWorkflow, runtime_variable
from runtrue.clock import MICROSECOND, wait_for_event
from runtrue.engine.calls import DurableCalls
from runtrue.engine.history import History
from runtrue.engine.own_task import OwnTask
from runtrue.engine.ports import EffectRefusedError, Host, Recorder
from runtrue.engine.signals import Unwound
from runtrue.engine.values import decode_input, finish_with
from runtrue.errors import CancelRun, RuntrueError, WrongPlace
from runtrue.lifecycle import HoldKind, Status
from runtrue.records import AttemptRecord, Progress, StepRecord
from runtrue.store.protocol import (
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
        self, claimed: Claimed, workflow: AsyncWorkflow[..., Any], host: Host, journal: Recorder, seen_beats: int
    ) -> None:
        self.run_id = claimed.run_id
        self.epoch = claimed.epoch
        self.status: Status = claimed.status
        self.clock = host.clock
        self.history = History(claimed)
        self.seen_beats = seen_beats
        """How many renewals had begun when this run was claimed; an earlier one knows nothing of it."""
        self.running_step: tuple[str, int, int] | None = None
        """Name, attempt and start of the step in flight. The heartbeat thread reads it."""
        self.interruptible = False
        self.gone = False
        """The run is not ours any more: nothing may be started, nothing will be recorded."""
        self.may_execute = host.may_execute
        self.copies_results = host.copies_results
        self.own_task = OwnTask(asyncio.get_running_loop())
        self.unsettled: list[StepRecord] = []
        """Values drawn since the last effect, not recorded yet."""
        self.in_code = False
        """The workflow's own code has the floor: no step is in flight, no effect on its way."""
        self.unwinding = False
        """The run was settled: whatever its code still does means nothing."""
        self.calls = DurableCalls(self, claimed)
        self._workflow = workflow
        self._host = host
        self._journal = journal
        self._claimed = claimed
        self._wakeups = claimed.wakeups
        self._draining = False
        self._interrupted = False
        self._told_ended = False
        self._attention = asyncio.Event()

    @property
    def task(self) -> "asyncio.Task[None] | None":
        """The task that executes the run, once it has begun."""
        return self.own_task.task

    # ------------------------------------------------------------ what the worker tells
    def hear_status(self, status: Status) -> None:
        """A renewal brought the run's status. Only requests are taken from it: a reply may be younger than it is."""
        if status is Status.CANCELLING or (status is Status.PAUSING and self.status is Status.RUNNING):
            self._set_status(status)

    def hear_lost(self) -> None:
        """The run is not ours any more (terminated, swept, taken over). The step in flight is told to stop."""
        self.gone = True
        self._journal.forget_progress(self.run_id)
        self._attention.set()
        self._interrupt_if_allowed()

    def hear_drain(self) -> None:
        """The worker is stopping: give the run back at the next boundary."""
        self._draining = True
        self._attention.set()

    def interrupt(self) -> None:
        """The drain's deadline has passed: interrupt the step in flight; its attempt is not recorded."""
        self.hear_drain()
        if self.running_step is not None or self.in_code:
            self._interrupt()

    def _interrupt_if_allowed(self) -> None:
        # A step that did not ask to be interrupted finishes first. Code between steps has no effects to protect.
        if self.interruptible or self.in_code:
            self._interrupt()

    def nudge(self) -> None:
        """The run was settled, and its code clings to the task: interrupt whatever it waits for."""
        self.take_interrupt()
        self._interrupt()

    def _interrupt(self) -> None:
        if self.task is not None and not self.task.done() and not self._interrupted:
            self._interrupted = True
            self.task.cancel()

    def _set_status(self, status: Status) -> None:
        self.status = status
        if status is not Status.RUNNING:
            self._attention.set()
            if status is Status.CANCELLING:
                self._interrupt_if_allowed()
        elif not (self._draining or self.gone):
            self._attention.clear()

    @property
    def is_asked(self) -> bool:
        """True if something is to be carried out at the next boundary."""
        return self._attention.is_set()

    def cancel_requested(self) -> bool:
        """True once a cancel was asked, or the run is not ours any more."""
        return self.gone or self.status is Status.CANCELLING

    # ------------------------------------------------------------ the body of the task
    async def run(self) -> None:
        """Execute the run. Never raises but for the interpreter's own exit."""
        # Here and not where the task is made: an eager task runs before its maker holds it.
        self.own_task.task = asyncio.current_task()
        try:
            await self._perform()
        except Unwound:
            pass
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as broken:  # the worker relies on an execution never taking it down
            if not self.gone:
                logger.error("run %s: the engine itself failed; the run is given back", self.run_id, exc_info=broken)
            self.gone = True
        finally:
            self.running_step = None
            self._tell_ended()
            self._host.left(self)

    def _tell_ended(self) -> None:
        if not self._told_ended:
            self._told_ended = True
            self._journal.forget_progress(self.run_id)
            self._host.ended(self, None if self.gone else self.status)

    async def _perform(self) -> None:
        runtime_variable.set(self.calls)
        try:
            self.in_code = True
            result = await self._call_workflow()
        except (Unwound, KeyboardInterrupt):
            raise
        except CancelRun as wish:
            end: End = Finish(Status.CANCELLED, reason=codec.clean_text(wish.reason))
        except asyncio.CancelledError:
            self.in_code = False
            if not self.unwinding:
                await self.hear_cancelled_error()
                await self._fail_cancelled_call()
            raise Unwound from None
        except BaseException as error:  # whatever leaves the workflow, SystemExit too, fails this run and no other
            if isinstance(error, GeneratorExit) and not self.own_task.is_current:
                raise  # the interpreter closes the coroutine: nothing can be awaited any more
            end = Finish(Status.FAILED, codec.encode_error(error))
        else:
            end = finish_with(self._workflow, result)
        self.in_code = False
        if self.unwinding:
            # The workflow swallowed the signal and returned: the run was settled before, this means nothing.
            raise Unwound
        await self.finish(end)

    async def _call_workflow(self) -> Any:
        try:
            args, kwargs = decode_input(self._workflow, self._claimed.input)
        except RuntrueError as unfit:
            if not self.history.is_empty:
                # It fitted once: the code has changed since, and a fitting version can take the run on.
                self.history.differ(str(unfit))
            raise
        result = await self._workflow.fn(*args, **kwargs)
        if not self.unwinding:
            self.calls.require_awaited()
        return result

    async def hear_cancelled_error(self) -> None:
        """CancelledError came. Ours (a request, the drain, the run is lost): carry it out. Somebody else's: fail.

        Returns only if nobody cancelled the task: the code raised the error by itself.
        """
        if self.take_interrupt():
            # An interrupt is sent only with what cannot be withdrawn, so this does not return.
            await self.boundary()
        if self.task is not None and self.task.cancelling() > 0:
            await self._fail_cancelled_call()

    def take_interrupt(self) -> bool:
        """True if the worker itself interrupted the task; the task is then no longer marked as cancelled."""
        ours, self._interrupted = self._interrupted, False
        if ours and self.task is not None:
            self.task.uncancel()
        return ours

    async def _fail_cancelled_call(self) -> NoReturn:
        if self._host.is_ending():
            # The program ends its event loop: a crash like any other, and no fault of the workflow's.
            self._unwind(lost=True)
        error = WrongPlace(
            "a durable call was cancelled from outside, for example by asyncio.timeout; "
            "give the step a timeout= instead, it is recorded and the same on every replay"
        )
        await self.finish(Finish(Status.FAILED, codec.encode_error(error)))

    # ------------------------------------------------------------ boundaries and ends
    async def boundary(self) -> None:
        """Carry out what was asked of the run. Returns if the run goes on, raises Unwound if not."""
        while True:
            if self.gone or not self.may_execute():
                self._unwind(lost=True)
            if self.status is Status.CANCELLING:
                end: End = Finish(Status.CANCELLED)
            elif self.status is Status.PAUSING:
                end = ParkRequested()
            elif self._draining:
                end = Release()
            else:
                self._attention.clear()
                return
            if self.unsettled:
                await self._settle()
            reply = await self._record(RunEffects(self.run_id, self.epoch, end=end))
            if reply.recorded is not Recorded.REFUSED:
                self._unwind(lost=reply.recorded is not Recorded.OK)

    async def finish(self, end: Finish) -> NoReturn:
        """End the run as `end` says, or hold it if its code does not fit its history."""
        if self.unsettled:
            await self._settle()
        if end.target is not Status.CANCELLED:
            self.history.arrive_at_end()
            if self.history.mismatch:
                await self.hold()
        reply = await self._record(RunEffects(self.run_id, self.epoch, end=end))
        if reply.recorded is Recorded.CONDEMNED:
            await self._fail_condemned("the result", reply.error)
        self._unwind(lost=reply.recorded is not Recorded.OK)

    async def hold(self) -> NoReturn:
        """Open a code_mismatch hold and leave; a run that is being cancelled ends instead."""
        reason = codec.clean_text(self.history.mismatch)
        reply = await self._record(RunEffects(self.run_id, self.epoch, end=ParkHeld(HoldKind.CODE_MISMATCH, reason)))
        if reply.recorded is Recorded.REFUSED:
            await self.boundary()
        self._unwind(lost=reply.recorded is not Recorded.OK)

    async def _fail_condemned(self, what: str, why: str) -> NoReturn:
        """The database refuses an effect and always will: fail the run with safe text. Not tried again if refused."""
        error = EffectRefusedError(codec.clean_text(f"the database refused {what}: {why}"))
        end = Finish(Status.FAILED, codec.encode_error(error))
        reply = await self._record(RunEffects(self.run_id, self.epoch, end=end))
        self._unwind(lost=reply.recorded is not Recorded.OK)

    def _unwind(self, *, lost: bool) -> NoReturn:
        self.unwinding = True
        self.gone = self.gone or lost
        # Now and not when the code is through: code that swallows the signal must not keep the slot.
        self._tell_ended()
        raise Unwound

    # ------------------------------------------------------------ recording
    async def _record(self, effects: RunEffects) -> EffectsReply:
        """Hand effects to the journal; the reply's status is the run's newest. Raises Unwound if the run is lost."""
        if self.gone:
            self._host.count_fenced()
            self._unwind(lost=True)
        try:
            reply = await self._journal.record(effects)
        except asyncio.CancelledError:
            # Never ours: the worker interrupts steps and code, not the journal. The effect is on its way all the
            # same, and the end that follows is written after it.
            await self._fail_cancelled_call()
        if reply.recorded is Recorded.FENCED or reply.status is None:
            self._unwind(lost=True)
        if reply.status is not self.status:
            self._set_status(reply.status)
        return reply

    async def record_step(self, record: StepRecord) -> StepRecord:
        """Record the outcome of a call and look at the boundary. Returns what is recorded: the first writer's."""
        reply = await self._record(RunEffects(self.run_id, self.epoch, [record]))
        if reply.recorded is Recorded.CONDEMNED:
            await self._fail_condemned(f"the result of {record.kind} {record.name}", reply.error)
        if self._attention.is_set():
            await self.boundary()
        return reply.existing[0] if reply.existing else record

    async def record_attempt(self, record: AttemptRecord) -> None:
        """Record that an attempt failed."""
        reply = await self._record(RunEffects(self.run_id, self.epoch, attempts=[record]))
        if reply.recorded is Recorded.CONDEMNED:
            await self._fail_condemned(f"a failed attempt of step {record.name}", reply.error)

    async def _settle(self) -> None:
        """Record the values drawn since the last effect, before anything that depends on them is started."""
        values, self.unsettled = self.unsettled, []
        reply = await self._record(RunEffects(self.run_id, self.epoch, values))
        if reply.recorded is Recorded.CONDEMNED:
            await self._fail_condemned("a recorded value", reply.error)

    async def wait_until(self, at: int, in_memory_seconds: float) -> None:
        """Wait for a point in time. Each turn is a boundary; a long wait leaves memory by parking the run."""
        while True:
            if self._attention.is_set():
                await self.boundary()
            remaining = (at - self.clock.now()) / MICROSECOND
            if remaining <= 0:
                return
            if remaining < in_memory_seconds:
                try:
                    await wait_for_event(self.clock, self._attention, remaining)
                except asyncio.CancelledError:
                    await self._fail_cancelled_call()
                continue
            reply = await self._record(RunEffects(self.run_id, self.epoch, end=ParkBlocked(self._wakeups, at)))
            if reply.recorded is not Recorded.REFUSED:
                self._unwind(lost=reply.recorded is not Recorded.OK)
            # Somebody raised the counter. A run of sequential steps waits for nothing but the clock and the
            # requests in its status, which the reply brought: the newer counter hides no fact from it.
            self._wakeups = reply.wakeups

    async def before_live(self) -> None:
        """What must be so before a call has an effect: all drawn values recorded, every request carried out."""
        if self.unsettled:
            await self._settle()
        if self._attention.is_set():
            await self.boundary()

    def report(self, done: float | None, total: float | None, note: str) -> None:
        """Report progress with the next effect."""
        if self.gone or self.unwinding:
            return
        report = Progress(done, total, codec.clean_text(note, 1_000), self.clock.now())
        # At once, so that it goes before the end that may follow; but a step may report from a thread of its own.
        self.own_task.on_loop(self._journal.note_progress, self.run_id, self.epoch, report)
