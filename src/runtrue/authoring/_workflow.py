"""Workflows: functions that are run durably."""

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, ClassVar, Concatenate, Generic, Literal, ParamSpec, Protocol, Self, TypeVar, cast, overload

from typing_extensions import TypeForm

from runtrue import codec
from runtrue.authoring._context import awaiting_runtime, blocking_runtime, step_variable
from runtrue.authoring._declared import Declared, declared_errors, require_function
from runtrue.authoring._duration import Duration, microseconds_at, microseconds_of
from runtrue.errors import ConfigurationError, WrongPlace
from runtrue.ids import check_id

P = ParamSpec("P")
P2 = ParamSpec("P2")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")
T = TypeVar("T")

PRIORITY_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How a run of the workflow is to be started. `delay`, `at` and `deadline` in microseconds.

    `on_parent_cancel` says what becomes of a child whose parent ends otherwise than by completing.
    """

    id: str | None = None
    idempotency_key: str | None = None
    priority: int = 0
    delay: int | None = None
    at: int | None = None
    deadline: int | None = None
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    on_parent_cancel: Literal["cancel", "abandon"] = "cancel"


class Workflow(ABC, Generic[P, R_co]):
    """What can be started: by App or Client, or by a workflow as its child."""

    raises: tuple[type[Exception], ...] = ()
    """The errors of the business that a parent gets as their class."""

    def __init__(self, name: str) -> None:
        self.name = check_id("the workflow name", name)
        self.run_settings = RunSettings()

    @property
    @abstractmethod
    def version(self) -> str | None:
        """The version; None where only the name is known, and the served one is meant."""

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"workflow {self.name}"

    @property
    @abstractmethod
    def awaited(self) -> str:
        """How a call of this is written where it can be awaited."""

    @property
    @abstractmethod
    def blocking(self) -> str:
        """How a call of this is written where it blocks."""

    @property
    @abstractmethod
    def result_type(self) -> Any:
        """The type of the result; Any where none is known. Raises ConfigurationError if it cannot be resolved."""

    @abstractmethod
    def encode_input(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """The arguments as the run's recorded input. Raises ConfigurationError, NotEncodable, PayloadTooLarge."""

    def aio(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[None, None, R_co]:
        """Inside an `async def` workflow: start a child run and await its result. Refused everywhere else.

        Raises RunFailed, one of the child's `raises=`, RunCancelled, or Conflict if its id is taken.
        """
        runtime = awaiting_runtime(self)
        if runtime is None:
            raise self._outside()
        return runtime.call_child(self, args, kwargs)

    def sync(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Inside a `def` workflow: start a child run and block until its result is there. Raises what `aio` raises."""
        blocking = blocking_runtime(self)
        if blocking is None:
            raise self._outside()
        return blocking.block(lambda runtime: runtime.call_child(self, args, kwargs))

    def _outside(self) -> WrongPlace:
        step = step_variable.get()
        if step is not None:
            return WrongPlace(
                f"{self.label} was called inside step {step.name}; a workflow calls its children between its steps"
            )
        return WrongPlace(f"{self.label} was called outside of a workflow; {self._right_ways()}")

    def _right_ways(self) -> str:
        return f'start it with `await app.start(rt.ref("{self.name}"), ...)`'

    def options(
        self,
        *,
        id: str | None = None,  # noqa: A002  the word that users know; the contract of the public API
        idempotency_key: str | None = None,
        priority: int | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        deadline: Duration | None = None,
        tags: Mapping[str, str] | None = None,
        on_parent_cancel: Literal["cancel", "abandon"] | None = None,
    ) -> Self:
        """The same workflow with settings for the run to be started; what is not given stays.

        `priority`: low numbers first. `delay` or `at`: when the run may begin, not both. `deadline`: how long after
        its start the run is cancelled if it has not ended. `on_parent_cancel`: whether a child run is cancelled with
        its parent, or left to go on.
        """
        if priority is not None and (type(priority) is not int or abs(priority) > PRIORITY_MAX):
            raise ConfigurationError(
                f"{self.label}: priority is a whole number up to {PRIORITY_MAX:,} either way, not {priority!r}"
            )
        if on_parent_cancel not in {None, "cancel", "abandon"}:
            raise ConfigurationError(
                f"{self.label}: on_parent_cancel is 'cancel' or 'abandon', not {on_parent_cancel!r}"
            )
        now = self.run_settings
        changed = copy.copy(self)
        changed.run_settings = replace(
            now,
            id=now.id if id is None else id,
            idempotency_key=now.idempotency_key if idempotency_key is None else idempotency_key,
            priority=now.priority if priority is None else priority,
            delay=now.delay if delay is None else microseconds_of(f"{self.label}: delay", delay),
            at=now.at if at is None else microseconds_at(f"{self.label}: at", at),
            deadline=now.deadline if deadline is None else _deadline(self.label, deadline),
            tags=now.tags if tags is None else dict(tags),
            on_parent_cancel=now.on_parent_cancel if on_parent_cancel is None else on_parent_cancel,
        )
        if changed.run_settings.delay is not None and changed.run_settings.at is not None:
            raise ConfigurationError(f"{self.label}: give delay or at, not both")
        return changed


class DefinedWorkflow(Declared, Workflow[P, R_co]):
    """A workflow whose function is at hand, so that it can be served."""

    is_async: ClassVar[bool]
    kind = "workflow"

    def __init__(
        self,
        fn: Callable[P, Any],
        name: str | None,
        version: str,
        *,
        deadline: Duration | None = None,
        raises: tuple[type[Exception], ...] = (),
    ) -> None:
        self._declare(fn, name)
        super().__init__(name if name is not None else self.declared_function.name)
        self._version = check_id("the workflow version", version)
        if "@" in version:
            raise ConfigurationError(f"{self.label}: the version {version!r} must not hold an @")
        self.raises = declared_errors(self.label, raises)
        if deadline is not None:
            self.run_settings = RunSettings(deadline=_deadline(self.label, deadline))
        self._is_method = False

    def __repr__(self) -> str:
        return f"<workflow {self.name}@{self.version}>"

    @property
    def version(self) -> str:
        """The version."""
        return self._version

    @property
    def lacks_instance(self) -> bool:
        """True for a method that was accessed through its class: it can be started, but not served."""
        return self._is_method and not self.is_bound

    @property
    def signature(self) -> inspect.Signature:
        """The function's signature; a method's without `self`."""
        function = self.declared_function
        return function.method_signature if self._is_method else function.signature

    @property
    def hints(self) -> dict[str, Any]:
        """The annotated types of the parameters and of `return`. Raises ConfigurationError if one is unknown."""
        return self.declared_function.hints

    @property
    def result_type(self) -> Any:
        """The annotated type of the result; Any where there is none. Raises ConfigurationError if it is unknown."""
        return self.declared_function.result_type

    @property
    def code_digest(self) -> str:
        """Which code this is: sha256 over the function's source, else over its bytecode, in hexadecimal."""
        return self.declared_function.digest

    def resolve(self) -> None:
        """Look at signature, types and source now, while the source is the one that was imported.

        Raises ConfigurationError that names the parameter whose type is unknown.
        """
        _ = self.signature, self.hints, self.code_digest

    def encode_input(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """The arguments, bound to the signature with their defaults and checked against their types."""
        return codec.encode_arguments(self.signature, self.hints, args, kwargs, what=f"the input of {self.name}")

    def _get(self, instance: object, owner: type[Any] | None) -> Self:
        """What a class (`instance` is None) or an instance shows of a workflow that is one of its methods."""
        twin = copy.copy(self) if instance is None else self._bind(instance, owner)
        twin._is_method = True  # noqa: SLF001  a twin of this workflow
        return twin

    def _right_ways(self) -> str:
        name = self.declared_function.name
        start = f"await app.start({name}, ...)" if self.is_async else f"client.start({name}, ...)"
        return f"start it with `{start}`, or call its plain function {name}.fn(...)"


class AsyncWorkflow(DefinedWorkflow[P, R_co]):
    """A workflow made of an `async def`. Called inside a workflow it is a child run; outside it is refused."""

    is_async = True

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[None, None, R_co]:
        self._require_no_class(args)
        return self.aio(*args, **kwargs)

    @overload
    def __get__(
        self: "AsyncWorkflow[Concatenate[Any, P2], R]", obj: None, owner: type[Any], /
    ) -> "AsyncWorkflow[P2, R]": ...
    @overload
    def __get__(
        self: "AsyncWorkflow[Concatenate[S, P2], R]", obj: S, owner: type[Any] | None = None, /
    ) -> "AsyncWorkflow[P2, R]": ...
    def __get__(self, obj: Any, owner: type[Any] | None = None, /) -> Any:
        return self._get(obj, owner)


class SyncWorkflow(DefinedWorkflow[P, R_co]):
    """A workflow made of a `def`: it runs on a thread of its own, and `runtrue.sync` has its words."""

    is_async = False

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        self._require_no_class(args)
        return self.sync(*args, **kwargs)

    @overload
    def __get__(
        self: "SyncWorkflow[Concatenate[Any, P2], R]", obj: None, owner: type[Any], /
    ) -> "SyncWorkflow[P2, R]": ...
    @overload
    def __get__(
        self: "SyncWorkflow[Concatenate[S, P2], R]", obj: S, owner: type[Any] | None = None, /
    ) -> "SyncWorkflow[P2, R]": ...
    def __get__(self, obj: Any, owner: type[Any] | None = None, /) -> Any:
        return self._get(obj, owner)


# A coroutine function is a function as well: of the overloads that overlap, a type checker takes the first that fits.
class WorkflowDecorator(Protocol):
    """What `workflow(...)` with settings returns."""

    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload]
        self, fn: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncWorkflow[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> SyncWorkflow[P, R]: ...


@overload
def workflow(  # pyright: ignore[reportOverlappingOverload]
    fn: Callable[P, Coroutine[Any, Any, R]], /
) -> AsyncWorkflow[P, R]: ...
@overload
def workflow(fn: Callable[P, R], /) -> SyncWorkflow[P, R]: ...
@overload
def workflow(
    *,
    name: str | None = None,
    version: str = "1",
    deadline: Duration | None = None,
    raises: tuple[type[Exception], ...] = (),
) -> WorkflowDecorator: ...
def workflow(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    version: str = "1",
    deadline: Duration | None = None,
    raises: tuple[type[Exception], ...] = (),
) -> Any:
    """Make a workflow of a function, `async def` or `def`, or of a method; `self` is not recorded.

    What it calls that touches the world belongs into steps: the function itself is called again after every crash,
    sleep and pause, and passes quickly through what was recorded. `version` tells old code from new: a run is only
    executed by workers that serve its version. `deadline`: how long after its start a run is cancelled if it has not
    ended, unless its options say otherwise. `raises`: errors of the business, which a parent gets as that class.
    """

    def decorate(function: Callable[..., Any]) -> DefinedWorkflow[..., Any]:
        require_function("workflow", function)
        is_async = inspect.iscoroutinefunction(function)
        colour = cast("type[DefinedWorkflow[..., Any]]", AsyncWorkflow if is_async else SyncWorkflow)
        return colour(function, name, version, deadline=deadline, raises=raises)

    return decorate if fn is None else decorate(fn)


class WorkflowReference(Workflow[P, R_co]):
    """A workflow known by its name alone. See `ref`."""

    def __init__(self, name: str, result_type: Any) -> None:
        super().__init__(name)
        self._result_type = result_type

    def __repr__(self) -> str:
        return f"<reference to workflow {self.name}>"

    @property
    def version(self) -> None:
        """None: the served one is meant."""

    @property
    def awaited(self) -> str:
        """How a call of this is written where it can be awaited."""
        return f'rt.ref("{self.name}").aio(...)'

    @property
    def blocking(self) -> str:
        """How a call of this is written where it blocks."""
        return f'rt.ref("{self.name}").sync(...)'

    @property
    def result_type(self) -> Any:
        """The type that the result is read as."""
        return self._result_type

    def encode_input(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """The arguments by name; which ones the workflow has is not known here."""
        if args:
            raise ConfigurationError(
                f"{self.label} is started by name, without its code: give its arguments by keyword"
            )
        return codec.encode(dict(kwargs), what=f"the input of {self.name}")


@overload
def ref(name: str, /) -> Workflow[..., Any]: ...
@overload
def ref(name: str, result: TypeForm[T], /) -> Workflow[..., T]: ...
def ref(name: str, result: Any = Any, /) -> Workflow[..., Any]:
    """A workflow whose code is elsewhere, to be started by a client or as a child: the version that is served.

    Its arguments are given by keyword and are checked by the worker that executes the run; `result` is the type that
    its result is read as.
    """
    return WorkflowReference(name, result)


def _deadline(label: str, deadline: Duration) -> int:
    microseconds = microseconds_of(f"{label}: deadline", deadline)
    if microseconds == 0:
        raise ConfigurationError(f"{label}: deadline must be over 0 seconds")
    return microseconds
