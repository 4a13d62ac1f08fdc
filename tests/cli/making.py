"""Runs brought into each status through the store, as a worker and an operator would."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from runtrue.clock import SystemClock
from runtrue.codec import encode, encode_error
from runtrue.ids import new_request_id
from runtrue.lifecycle import Command, HoldKind, Status
from runtrue.records import AttemptRecord, InFlight, StepRecord, Wait
from runtrue.store import Store, open_store
from runtrue.store.protocol import (
    NEVER,
    ChildStart,
    CommandRequest,
    Finish,
    Heartbeat,
    NewRun,
    NewWorker,
    OpenWait,
    ParentLink,
    ParkBlocked,
    ParkHeld,
    RunEffects,
)

T = TypeVar("T")

CLOCK = SystemClock()
WORKER = "w-test"
SECOND = 1_000_000
HOUR = 3_600 * SECOND


def with_store(database: Path, work: Callable[[Store], Awaitable[T]]) -> T:
    """What `work` does with the store of `database`, in a loop of its own."""

    async def opened() -> T:
        store = await open_store(f"sqlite:///{database}", clock=CLOCK)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(opened())


async def start(store: Store, run_id: str, *, workflow: str = "fulfil", priority: int = 0) -> None:
    body = encode({"city": "Lyon"}, what="input")
    new = NewRun(run_id, workflow, "1", body, CLOCK.now(), priority, tags={"shop": "17"}, actor="anna")
    await store.start([new])


async def claim(store: Store, run_id: str) -> int:
    """Start the run and let a worker claim it; its epoch."""
    await start(store, run_id, priority=-1)  # before those that shall stay pending
    if WORKER not in [worker.id for worker in await store.workers()]:
        await store.register_worker(NewWorker(WORKER, "here", 4711, 10, ["fulfil@1"], HOUR))
    (claimed,) = await store.claim(WORKER, [("fulfil", "1")], 1)
    assert claimed.run_id == run_id
    return claimed.epoch


async def command(store: Store, run_id: str, verb: Command, reason: str = "") -> None:
    not_after = CLOCK.now() + SECOND
    await store.command(CommandRequest(run_id, verb, new_request_id(), not_after, actor="otto", reason=reason))


async def record(store: Store, effects: RunEffects) -> None:
    (reply,) = await store.record(WORKER, [effects])
    assert reply.recorded.value == "ok", reply


def step(ordinal: int, name: str, *, output: object = None) -> StepRecord:
    """A step that ended a minute ago."""
    ended = CLOCK.now() - 60 * SECOND
    body = encode(output, what="output")
    return StepRecord("", ordinal, name, "step", 1, body, None, ended - SECOND // 4, ended, digest=ordinal + 1)


def attempt(ordinal: int, name: str, number: int, *, next_at: int) -> AttemptRecord:
    now = CLOCK.now()
    error = encode_error(ConnectionError("the line is down"))
    return AttemptRecord("", ordinal, name, number, error, now - SECOND, now, next_at)


async def report_in_flight(store: Store, run_id: str, name: str, *, number: int = 2, seconds: int = 12) -> None:
    """The worker tells with its heartbeat that it is executing a step."""
    in_flight = [InFlight(run_id, name, number, CLOCK.now() - seconds * SECOND)]
    beat = Heartbeat(WORKER, HOUR, CLOCK.now(), in_flight)
    await asyncio.to_thread(store.renew, beat)


async def make(store: Store, run_id: str, status: Status) -> None:
    """Make a run that has `status`."""
    if status is Status.PENDING:
        await start(store, run_id)
    elif status is Status.PAUSED:
        await start(store, run_id)
        await command(store, run_id, Command.PAUSE, "stocktaking")
    elif status is Status.CANCELLED:
        await start(store, run_id)
        await command(store, run_id, Command.CANCEL, "not wanted any more")
    else:
        await _make_claimed(store, run_id, status)
    run = await store.get(run_id)
    assert run is not None
    assert run.status is status


async def _make_claimed(store: Store, run_id: str, status: Status) -> None:
    epoch = await claim(store, run_id)
    await record(store, RunEffects(run_id, epoch, steps=[step(0, "load", output={"rows": 3})]))
    if status is Status.WAITING:
        run = await store.get(run_id)
        assert run is not None
        await record(store, RunEffects(run_id, epoch, end=ParkBlocked(run.wakeups, CLOCK.now() + HOUR)))
    elif status is Status.PAUSING:
        await command(store, run_id, Command.PAUSE, "stocktaking")
    elif status is Status.CANCELLING:
        await command(store, run_id, Command.CANCEL, "not wanted any more")
    elif status is Status.COMPLETED:
        end = Finish(Status.COMPLETED, encode({"total": 7}, what="output"))
        await record(store, RunEffects(run_id, epoch, end=end))
    elif status is Status.FAILED:
        end = Finish(Status.FAILED, encode_error(ValueError("no such order")))
        await record(store, RunEffects(run_id, epoch, end=end))


def message_wait(ordinal: int, topic: str, *, branch: str = "", seconds: int | None = None) -> OpenWait:
    """A wait for a message of this topic, which gives up after so long."""
    now = CLOCK.now()
    deadline_at = None if seconds is None else now + seconds * SECOND
    return OpenWait(Wait(branch, ordinal, "receive", topic, topic, now, deadline_at))


def child_start(parent_id: str, ordinal: int, run_id: str, *, branch: str = "") -> ChildStart:
    """A child that its parent waits for."""
    now = CLOCK.now()
    new = NewRun(
        run_id, "mail", "1", encode({}, what="input"), now, parent=ParentLink(parent_id, branch, ordinal, True)
    )
    return ChildStart(new, Wait(branch, ordinal, "child", "mail", run_id, now))


async def park(store: Store, run_id: str, epoch: int) -> None:
    """The run has nothing to do but wait."""
    run = await store.get(run_id)
    assert run is not None
    await record(store, RunEffects(run_id, epoch, end=ParkBlocked(run.wakeups, NEVER)))


async def make_held(store: Store, run_id: str, kind: HoldKind) -> str:
    """Make a run that the engine holds; the id of the hold."""
    epoch = await claim(store, run_id)
    await record(store, RunEffects(run_id, epoch, end=ParkHeld(kind, "as the test wants it")))
    (hold,) = await store.holds(run_id, open_only=True)
    return hold.id
