"""What a workflow may call between its steps."""

import logging
from collections.abc import Coroutine, MutableMapping
from datetime import datetime
from random import Random
from typing import Any
from uuid import UUID

from runtrue.authoring._context import (
    RunInfo,
    StepInfo,
    checked_progress,
    current_runtime,
    step_variable,
    workflow_info,
)
from runtrue.authoring._duration import Duration, datetime_of, microseconds_at, seconds_of
from runtrue.errors import WrongPlace
from runtrue.ids import random_seed, random_uuid


def sleep(duration: Duration, /) -> Coroutine[None, None, None]:
    """Sleep durably. A sleep of more than a second leaves memory: the run is `waiting` and survives any restart."""
    runtime = current_runtime("rt.sleep")
    return runtime.sleep(seconds_of("rt.sleep: the duration", duration))


def sleep_until(when: datetime, /) -> Coroutine[None, None, None]:
    """Sleep durably until a point in time, which must have a time zone. Returns at once if it has passed."""
    runtime = current_runtime("rt.sleep_until")
    return runtime.sleep_until(microseconds_at("rt.sleep_until: the time", when))


def now() -> datetime:
    """The time, recorded: every replay sees the same. Aware, UTC."""
    runtime = current_runtime("rt.now")
    return datetime_of(runtime.value("now", runtime.time))


def uuid4() -> UUID:
    """A random UUID, recorded: every replay sees the same."""
    return UUID(current_runtime("rt.uuid4").value("uuid4", lambda: str(random_uuid())))


def random() -> Random:
    """A random generator whose seed is recorded: every replay draws the same numbers."""
    return Random(current_runtime("rt.random").value("random", random_seed))  # noqa: S311  not for secrets


def set_progress(*, done: float | None = None, total: float | None = None, note: str = "") -> None:
    """Report how far the run is; the last report shows in `runtrue run watch`. Recorded with the next effect."""
    step = step_variable.get()
    if step is not None:
        step.progress(done=done, total=total, note=note)
        return
    current_runtime("rt.set_progress").progress(*checked_progress(done, total, note))


def this_run() -> RunInfo:
    """The run that the calling code belongs to, in a workflow or in one of its steps. Raises WrongPlace elsewhere."""
    step = step_variable.get()
    return step.run if step is not None else current_runtime("rt.this_run").info()


def this_step() -> StepInfo:
    """The step attempt that the calling code belongs to. Raises WrongPlace outside of a step that a run executes."""
    step = step_variable.get()
    if step is not None:
        return step
    where = "in a workflow, between its steps" if workflow_info() is not None else "outside of a running step"
    raise WrongPlace(
        f"rt.this_step was called {where}; it works inside a function under @rt.step while a run executes it"
    )


class RunLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger that is silent while a workflow replays and names the run, step and attempt in each record."""

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802  the name that logging gives
        """False while the calling workflow replays: what is logged there was logged the first time."""
        run = workflow_info()
        if run is not None and run.replaying:
            return False
        return super().isEnabledFor(level)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Add `run_id`, `workflow`, `step` and `attempt` to the record."""
        step = step_variable.get()
        run = step.run if step is not None else workflow_info()
        if run is None:
            return msg, kwargs
        extra: dict[str, Any] = {"run_id": run.id, "workflow": run.workflow}
        extra["step"] = step.name if step is not None else None
        extra["attempt"] = step.attempt if step is not None else run.attempt
        kwargs["extra"] = {**extra, **(kwargs.get("extra") or {})}
        return msg, kwargs


logger = RunLogger(logging.getLogger("runtrue.run"), {})
"""The logger for workflows and steps. The library configures no handler; only the command line does."""
