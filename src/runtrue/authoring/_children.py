"""Children that a workflow starts and does not wait for at once."""

from collections.abc import Coroutine
from typing import Any, Generic, ParamSpec, TypeVar

from runtrue.authoring._context import current_runtime
from runtrue.authoring._messages import Topic, encode_message
from runtrue.authoring._workflow import Workflow
from runtrue.errors import ConfigurationError

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class ChildHandle(Generic[R_co]):
    """A child run, seen from the workflow that started it.

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

    def result(self) -> Coroutine[None, None, R_co]:
        """Wait for the child's end. Raises RunFailed, one of the child's `raises=`, or RunCancelled."""
        return current_runtime("result() of a child").wait_for_child(self._id, self._workflow)

    def send(self, topic: Topic[T] | str, payload: T, /) -> Coroutine[None, None, None]:
        """Send the child a message, once. Raises Refused if it takes no more, NotEncodable."""
        runtime = current_runtime("send() to a child")
        return runtime.send(self._id, *encode_message(topic, payload))


def start_child(
    workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs
) -> Coroutine[None, None, ChildHandle[R]]:
    """Start a child run and go on. Its handle waits for its end and sends it messages.

    Settings go with the workflow: `fulfil.options(id="order-42", on_parent_cancel="abandon")`. A child that is still
    going when this run ends otherwise than by completing is cancelled, unless its options say "abandon". Raises
    Conflict if the id is taken by a run of another workflow or with another input.
    """
    runtime = current_runtime("rt.start_child")
    require_workflow(workflow)
    return _started(runtime.start_child(workflow, args, kwargs), workflow)


async def _started(call: Coroutine[None, None, str], workflow: Workflow[..., R]) -> ChildHandle[R]:
    return ChildHandle(await call, workflow)


def require_workflow(workflow: Any) -> None:
    """Refuse what is no workflow, with the way to name one."""
    if not isinstance(workflow, Workflow):
        named = f"rt.ref({workflow!r})" if isinstance(workflow, str) else "rt.ref(NAME)"
        raise ConfigurationError(
            f"rt.start_child takes a workflow, or {named} where only its name is known, not {type(workflow).__name__}"
        )
