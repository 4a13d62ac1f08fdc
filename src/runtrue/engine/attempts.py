"""The attempts of one live step call, until an outcome is recorded."""

import asyncio
from typing import TYPE_CHECKING, Any

from runtrue import codec
from runtrue.authoring import Step, StepInfo, runtime_variable, step_variable
from runtrue.clock import MICROSECOND
from runtrue.engine.history import BRANCH
from runtrue.engine.signals import Unwound
from runtrue.errors import CancelRun, CodecError, RuntrueError
from runtrue.lifecycle import Status
from runtrue.records import AttemptRecord, StepRecord
from runtrue.store.protocol import Finish

if TYPE_CHECKING:
    from runtrue.engine.execution import Execution

BACK_OFF_IN_MEMORY_SECONDS = 3.0
"""A longer wait for the next attempt leaves memory."""


class StepCancelledError(RuntrueError):
    """A step raised CancelledError although nobody had cancelled it."""


class StepCall:
    """One call of a step that has no record yet."""

    __slots__ = ("_args", "_execution", "_kwargs", "_ordinal", "_step")

    def __init__(
        self, execution: "Execution", step: Step[..., Any], ordinal: int, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._execution = execution
        self._step = step
        self._ordinal = ordinal
        self._args = args
        self._kwargs = kwargs

    async def carry_out(self) -> tuple[object, StepRecord]:
        """Try until there is an outcome, and record it.

        Returns the result as the function gave it (NOTHING if it failed, or if another result was recorded first)
        and the record that counts.
        """
        execution, step = self._execution, self._step
        # An annotation that cannot be resolved is refused here, before the function has had any effect.
        result_type = step.result_type
        attempt = 1
        failure = execution.history.last_failure(self._ordinal)
        if failure is not None:
            attempt = failure.attempt + 1
            await execution.wait_until(failure.next_at, BACK_OFF_IN_MEMORY_SECONDS)
        while True:
            started_at = execution.clock.now()
            result, error = await self._call(attempt, started_at)
            # Interrupted, but the function caught it and came to its end: its outcome counts.
            execution.take_interrupt()
            if error is None:
                try:
                    body, copy = codec.round_trip(result, result_type, what=step.result_label)
                except CodecError as refused:
                    # The same value would be refused again: no further attempt.
                    error = refused
                else:
                    record = self._record(attempt, body, None, started_at)
                    kept = await execution.record_step(record)
                    if kept is not record:
                        return NOTHING, kept
                    # Without an annotation a tuple, say, comes back as a list: it must from the first time on.
                    return (copy if execution.copies_results or result_type is Any else result), kept
            again, error = self._wants_again(error, attempt)
            if not again:
                record = self._record(attempt, None, self._encoded(error), started_at)
                return NOTHING, await execution.record_step(record)
            await self._record_failure(attempt, error, started_at)
            attempt += 1

    async def _call(self, attempt: int, started_at: int) -> tuple[object, BaseException | None]:
        """Call the function once. Returns its result, or the error that it failed with."""
        execution, step = self._execution, self._step
        # Looked at last: nothing is awaited between here and the call.
        while execution.is_asked or not execution.may_execute():
            await execution.boundary()
        info = StepInfo(
            execution.calls.info(),
            step.name,
            attempt,
            f"{execution.run_id}/{self._ordinal}",
            execution.cancel_requested,
            execution.report,
        )
        step_token, runtime_token = step_variable.set(info), runtime_variable.set(None)
        execution.interruptible = step.settings.interruptible
        execution.running_step = (step.name, attempt, started_at)
        try:
            if step.settings.timeout_seconds is None:
                return await step.fn(*self._args, **self._kwargs), None
            return await self._timed(step.settings.timeout_seconds)
        except (KeyboardInterrupt, Unwound):
            raise
        except BaseException as error:  # whatever a step raises, SystemExit too, is the outcome of this attempt
            if isinstance(error, GeneratorExit) and not execution.own_task.is_current:
                raise  # the interpreter closes the coroutine: nothing can be awaited any more
            caught = error
        finally:
            execution.running_step = None
            execution.interruptible = False
            step_variable.reset(step_token)
            runtime_variable.reset(runtime_token)
        if isinstance(caught, asyncio.CancelledError):
            await execution.hear_cancelled_error()
            return None, StepCancelledError(f"step {step.name} raised CancelledError; nobody had cancelled it")
        if isinstance(caught, CancelRun):
            await execution.finish(Finish(Status.CANCELLED, reason=codec.clean_text(caught.reason)))
        return None, caught

    async def _timed(self, seconds: float) -> tuple[object, BaseException | None]:
        timeout: asyncio.Timeout | None = None
        try:
            async with self._execution.clock.timeout(seconds) as timeout:
                return await self._step.fn(*self._args, **self._kwargs), None
        except TimeoutError as error:
            if timeout is not None and timeout.expired():
                return None, TimeoutError(f"step {self._step.name} took longer than its timeout of {seconds:g} s")
            return None, error

    def _wants_again(self, error: BaseException, attempt: int) -> tuple[bool, BaseException]:
        """Whether the error is worth another attempt; and the error to record, which may be that of `retry_on`."""
        settings = self._step.settings
        if not isinstance(error, Exception) or isinstance(error, (CodecError, *settings.raises)):
            return False, error
        try:
            return settings.retry.wants(error, attempt), error
        except Exception as broken:  # the author's own function; whoever reads the run must see that it broke
            broken.add_note(f"raised by retry_on of step {self._step.name} while it judged {error!r:.200}")
            return False, broken

    def _record(self, attempt: int, output: bytes | None, error: bytes | None, started_at: int) -> StepRecord:
        return StepRecord(
            BRANCH,
            self._ordinal,
            self._step.name,
            "step",
            attempt,
            output,
            error,
            started_at,
            self._execution.clock.now(),
            codec.place_digest(BRANCH, self._ordinal, output, error),
        )

    def _encoded(self, error: BaseException) -> bytes:
        raises = self._step.settings.raises
        if isinstance(error, raises):
            return codec.encode_business_error(error, raises)
        return codec.encode_error(error)

    async def _record_failure(self, attempt: int, error: BaseException, started_at: int) -> None:
        """Record that an attempt failed, then wait for the next one. The reply and the wait are boundaries."""
        now = self._execution.clock.now()
        next_at = now + round(self._step.settings.retry.delay_seconds(attempt) * MICROSECOND)
        body = codec.encode_error(error)
        await self._execution.record_attempt(
            AttemptRecord(BRANCH, self._ordinal, self._step.name, attempt, body, started_at, now, next_at)
        )
        await self._execution.wait_until(next_at, BACK_OFF_IN_MEMORY_SECONDS)


NOTHING = object()
"""Stands for a result that is not at hand as the function gave it."""
