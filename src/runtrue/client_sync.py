"""SyncClient: the blocking twin of Client, for programs without an event loop."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload

from runtrue.authoring import Duration, Topic, Workflow, blocking_variable, runtime_variable
from runtrue.client import Client, Run, RunHandle, WaitFor
from runtrue.config import Setting
from runtrue.errors import ConfigurationError, WrongPlace
from runtrue.lifecycle import Status
from runtrue.records import Event, Hold
from runtrue.service import Outcome

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


class Background:
    """A Client that is open in an event loop of its own, in a daemon thread. Opened when made; used by any thread."""

    def __init__(self, make: Callable[[], Client]) -> None:
        self._make = make
        self._loop = asyncio.new_event_loop()
        self._leave = asyncio.Event()
        self._opened: Future[Client] = Future()
        self._ended: Future[None] = Future()
        self._lock = threading.Lock()
        self._closing = False
        self._thread = threading.Thread(target=self._live, name="runtrue-client", daemon=True)
        self._thread.start()
        try:
            self._opened.result()
        except BaseException:
            self.close()
            raise

    def call(self, ask: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """Carry `ask` out in the loop; return or raise what it does. If the caller is interrupted, so is the call."""
        client = self._opened.result()
        with self._lock:  # a call that came after the last turn of the loop would never be answered
            if self._closing:
                raise ConfigurationError("closed while it was called; nothing was asked")
            answer = asyncio.run_coroutine_threadsafe(ask(client), self._loop)
        try:
            return answer.result()
        except CancelledError:
            raise ConfigurationError("closed while it was called; runs go on, only the call has ended") from None
        except BaseException:
            answer.cancel()
            raise

    def close(self) -> None:
        """Close the Client and end the thread. Idempotent. Raises what closing raises."""
        with self._lock:
            if not self._closing:
                self._closing = True
                if not self._loop.is_closed():
                    self._loop.call_soon_threadsafe(self._leave.set)
        self._thread.join()
        if self._opened.exception() is None:
            self._ended.result()

    def _live(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._stay_open())
        except BaseException as error:  # whoever waits for the thread must hear of it, not the thread's own hook
            (self._ended if self._opened.done() else self._opened).set_exception(error)
        else:
            self._ended.set_result(None)

    async def _stay_open(self) -> None:
        async with self._make() as client:
            self._opened.set_result(client)
            await self._leave.wait()


class _Place:
    """What a SyncClient has in one process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.background: Background | None = None


