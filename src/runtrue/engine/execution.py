"""One claim of one run: the workflow function is called and replayed through what was recorded.

The identity of a durable call is its place, fixed when the call is made: the branch (one so far, the empty text) and
the ordinal of the call within it. A call at a recorded place returns the record; the first call beyond them is live.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, Protocol

from runtrue import codec
from runtrue.authoring import AsyncWorkflow, RunInfo, Step, StepInfo, runtime_variable, step_variable
from runtrue.clock import MICROSECOND, Clock, wait_for_event
from runtrue.errors import CancelRun, CodecError, RuntrueError, StepFailed, WrongPlace
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
BACK_OFF_IN_MEMORY_SECONDS = 3.0
"""A longer wait for the next attempt leaves memory."""
BRANCH = ""
"""The only branch of a run of sequential steps."""


class Unwound(BaseException):
    """Unwinds a workflow whose run is not this worker's any more, or has ended. Not for authors to catch.

    `finally` and `except BaseException` of the workflow may run while it passes; every durable call that they make
    raises it again, and nothing that they return is used.
    """


class Host(Protocol):
    """What an execution needs of its worker."""

    clock: Clock
    copies_results: bool

    def may_execute(self) -> bool:
        """False once the worker's lease may have run out by its own clock."""
        ...

    def ended(self, execution: "Execution", status: Status | None) -> None:
        """The execution is over; `status` is the run's status as committed, None if the run was lost."""
        ...


class Recorder(Protocol):
    """What an execution needs of the journal."""

    fenced_writes: int

    def record(self, effects: RunEffects) -> asyncio.Future[EffectsReply]: ...

    def note_progress(self, run_id: str, epoch: int, progress: Progress) -> None: ...

    def forget_progress(self, run_id: str) -> None: ...


