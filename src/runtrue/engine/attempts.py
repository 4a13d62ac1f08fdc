"""The attempts of one live step call, until an outcome is recorded."""

import asyncio
import inspect
import logging
import math
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from runtrue import codec
from runtrue.authoring import Step, StepInfo, runtime_variable, step_variable
from runtrue.authoring._context import blocking_variable
from runtrue.clock import MICROSECOND
from runtrue.engine import waits
from runtrue.engine.signals import Unwound
from runtrue.engine.strands import Rest, Strand
from runtrue.engine.threads import NoThreadError, Outcome, ThreadCall, Turn, WorkflowThread
from runtrue.errors import CancelRun, CodecError, RuntrueError
from runtrue.lifecycle import Status
from runtrue.records import AttemptRecord, StepRecord
from runtrue.store.protocol import Finish

if TYPE_CHECKING:
    from runtrue.engine.calls import Calls

T = TypeVar("T")

logger = logging.getLogger("runtrue.engine")

BACK_OFF_IN_MEMORY_SECONDS = 3.0
"""A longer wait for the next attempt leaves memory."""


class StepCancelledError(RuntrueError):
    """A step raised CancelledError although nobody had cancelled it."""


class Attempt:
    """One attempt of a step call."""

    __slots__ = ("is_late", "number", "started_at")

    def __init__(self, number: int, started_at: int) -> None:
        self.number = number
        self.started_at = started_at
        self.is_late = False
        """It has run into its timeout, and its thread has not come back."""