class SyncRunHandle(Generic[R_co]):
    """A run, seen from outside: the blocking twin of RunHandle. It holds an id; every call asks the database."""

    def __init__(self, client: "SyncClient", run_id: str, workflow: Workflow[..., R_co] | None = None) -> None:
        self._client = client
        self._id = run_id
        self._workflow = workflow

    def __repr__(self) -> str:
        return f"<run {self._id}>"

    @property
    def id(self) -> str:
        """The run's id."""
        return self._id

    def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the end and return what the workflow returned.

        Raises RunFailed, RunCancelled, or ResultTimeout after `timeout`: the wait ends, the run goes on.
        """
        return self._ask(lambda run: run.result(timeout))

    def status(self) -> Status:
        """The run's status now. Raises NotFound."""
        return self._ask(lambda run: run.status())

    def info(self) -> Run[R_co]:
        """The run as its row is now. Raises NotFound."""
        return self._ask(lambda run: run.info())

    def wait(self, until: WaitFor = "finished", /, *, timeout: Duration | None = None) -> Run[R_co]:
        """Wait until the run has this status, or has ended otherwise; look at the status of what is returned.

        Raises ResultTimeout after `timeout`. A status that lasts only a moment may be missed.
        """
        return self._ask(lambda run: run.wait(until, timeout=timeout))

    def pause(self, *, reason: str = "", request_id: str = "") -> Outcome:
        """Pause: at once if no worker has the run, else at its next step boundary. Raises Refused."""
        return self._ask(lambda run: run.pause(reason=reason, request_id=request_id))

    def resume(self, *, reason: str = "", request_id: str = "", pause_id: str | None = None) -> Outcome:
        """Resume a paused run or withdraw a pause request. Raises Refused."""
        return self._ask(lambda run: run.resume(reason=reason, request_id=request_id, pause_id=pause_id))

    def cancel(self, *, reason: str = "", request_id: str = "", wait: bool = False) -> Outcome:
        """Cancel: at once if no worker has the run, else at its next step boundary. Raises Refused if it is too late.

        With `wait` the call returns when the run has ended, with the outcome as it is then.
        """
        return self._ask(lambda run: run.cancel(reason=reason, request_id=request_id, wait=wait))

    def terminate(self, *, reason: str = "", request_id: str = "") -> Outcome:
        """End the run as cancelled now; its worker is fenced out. Raises Refused if it is too late."""
        return self._ask(lambda run: run.terminate(reason=reason, request_id=request_id))

    def answer(self, hold_id: str, value: str, *, reason: str = "", request_id: str = "") -> Outcome:
        """Answer an open hold: `retry` or `fail` for a run that keeps losing its worker."""
        return self._ask(lambda run: run.answer(hold_id, value, reason=reason, request_id=request_id))

    @overload
    def send(self, topic: Topic[T], payload: T, /, *, key: str | None = None) -> None: ...
    @overload
    def send(self, topic: str, payload: object, /, *, key: str | None = None) -> None: ...
    def send(self, topic: Topic[Any] | str, payload: object, /, *, key: str | None = None) -> None:
        """Send a message, which is kept until the run receives it. Returns when it is committed.

        `key` names the message within the run: sending it again under its key changes nothing, another one under the
        same key raises Conflict. Without a Topic the payload is encoded by its own type. Raises NotEncodable; Refused
        if the run has ended or is being cancelled.
        """
        self._ask(lambda run: run.send(topic, payload, key=key))

    def published(self, key: str, /) -> Any:
        """What the run has last published under `key`, as plain JSON data. Raises NotFound if there is nothing."""
        return self._ask(lambda run: run.published(key))

    def holds(self) -> list[Hold]:
        """The open holds of the run."""
        return self._ask(lambda run: run.holds())

    def events(self, *, after: int = 0, follow: bool = False) -> Iterator[Event]:
        """What happened to the run after event `after`, in order; with `follow` until the run has ended."""
        more = True
        while more:
            known = after
            events, more = self._ask(lambda run, known=known: run.next_events(known, follow=follow))
            for event in events:
                after = event.seq
                yield event

    def _ask(self, ask: Callable[[RunHandle[R_co]], Coroutine[Any, Any, T]]) -> T:
        return self._client.call(lambda client: ask(client.handle(self._id, self._workflow)))


