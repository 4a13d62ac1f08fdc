"""One claim of one run: the workflow function is called and replayed through what was recorded.

The identity of a durable call is its place, fixed when the call is made: the branch (one so far, the empty text) and
the ordinal of the call within it. A call at a recorded place returns the record; the first call beyond them is live.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from runtrue import codec
from runtrue.authoring import AsyncWorkflow, RunInfo, Step, runtime_variable
from runtrue.clock import MICROSECOND, wait_for_event
from runtrue.engine.attempts import NOTHING, StepCall
from runtrue.engine.history import History
from runtrue.engine.own_task import OwnTask
from runtrue.engine.ports import EffectRefusedError, HistoryMismatchError, Host, Recorder
from runtrue.engine.signals import Unwound
from runtrue.engine.values import decode_input, finish_with, sleep_record, value_record
from runtrue.errors import CancelRun, CodecError, ConfigurationError, RuntrueError, StepFailed, WrongPlace
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

SLEEP_IN_MEMORY_SECONDS = 1.0
"""A shorter sleep stays in memory; a longer one leaves it."""


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
        self._own_task = OwnTask(asyncio.get_running_loop())
        self._workflow = workflow
        self._host = host
        self._journal = journal
        self._claimed = claimed
        self._wakeups = claimed.wakeups
        self._unsettled: list[StepRecord] = []
        self._draining = False
        self._interrupted = False
        self._in_code = False  # the workflow's own code has the floor: no step, no effect on its way
        self._attention = asyncio.Event()
        self._unwinding = False
        self._info = RunInfo(
            claimed.run_id,
            claimed.workflow,
            claimed.version,
            claimed.attempt,
            claimed.tags,
            replaying=not self.history.is_empty,
        )

    @property
    def task(self) -> "asyncio.Task[None] | None":
        """The task that executes the run; set once by the worker."""
        return self._own_task.task

    def begin(self) -> "asyncio.Task[None]":
        """Start to execute."""
        self._own_task.task = asyncio.create_task(self.run(), name=f"runtrue-run-{self.run_id}")
        return self._own_task.task

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
        if self.running_step is not None or self._in_code:
            self._interrupt()

    def _interrupt_if_allowed(self) -> None:
        # A step that did not ask to be interrupted finishes first. Code between steps has no effects to protect.
        if self.interruptible or self._in_code:
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
            self._journal.forget_progress(self.run_id)
            self._host.ended(self, None if self.gone else self.status)

    async def _perform(self) -> None:
        runtime_variable.set(self)
        try:
            self._in_code = True
            result = await self._call_workflow()
        except (Unwound, KeyboardInterrupt, GeneratorExit):
            raise
        except CancelRun as wish:
            end: End = Finish(Status.CANCELLED, reason=codec.clean_text(wish.reason))
        except asyncio.CancelledError:
            self._in_code = False
            if not self._unwinding:
                await self.hear_cancelled_error()
                await self._fail_cancelled_call()
            raise Unwound from None
        except BaseException as error:  # whatever leaves the workflow, SystemExit too, fails this run and no other
            end = Finish(Status.FAILED, codec.encode_error(error))
        else:
            end = finish_with(self._workflow, result)
        self._in_code = False
        if self._unwinding:
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
        return await self._workflow.fn(*args, **kwargs)

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
            if self._unsettled:
                await self._settle()
            reply = await self._record(RunEffects(self.run_id, self.epoch, end=end))
            if reply.recorded is not Recorded.REFUSED:
                self._unwind(lost=reply.recorded is not Recorded.OK)

    async def finish(self, end: Finish) -> NoReturn:
        """End the run as `end` says, or hold it if its code does not fit its history."""
        if self._unsettled:
            await self._settle()
        if end.target is not Status.CANCELLED:
            self.history.arrive_at_end()
            if self.history.mismatch:
                await self._hold()
        reply = await self._record(RunEffects(self.run_id, self.epoch, end=end))
        if reply.recorded is Recorded.CONDEMNED:
            await self._fail_condemned("the result", reply.error)
        self._unwind(lost=reply.recorded is not Recorded.OK)

    async def _hold(self) -> NoReturn:
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
        self._unwinding = True
        self.gone = self.gone or lost
        self._in_code = True  # code that swallows this and waits holds a slot: the next renewal interrupts it
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
        values, self._unsettled = self._unsettled, []
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

    # ------------------------------------------------------------ durable calls (the Runtime protocol)
    def info(self) -> RunInfo:
        """The run, for rt.this_run()."""
        return self._info

    def time(self) -> int:
        """The engine's time."""
        return self.clock.now()

    def progress(self, done: float | None, total: float | None, note: str, /) -> None:
        """Report progress; a replay's reports are old and dropped."""
        if self.history.unvisited or self.gone or self._unwinding:
            return
        report = Progress(done, total, codec.clean_text(note, 1_000), self.clock.now())
        # At once, so that it goes before the end that may follow; but a step may report from a thread of its own.
        self._own_task.on_loop(self._journal.note_progress, self.run_id, self.epoch, report)

    def value(self, kind: str, make: Callable[[], object], /) -> Any:
        """The recorded value of this place, or a new one that is recorded before the next effect starts."""
        recorded, ordinal = self._arrive(f"rt.{kind}", kind, kind)
        if self.history.mismatch:
            # A plain function cannot wait until the hold is written: `finish` does it when this has left the code.
            raise HistoryMismatchError(self.history.mismatch)
        if recorded is not None:
            return codec.decode(recorded.output or b"null", what=f"the recorded {kind}")
        made = make()
        self._unsettled.append(value_record(kind, ordinal, made, self.clock.now()))
        return made

    def sleep(self, seconds: float, /) -> Coroutine[None, None, None]:
        """Sleep for a span that begins when it is recorded."""
        recorded, ordinal = self._arrive("rt.sleep", "sleep", "sleep")
        return self._sleep(recorded, ordinal, seconds, None)

    def sleep_until(self, at: int, /) -> Coroutine[None, None, None]:
        """Sleep until a point in time."""
        recorded, ordinal = self._arrive("rt.sleep_until", "sleep", "sleep")
        return self._sleep(recorded, ordinal, 0, at)

    def call_step(
        self, step: Step[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], /
    ) -> Coroutine[None, None, Any]:
        """Carry out a step, or return its record."""
        recorded, ordinal = self._arrive(f"step {step.name}", "step", step.name)
        return self._step(step, recorded, ordinal, args, kwargs)

    def _arrive(self, call: str, kind: str, name: str) -> tuple[StepRecord | None, int]:
        """Give the call its place; refuse it in a foreign task."""
        self._own_task.check(call)
        if self._unwinding:
            raise Unwound
        found = self.history.arrive(kind, name)
        if self._info.replaying and not self.history.unvisited:
            info = self._info
            self._info = RunInfo(info.id, info.workflow, info.version, info.attempt, info.tags)
        return found

    async def _sleep(self, recorded: StepRecord | None, ordinal: int, seconds: float, at: int | None) -> None:
        await self._begin("rt.sleep", live=recorded is None)
        if recorded is None:
            now = self.clock.now()
            wake_at = at if at is not None else now + round(seconds * MICROSECOND)
            recorded = await self.record_step(sleep_record(ordinal, now, wake_at))
        # A sleep with a recorded call behind it is over, whatever the clock says now.
        if recorded.wake_at is not None and not self.history.unvisited:
            await self.wait_until(recorded.wake_at, SLEEP_IN_MEMORY_SECONDS)
        self._in_code = True

    async def _step(
        self,
        step: Step[..., Any],
        recorded: StepRecord | None,
        ordinal: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        await self._begin(f"step {step.name}", live=recorded is None)
        result: object = NOTHING
        if recorded is None:
            result, recorded = await StepCall(self, step, ordinal, args, kwargs).carry_out()
        if recorded.error is not None:
            self._in_code = True
            rebuilt = codec.rebuild_error(recorded.error, step.settings.raises) if step.settings.raises else None
            if rebuilt is not None:
                raise rebuilt
            raise StepFailed(step.name, codec.decode_error(recorded.error), recorded.attempt)
        if result is NOTHING or self._host.copies_results:
            try:
                what = f"the result of step {step.name}"
                result = codec.decode(recorded.output or b"null", step.result_type, what=what)
            except (CodecError, ConfigurationError) as unfit:
                if result is not NOTHING:
                    self._in_code = True
                    raise
                self.history.differ(f"call {ordinal + 1} of {self._claimed.workflow}: {unfit}")
                await self._hold()
        self._in_code = True
        return result

    async def _begin(self, call: str, *, live: bool) -> None:
        """What must be so before a call goes on: own task, fitting history; before a live one, all asked is done."""
        self._own_task.check(call)
        if self._unwinding:
            raise Unwound
        self._in_code = False
        if self.history.mismatch:
            await self._hold()
        if live:
            if self._unsettled:
                await self._settle()
            if self._attention.is_set():
                await self.boundary()
