"""What a workflow may call between its steps."""

import logging
from collections.abc import Coroutine, MutableMapping
from datetime import datetime
from random import Random
from typing import Any, TypeVar
from uuid import UUID

from runtrue import codec
from runtrue.authoring._context import (
    RunInfo,
    StepInfo,
    ask,
    checked_progress,
    current_runtime,
    nowhere,
    step_variable,
    workflow_info,
)
from runtrue.authoring._duration import Duration, datetime_of, microseconds_at, seconds_of
from runtrue.errors import WrongPlace
from runtrue.ids import check_id, random_seed, random_uuid

T = TypeVar("T")


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
    return datetime_of(ask("rt.now", lambda runtime: runtime.value("now", runtime.time)))


def uuid4() -> UUID:
    """A random UUID, recorded: every replay sees the same."""
    return UUID(ask("rt.uuid4", lambda runtime: runtime.value("uuid4", lambda: str(random_uuid()))))


def random() -> Random:
    """A random generator whose seed is recorded: every replay draws the same numbers."""
    seed = ask("rt.random", lambda runtime: runtime.value("random", random_seed))
    return Random(seed)  # noqa: S311  not for secrets


def patched(change: str, /) -> bool:
    """Whether a run goes the new way: True where it reaches this place for the first time, and ever after.

    A run that had passed the place before the code was changed gets False on every replay, so that it goes on as it
    began. `change` names the change; use a new name for every change.
    """
    check_id("rt.patched: the change", change)
    return ask("rt.patched", lambda runtime: runtime.patched(change))


def set_progress(*, done: float | None = None, total: float | None = None, note: str = "") -> None:
    """Report how far the run is; the last report shows in `runtrue run watch`. Recorded with the next effect."""
    step = step_variable.get()
    if step is not None:
        step.progress(done=done, total=total, note=note)
        return
    report = checked_progress(done, total, note)
    ask("rt.set_progress", lambda runtime: runtime.progress(*report))


def publish(key: str, value: object, /) -> None:
    """Let others see a value while the run goes on: `await handle.published(key)`. The last one of a key counts.

    Recorded with the next effect. What is read is JSON; a value may be whatever its own class says how to write, and
    lists and dicts of what JSON has.
    """
    check_id("rt.publish: the key", key)
    body = codec.encode(value, type(value), what=f"the published value {key}")
    ask("rt.publish", lambda runtime: runtime.publish(key, body))


def state(type: type[T], /) -> T:  # noqa: A002  nothing else says as well what is asked for
    """What the App's lifespan has yielded of this type: a database pool, a client. In a workflow or a step.

    Raises ConfigurationError if there is none, WrongPlace outside of a run.
    """
    step = step_variable.get()
    return step.state(type) if step is not None else ask("rt.state", lambda runtime: runtime.state(type))


def this_run() -> RunInfo:
    """The run that the calling code belongs to, in a workflow or in one of its steps. Raises WrongPlace elsewhere."""
    step = step_variable.get()
    run = step.run if step is not None else workflow_info()
    if run is None:
        raise nowhere("rt.this_run")
    return run


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
