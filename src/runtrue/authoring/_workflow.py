"""Workflows: functions that are run durably."""

import copy
import inspect
import typing
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import update_wrapper
from typing import Any, Generic, NoReturn, ParamSpec, Protocol, Self, TypeVar, cast, overload

from runtrue.authoring._context import runtime_variable
from runtrue.authoring._duration import Duration, microseconds_at, microseconds_of
from runtrue.authoring._step import require_async, return_type
from runtrue.errors import ConfigurationError, WrongPlace
from runtrue.ids import check_id

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

PRIORITY_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How a run of the workflow is to be started. `delay` and `at` in microseconds."""

    id: str | None = None
    idempotency_key: str | None = None
    priority: int = 0
    delay: int | None = None
    at: int | None = None
    tags: Mapping[str, str] = field(default_factory=dict[str, str])


class Workflow(Generic[P, R_co]):
    """A function that is run durably: started by App or Client, carried on by whichever worker serves it."""

    def __init__(self, fn: Callable[P, Coroutine[Any, Any, R_co]], name: str | None, version: str) -> None:
        self.fn = fn
        self.name = check_id("the workflow name", name if name is not None else getattr(fn, "__name__", "workflow"))
        self.version = check_id("the workflow version", version)
        if "@" in self.version:
            raise ConfigurationError(f"workflow {self.name}: the version {version!r} must not hold an @")
        self.run_settings = RunSettings()
        self._signature: inspect.Signature | None = None
        self._hints: dict[str, Any] = {}
        update_wrapper(cast("Any", self), fn)

    def __set_name__(self, owner: type[Any], name: str) -> None:
        raise ConfigurationError(
            f"workflow {owner.__name__}.{name}: a workflow is a plain function of a module; methods cannot be workflows"
        )

    def __repr__(self) -> str:
        return f"<workflow {self.name}@{self.version}>"

    @property
    def signature(self) -> inspect.Signature:
        """The function's signature."""
        if self._signature is None:
            self.resolve()
            assert self._signature is not None
        return self._signature

    @property
    def hints(self) -> dict[str, Any]:
        """The annotated types of the parameters and of `return`."""
        if self._signature is None:
            self.resolve()
        return self._hints

    @property
    def result_type(self) -> Any:
        """The annotated type of the result; Any where there is none."""
        return self.hints.get("return", Any)

    def resolve(self) -> None:
        """Resolve the annotations. Raises ConfigurationError that names the parameter whose type is unknown."""
        signature = inspect.signature(self.fn)
        names = vars(inspect.getmodule(self.fn) or object)
        hints: dict[str, Any] = {"return": return_type(f"workflow {self.name}", self.fn)}
        for parameter in signature.parameters.values():
            if parameter.annotation is inspect.Parameter.empty:
                continue
            probe = type("_", (), {"__annotations__": {parameter.name: parameter.annotation}})
            try:
                hints.update(typing.get_type_hints(probe, names, include_extras=True))
            except NameError as unknown:
                raise ConfigurationError(
                    f"workflow {self.name}: the type {parameter.annotation!r} of parameter {parameter.name!r} cannot "
                    f"be resolved ({unknown}); import it where the workflow is defined, also at run time"
                ) from None
        self._signature, self._hints = signature, hints

    def options(
        self,
        *,
        id: str | None = None,  # noqa: A002  the word that users know; the contract of the public API
        idempotency_key: str | None = None,
        priority: int | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> Self:
        """The same workflow with settings for the run to be started; what is not given stays.

        `priority`: low numbers first. `delay` or `at`: when the run may begin, not both.
        """
        if priority is not None and (type(priority) is not int or abs(priority) > PRIORITY_MAX):
            raise ConfigurationError(
                f"workflow {self.name}: priority is a whole number up to {PRIORITY_MAX:,} either way, not {priority!r}"
            )
        now = self.run_settings
        changed = copy.copy(self)
        changed.run_settings = replace(
            now,
            id=now.id if id is None else id,
            idempotency_key=now.idempotency_key if idempotency_key is None else idempotency_key,
            priority=now.priority if priority is None else priority,
            delay=now.delay if delay is None else microseconds_of(f"workflow {self.name}: delay", delay),
            at=now.at if at is None else microseconds_at(f"workflow {self.name}: at", at),
            tags=now.tags if tags is None else dict(tags),
        )
        if changed.run_settings.delay is not None and changed.run_settings.at is not None:
            raise ConfigurationError(f"workflow {self.name}: give delay or at, not both")
        return changed


class AsyncWorkflow(Workflow[P, R_co]):
    """A workflow made of an `async def`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> NoReturn:  # noqa: ARG002  the signature that users see
        """Refused: a workflow is started, not called. `fn` is its plain function."""
        if runtime_variable.get() is not None:
            raise WrongPlace(
                f"workflow {self.name} was called inside a workflow; "
                f"call its plain function {self.name}.fn(...) to run it as a part of this one"
            )
        raise WrongPlace(
            f"workflow {self.name} was called; start it with `await app.start({self.name}, ...)`, "
            f"or call its plain function {self.name}.fn(...)"
        )


class WorkflowDecorator(Protocol):
    """What `workflow(...)` with settings returns."""

    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncWorkflow[P, R]: ...


@overload
def workflow(fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncWorkflow[P, R]: ...
@overload
def workflow(*, name: str | None = None, version: str = "1") -> WorkflowDecorator: ...
def workflow(fn: Callable[..., Any] | None = None, /, *, name: str | None = None, version: str = "1") -> Any:
    """Make a workflow of an `async def` function.

    What it calls that touches the world belongs into steps: the function itself is called again after every crash,
    sleep and pause, and passes quickly through what was recorded. `version` tells old code from new: a run is only
    executed by workers that serve its version.
    """

    def decorate(function: Callable[..., Any]) -> AsyncWorkflow[..., Any]:
        require_async("workflow", function, getattr(function, "__qualname__", repr(function)))
        return AsyncWorkflow(function, name, version)

    return decorate if fn is None else decorate(fn)
