"""The words of `def` workflows: `import runtrue.sync as rt`.

The names are those of `runtrue`; what is awaited there blocks here.
"""

import inspect
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context, copy_context
from datetime import datetime
from functools import partial
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypeVar, cast, overload

from typing_extensions import TypeForm

from runtrue import (
    App,
    AsyncStep,
    AsyncWorkflow,
    CancelRun,
    CodecError,
    ConfigurationError,
    Conflict,
    Duration,
    ErrorInfo,
    Event,
    Hold,
    HoldKind,
    NotDecodable,
    NotEncodable,
    NotFound,
    Outcome,
    OutcomeUnknown,
    PayloadTooLarge,
    Refused,
    ResultTimeout,
    Retry,
    Run,
    RunCancelled,
    RunFailed,
    RunInfo,
    RuntrueError,
    Status,
    Step,
    StepFailed,
    StepInfo,
    StoreBusy,
    StoreError,
    StoreUnusable,
    SyncClient,
    SyncRunHandle,
    SyncStep,
    SyncWorkflow,
    Topic,
    WaitFor,
    WaitTimeout,
    Workflow,
    WrongPlace,
    logger,
    now,
    patched,
    publish,
    random,
    ref,
    set_progress,
    state,
    step,
    this_run,
    this_step,
    uuid4,
    workflow,
)
from runtrue.authoring import (
    Addressed,
    Runtime,
    Threaded,
    checked_items,
    checked_wait,
    current_blocking,
    encode_message,
    microseconds_at,
    require_some,
    require_workflow,
    run_id_of,
    seconds_of,
)
from runtrue.authoring._context import current_runtime, inherit

__all__ = [
    "App",
    "AsyncStep",
    "AsyncWorkflow",
    "CancelRun",
    "CodecError",
    "ConfigurationError",
    "Conflict",
    "Duration",
    "ErrorInfo",
    "Event",
    "Hold",
    "HoldKind",
    "NotDecodable",
    "NotEncodable",
    "NotFound",
    "Outcome",
    "OutcomeUnknown",
    "PayloadTooLarge",
    "Refused",
    "ResultTimeout",
    "Retry",
    "Run",
    "RunCancelled",
    "RunFailed",
    "RunInfo",
    "RuntrueError",
    "Status",
    "Step",
    "StepFailed",
    "StepInfo",
    "StoreBusy",
    "StoreError",
    "StoreUnusable",
    "SyncChildHandle",
    "SyncClient",
    "SyncRunHandle",
    "SyncStep",
    "SyncWorkflow",
    "Topic",
    "WaitFor",
    "WaitTimeout",
    "Workflow",
    "WrongPlace",
    "first",
    "gather",
    "logger",
    "map",
    "now",
    "patched",
    "publish",
    "random",
    "receive",
    "ref",
    "send",
    "set_progress",
    "sleep",
    "sleep_until",
    "start_child",
    "state",
    "step",
    "this_run",
    "this_step",
    "uuid4",
    "workflow",
]

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Sync(Protocol[T_contra, R_co]):
    """A step or workflow that one argument is enough to call."""

    def sync(self, arg: T_contra, /) -> R_co: ...


def sleep(duration: Duration, /) -> None:
    """Sleep durably. A sleep of more than a second leaves memory: the run is `waiting` and survives any restart."""
    blocking = current_blocking("rt.sleep")
    seconds = seconds_of("rt.sleep: the duration", duration)
    blocking.block(lambda runtime: runtime.sleep(seconds))


def sleep_until(when: datetime, /) -> None:
    """Sleep durably until a point in time, which must have a time zone. Returns at once if it has passed."""
    blocking = current_blocking("rt.sleep_until")
    at = microseconds_at("rt.sleep_until: the time", when)
    blocking.block(lambda runtime: runtime.sleep_until(at))