class Execution:
    """Executes one claimed run until it ends, parks, is released or is lost."""

    def __init__(
        self, claimed: Claimed, workflow: AsyncWorkflow[..., Any], host: Host, journal: Recorder, seen_beats: int
    ) -> None:
        self.run_id = claimed.run_id
        self.epoch = claimed.epoch
        self.status: Status = claimed.status
        self.seen_beats = seen_beats
        """How many renewals had begun when this run was claimed; an earlier one knows nothing of it."""
        self.running_step: tuple[str, int, int] | None = None
        """Name, attempt and start of the step in flight. The heartbeat thread reads it."""
        self.task: asyncio.Task[None] | None = None
        self.gone = False
        """The run is not ours any more: nothing may be started, nothing will be recorded."""
        self._loop = asyncio.get_running_loop()
        self._workflow = workflow
        self._host = host
        self._clock = host.clock
        self._journal = journal
        self._claimed = claimed
        self._wakeups = claimed.wakeups
        self._recorded = {(step.branch, step.ordinal): step for step in claimed.steps}
        self._failed: dict[tuple[str, int], AttemptRecord] = {}
        for attempt in sorted(claimed.attempts, key=lambda attempt: attempt.attempt):
            self._failed[attempt.branch, attempt.ordinal] = attempt
        self._next_ordinal = 0
        self._unvisited = len(self._recorded)
        self._unsettled: list[StepRecord] = []
        self._mismatch = ""
        self._draining = False
        self._interrupted = False
        self._in_code = False
        """The workflow's own code has the floor: no step is in flight, no effect is on its way."""
        self._interruptible = False
        self._attention = asyncio.Event()
        self._unwinding = False
        self._info = RunInfo(
            claimed.run_id,
            claimed.workflow,
            claimed.version,
            claimed.attempt,
            claimed.tags,
            replaying=self._unvisited > 0,
        )

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
        self._draining = True
        self._attention.set()
        if self.task is not None and not self.task.done() and (self.running_step is not None or self._in_code):
            self._interrupted = True
            self.task.cancel()

    def _interrupt_if_allowed(self) -> None:
        # A step that did not ask to be interrupted finishes first. Code between steps has no effects to protect.
        if self.task is not None and not self.task.done() and (self._interruptible or self._in_code):
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
                logger.error("run %s: the engine itself failed; the run is released", self.run_id, exc_info=broken)
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
        except Unwound:
            raise
        except CancelRun as wish:
            end: End = Finish(Status.CANCELLED, reason=codec.clean_text(wish.reason))
        except asyncio.CancelledError:
            self._in_code = False
            await self._answer_interrupt()
            return
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # whatever leaves the workflow, SystemExit too, fails this run and no other
            end = Finish(Status.FAILED, codec.encode_error(error))
        else:
            end = self._completed(result)
        self._in_code = False
        if self._unwinding:
            # The workflow swallowed the signal and returned: the run was settled before, this means nothing.
            raise Unwound
        await self._finish(end)

    async def _call_workflow(self) -> Any:
        what = f"the input of {self._claimed.workflow}"
        try:
            args, kwargs = codec.decode_arguments(
                self._claimed.input, self._workflow.signature, self._workflow.hints, what=what
            )
        except RuntrueError as unfit:
            if self._recorded:
                # It fitted once: the code has changed since, and a fitting version can take the run on.
                self._mismatch = str(unfit)
            raise
        return await self._workflow.fn(*args, **kwargs)

    def _completed(self, result: object) -> Finish:
        try:
            return Finish(Status.COMPLETED, codec.encode(result, what=f"the result of {self._claimed.workflow}"))
        except CodecError as refused:
            return Finish(Status.FAILED, codec.encode_error(refused))

    async def _finish(self, end: End) -> NoReturn:
        if self._unsettled:
            await self._settle()
        if not self._mismatch and self._unvisited and isinstance(end, Finish) and end.target is not Status.CANCELLED:
            first = min(place for place in self._recorded if place[1] >= self._next_ordinal)
            missed = self._recorded[first]
            self._mismatch = (
                f"the history holds {missed.kind} {missed.name} as call {missed.ordinal + 1}, but the code of "
                f"{self._claimed.workflow} ended after {self._next_ordinal} calls"
            )
        if self._mismatch:
            await self._hold(self._mismatch)
        reply = await self._record_end(end)
        if reply.recorded is Recorded.CONDEMNED:
            refused = _EffectRefusedError(codec.clean_text(f"the database refused the result: {reply.error}"))
            reply = await self._record_end(Finish(Status.FAILED, codec.encode_error(refused)))
        self._unwind(lost=reply.recorded is not Recorded.OK)

    async def _answer_interrupt(self) -> NoReturn:
        """CancelledError came: ours (a request, the drain, the run is lost), or somebody else's."""
        if self._take_interrupt():
            # An interrupt is sent only with what cannot be withdrawn, so this does not return.
            await self._boundary()
        await self._fail_cancelled_wait()

    def _take_interrupt(self) -> bool:
        """True if the worker itself interrupted the task; the task is then no longer marked as cancelled."""
        ours, self._interrupted = self._interrupted, False
        if ours and self.task is not None:
            self.task.uncancel()
        return ours

    async def _fail_cancelled_wait(self) -> NoReturn:
        error = WrongPlace(
            "a durable call was cancelled from outside, for example by asyncio.timeout; "
            "give the step a timeout= instead, it is recorded and the same on every replay"
        )
        await self._finish(Finish(Status.FAILED, codec.encode_error(error)))

    # ------------------------------------------------------------ boundaries and ends
    async def _boundary(self) -> None:
        """Carry out what was asked of the run. Returns if the run goes on, raises Unwound if not."""
        while self._attention.is_set():
            if self.gone or not self._host.may_execute():
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
                await self._settle(look=False)
            reply = await self._record_end(end)
            if reply.recorded is not Recorded.REFUSED:
                self._unwind(lost=reply.recorded is not Recorded.OK)

    async def _record_end(self, end: End) -> EffectsReply:
        return await self._record(RunEffects(self.run_id, self.epoch, end=end))

    async def _record(self, effects: RunEffects) -> EffectsReply:
        """Hand effects to the journal; the reply's status is the run's newest. Raises Unwound if the run is lost."""
        if self.gone:
            self._journal.fenced_writes += 1
            self._unwind(lost=True)
        try:
            reply = await self._journal.record(effects)
        except asyncio.CancelledError:
            # Never ours: the worker interrupts steps and code, not the journal. The effect is on its way all the
            # same, and the end that follows is written after it.
            await self._fail_cancelled_wait()
        if reply.recorded is Recorded.FENCED or reply.status is None:
            self._unwind(lost=True)
        if reply.status is not self.status:
            self._set_status(reply.status)
        return reply

    def _unwind(self, *, lost: bool = False) -> NoReturn:
        self._unwinding = True
        self.gone = self.gone or lost
        raise Unwound

    async def _hold(self, reason: str) -> None:
        """Open a code_mismatch hold and leave; returns only if the run was cancelled meanwhile."""
        reply = await self._record_end(ParkHeld(HoldKind.CODE_MISMATCH, codec.clean_text(reason)))
        if reply.recorded is Recorded.REFUSED:
            await self._boundary()
        self._unwind(lost=reply.recorded is not Recorded.OK)

    async def _settle(self, *, look: bool = True) -> None:
        """Record the values drawn since the last effect, before anything that depends on them is started."""
        values, self._unsettled = self._unsettled, []
        reply = await self._record(RunEffects(self.run_id, self.epoch, steps=values))
        if reply.recorded is Recorded.CONDEMNED:
            await self._fail_condemned("a recorded value", reply.error)
        if look and self._attention.is_set():
            await self._boundary()

    async def _fail_condemned(self, what: str, why: str) -> NoReturn:
        refused = _EffectRefusedError(codec.clean_text(f"the database refused {what}: {why}"))
        reply = await self._record_end(Finish(Status.FAILED, codec.encode_error(refused)))
        self._unwind(lost=reply.recorded is not Recorded.OK)

    # ------------------------------------------------------------ durable calls (the Runtime protocol)
    def info(self) -> RunInfo:
        """The run, for rt.this_run()."""
        return self._info

    def time(self) -> int:
        """The engine's time."""
        return self._clock.now()

    def progress(self, done: float | None, total: float | None, note: str, /) -> None:
        """Report progress; a replay's reports are old and dropped."""
        if self._unvisited or self.gone or self._unwinding:
            return
        report = Progress(done, total, codec.clean_text(note, 1_000), self._clock.now())
        # A step may report from a thread of its own.
        self._loop.call_soon_threadsafe(self._journal.note_progress, self.run_id, self.epoch, report)

    def value(self, kind: str, make: Callable[[], object], /) -> Any:
        """The recorded value of this place, or a new one that is recorded before the next effect starts."""
        recorded, ordinal = self._arrive(f"rt.{kind}", kind, kind)
        if recorded is not None:
            return codec.decode(recorded.output or b"null", what=f"the recorded {kind}")
        made = make()
        body = codec.encode(made, what=f"rt.{kind}")
        now = self._clock.now()
        digest = codec.place_digest(BRANCH, ordinal, body, None)
        self._unsettled.append(StepRecord(BRANCH, ordinal, kind, kind, 1, body, None, now, now, digest))
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
        """Give the call its place, refuse it in a foreign task, and compare it with the record there."""
        self._check_task(call)
        if self._unwinding:
            raise Unwound
        ordinal = self._next_ordinal
        self._next_ordinal = ordinal + 1
        if not self._recorded:
            return None, ordinal
        recorded = self._recorded.get((BRANCH, ordinal))
        if recorded is None:
            return None, ordinal
        if (recorded.kind, recorded.name) != (kind, name) and not self._mismatch:
            self._mismatch = (
                f"call {ordinal + 1} of {self._claimed.workflow} is {_described(kind, name)}, "
                f"but the history holds {_described(recorded.kind, recorded.name)} there"
            )
        if self._unvisited:
            self._unvisited -= 1
            if not self._unvisited:
                info = self._info
                self._info = RunInfo(info.id, info.workflow, info.version, info.attempt, info.tags)
        if self._mismatch and kind in ("now", "uuid4", "random"):
            # A plain function cannot wait for the hold to be written: the run leaves through an exception that
            # `_finish` turns into the hold.
            raise _HistoryMismatchError(self._mismatch)
        return recorded, ordinal

    def _check_task(self, call: str) -> None:
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None
        if task is not self.task:
            where = "in another thread" if task is None else "in another asyncio task (create_task, gather, TaskGroup)"
            raise WrongPlace(
                f"{call} was called {where}; call and await it in the workflow function itself: only there its "
                "place in the history is certain"
            )

    async def _sleep(self, recorded: StepRecord | None, ordinal: int, seconds: float, at: int | None) -> None:
        self._check_task("rt.sleep")
        if self._mismatch:
            await self._hold(self._mismatch)
        self._in_code = False
        if recorded is None:
            await self._before_live()
            now = self._clock.now()
            wake_at = at if at is not None else now + round(seconds * MICROSECOND)
            digest = codec.place_digest(BRANCH, ordinal, None, None)
            sleep = StepRecord(BRANCH, ordinal, "sleep", "sleep", 1, None, None, now, now, digest, wake_at)
            recorded = await self._record_step(sleep)
        # A sleep with a later call behind it is over, whatever the clock says now.
        if recorded.wake_at is not None and not self._unvisited:
            await self._wait_until(recorded.wake_at, SLEEP_IN_MEMORY_SECONDS)
        self._in_code = True

    async def _step(
        self,
        step: Step[..., Any],
        recorded: StepRecord | None,
        ordinal: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        if asyncio.current_task() is not self.task:
            self._check_task(f"step {step.name}")
        if self._mismatch:
            await self._hold(self._mismatch)
        self._in_code = False
        result: object = _NOTHING
        if recorded is None:
            await self._before_live()
            result, recorded = await self._attempts(step, ordinal, args, kwargs)
        self._in_code = True
        if recorded.error is not None:
            rebuilt = codec.rebuild_error(recorded.error, step.settings.raises) if step.settings.raises else None
            if rebuilt is not None:
                raise rebuilt
            raise StepFailed(step.name, codec.decode_error(recorded.error), recorded.attempt)
        if result is not _NOTHING and not self._host.copies_results:
            return result
        try:
            return codec.decode(recorded.output or b"null", step.result_type, what=f"the result of step {step.name}")
        except CodecError as unfit:
            if result is not _NOTHING:
                raise
            self._mismatch = f"call {ordinal + 1} of {self._claimed.workflow}: {unfit}"
        await self._hold(self._mismatch)
        raise Unwound

    async def _before_live(self) -> None:
        """What must be so before a call has an effect: all drawn values recorded, every request carried out."""
        if self._unsettled:
            await self._settle()
        if self._attention.is_set():
            await self._boundary()

    async def _record_step(self, record: StepRecord) -> StepRecord:
        """Record the outcome of a call and look at the boundary. Returns what is recorded: the first writer's."""
        reply = await self._record(RunEffects(self.run_id, self.epoch, [record]))
        if reply.recorded is Recorded.CONDEMNED:
            await self._fail_condemned(f"the result of {record.kind} {record.name}", reply.error)
        if self._attention.is_set():
            await self._boundary()
        return reply.existing[0] if reply.existing else record

    # ------------------------------------------------------------ attempts of a step
    async def _attempts(
        self, step: Step[..., Any], ordinal: int, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[object, StepRecord]:
        attempt = 1
        failed = self._failed.get((BRANCH, ordinal)) if self._failed else None
        if failed is not None:
            attempt = failed.attempt + 1
            await self._wait_until(failed.next_at, BACK_OFF_IN_MEMORY_SECONDS)
        while True:
            started_at = self._clock.now()
            result, error = await self._attempt(step, ordinal, attempt, started_at, args, kwargs)
            if self._interrupted:
                # Interrupted, but the function caught it and came to its end: its outcome counts.
                self._take_interrupt()
            if error is None:
                try:
                    body = codec.encode(result, what=f"the result of step {step.name}")
                except CodecError as refused:
                    # The same value would be refused again: no further attempt.
                    error = refused
                else:
                    record = self._outcome(step, ordinal, attempt, body, None, started_at)
                    kept = await self._record_step(record)
                    return (result if kept is record else _NOTHING), kept
            again, error = self._wants_again(step, error, attempt)
            if not again:
                body = self._encoded_error(step, error)
                return _NOTHING, await self._record_step(self._outcome(step, ordinal, attempt, None, body, started_at))
            await self._record_attempt(step, ordinal, attempt, error, started_at)
            attempt += 1

    @staticmethod
    def _wants_again(step: Step[..., Any], error: BaseException, attempt: int) -> tuple[bool, BaseException]:
        """Whether the error is worth another attempt; and the error to record, which may be that of `retry_on`."""
        if not isinstance(error, Exception) or isinstance(error, (CodecError, *step.settings.raises)):
            return False, error
        try:
            return step.settings.retry.wants(error, attempt), error
        except Exception as broken:  # the author's retry_on function; whoever reads the run must see that it broke
            broken.add_note(f"raised by retry_on of step {step.name} while it judged {error!r:.200}")
            return False, broken

    def _outcome(
        self, step: Step[..., Any], ordinal: int, attempt: int, output: bytes | None, error: bytes | None, started: int
    ) -> StepRecord:
        digest = codec.place_digest(BRANCH, ordinal, output, error)
        return StepRecord(
            BRANCH, ordinal, step.name, "step", attempt, output, error, started, self._clock.now(), digest
        )

    def _encoded_error(self, step: Step[..., Any], error: BaseException) -> bytes:
        if isinstance(error, step.settings.raises):
            return codec.encode_business_error(error, step.settings.raises)
        return codec.encode_error(error)

    async def _record_attempt(
        self, step: Step[..., Any], ordinal: int, attempt: int, error: BaseException, started_at: int
    ) -> None:
        """Record that an attempt failed and wait for the next one. The reply and the wait are boundaries."""
        now = self._clock.now()
        next_at = now + round(step.settings.retry.delay_seconds(attempt) * MICROSECOND)
        body = codec.encode_error(error)
        record = AttemptRecord(BRANCH, ordinal, step.name, attempt, body, started_at, now, next_at)
        reply = await self._record(RunEffects(self.run_id, self.epoch, attempts=[record]))
        if reply.recorded is Recorded.CONDEMNED:
            await self._fail_condemned(f"a failed attempt of step {step.name}", reply.error)
        await self._wait_until(next_at, BACK_OFF_IN_MEMORY_SECONDS)

    async def _attempt(
        self,
        step: Step[..., Any],
        ordinal: int,
        attempt: int,
        started_at: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> tuple[object, BaseException | None]:
        """Call the function once. Returns its result, or the error that it failed with."""
        # Looked at last: nothing is awaited between here and the call.
        while self._attention.is_set() or not self._host.may_execute():
            self._attention.set()
            await self._boundary()
        info = StepInfo(
            self._info, step.name, attempt, f"{self.run_id}/{ordinal}", self.cancel_requested, self.progress
        )
        tokens = (step_variable.set(info), runtime_variable.set(None))
        self._interruptible = step.settings.interruptible
        self.running_step = (step.name, attempt, started_at)
        try:
            if step.settings.timeout_seconds is None:
                return await step.fn(*args, **kwargs), None
            return await self._timed(step, step.settings.timeout_seconds, args, kwargs)
        except asyncio.CancelledError as cancelled:
            caught: BaseException = cancelled
        except (KeyboardInterrupt, GeneratorExit, Unwound):
            raise
        except BaseException as error:  # whatever a step raises, SystemExit too, is the outcome of this attempt
            caught = error
        finally:
            self.running_step = None
            self._interruptible = False
            step_variable.reset(tokens[0])
            runtime_variable.reset(tokens[1])
        if isinstance(caught, asyncio.CancelledError):
            if self._interrupted or self._cancelled_from_outside():
                await self._answer_interrupt()
            return None, _StepCancelledError(f"step {step.name} raised CancelledError; nobody had cancelled it")
        if isinstance(caught, CancelRun):
            await self._finish(Finish(Status.CANCELLED, reason=codec.clean_text(caught.reason)))
        return None, caught

    async def _timed(
        self, step: Step[..., Any], seconds: float, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[object, BaseException | None]:
        limit = self._clock.timeout(seconds)
        timeout = None
        try:
            async with limit as timeout:
                return await step.fn(*args, **kwargs), None
        except TimeoutError as error:
            if timeout is not None and timeout.expired():
                return None, TimeoutError(f"step {step.name} took longer than its timeout of {seconds:g} s")
            return None, error

    def _cancelled_from_outside(self) -> bool:
        return self.task is not None and self.task.cancelling() > 0

    # ------------------------------------------------------------ waiting
    async def _wait_until(self, at: int, in_memory_seconds: float) -> None:
        """Wait for a point in time. Each turn is a boundary; a long wait leaves memory by parking the run."""
        while True:
            if self._attention.is_set():
                await self._boundary()
            remaining = (at - self._clock.now()) / MICROSECOND
            if remaining <= 0:
                return
            if remaining < in_memory_seconds:
                await self._wait_in_memory(remaining)
                continue
            reply = await self._record_end(ParkBlocked(self._wakeups, at))
            if reply.recorded is not Recorded.REFUSED:
                self._unwind(lost=reply.recorded is not Recorded.OK)
            # Somebody raised the counter. A run of sequential steps waits for nothing but the clock and the
            # requests in its status, which the reply brought: the newer counter hides no fact from it.
            self._wakeups = reply.wakeups

    async def _wait_in_memory(self, seconds: float) -> None:
        try:
            await wait_for_event(self._clock, self._attention, seconds)
        except asyncio.CancelledError:
            await self._answer_interrupt()


class _EffectRefusedError(RuntrueError):
    """The database refuses to record what the run did, and always will."""


class _StepCancelledError(RuntrueError):
    """A step raised CancelledError although nobody had cancelled it."""


class _HistoryMismatchError(RuntrueError):
    """The code met another call at a recorded place."""


def _described(kind: str, name: str) -> str:
    return f"step {name}" if kind == "step" else f"rt.{kind}"


_NOTHING = object()