class StepCall:
    """One call of a step that has no record yet."""

    __slots__ = (
        "_args",
        "_branch",
        "_calls",
        "_deadline_at",
        "_execution",
        "_kwargs",
        "_ordinal",
        "_step",
        "_strand",
    )

    def __init__(
        self,
        calls: "Calls",
        strand: Strand,
        step: Step[..., Any],
        ordinal: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self._calls = calls
        self._execution = calls.execution
        self._branch = calls.branch
        self._strand = strand
        self._step = step
        self._ordinal = ordinal
        self._args = args
        self._kwargs = kwargs
        self._deadline_at: int | None = None

    async def carry_out(self) -> tuple[object, StepRecord]:
        """Try until there is an outcome, and record it.

        Returns the result as the function gave it (NOTHING if it failed, or if another result was recorded first)
        and the record that counts.
        """
        execution, step, strand = self._execution, self._step, self._strand
        # An annotation that cannot be resolved is refused here, before the function has had any effect.
        result_type = step.result_type
        number, begun_at = 1, execution.clock.now()
        failure = self._branch.places.last_failure(self._ordinal)
        if failure is not None:
            number, begun_at = failure.attempt + 1, self._branch.places.first_started_at(self._ordinal)
            await waits.wait_until(self._calls, strand, failure.next_at, BACK_OFF_IN_MEMORY_SECONDS)
        if step.settings.deadline_seconds is not None:
            self._deadline_at = begun_at + round(step.settings.deadline_seconds * MICROSECOND)
        while True:
            attempt = Attempt(number, execution.clock.now())
            result, error = await self._call(attempt)
            # Interrupted, but the function caught it and came to its end: its outcome counts.
            strand.take_interrupt()
            if error is None:
                try:
                    body, copy = codec.round_trip(result, result_type, what=step.result_label)
                except CodecError as refused:
                    # The same value would be refused again: no further attempt.
                    error = refused
                else:
                    record = self._record(attempt, body, None)
                    kept = await self._keep(record)
                    if kept is not record:
                        return NOTHING, kept
                    # Without an annotation a tuple, say, comes back as a list: it must from the first time on.
                    return (copy if execution.host.copies_results or result_type is Any else result), kept
            next_at, error = self._next_attempt_at(error, number)
            if next_at is None:
                record = self._record(attempt, None, self._encoded(error))
                return NOTHING, await self._keep(record)
            await self._record_failure(attempt, error, next_at)
            number += 1

    async def _keep(self, record: StepRecord) -> StepRecord:
        kept = await self._execution.record_step(self._strand, record)
        hooks = self._execution.host.hooks
        if hooks is not None:
            await hooks.after_commit(self._execution.run_id, self._step)
        return kept

    # ------------------------------------------------------------ one attempt
    async def _call(self, attempt: Attempt) -> tuple[object, BaseException | None]:
        """Call the function once. Returns its result, or the error that it failed with."""
        function, is_async = self._function()
        if is_async:
            return await self._begin(attempt, function, None)
        if self._strand.thread is not None:
            return await self._begin(attempt, function, self._strand.thread)
        turn = await self._take_turn()
        try:
            attempt.started_at = self._execution.clock.now()
            return await self._begin(attempt, function, turn)
        finally:
            turn.give_up()

    def _function(self) -> tuple[Callable[..., Any], bool]:
        """What is to be called, and whether on the loop."""
        hooks = self._execution.host.hooks
        if hooks is None:
            return self._step.fn, self._step.is_async
        function = hooks.function_of(self._step)
        return function, inspect.iscoroutinefunction(function)

    async def _take_turn(self) -> Turn:
        """Wait for a thread of the pool, at a boundary all the while; no longer than until the deadline."""
        execution, strand = self._execution, self._strand

        def hear() -> None:
            if strand.rest is Rest.QUEUED:
                execution.strands.rouse(strand)

        while True:
            turn = execution.host.threads.queue_up(hear)
            try:
                while not turn.has_come and self._seconds_left(execution.clock.now()) > 0:
                    await execution.strands.rest(strand, Rest.QUEUED, self._deadline_at)
                if not self._must_stop:
                    return turn
            except BaseException as cut:
                turn.give_up()
                await execution.hear_rest_cut(strand, cut)
                raise
            # Others may need the thread while this run waits for what was asked of it.
            turn.give_up()
            await execution.boundary(strand)

    @property
    def _must_stop(self) -> bool:
        execution = self._execution
        return execution.is_asked or self._strand.branch.closed or not execution.may_execute()

    async def _begin(
        self, attempt: Attempt, function: Callable[..., Any], thread: Turn | WorkflowThread | None
    ) -> tuple[object, BaseException | None]:
        """Call it on the loop, or on the thread that it is given: that of its workflow, or one of the pool."""
        execution, step, strand = self._execution, self._step, self._strand
        seconds = self._seconds_allowed(attempt.started_at)
        if seconds is not None and seconds <= 0:
            return None, self._too_late("its deadline", step.settings.deadline_seconds)
        info = self._info(attempt)
        hooks = execution.host.hooks
        if hooks is not None:
            await hooks.before(info, step, self._args, self._kwargs)
        # Looked at last: nothing is awaited between here and the call.
        while self._must_stop:
            await execution.boundary(strand)
        strand.make_use()
        step_token, runtime_token = step_variable.set(info), runtime_variable.set(None)
        # A thread cannot be interrupted: its function looks at cancel_requested().
        strand.interruptible = step.settings.interruptible and thread is None
        strand.running_step = (step.name, attempt.number, attempt.started_at)
        result: object = None
        try:
            around = nullcontext() if execution.host.around_step is None else execution.host.around_step(info)
            if thread is not None:
                call = thread.start(self._blocking(around, function, info))
                result = (await self._end_of(attempt, call, seconds, isinstance(thread, Turn))).take()
            else:
                result = await self._awaited(around, function, seconds)
        except (KeyboardInterrupt, Unwound):
            raise
        except NoThreadError as refused:
            execution.fail_itself(refused)  # the machine's condition, and no fault of the step's
            raise Unwound from None
        except BaseException as error:  # whatever a step raises, SystemExit too, is the outcome of this attempt
            if isinstance(error, GeneratorExit) and not execution.is_current(strand):
                raise  # the interpreter closes the coroutine: nothing can be awaited any more
            caught: BaseException | None = error
        else:
            caught = None
        finally:
            strand.running_step = None
            strand.interruptible = False
            step_variable.reset(step_token)
            runtime_variable.reset(runtime_token)
        if hooks is not None:
            await hooks.after_effect(info, step)
        if caught is None:
            return result, None
        if isinstance(caught, asyncio.CancelledError):
            await execution.hear_cancelled_error(strand)
            return None, StepCancelledError(f"step {step.name} raised CancelledError; nobody had cancelled it")
        if isinstance(caught, CancelRun):
            execution.wish(Finish(Status.CANCELLED, reason=codec.clean_text(caught.reason)))
            await execution.stop(strand)
        return None, caught

    def _info(self, attempt: Attempt) -> StepInfo:
        execution, path = self._execution, self._branch.path
        place = f"{path}/{self._ordinal}" if path else str(self._ordinal)
        return StepInfo(
            self._calls.info(),
            self._step.name,
            attempt.number,
            f"{execution.run_id}/{place}",
            partial(self._cancel_requested, attempt),
            execution.report,
            execution.host.state,
        )

    def _cancel_requested(self, attempt: Attempt) -> bool:
        return attempt.is_late or self._strand.branch.closed or self._execution.cancel_requested()

    def _seconds_left(self, now: int) -> float:
        """How long it is until the deadline of all attempts."""
        return math.inf if self._deadline_at is None else (self._deadline_at - now) / MICROSECOND

    def _seconds_allowed(self, now: int) -> float | None:
        """How long this attempt may take: its timeout, or what is left until the deadline of all attempts."""
        seconds = self._step.settings.timeout_seconds
        if self._deadline_at is None:
            return seconds
        left = self._seconds_left(now)
        return left if seconds is None else min(left, seconds)

    def _too_late(self, limit: str, seconds: float | None) -> TimeoutError:
        return TimeoutError(f"step {self._step.name} took longer than {limit} of {seconds or 0:g} s")

    async def _awaited(
        self, around: AbstractContextManager[Any], function: Callable[..., Any], seconds: float | None
    ) -> object:
        """Call the function on the loop. Raises TimeoutError if it takes longer than `seconds`."""
        if seconds is not None:
            return await self._timed(self._awaited(around, function, None), seconds)
        with around:
            return await function(*self._args, **self._kwargs)

    async def _timed(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        timeout: asyncio.Timeout | None = None
        try:
            async with self._execution.clock.timeout(seconds) as timeout:
                return await work
        except TimeoutError:
            if timeout is not None and timeout.expired():
                raise self._timed_out(seconds) from None
            raise
        finally:
            work.close()

    def _timed_out(self, seconds: float) -> TimeoutError:
        settings = self._step.settings
        if seconds == settings.timeout_seconds:
            return self._too_late("its timeout", seconds)
        return self._too_late("its deadline", settings.deadline_seconds)

    # ------------------------------------------------------------ on a thread
    def _blocking(
        self, around: AbstractContextManager[Any], function: Callable[..., Any], info: StepInfo
    ) -> Callable[[], object]:
        args, kwargs = self._args, self._kwargs

        def call() -> object:
            step_variable.set(info)
            runtime_variable.set(None)
            blocking_variable.set(None)
            with around:
                return function(*args, **kwargs)

        return call

    async def _end_of(
        self, attempt: Attempt, call: ThreadCall[object], seconds: float | None, on_pool: bool
    ) -> Outcome[object]:
        """The outcome of a call on a thread, which cannot be ended: after its timeout, or when somebody has cancelled
        this, it is waited for all the same, so that nothing of the run goes on beside it.
        """
        try:
            return await (call.end() if seconds is None else self._timed(call.end(), seconds))
        except asyncio.CancelledError as cancelled:
            await self._come_back(call, cancelled)
            raise
        except TimeoutError:
            attempt.is_late = True
            # The workflow's own thread has the workflow to go on with, so there it is waited for in any case.
            if not (on_pool and self._step.settings.timeout_abandons):
                await self._come_back(call, None)
                logger.info("step %s came back after its timeout", self._step.name)
            raise

    async def _come_back(self, call: ThreadCall[object], cancelled: asyncio.CancelledError | None) -> None:
        """Wait until the thread has come back, unless the drain or the program has to end. Raises a cancellation that
        came meanwhile.
        """
        while not call.has_ended:
            if cancelled is not None and (self._strand.interrupted or self._execution.host.is_ending()):
                break
            try:
                await call.ended()
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    # ------------------------------------------------------------ what comes of an attempt
    def _next_attempt_at(self, error: BaseException, attempt: int) -> tuple[int | None, BaseException]:
        """When to try again, None if not at all; and the error to record, which may be that of `retry_on`."""
        settings = self._step.settings
        if not isinstance(error, Exception) or isinstance(error, (CodecError, *settings.raises)):
            return None, error
        try:
            if not settings.retry.wants(error, attempt):
                return None, error
        except Exception as broken:  # the author's own function; whoever reads the run must see that it broke
            broken.add_note(f"raised by retry_on of step {self._step.name} while it judged {error!r:.200}")
            return None, broken
        next_at = self._execution.clock.now() + round(settings.retry.delay_seconds(attempt) * MICROSECOND)
        if self._deadline_at is not None and next_at >= self._deadline_at:
            return None, error
        return next_at, error

    def _record(self, attempt: Attempt, output: bytes | None, error: bytes | None) -> StepRecord:
        path = self._branch.path
        return StepRecord(
            path,
            self._ordinal,
            self._step.name,
            "step",
            attempt.number,
            output,
            error,
            attempt.started_at,
            self._execution.clock.now(),
            codec.place_digest(path, self._ordinal, output, error),
        )

    def _encoded(self, error: BaseException) -> bytes:
        raises = self._step.settings.raises
        if isinstance(error, raises):
            return codec.encode_business_error(error, raises)
        return codec.encode_error(error)

    async def _record_failure(self, attempt: Attempt, error: BaseException, next_at: int) -> None:
        """Record that an attempt failed, then wait for the next one. The reply and the wait are boundaries."""
        now, body = self._execution.clock.now(), codec.encode_error(error)
        record = AttemptRecord(
            self._branch.path,
            self._ordinal,
            self._step.name,
            attempt.number,
            body,
            attempt.started_at,
            now,
            next_at,
        )
        await self._execution.record_attempt(self._strand, record)
        await waits.wait_until(self._calls, self._strand, next_at, BACK_OFF_IN_MEMORY_SECONDS)


NOTHING = object()
"""Stands for a result that is not at hand as the function gave it."""