# ---------------------------------------------------------------- messages
@overload
def receive(topic: Topic[T], /, *, timeout: Duration | None = None) -> T: ...
@overload
def receive(topic: Topic[T], /, *, timeout: Duration, default: D) -> T | D: ...
@overload
def receive(topic: str, type: TypeForm[T], /, *, timeout: Duration | None = None) -> T: ...
@overload
def receive(topic: str, type: TypeForm[T], /, *, timeout: Duration, default: D) -> T | D: ...
def receive(
    topic: Any,
    type: Any = ...,  # noqa: A002  it is a type
    /,
    *,
    timeout: Duration | None = None,
    default: Any = ...,
) -> Any:
    """Take the oldest message of a topic, or wait for one. A message that came before the wait was kept for it.

    Raises WaitTimeout once `timeout` has passed, unless there is a `default` to return then.
    """
    blocking = current_blocking("rt.receive")
    name, kind, seconds = checked_wait(topic, type, timeout, default)
    try:
        return blocking.block(lambda runtime: runtime.receive(name, kind, seconds))
    except WaitTimeout:
        if default is ...:
            raise
        return default


def send(run: Addressed | str, topic: Topic[T] | str, payload: T, /) -> None:
    """Send a message to a run, given by its handle or id. It is kept until that run receives it.

    However often this workflow is replayed, it is sent once. Raises NotFound, Refused if that run takes no more
    messages, NotEncodable.
    """
    blocking = current_blocking("rt.send")
    run_id = run_id_of(run)
    name, body = encode_message(topic, payload)
    blocking.block(lambda runtime: runtime.send(run_id, name, body))


# ---------------------------------------------------------------- children
class SyncChildHandle(Generic[R_co]):
    """A child run, seen from the `def` workflow that started it.

    It can be waited for and sent messages: both are recorded, so that a replay sees the same. Whatever changes from
    one moment to the next, the child's status say, a replay could not see again: ask for it in a step, with a Client.
    """

    __slots__ = ("_id", "_workflow")

    def __init__(self, run_id: str, workflow: Workflow[..., R_co]) -> None:
        self._id = run_id
        self._workflow = workflow

    def __repr__(self) -> str:
        return f"<child run {self._id}>"

    @property
    def id(self) -> str:
        """The run's id."""
        return self._id

    def result(self) -> R_co:
        """Wait for the child's end. Raises RunFailed, one of the child's `raises=`, or RunCancelled."""
        blocking = current_blocking("result() of a child")
        return blocking.block(lambda runtime: runtime.wait_for_child(self._id, self._workflow))

    def send(self, topic: Topic[T] | str, payload: T, /) -> None:
        """Send the child a message, once. Raises Refused if it takes no more, NotEncodable."""
        blocking = current_blocking("send() to a child")
        name, body = encode_message(topic, payload)
        blocking.block(lambda runtime: runtime.send(self._id, name, body))


