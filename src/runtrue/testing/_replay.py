"""Executes the code of a workflow against what was recorded of a run, and records nothing."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from runtrue.authoring import DefinedWorkflow, Step, StepInfo
from runtrue.clock import Clock, wait_for_event
from runtrue.codec import decode_error
from runtrue.engine.execution import Execution
from runtrue.engine.history import described
from runtrue.engine.ports import StepHooks
from runtrue.engine.signals import Unwound
from runtrue.engine.worker import Worker
from runtrue.lifecycle import Status, targets
from runtrue.records import AttemptRecord, Progress, RunRecord, StepRecord, Wait
from runtrue.store.protocol import Claimed, EffectsReply, Finish, ParkHeld, Recorded, RunEffects
from runtrue.testing._clock import MACHINE, ManualClock
from runtrue.testing._errors import ReplayMismatch, Standstill

AS_CLAIMED = targets("claim")[Status.PENDING][0]


async def replay(
    run: RunRecord,
    workflow: DefinedWorkflow[..., Any],
    steps: Sequence[StepRecord],
    attempts: Sequence[AttemptRecord],
    waits: Sequence[Wait],
    worker: Worker,
    *,
    patience_seconds: float,
) -> None:
    """Raise ReplayMismatch if the code does not fit the history; see TestApp.replay."""
    claimed = Claimed(
        run_id=run.id,
        workflow=run.workflow,
        version=run.version,
        epoch=run.epoch,
        status=AS_CLAIMED,
        wakeups=run.wakeups,
        attempt=run.attempt,
        input=run.input or b"",
        tags=run.tags,
        created_at=run.created_at,
        steps=steps,
        attempts=attempts,
        waits=[wait for wait in waits if wait.closed_at is None],
        parent_id=run.parent_id,
    )
    audience = _Audience(worker, ManualClock(max(worker.clock.now(), run.updated_at)))
    execution = audience.execution = Execution(claimed, workflow, audience, audience, 0)
    task = asyncio.create_task(execution.run(), name=f"runtrue-replay-{run.id}")
    try:
        if not await wait_for_event(MACHINE, audience.over, patience_seconds):
            raise Standstill(
                f"the replay of run {run.id} did not end within {patience_seconds:g} s: "
                f"the code of {run.workflow} waits for something that is no durable call"
            )
    finally:
        execution.hear_lost()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    audience.judge(run, len(steps))


class _Audience:
    """Stands in for the worker, the journal and the hooks of one execution, and lets nothing happen.

    Whatever is to be recorded is refused as if the run were another worker's, which ends the execution.
    """

    def __init__(self, worker: Worker, clock: Clock) -> None:
        self.clock = clock
        self.copies_results = worker.copies_results
        self.parks_at_once = True
        self.threads = worker.threads
        self.outside = worker.outside
        self.around_step = worker.around_step
        self.hooks: StepHooks | None = self
        self.state = worker.state
        self.version_of = worker.version_of
        self.is_ending = worker.is_ending
        self.execution: Execution | None = None
        self.over = asyncio.Event()
        self._mismatch = ""
        self._finish: Finish | None = None
        self._goes_on_with = ""

    def judge(self, run: RunRecord, calls: int) -> None:
        """Raise ReplayMismatch if what was seen does not fit."""
        if self._mismatch:
            _differ(run, self._mismatch)
        if run.status is not Status.COMPLETED:
            return
        if self._goes_on_with:
            _differ(
                run, f"it was completed after {calls} recorded calls, but the code goes on with {self._goes_on_with}"
            )
        if self._finish is None:
            _differ(run, "it was completed, but the code does not come to an end")
        if self._finish.target is not Status.COMPLETED:
            error = decode_error(self._finish.payload) if self._finish.payload else None
            how = f"fails: {error.type}: {error.message}" if error else "cancels it"
            _differ(run, f"it was completed, but the code now {how}")

    def _goes_on(self, text: str) -> None:
        self._goes_on_with = self._goes_on_with or text

    # ------------------------------------------------------------ the journal
    def record(self, effects: RunEffects) -> "asyncio.Future[EffectsReply]":
        """Look at what the code wants to be recorded, and refuse it."""
        if effects == RunEffects(effects.run_id, effects.epoch, closed_waits=effects.closed_waits):
            # Every replay gives back once more what a loser of `first` had taken: nothing new.
            given_back: asyncio.Future[EffectsReply] = asyncio.get_running_loop().create_future()
            given_back.set_result(EffectsReply(Recorded.OK, AS_CLAIMED))
            return given_back
        match effects.end:
            case ParkHeld(reason=reason):
                self._mismatch = reason
            case Finish():
                self._finish = effects.end
            case _:
                self._goes_on(_described(effects))
        future: asyncio.Future[EffectsReply] = asyncio.get_running_loop().create_future()
        future.set_result(EffectsReply(Recorded.FENCED, None))
        return future

    def note_progress(self, run_id: str, epoch: int, progress: Progress) -> None: ...

    def note_published(self, run_id: str, epoch: int, key: str, body: bytes) -> None: ...

    def forget_notes(self, run_id: str) -> None: ...

    # ------------------------------------------------------------ the worker
    def may_execute(self) -> bool:
        return True

    def count_fenced(self) -> None: ...

    def ended(self, execution: Execution, status: Status | None) -> None:
        del execution, status
        self.over.set()

    def left(self, execution: Execution) -> None: ...

    # ------------------------------------------------------------ the hooks
    def function_of(self, step: Step[..., Any]) -> Callable[..., Any]:
        return step.fn

    async def before(self, info: StepInfo, step: Step[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The replay is over: a step is about to be called."""
        del info, args, kwargs
        self._goes_on(f"step {step.name}")
        if self.execution is not None:
            self.execution.hear_lost()
        raise Unwound

    async def after_effect(self, info: StepInfo, step: Step[..., Any]) -> None: ...

    async def after_commit(self, run_id: str, step: Step[..., Any]) -> None: ...


def _differ(run: RunRecord, how: str) -> NoReturn:
    raise ReplayMismatch(f"the code of {run.workflow}@{run.version} does not fit the history of run {run.id}: {how}")


def _described(effects: RunEffects) -> str:
    """The first thing that effects would have recorded."""
    for step in effects.steps:
        return described(step.kind, step.name)
    for attempt in effects.attempts:
        return f"step {attempt.name}"
    for opened in effects.waits:
        return described(opened.wait.kind, opened.wait.name)
    for child in effects.children:
        return f"a child run of {child.run.workflow}"
    return "a wait"
