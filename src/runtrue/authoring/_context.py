"""How a workflow reaches the engine that runs it: a Protocol in a context variable."""

import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import Context, ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from runtrue.errors import ConfigurationError, WrongPlace

if TYPE_CHECKING:
    from runtrue.authoring._step import Step
    from runtrue.authoring._workflow import Workflow

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The run that the calling code belongs to.

    `attempt` is 1 plus the number of workers that were lost while they had the run. `parent` is the id of the run that
    started this one as its child. `replaying` is True while the workflow (in a branch: that branch) passes through
    results that were recorded before.
    """

    id: str
    workflow: str
    version: str
    attempt: int
    tags: Mapping[str, str]
    replaying: bool = False
    parent: str | None = None


class StepInfo:
    """The step attempt that the calling code belongs to.

    `idempotency_key` is the same for all attempts of this call and different for every other call: hand it to the
    services that take one.
    """

    __slots__ = ("_cancel_requested", "_progress", "_state_of", "attempt", "idempotency_key", "name", "run")

    def __init__(
        self,
        run: RunInfo,
        name: str,
        attempt: int,
        idempotency_key: str,
        cancel_requested: Callable[[], bool],
        progress: "ProgressReport",
        state_of: "Callable[[type[Any]], Any] | None" = None,
    ) -> None:
        self.run = run
        self.name = name
        self.attempt = attempt
        self.idempotency_key = idempotency_key
        self._cancel_requested = cancel_requested
        self._progress = progress
        self._state_of = state_of

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

    def state(self, type: type[T], /) -> T:  # noqa: A002  nothing else says as well what is asked for
        """What the App's lifespan has yielded of this type. Raises ConfigurationError."""
        if self._state_of is None:
            raise ConfigurationError(f"step {self.name}: there is no {type.__name__}, the App has no lifespan")
        return self._state_of(type)


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


@dataclass(frozen=True, slots=True)
class Threaded:
    """An item of a group that is a blocking function: it runs as a branch on a thread of its own."""

    call: Callable[[], Any]


class Runtime(Protocol):
    """What a running workflow may ask of the engine. To be called on the event loop, in the branch's own task.

    Whatever returns a coroutine fixes the identity of the call at once, and carries it out when awaited.
    """

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

    def patched(self, change: str, /) -> bool:
        """True where this branch passes the place for the first time with this code, or did so before."""
        ...

    def receive(self, topic: str, type: Any, timeout_seconds: float | None, /) -> Coroutine[None, None, Any]:  # noqa: A002
        """Take the oldest message of the topic, or wait for one. Raises WaitTimeout."""
        ...

    def send(self, run_id: str, topic: str, body: bytes, /) -> Coroutine[None, None, None]:
        """Send an encoded message to a run. Raises NotFound, or Refused."""
        ...

    def call_child(
        self, workflow: "Workflow[..., Any]", args: tuple[Any, ...], kwargs: dict[str, Any], /
    ) -> Coroutine[None, None, Any]:
        """Start a child run and wait for its result. Raises RunFailed, RunCancelled, Conflict."""
        ...

    def start_child(
        self, workflow: "Workflow[..., Any]", args: tuple[Any, ...], kwargs: dict[str, Any], /
    ) -> Coroutine[None, None, str]:
        """Start a child run and return its id. Raises Conflict."""
        ...

    def wait_for_child(self, run_id: str, workflow: "Workflow[..., Any] | str", /) -> Coroutine[None, None, Any]:
        """Wait for the result of a run that was started before. Raises RunFailed, RunCancelled, NotFound."""
        ...

    def gather(self, items: "Sequence[Awaitable[Any] | Threaded]", /) -> Coroutine[None, None, tuple[Any, ...]]:
        """Carry out all items, each in a branch of its own; their results in order, or the first error."""
        ...

    def first(self, items: "Sequence[Awaitable[Any] | Threaded]", /) -> Coroutine[None, None, tuple[int, Any]]:
        """Carry out all items until the first has ended: its number and result, or its error."""
        ...

    def map(
        self,
        make: "Callable[[Any], Awaitable[Any] | Threaded]",
        items: Sequence[Any],
        limit: int | None,
        keys: Sequence[str] | None,
        return_exceptions: bool,
        /,
    ) -> Coroutine[None, None, list[Any]]:
        """`make(item)` for each item, called in the item's branch, at most `limit` at a time. `keys`: one per item."""
        ...

    def publish(self, key: str, body: bytes, /) -> None:
        """Publish an encoded value with the next effect."""
        ...

    def state(self, type: type[Any], /) -> Any:  # noqa: A002
        """What the App's lifespan has yielded of this type. Raises ConfigurationError."""
        ...

    def time(self) -> int:
        """The engine's time, in microseconds."""
        ...

    def info(self) -> RunInfo: ...

    def progress(self, done: float | None, total: float | None, note: str, /) -> None: ...


