"""How a workflow reaches the engine that runs it: a Protocol in a context variable."""

import math
from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from runtrue.errors import ConfigurationError, WrongPlace

if TYPE_CHECKING:
    from runtrue.authoring._step import Step


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The run that the calling code belongs to.

    `attempt` is 1 plus the number of workers that were lost while they had the run. `replaying` is True while the
    workflow passes through results that were recorded before.
    """

    id: str
    workflow: str
    version: str
    attempt: int
    tags: Mapping[str, str]
    replaying: bool = False


class StepInfo:
    """The step attempt that the calling code belongs to.

    `idempotency_key` is the same for all attempts of this call and different for every other call: hand it to the
    services that take one.
    """

    __slots__ = ("_cancel_requested", "_progress", "attempt", "idempotency_key", "name", "run")

    def __init__(
        self,
        run: RunInfo,
        name: str,
        attempt: int,
        idempotency_key: str,
        cancel_requested: Callable[[], bool],
        progress: "ProgressReport",
    ) -> None:
        self.run = run
        self.name = name
        self.attempt = attempt
        self.idempotency_key = idempotency_key
        self._cancel_requested = cancel_requested
        self._progress = progress

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.run.id

    def cancel_requested(self) -> bool:
        """True once a cancel or terminate was asked, or the run was lost to another worker. Heard within a second."""
        return self._cancel_requested()

    def progress(self, *, done: float | None = None, total: float | None = None, note: str = "") -> None:
        """Report how far the run is; the last report shows in `runtrue run watch`."""
        self._progress(*checked_progress(done, total, note))


class ProgressReport(Protocol):
    """Takes a progress report of the run."""

    def __call__(self, done: float | None, total: float | None, note: str, /) -> None: ...


def checked_progress(done: object, total: object, note: object) -> tuple[float | None, float | None, str]:
    """A report as it is recorded. Raises ConfigurationError for what is no finite number, or no text."""
    if not isinstance(note, str):
        raise ConfigurationError(f"progress: note must be text, not {type(note).__name__}")
    return _number("done", done), _number("total", total), note


def _number(name: str, given: object) -> float | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise ConfigurationError(f"progress: {name} must be a number, not {type(given).__name__}")
    try:
        number = float(given)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ConfigurationError(f"progress: {name} must be a finite number, not {number}")
    return number


class Runtime(Protocol):
    """What a running workflow may ask of the engine."""

    def call_step(
        self, step: "Step[..., Any]", args: tuple[Any, ...], kwargs: dict[str, Any], /
    ) -> Coroutine[None, None, Any]:
        """Fix the identity of this step call now; the returned coroutine carries it out, or returns its record."""
        ...

    def sleep(self, seconds: float, /) -> Coroutine[None, None, None]:
        """Fix the identity of this sleep now; the returned coroutine sleeps."""
        ...

    def sleep_until(self, at: int, /) -> Coroutine[None, None, None]:
        """The same for a point in time, in microseconds."""
        ...

    def value(self, kind: str, make: Callable[[], object], /) -> Any:
        """Return the recorded value of this call, or make one and record it before anything depends on it."""
        ...

    def time(self) -> int:
        """The engine's time, in microseconds."""
        ...

    def info(self) -> RunInfo: ...

    def progress(self, done: float | None, total: float | None, note: str, /) -> None: ...


runtime_variable: ContextVar[Runtime | None] = ContextVar("runtrue_runtime", default=None)
"""The engine behind the calling workflow; None outside of one and inside a step."""
step_variable: ContextVar[StepInfo | None] = ContextVar("runtrue_step", default=None)


def current_runtime(call: str) -> Runtime:
    """The engine behind the calling workflow. Raises WrongPlace with the right place for `call`."""
    runtime = runtime_variable.get()
    if runtime is not None:
        return runtime
    step = step_variable.get()
    if step is not None:
        raise WrongPlace(
            f"{call} was called inside step {step.name}; durable calls belong in the workflow, between its steps"
        )
    raise WrongPlace(
        f"{call} was called outside of a running workflow; it works only inside a function under @rt.workflow"
    )