class SyncClient:
    """Starts runs and talks to them, blocking: for programs without an event loop. It executes nothing.

    It opens its database at the first call, in a daemon thread of its own, and may be used by any number of threads.
    Each process opens its own: one that was used before a fork opens the database anew in the child. `close`, or
    `with SyncClient(...)`, closes it; a program that ends need not. Where an event loop runs, and in the code of a
    workflow, it is refused. `database`, `actor` and `create` are as for Client.
    """

    def __init__(self, database: str | Path | None = None, *, actor: str = "", create: bool = True) -> None:
        self._pattern = Client(database, actor=actor, create=create)
        self._make = self._pattern.twin
        self._closed = False
        # By process id: what was inherited over a fork is the parent's, and must not even be closed.
        self._places: dict[int, _Place] = {}

    @classmethod
    def like(cls, client: Client, make: Callable[[], Client]) -> Self:
        """A SyncClient for the database of `client`; `make` gives what it opens."""
        made = cls()
        made._pattern, made._make = client, make
        return made

    # ------------------------------------------------------------ life
    @property
    def database(self) -> Setting:
        """The database URL and where it was set."""
        return self._pattern.database

    def __enter__(self) -> Self:
        self._closed = False
        self._background()
        return self

    def __exit__(self, et: type[BaseException] | None, ev: BaseException | None, tb: TracebackType | None, /) -> None:
        self.close()

    def close(self) -> None:
        """Close what is open in this process. Idempotent; calls are refused from then on."""
        place = self._place()
        with place.lock:
            if place.background is not None:
                _refuse_where_it_blocks()
            background, place.background = place.background, None
            self._closed = True
        if background is not None:
            background.close()

    def call(self, ask: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """Carry `ask` out with the open Client, in its event loop, and wait for what it returns or raises."""
        return self._background().call(ask)

    def _background(self) -> Background:
        _refuse_where_it_blocks()
        place = self._place()
        with place.lock:
            if self._closed:
                raise ConfigurationError("this SyncClient is closed; use it within `with`, or make another one")
            if place.background is None:
                place.background = Background(self._make)
            return place.background

    def _place(self) -> _Place:
        return self._places.setdefault(os.getpid(), _Place())

    # ------------------------------------------------------------ runs
    @overload
    def start(self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> SyncRunHandle[R]: ...
    @overload
    def start(self, workflow: str, /, *args: Any, **kwargs: Any) -> SyncRunHandle[Any]: ...
    def start(self, workflow: Any, /, *args: Any, **kwargs: Any) -> SyncRunHandle[Any]:
        """Start a run. Returns when it is committed.

        A start with an id (or idempotency key) that was used before gives the same run if workflow and input are the
        same, and raises Conflict otherwise. By name, without the workflow's code, the arguments go by keyword.
        """
        return self._twin_of(self.call(lambda client: client.start(workflow, *args, **kwargs)))

    def start_many(self, workflow: Workflow[P, R], inputs: Sequence[Mapping[str, Any]], /) -> list[SyncRunHandle[R]]:
        """Start a run for each input (arguments by name), in transactions of many. Ids are made, not given.

        Returns when all are committed. If the process dies on the way, a first part of them is started.
        """
        return [self._twin_of(run) for run in self.call(lambda client: client.start_many(workflow, inputs))]

    @overload
    def run(self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def run(self, workflow: str, /, *args: Any, **kwargs: Any) -> Any: ...
    def run(self, workflow: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Start a run and wait for its result."""
        return self.call(lambda client: client.run(workflow, *args, **kwargs))

    @overload
    def get(self, id: str, /) -> SyncRunHandle[Any]: ...
    @overload
    def get(self, id: str, workflow: Workflow[..., R], /) -> SyncRunHandle[R]: ...
    def get(self, id: str, workflow: Workflow[..., Any] | None = None, /) -> SyncRunHandle[Any]:  # noqa: A002
        """Find a run again. Raises NotFound; ConfigurationError if it is a run of another workflow."""
        return self._twin_of(self.call(lambda client: client.get(id) if workflow is None else client.get(id, workflow)))

    def runs(
        self,
        *,
        status: Status | Sequence[Status] | None = None,
        workflow: str | None = None,
        tag: Mapping[str, str] | None = None,
        limit: int = 100,
    ) -> list[Run[Any]]:
        """The newest runs that match, without their payloads."""
        return self.call(lambda client: client.runs(status=status, workflow=workflow, tag=tag, limit=limit))

    def _twin_of(self, run: RunHandle[R]) -> SyncRunHandle[R]:
        return SyncRunHandle(self, run.id, run.workflow)


def _refuse_where_it_blocks() -> None:
    """Raise WrongPlace in the code of a workflow, and in a thread whose event loop a blocking call would hold up."""
    if runtime_variable.get() is not None or blocking_variable.get() is not None:
        raise WrongPlace(
            "a SyncClient was used in the code of a workflow, where every replay would do the same again; use it in a "
            "step, or call rt.start_child or rt.send"
        )
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise WrongPlace(
        "a SyncClient was used where an event loop runs, which it would hold up; use rt.Client with `await`, or hand "
        "the call to a thread: await asyncio.to_thread(...)"
    )
