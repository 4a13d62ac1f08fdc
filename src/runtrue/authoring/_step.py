"""Steps: functions whose results are recorded."""

import copy
import inspect
import typing
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import update_wrapper
from types import EllipsisType
from typing import Any, Generic, ParamSpec, Protocol, Self, TypeVar, cast, overload

from runtrue.authoring._context import runtime_variable
from runtrue.authoring._duration import Duration, seconds_of
from runtrue.errors import ConfigurationError
from runtrue.ids import check_id, jitter

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Retry:
    """When and how often a step is tried again.

    `attempts` counts all of them, the first included; None tries for ever. The delay before attempt n + 1 is
    `first_delay` times `factor` to the power n - 1, at most `max_delay`, spread by half either way with `jitter`.
    `retry_on` says which errors are worth another attempt (types, or a function of the error), `give_up_on` which
    are not; errors that the step declares with `raises=` are never tried again.
    """

    __slots__ = (
        "_is_worth_it",
        "attempts",
        "factor",
        "first_delay_seconds",
        "give_up_on",
        "jitter",
        "max_delay_seconds",
    )

    def __init__(
        self,
        attempts: int | None = 3,
        *,
        first_delay: Duration = 1,
        factor: float = 2,
        max_delay: Duration = 300,
        jitter: bool = True,
        retry_on: type[BaseException] | tuple[type[BaseException], ...] | Callable[[Exception], bool] = Exception,
        give_up_on: type[BaseException] | tuple[type[BaseException], ...] = (),
    ) -> None:
        if attempts is not None and (type(attempts) is not int or attempts < 1):
            raise ConfigurationError(f"Retry: attempts must be a whole number from 1 (or None), not {attempts!r}")
        if type(factor) not in (int, float) or not 1 <= factor <= 1_000:
            raise ConfigurationError(f"Retry: factor must be from 1 to 1,000, not {factor!r}")
        self.attempts = attempts
        self.first_delay_seconds = seconds_of("Retry: first_delay", first_delay)
        self.factor = factor
        self.max_delay_seconds = seconds_of("Retry: max_delay", max_delay)
        self.jitter = jitter
        self.give_up_on = _error_types("give_up_on takes types of exceptions", give_up_on)
        if callable(retry_on) and not isinstance(retry_on, type):
            self._is_worth_it: Callable[[Exception], bool] = retry_on
        else:
            kinds = _error_types("retry_on takes types of exceptions, or a function of the error", retry_on)
            self._is_worth_it = lambda error: isinstance(error, kinds)

    def wants(self, error: Exception, attempt: int) -> bool:
        """True if `error` of attempt number `attempt` is worth another attempt."""
        if self.attempts is not None and attempt >= self.attempts:
            return False
        if isinstance(error, self.give_up_on):
            return False
        return self._is_worth_it(error)

    def delay_seconds(self, attempt: int) -> float:
        """How long to wait after attempt number `attempt` failed."""
        # The exponent is bounded so that endless retries cannot overflow a float.
        delay = min(self.max_delay_seconds, self.first_delay_seconds * self.factor ** min(attempt - 1, 60))
        return min(self.max_delay_seconds, delay * jitter()) if self.jitter else delay


def _error_types(says: str, given: object) -> tuple[type[BaseException], ...]:
    kinds = cast("tuple[object, ...]", given if isinstance(given, tuple) else (given,))
    if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
        raise ConfigurationError(f"Retry: {says}, not {given!r}")
    return cast("tuple[type[BaseException], ...]", kinds)


@dataclass(slots=True)
class StepSettings:
    """What was said of a step beside its function."""

    retry: Retry
    timeout_seconds: float | None
    raises: tuple[type[Exception], ...]
    interruptible: bool


class Step(Generic[P, R_co]):
    """A function whose result is recorded once; on replay the record is returned and the function is not called."""

    def __init__(self, fn: Callable[P, Coroutine[Any, Any, R_co]], name: str | None, settings: StepSettings) -> None:
        self.fn = fn
        self._take_name(name if name is not None else getattr(fn, "__name__", "step"))
        self.settings = settings
        self._result_type: Any = _UNRESOLVED
        update_wrapper(cast("Any", self), fn)

    def _take_name(self, name: str) -> None:
        self.name = check_id("the step name", name)
        # Put together once and not with every call: they are needed only where something goes wrong.
        self.label = f"step {name}"
        self.result_label = f"the result of step {name}"

    def __set_name__(self, owner: type[Any], name: str) -> None:
        raise ConfigurationError(
            f"step {owner.__name__}.{name}: a step is a plain function of a module; methods cannot be steps"
        )

    def __repr__(self) -> str:
        return f"<step {self.name}>"

    @property
    def result_type(self) -> Any:
        """The annotated type of the result; Any where there is none. Raises ConfigurationError if it is unknown."""
        if self._result_type is _UNRESOLVED:
            self._result_type = return_type(f"step {self.name}", self.fn)
        return self._result_type

    def options(
        self,
        *,
        name: str | None = None,
        retry: Retry | int | EllipsisType | None = ...,
        timeout: Duration | EllipsisType | None = ...,
        interruptible: bool | None = None,
    ) -> Self:
        """The same step with other settings; what is not given stays. `name` becomes part of the recorded history."""
        changed = copy.copy(self)
        changed.settings = StepSettings(
            self.settings.retry if isinstance(retry, EllipsisType) else retry_of(retry),
            self.settings.timeout_seconds if isinstance(timeout, EllipsisType) else timeout_of(self.name, timeout),
            self.settings.raises,
            self.settings.interruptible if interruptible is None else interruptible,
        )
        if name is not None:
            changed._take_name(name)  # noqa: SLF001  a twin of this step
        return changed


