"""What the code of a run may call: each durable call gets its place when made, and is carried out when awaited."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NoReturn

from runtrue import codec
from runtrue.authoring import RunInfo, Step
from runtrue.clock import MICROSECOND
from runtrue.engine.attempts import NOTHING, StepCall
from runtrue.engine.history import described
from runtrue.engine.ports import HistoryMismatchError
from runtrue.engine.signals import Unwound
from runtrue.engine.values import sleep_record, value_record
from runtrue.errors import CodecError, ConfigurationError, StepFailed, WrongPlace
from runtrue.records import StepRecord
from runtrue.store.protocol import Claimed

if TYPE_CHECKING:
    from runtrue.engine.execution import Execution

SLEEP_IN_MEMORY_SECONDS = 1.0
"""A shorter sleep stays in memory; a longer one leaves it."""
SIGNALS_SWALLOWED_MAX = 3
"""Code that swallows the unwinding more often is not given the floor again."""


class DurableCalls:
    """The Runtime protocol, for one execution."""

    def __init__(self, execution: "Execution", claimed: Claimed) -> None:
        self._execution = execution
        self._history = execution.history
        self._own_task = execution.own_task
        self._open: dict[int, tuple[str, str]] = {}
        """Calls that were made and not awaited yet, by place."""
        self._swallowed = 0
        self._info = RunInfo(
            claimed.run_id,
            claimed.workflow,
            claimed.version,
            claimed.attempt,
            claimed.tags,
            replaying=not self._history.is_empty,
        )

    # ------------------------------------------------------------ the Runtime protocol
    def info(self) -> RunInfo:
        """The run, for rt.this_run()."""
        return self._info

    def time(self) -> int:
        """The engine's time."""
        return self._execution.clock.now()

    def progress(self, done: float | None, total: float | None, note: str, /) -> None:
        """Report progress; a replay's reports are old and dropped."""
        if not self._history.unvisited:
            self._execution.report(done, total, note)

    def value(self, kind: str, make: Callable[[], object], /) -> Any:
        """The recorded value of this place, or a new one that is recorded before the next effect starts."""
        recorded, ordinal = self._arrive(f"rt.{kind}", kind, kind)
        if self._history.mismatch:
            # A plain function cannot wait until the hold is written: `finish` does it when this has left the code.
            raise HistoryMismatchError(self._history.mismatch)
        if recorded is not None:
            return codec.decode(recorded.output or b"null", what=f"the recorded {kind}")
        made = make()
        self._execution.unsettled.append(value_record(kind, ordinal, made, self.time()))
        return made

    def sleep(self, seconds: float, /) -> Coroutine[None, None, None]:
        """Sleep for a span that begins when it is recorded."""
        return self._make_sleep("rt.sleep", seconds, None)

    def sleep_until(self, at: int, /) -> Coroutine[None, None, None]:
        """Sleep until a point in time."""
        return self._make_sleep("rt.sleep_until", 0, at)

    def _make_sleep(self, call: str, seconds: float, at: int | None) -> Coroutine[None, None, None]:
        if self._clings:
            return self._keep_waiting()
        recorded, ordinal = self._arrive(call, "sleep", "sleep")
        self._open[ordinal] = ("sleep", "sleep")
        return self._sleep(recorded, ordinal, seconds, at)

    def call_step(
        self, step: Step[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], /
    ) -> Coroutine[None, None, Any]:
        """Carry out a step, or return its record."""
        if self._clings:
            return self._keep_waiting()
        recorded, ordinal = self._arrive(step.label, "step", step.name)
        self._open[ordinal] = ("step", step.name)
        return self._step(step, recorded, ordinal, args, kwargs)

    def require_awaited(self) -> None:
        """The code has returned: raise WrongPlace if it never awaited a call that it made."""
        if self._open:
            ordinal, (kind, name) = next(iter(self._open.items()))
            raise WrongPlace(
                f"{described(kind, name)} was called by {self._info.workflow} (call {ordinal + 1}) and never awaited, "
                "so it did not happen; write `await` before the call"
            )

    # ------------------------------------------------------------ places
    def _arrive(self, call: str, kind: str, name: str) -> tuple[StepRecord | None, int]:
        """Give the call its place; refuse it in a foreign task."""
        self._own_task.check(call)
        if self._execution.unwinding:
            self._swallowed += 1
            raise Unwound
        found = self._history.arrive(kind, name)
        if self._info.replaying and not self._history.unvisited:
            info = self._info
            self._info = RunInfo(info.id, info.workflow, info.version, info.attempt, info.tags)
        return found

    def _enter(self, ordinal: int, call: str) -> None:
        """The call is awaited: by the workflow's own task, and not after the run was settled."""
        self._own_task.check(call)
        if self._execution.unwinding:
            self._swallowed += 1
            raise Unwound
        self._open.pop(ordinal, None)
        self._execution.in_code = False

    @property
    def _clings(self) -> bool:
        return self._swallowed >= SIGNALS_SWALLOWED_MAX

    async def _keep_waiting(self) -> NoReturn:
        """For code that swallows the unwinding in a loop: it would hold the event loop for ever."""
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self._execution.take_interrupt()
        raise Unwound

    # ------------------------------------------------------------ carrying out
    async def _sleep(self, recorded: StepRecord | None, ordinal: int, seconds: float, at: int | None) -> None:
        self._enter(ordinal, "rt.sleep")
        execution = self._execution
        if self._history.mismatch:
            await execution.hold()
        if recorded is None:
            await execution.before_live()
            now = self.time()
            wake_at = at if at is not None else now + round(seconds * MICROSECOND)
            recorded = await execution.record_step(sleep_record(ordinal, now, wake_at))
        # A sleep with a recorded call behind it is over, whatever the clock says now.
        if recorded.wake_at is not None and not self._history.unvisited:
            await execution.wait_until(recorded.wake_at, SLEEP_IN_MEMORY_SECONDS)
        execution.in_code = True

    async def _step(
        self,
        step: Step[..., Any],
        recorded: StepRecord | None,
        ordinal: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        self._enter(ordinal, step.label)
        execution = self._execution
        if self._history.mismatch:
            await execution.hold()
        result: object = NOTHING
        if recorded is None:
            if execution.is_asked or execution.unsettled:
                await execution.before_live()
            result, recorded = await StepCall(execution, step, ordinal, args, kwargs).carry_out()
        if recorded.error is not None:
            execution.in_code = True
            rebuilt = codec.rebuild_error(recorded.error, step.settings.raises) if step.settings.raises else None
            if rebuilt is not None:
                raise rebuilt
            raise StepFailed(step.name, codec.decode_error(recorded.error), recorded.attempt)
        if result is NOTHING:
            result = await self._read(step, recorded)
        execution.in_code = True
        return result

    async def _read(self, step: Step[..., Any], recorded: StepRecord) -> Any:
        """The recorded result as the code wants it. Code that cannot read it any more does not fit the history."""
        try:
            return codec.decode(recorded.output or b"null", step.result_type, what=step.result_label)
        except (CodecError, ConfigurationError) as unfit:
            self._history.differ(f"call {recorded.ordinal + 1} of {self._info.workflow}: {unfit}")
        await self._execution.hold()
        raise Unwound