def start_child(workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> SyncChildHandle[R]:
    """Start a child run and go on. Its handle waits for its end and sends it messages.

    Settings go with the workflow: `fulfil.options(id="order-42", on_parent_cancel="abandon")`. A child that is still
    going when this run ends otherwise than by completing is cancelled, unless its options say "abandon". Raises
    Conflict if the id is taken by a run of another workflow or with another input.
    """
    blocking = current_blocking("rt.start_child")
    require_workflow(workflow)
    return SyncChildHandle(blocking.block(lambda runtime: runtime.start_child(workflow, args, kwargs)), workflow)


# ---------------------------------------------------------------- groups
@overload
def gather(a: Callable[[], A], /) -> tuple[A]: ...
@overload
def gather(a: Callable[[], A], b: Callable[[], B], /) -> tuple[A, B]: ...
@overload
def gather(a: Callable[[], A], b: Callable[[], B], c: Callable[[], C], /) -> tuple[A, B, C]: ...
@overload
def gather(a: Callable[[], A], b: Callable[[], B], c: Callable[[], C], d: Callable[[], D], /) -> tuple[A, B, C, D]: ...
@overload
def gather(*calls: Callable[[], T]) -> tuple[T, ...]: ...
def gather(*calls: Callable[[], Any]) -> tuple[Any, ...]:
    """Call all functions at the same time, each on a thread and in a branch of its own; their results in order.

    `rt.gather(lambda: charge(order), lambda: reserve(order))`. If one fails, the steps in flight finish and are
    recorded, nothing new begins, and its error is raised; which one it was is recorded.
    """
    blocking = current_blocking("rt.gather")
    items = _threaded("rt.gather", calls)
    return blocking.block(lambda runtime: runtime.gather(items))


@overload
def first(a: Callable[[], A], b: Callable[[], B], /) -> tuple[Literal[0], A] | tuple[Literal[1], B]: ...
@overload
def first(
    a: Callable[[], A], b: Callable[[], B], c: Callable[[], C], /
) -> tuple[Literal[0], A] | tuple[Literal[1], B] | tuple[Literal[2], C]: ...
@overload
def first(*calls: Callable[[], T]) -> tuple[int, T]: ...
def first(*calls: Callable[[], Any]) -> tuple[int, Any]:
    """Call all functions at the same time until the first has ended: its number from 0 and its result, or its error.

    Which one it was is recorded, so that every replay goes the same way. The others are closed: their waits are moot,
    a step in flight finishes and is recorded.
    """
    blocking = current_blocking("rt.first")
    require_some(calls)
    items = _threaded("rt.first", calls)
    return blocking.block(lambda runtime: runtime.first(items))


@overload
def map(  # noqa: A001  the word that users know
    fn: Sync[T, R] | Callable[[T], R],
    items: Iterable[T],
    /,
    *,
    limit: int | None = None,
    key: Callable[[T], str] | None = None,
    return_exceptions: Literal[False] = False,
) -> list[R]: ...
@overload
def map(  # noqa: A001  the word that users know
    fn: Sync[T, R] | Callable[[T], R],
    items: Iterable[T],
    /,
    *,
    limit: int | None = None,
    key: Callable[[T], str] | None = None,
    return_exceptions: Literal[True],
) -> list[R | Exception]: ...
def map(  # noqa: A001  the word that users know
    fn: Any,
    items: Iterable[Any],
    /,
    *,
    limit: int | None = None,
    key: Callable[[Any], str] | None = None,
    return_exceptions: bool = False,
) -> list[Any]:
    """Call `fn` with each item, each in a branch of its own, and return the results in the order of the items.

    `fn`: a step or workflow of either colour, or a function, which is called on a thread for each item. `limit`: how
    many at a time. `key`: a text for each item that names its branch in the history; without it the item's number
    does, so that other items, or another order, would not fit what was recorded. An error ends it as in `gather`;
    with `return_exceptions` it stands in the list, in the place of the result.
    """
    blocking = current_blocking("rt.map")
    if not (callable(fn) or hasattr(fn, "sync")):
        raise ConfigurationError(f"rt.map: its first argument must be a step or a function, not {type(fn).__name__}")
    call = cast("Callable[[Any], Any]", getattr(fn, "sync", fn))
    listed, keys = checked_items(items, limit, key)
    context = copy_context()

    def carry_out(runtime: Runtime) -> Any:
        def make(item: Any) -> Any:
            # A step or a child needs no thread of its own to be waited for. This is called in the item's branch.
            if isinstance(fn, Step):
                return current_runtime("rt.map").call_step(cast("Step[..., Any]", fn), (item,), {})
            if isinstance(fn, Workflow):
                return current_runtime("rt.map").call_child(cast("Workflow[..., Any]", fn), (item,), {})
            return Threaded(partial(_result_of, "rt.map", partial(call, item), context))

        return runtime.map(make, listed, limit, keys, return_exceptions)

    return blocking.block(carry_out)


def _threaded(word: str, calls: Sequence[object]) -> list[Threaded]:
    for number, call in enumerate(calls, 1):
        if not callable(call):
            if inspect.iscoroutine(call):
                call.close()
            raise ConfigurationError(
                f"{word}: item {number} is of type {type(call).__name__}, no function; "
                f"write {word}(lambda: a(1), lambda: b(2)): each is called in its own branch"
            )
    context = copy_context()
    return [Threaded(partial(_result_of, word, call, context)) for call in cast("Sequence[Callable[[], Any]]", calls)]


def _result_of(word: str, call: Callable[[], Any], context: Context) -> Any:
    """Call it on the thread of its branch; it sees what the workflow has set in its context."""
    inherit(context)
    result = call()
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise ConfigurationError(
            f"{word}: a function gave {type(result).__name__}, which nothing awaits in a `def` workflow; "
            "write `.sync(...)` for a step or workflow that is `async def`"
        )
    return result