class AsyncStep(Step[P, R_co]):
    """A step made of an `async def`. Outside a workflow, and inside another step, a call is a call of the function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[None, None, R_co]:
        runtime = runtime_variable.get()
        if runtime is None:
            return self.fn(*args, **kwargs)
        return runtime.call_step(self, args, kwargs)


class StepDecorator(Protocol):
    """What `step(...)` with settings returns."""

    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncStep[P, R]: ...


@overload
def step(fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncStep[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    retry: Retry | int | None = None,
    timeout: Duration | None = None,
    raises: tuple[type[Exception], ...] = (),
    interruptible: bool = False,
) -> StepDecorator: ...
def step(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    retry: Retry | int | None = None,
    timeout: Duration | None = None,
    raises: tuple[type[Exception], ...] = (),
    interruptible: bool = False,
) -> Any:
    """Make a step of an `async def` function.

    `retry`: how often it is tried in all (default once). `timeout`: how long one attempt may take. `raises`: errors
    of the business; they are not retried, are recorded, and reach the workflow as that class, live and on replay.
    `interruptible`: a cancel or terminate interrupts the step with CancelledError within a second; without it the
    step in flight finishes first.
    """

    def decorate(function: Callable[..., Any]) -> AsyncStep[..., Any]:
        label = getattr(function, "__qualname__", repr(function))
        require_async("step", function, label)
        if type(raises) is not tuple:
            raise ConfigurationError(f"step {label}: raises= takes a tuple of classes of Exception, not {raises!r}")
        for declared in cast("tuple[object, ...]", raises):
            if not (isinstance(declared, type) and issubclass(declared, Exception)):
                raise ConfigurationError(f"step {label}: raises= takes classes of Exception, not {declared!r}")
        settings = StepSettings(retry_of(retry), timeout_of(label, timeout), tuple(raises), interruptible)
        return AsyncStep(function, name, settings)

    return decorate if fn is None else decorate(fn)


def require_async(kind: str, function: object, label: str) -> None:
    """Refuse what is not an `async def` function, with the reason."""
    if type(function) in (classmethod, staticmethod):
        raise ConfigurationError(f"{kind} {label}: put @rt.{kind} on a plain function, not on a method")
    if inspect.isasyncgenfunction(function):
        raise ConfigurationError(f"{kind} {label} is an async generator; return a value instead of yielding")
    if not inspect.iscoroutinefunction(function):
        raise ConfigurationError(f"{kind} {label} must be an `async def` function")


def retry_of(retry: Retry | int | None) -> Retry:
    """A policy from what an author writes: None is one attempt, n is n attempts in all."""
    if isinstance(retry, Retry):
        return retry
    return Retry(1 if retry is None else retry)


def timeout_of(label: str, timeout: object) -> float | None:
    """A timeout in seconds; zero is refused, it could never be met."""
    if timeout is None:
        return None
    seconds = seconds_of(f"step {label}: timeout", timeout)
    if seconds == 0:
        raise ConfigurationError(f"step {label}: timeout must be over 0 seconds")
    return seconds


def return_type(what: str, function: Callable[..., Any]) -> Any:
    """The annotated result of `function`; Any where there is none."""
    annotation = getattr(function, "__annotations__", {}).get("return", Any)
    if not isinstance(annotation, str):
        return type(None) if annotation is None else annotation
    probe = type("_", (), {"__annotations__": {"return": annotation}})
    try:
        hints = typing.get_type_hints(probe, vars(inspect.getmodule(function)), include_extras=True)
    except NameError as unknown:
        raise ConfigurationError(
            f"{what}: its return annotation {annotation!r} cannot be resolved ({unknown}); "
            f"import the name where the function is defined, also at run time"
        ) from None
    return hints["return"]


_UNRESOLVED = object()