class BlockingRuntime(Protocol):
    """The engine behind a `def` workflow, which runs on a thread of its own."""

    def block(self, call: Callable[[Runtime], Any], /) -> Any:
        """Carry `call` out on the event loop, await what it returns if that is a coroutine, and block until then."""
        ...

    def info(self) -> RunInfo: ...


runtime_variable: ContextVar[Runtime | None] = ContextVar("runtrue_runtime", default=None)
"""The engine behind the calling `async def` workflow; None outside of one and inside a step."""
blocking_variable: ContextVar[BlockingRuntime | None] = ContextVar("runtrue_blocking", default=None)
"""The engine behind the calling `def` workflow; None outside of one and inside a step."""
step_variable: ContextVar[StepInfo | None] = ContextVar("runtrue_step", default=None)
_ENGINES = frozenset[ContextVar[Any]]({runtime_variable, blocking_variable, step_variable})


def inherit(context: Context) -> None:
    """Set the author's own variables in the current context as they are in this one."""
    for variable, value in context.items():
        if variable not in _ENGINES:
            variable.set(value)


def current_runtime(call: str) -> Runtime:
    """The engine behind the calling workflow. Raises WrongPlace with the right place for `call`."""
    runtime = runtime_variable.get()
    if runtime is not None:
        return runtime
    if blocking_variable.get() is not None:
        raise WrongPlace(
            f"{call} was called in a `def` workflow, where nothing can be awaited; `import runtrue.sync as rt` has "
            "the same words, blocking"
        )
    raise nowhere(call)


def current_blocking(call: str) -> BlockingRuntime:
    """The engine behind the calling `def` workflow. Raises WrongPlace with the right place for `call`."""
    blocking = blocking_variable.get()
    if blocking is not None:
        return blocking
    if runtime_variable.get() is not None:
        raise WrongPlace(
            f"{call} of runtrue.sync was called in an `async def` workflow, where it would block the event loop; "
            "`import runtrue as rt` has the same words, to be awaited"
        )
    raise nowhere(call)


def ask(call: str, of: Callable[[Runtime], T]) -> T:
    """What the engine answers to `of`, from a workflow of either kind. Raises WrongPlace."""
    blocking = blocking_variable.get()
    return of(current_runtime(call)) if blocking is None else blocking.block(of)


class Callee(Protocol):
    """A step or workflow: what messages call it, and how a call of it is written where it is awaited and blocks."""

    @property
    def label(self) -> str: ...

    @property
    def awaited(self) -> str: ...

    @property
    def blocking(self) -> str: ...


def awaiting_runtime(callee: Callee) -> Runtime | None:
    """The engine for a call that is awaited; None outside of a workflow and inside a step.

    In a `def` workflow nothing can be awaited: raises WrongPlace that says how to write it.
    """
    runtime = runtime_variable.get()
    if runtime is None and blocking_variable.get() is not None:
        raise WrongPlace(
            f"{callee.label} was called to be awaited, in a `def` workflow, where nothing can be; "
            f"write {callee.blocking}"
        )
    return runtime


def blocking_runtime(callee: Callee) -> BlockingRuntime | None:
    """The engine for a call that blocks; None outside of a workflow and inside a step.

    In an `async def` workflow nothing may block: raises WrongPlace that says how to write it.
    """
    blocking = blocking_variable.get()
    if blocking is None and runtime_variable.get() is not None:
        raise WrongPlace(
            f"{callee.label} was called so that it would block the event loop of an `async def` workflow; "
            f"write `await {callee.awaited}`"
        )
    return blocking


def workflow_info() -> RunInfo | None:
    """The run whose workflow, of either kind, is the calling code; None outside of one and inside a step."""
    engine = runtime_variable.get() or blocking_variable.get()
    return None if engine is None else engine.info()


def nowhere(call: str) -> WrongPlace:
    """The refusal of a durable call outside of a workflow, or inside a step."""
    step = step_variable.get()
    if step is not None:
        return WrongPlace(
            f"{call} was called inside step {step.name}; durable calls belong in the workflow, between its steps"
        )
    return WrongPlace(
        f"{call} was called outside of a running workflow; it works only inside a function under @rt.workflow"
    )
