"""Runs seen from outside: what a row tells, and the handle that asks for it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar, overload

from runtrue import codec
from runtrue.authoring import Duration, Topic, Workflow, datetime_of, encode_message, seconds_of
from runtrue.clock import Clock
from runtrue.errors import ConfigurationError, ErrorInfo, NotFound, ResultTimeout, RunCancelled, RunFailed
from runtrue.ids import check_id
from runtrue.lifecycle import TERMINAL, Status
from runtrue.records import Event, Hold, RunRecord
from runtrue.service import Outcome, Service
from runtrue.watcher import RunWatcher

T = TypeVar("T")


R_co = TypeVar("R_co", covariant=True)

WaitFor: TypeAlias = Literal["finished", "paused", "waiting", "completed", "failed", "cancelled"]


class OpenClient(Protocol):
    """What a handle needs of the client that it came from."""

    clock: Clock

    @property
    def service(self) -> Service: ...

    @property
    def watcher(self) -> RunWatcher: ...

    async def changed(self, seconds: float = 1.0) -> None: ...


@dataclass(frozen=True, slots=True)
class Run(Generic[R_co]):
    """A run as its row was when it was read. `output` is set once it is completed, `error` once it has failed."""

    id: str
    workflow: str
    version: str
    status: Status
    attempt: int
    steps_done: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    output: R_co | None = None
    error: ErrorInfo | None = None
    reason: str = ""
    """Why a pause or cancel was asked, as whoever asked it wrote."""


class RunHandle(Generic[R_co]):
    """A run, seen from outside. It holds an id; every call asks the database."""

    def __init__(self, client: OpenClient, run_id: str, workflow: Workflow[..., R_co] | None = None) -> None:
        self._client = client
        self._id = run_id
        self.workflow = workflow
        """The workflow that the result is decoded as; None gives plain JSON data."""

    def __repr__(self) -> str:
        return f"<run {self._id}>"

    @property
    def id(self) -> str:
        """The run's id."""
        return self._id

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the end and return what the workflow returned.

        Raises RunFailed, RunCancelled, or ResultTimeout after `timeout`: the wait ends, the run goes on. The cause of a
        RunFailed is the error itself, made anew, where the workflow declares it in `raises=`.
        """
        await self._reach(TERMINAL, timeout)
        run = await self._client.service.get(self._id)
        if run.status is Status.COMPLETED:
            what = f"the result of run {self._id}"
            return codec.decode(run.output or b"null", _result_type(self.workflow), what=what)
        if run.status is Status.FAILED:
            body = run.error or b"{}"
            declared = self.workflow.raises if self.workflow is not None else ()
            raise RunFailed(self._id, codec.decode_error(body)) from codec.rebuild_error(body, declared)
        raise RunCancelled(self._id, run.request.reason if run.request else "")

    async def status(self) -> Status:
        """The run's status now. Raises NotFound."""
        return (await self._client.service.get(self._id, payloads=False)).status

    async def info(self) -> Run[R_co]:
        """The run as its row is now. Raises NotFound."""
        return run_of(await self._client.service.get(self._id), _result_type(self.workflow))

    async def wait(self, until: WaitFor = "finished", /, *, timeout: Duration | None = None) -> Run[R_co]:
        """Wait until the run has this status, or has ended otherwise; look at the status of what is returned.

        Raises ResultTimeout after `timeout`. A status that lasts only a moment may be missed.
        """
        if until != "finished" and until not in _WAITABLE:
            raise ConfigurationError(
                f"run {self._id}: cannot wait for {until!r}; one of finished, {', '.join(_WAITABLE)}"
            )
        await self._reach(TERMINAL if until == "finished" else frozenset({Status(until)}), timeout)
        return await self.info()

    async def pause(self, *, reason: str = "", request_id: str = "") -> Outcome:
        """Pause: at once if no worker has the run, else at its next step boundary. Raises Refused."""
        return await self._client.service.pause(self._id, reason=reason, request_id=request_id)

    async def resume(self, *, reason: str = "", request_id: str = "", pause_id: str | None = None) -> Outcome:
        """Resume a paused run or withdraw a pause request. Raises Refused."""
        return await self._client.service.resume(self._id, reason=reason, request_id=request_id, pause_id=pause_id)

    async def cancel(self, *, reason: str = "", request_id: str = "", wait: bool = False) -> Outcome:
        """Cancel: at once if no worker has the run, else at its next step boundary. Raises Refused if it is too late.

        With `wait` the call returns when the run has ended, with the outcome as it is then.
        """
        service = self._client.service
        outcome = await service.cancel(self._id, reason=reason, request_id=request_id)
        if wait and not outcome.done:
            await self._reach(TERMINAL, None)
            outcome = await service.cancel(self._id, reason=reason)
        return outcome

    async def terminate(self, *, reason: str = "", request_id: str = "") -> Outcome:
        """End the run as cancelled now; its worker is fenced out. Raises Refused if it is too late."""
        return await self._client.service.terminate(self._id, reason=reason, request_id=request_id)

    async def answer(self, hold_id: str, value: str, *, reason: str = "", request_id: str = "") -> Outcome:
        """Answer an open hold: `retry` or `fail` for a run that keeps losing its worker."""
        return await self._client.service.answer(self._id, hold_id, value, reason=reason, request_id=request_id)

    @overload
    async def send(self, topic: Topic[T], payload: T, /, *, key: str | None = None) -> None: ...
    @overload
    async def send(self, topic: str, payload: object, /, *, key: str | None = None) -> None: ...
    async def send(self, topic: Topic[Any] | str, payload: object, /, *, key: str | None = None) -> None:
        """Send a message, which is kept until the run receives it. Returns when it is committed.

        `key` names the message within the run: sending it again under its key changes nothing, another one under the
        same key raises Conflict. Without a Topic the payload is encoded by its own type. Raises NotEncodable; Refused
        if the run has ended or is being cancelled.
        """
        name, body = encode_message(topic, payload)
        if key is not None:
            check_id("the key of a message", key)
        await self._client.service.send(self._id, name, body, request_id=key or "")

    async def published(self, key: str, /) -> Any:
        """What the run has last published under `key`, as plain JSON data. Raises NotFound if there is nothing."""
        values = await self._client.service.published(self._id)
        if key not in values:
            known = f"only {', '.join(sorted(values))}" if values else "nothing so far"
            raise NotFound(f"run {self._id} has published no {key!a}, {known}")
        return codec.decode(values[key], what=f"what run {self._id} has published as {key}")

    async def holds(self) -> list[Hold]:
        """The open holds of the run."""
        return await self._client.service.holds(self._id)

    async def events(self, *, after: int = 0, follow: bool = False) -> AsyncIterator[Event]:
        """What happened to the run after event `after`, in order; with `follow` until the run has ended."""
        more = True
        while more:
            events, more = await self.next_events(after, follow=follow)
            for event in events:
                after = event.seq
                yield event

    async def next_events(self, after: int, *, follow: bool) -> tuple[list[Event], bool]:
        """The events after `after`, and whether to ask for more; with `follow` it waits until there are some."""
        while True:
            ended = await self.status() in TERMINAL
            found = await self._all_after(after)
            if found or ended or not follow:
                return found, follow and not ended
            await self._client.changed()

    async def _all_after(self, after: int) -> list[Event]:
        found: list[Event] = []
        while True:
            page = await self._client.service.events(self._id, after=after, limit=1_000)
            found.extend(page)
            if len(page) < 1_000:
                return found
            after = page[-1].seq

    async def _reach(self, wanted: frozenset[Status], timeout: Duration | None) -> Status:
        if timeout is None:
            return await self._client.watcher.wait(self._id, wanted)
        seconds = seconds_of("timeout", timeout)
        limit: asyncio.Timeout | None = None
        try:
            async with self._client.clock.timeout(seconds) as limit:
                return await self._client.watcher.wait(self._id, wanted)
        except TimeoutError:
            if limit is None or not limit.expired():
                raise
        raise ResultTimeout(self._id, await self.status())


_WAITABLE = ("paused", "waiting", "completed", "failed", "cancelled")


def _result_type(workflow: Workflow[..., Any] | None) -> Any:
    return Any if workflow is None else workflow.result_type


def run_of(run: RunRecord, result_type: Any) -> Run[Any]:
    """The run that a row tells, its output decoded as `result_type`."""
    output = None
    if run.output is not None:
        output = codec.decode(run.output, result_type, what=f"the result of run {run.id}")
    return Run(
        id=run.id,
        workflow=run.workflow,
        version=run.version,
        status=run.status,
        attempt=run.attempt,
        steps_done=run.steps_done,
        created_at=datetime_of(run.created_at),
        started_at=None if run.started_at is None else datetime_of(run.started_at),
        finished_at=None if run.finished_at is None else datetime_of(run.finished_at),
        tags=run.tags,
        output=output,
        error=None if run.error is None else codec.decode_error(run.error),
        reason=run.request.reason if run.request else "",
    )
