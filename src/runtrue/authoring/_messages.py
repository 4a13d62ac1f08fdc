"""Messages: topics, receive, send."""

from collections.abc import Coroutine
from typing import Any, Generic, Protocol, TypeVar, cast, overload

from typing_extensions import TypeForm

from runtrue import codec
from runtrue.authoring._context import current_runtime
from runtrue.authoring._duration import Duration, seconds_of
from runtrue.errors import ConfigurationError, WaitTimeout
from runtrue.ids import check_id

D = TypeVar("D")
T = TypeVar("T")


class Topic(Generic[T]):
    """A kind of message: its name, and the type of what it carries. Senders and receivers share it."""

    __slots__ = ("name", "type")

    def __init__(self, name: str, type: TypeForm[T], /) -> None:  # noqa: A002  it is a type
        self.name = check_id("the name of a topic", name)
        self.type = type

    def __repr__(self) -> str:
        return f"<topic {self.name}>"


class Addressed(Protocol):
    """A run that messages can be sent to: a handle of any kind."""

    @property
    def id(self) -> str: ...


@overload
def receive(topic: Topic[T], /, *, timeout: Duration | None = None) -> Coroutine[None, None, T]: ...
@overload
def receive(topic: Topic[T], /, *, timeout: Duration, default: D) -> Coroutine[None, None, T | D]: ...
@overload
def receive(
    topic: str,
    type: TypeForm[T],
    /,
    *,
    timeout: Duration | None = None,
) -> Coroutine[None, None, T]: ...
@overload
def receive(
    topic: str,
    type: TypeForm[T],
    /,
    *,
    timeout: Duration,
    default: D,
) -> Coroutine[None, None, T | D]: ...
def receive(
    topic: Any,
    type: Any = ...,  # noqa: A002  it is a type
    /,
    *,
    timeout: Duration | None = None,
    default: Any = ...,
) -> Coroutine[None, None, Any]:
    """Take the oldest message of a topic, or wait for one. A message that came before the wait was kept for it.

    Raises WaitTimeout once `timeout` has passed, unless there is a `default` to return then.
    """
    runtime = current_runtime("rt.receive")
    call = runtime.receive(*checked_wait(topic, type, timeout, default))
    return call if default is ... else _or_default(call, default)


async def _or_default(call: Coroutine[None, None, T], default: D) -> T | D:
    try:
        return await call
    except WaitTimeout:
        return default


def send(run: Addressed | str, topic: Topic[T] | str, payload: T, /) -> Coroutine[None, None, None]:
    """Send a message to a run, given by its handle or id. It is kept until that run receives it.

    However often this workflow is replayed, it is sent once. Raises NotFound, Refused if that run takes no more
    messages, NotEncodable.
    """
    runtime = current_runtime("rt.send")
    return runtime.send(run_id_of(run), *encode_message(topic, payload))


def checked_wait(topic: object, type: Any, timeout: object, default: object) -> tuple[str, Any, float | None]:  # noqa: A002
    """What `receive` waits for: the topic's name, the type of the message, seconds. Raises ConfigurationError."""
    name = topic_name(topic)
    if isinstance(topic, Topic):
        if type is not ...:
            raise ConfigurationError(f"rt.receive: topic {name} has its type already; leave the second one out")
        type = cast("Topic[Any]", topic).type  # noqa: A001  it is a type
    elif type is ...:
        raise ConfigurationError(f"rt.receive: say of which type a message of {name} is: rt.receive({name!r}, str)")
    if timeout is not None:
        return name, type, seconds_of("rt.receive: timeout", timeout)
    if default is not ...:
        raise ConfigurationError("rt.receive: default= is what comes when timeout= has passed; give both")
    return name, type, None


def encode_message(topic: object, payload: object) -> tuple[str, bytes]:
    """A topic's name, and a message for it: by the topic's type, or where it is named only by the payload's own.

    Raises ConfigurationError, NotEncodable, PayloadTooLarge.
    """
    name = topic_name(topic)
    kind = cast("Topic[Any]", topic).type if isinstance(topic, Topic) else type(payload)
    return name, codec.encode(payload, kind, what=f"the message of topic {name}")


def topic_name(topic: object) -> str:
    """The name of a Topic, or of one that is given by name. Raises ConfigurationError."""
    return topic.name if isinstance(topic, Topic) else check_id("the name of a topic", topic)


def run_id_of(run: object) -> str:
    """The id of a run that is given by id or by anything that has one. Raises ConfigurationError."""
    return check_id("rt.send: the run's id", run if isinstance(run, str) else getattr(run, "id", run))
