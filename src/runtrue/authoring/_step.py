"""Steps: functions whose results are recorded."""

import asyncio
import copy
import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import Any, ClassVar, Concatenate, Generic, NoReturn, ParamSpec, Protocol, Self, TypeVar, cast, overload

from runtrue.authoring._context import awaiting_runtime, blocking_runtime
from runtrue.authoring._declared import Declared, declared_errors, label_of, require_function
from runtrue.authoring._duration import Duration, seconds_of
from runtrue.authoring._retry import Retry, retry_of
from runtrue.errors import ConfigurationError, WrongPlace
from runtrue.ids import check_id

P = ParamSpec("P")
P2 = ParamSpec("P2")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")


@dataclass(slots=True)
class StepSettings:
    """What was said of a step beside its function. `deadline_seconds` is over all attempts, back-offs included."""

    retry: Retry
    timeout_seconds: float | None
    raises: tuple[type[Exception], ...]
    interruptible: bool
    deadline_seconds: float | None = None
    timeout_abandons: bool = False


class Step(Declared, Generic[P, R_co]):
    """A function whose result is recorded once; on replay the record is returned and the function is not called.

    The plain call has the colour of the function; `aio` always gives something to await, `sync` always blocks.
    Outside of a workflow, and inside another step, a step is its function.
    """

    is_async: ClassVar[bool]
    kind = "step"

    def __init__(self, fn: Callable[P, Any], name: str | None, settings: StepSettings) -> None:
        self._declare(fn, name)
        self._take_name(name if name is not None else self.declared_function.name)
        self.settings = settings

    def _take_name(self, name: str) -> None:
        self.name = check_id("the step name", name)
        # Put together once and not with every call: they are needed only where something goes wrong.
        self.label = f"step {name}"
        self.result_label = f"the result of step {name}"

    def __repr__(self) -> str:
        return f"<step {self.name}>"

    @property
    def result_type(self) -> Any:
        """The annotated type of the result; Any where there is none. Raises ConfigurationError if it is unknown."""
        return self.declared_function.result_type

    def aio(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[None, None, R_co]:
        """Call the step and await it. In a `def` workflow it is refused.

        Outside of a workflow, and inside another step, a `def` function runs on a thread of its own.
        """
        runtime = awaiting_runtime(self)
        if runtime is not None:
            return runtime.call_step(self, args, kwargs)
        if self.is_async:
            return self.fn(*args, **kwargs)
        return cast("Coroutine[None, None, R_co]", asyncio.to_thread(self.fn, *args, **kwargs))

    def sync(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the step and block until it is done. In an `async def` workflow it is refused.

        Outside of a workflow, and inside another step, an `async def` function runs in an event loop of its own.
        """
        blocking = blocking_runtime(self)
        if blocking is not None:
            return blocking.block(lambda runtime: runtime.call_step(self, args, kwargs))
        if not self.is_async:
            return self.fn(*args, **kwargs)
        if _a_loop_runs():
            raise WrongPlace(
                f"{self.label} was called so that it blocks, where an event loop runs; write `await {self.awaited}`"
            )
        return asyncio.run(self.fn(*args, **kwargs))

    def options(
        self,
        *,
        name: str | None = None,
        retry: Retry | int | EllipsisType | None = ...,
        timeout: Duration | EllipsisType | None = ...,
        deadline: Duration | EllipsisType | None = ...,
        interruptible: bool | None = None,
    ) -> Self:
        """The same step with other settings; what is not given stays. `name` becomes part of the recorded history."""
        now = self.settings
        changed = copy.copy(self)
        changed.settings = replace(
            now,
            retry=now.retry if isinstance(retry, EllipsisType) else retry_of(retry),
            timeout_seconds=(
                now.timeout_seconds if isinstance(timeout, EllipsisType) else _limit(self.label, "timeout", timeout)
            ),
            deadline_seconds=(
                now.deadline_seconds if isinstance(deadline, EllipsisType) else _limit(self.label, "deadline", deadline)
            ),
            interruptible=now.interruptible if interruptible is None else interruptible,
        )
        if name is not None:
            changed._take_name(name)  # noqa: SLF001  a twin of this step
        return changed


class AsyncStep(Step[P, R_co]):
    """A step made of an `async def`: a call is awaited, or, in a `def` workflow, written with `.sync`."""

    is_async = True

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[None, None, R_co]:
        self._require_no_class(args)
        return self.aio(*args, **kwargs)

    @overload
    def __get__(self, obj: None, owner: type[Any], /) -> Self: ...
    @overload
    def __get__(
        self: "AsyncStep[Concatenate[S, P2], R]", obj: S, owner: type[Any] | None = None, /
    ) -> "AsyncStep[P2, R]": ...
    def __get__(self, obj: Any, owner: type[Any] | None = None, /) -> Any:
        return self if obj is None else self._bind(obj, owner)


class SyncStep(Step[P, R_co]):
    """A step made of a `def`: it runs on a thread. A call blocks, or, in an async workflow, is written with `.aio`."""

    is_async = False

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        self._require_no_class(args)
        return self.sync(*args, **kwargs)

    @overload
    def __get__(self, obj: None, owner: type[Any], /) -> Self: ...
    @overload
    def __get__(
        self: "SyncStep[Concatenate[S, P2], R]", obj: S, owner: type[Any] | None = None, /
    ) -> "SyncStep[P2, R]": ...
    def __get__(self, obj: Any, owner: type[Any] | None = None, /) -> Any:
        return self if obj is None else self._bind(obj, owner)


# A coroutine function is a function as well: of the overloads that overlap, a type checker takes the first that fits.
class StepDecorator(Protocol):
    """What `step(...)` with settings returns."""

    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload]
        self, fn: Callable[P, NoReturn], /
    ) -> SyncStep[P, NoReturn]: ...
    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload]
        self, fn: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncStep[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> SyncStep[P, R]: ...


@overload
def step(  # pyright: ignore[reportOverlappingOverload]
    fn: Callable[P, NoReturn], /, *, name: str | None = None
) -> SyncStep[P, NoReturn]: ...
@overload
def step(  # pyright: ignore[reportOverlappingOverload]
    fn: Callable[P, Coroutine[Any, Any, R]], /, *, name: str | None = None
) -> AsyncStep[P, R]: ...
@overload
def step(fn: Callable[P, R], /, *, name: str | None = None) -> SyncStep[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    retry: Retry | int | None = None,
    timeout: Duration | None = None,
    deadline: Duration | None = None,
    raises: tuple[type[Exception], ...] = (),
    interruptible: bool = False,
    timeout_abandons: bool = False,
) -> StepDecorator: ...
def step(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    retry: Retry | int | None = None,
    timeout: Duration | None = None,
    deadline: Duration | None = None,
    raises: tuple[type[Exception], ...] = (),
    interruptible: bool = False,
    timeout_abandons: bool = False,
) -> Any:
    """Make a step of a function, `async def` or `def`, or of a method; `self` is not recorded.

    `retry`: how often it is tried in all (default once). `timeout`: how long one attempt may take. `deadline`: how
    long all attempts together may take, the waits between them included. `raises`: errors of the business; they are
    not retried, are recorded, and reach the workflow as that class, live and on replay. `interruptible`: a cancel or
    terminate interrupts the step with CancelledError within a second; without it the step in flight finishes first.
    A `def` step runs on a thread, which nothing can interrupt: it asks `rt.this_step().cancel_requested()`.

    For the same reason an attempt of a `def` step that has run into its timeout is waited for before the next one
    begins. `timeout_abandons` leaves it to itself instead: then two attempts may run at once, and what the late one
    returns is dropped. It keeps its thread of the pool until then. A step that a `def` workflow calls on its own thread
    is waited for in any case.
    """

    def decorate(function: Callable[..., Any]) -> Step[..., Any]:
        require_function("step", function)
        what = f"step {label_of(function)}"
        is_async = inspect.iscoroutinefunction(function)
        if timeout_abandons and is_async:
            raise ConfigurationError(
                f"{what}: timeout_abandons= is for `def` steps; an `async def` step is interrupted at its timeout"
            )
        settings = StepSettings(
            retry_of(retry),
            _limit(what, "timeout", timeout),
            declared_errors(what, raises),
            interruptible,
            _limit(what, "deadline", deadline),
            timeout_abandons,
        )
        return (AsyncStep if is_async else SyncStep)(function, name, settings)

    return decorate if fn is None else decorate(fn)


def _limit(what: str, word: str, limit: object) -> float | None:
    """A timeout or deadline in seconds; zero is refused, it could never be met."""
    if limit is None:
        return None
    seconds = seconds_of(f"{what}: {word}", limit)
    if seconds == 0:
        raise ConfigurationError(f"{what}: {word} must be over 0 seconds")
    return seconds


def _a_loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
