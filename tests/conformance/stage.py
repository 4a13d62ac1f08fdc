"""Brings runs into the state that a test is about, through the protocol of a store alone."""

import dataclasses
from typing import Any

from tests.support.manual_clock import ManualClock

from runtrue.lifecycle import Answer, Command, HoldKind, Status
from runtrue.records import AttemptRecord, Event, RunRecord, StepRecord, Wait
from runtrue.store import Store
from runtrue.store.protocol import (
    NEVER,
    ChildStart,
    Claimed,
    CommandReply,
    CommandRequest,
    EffectsReply,
    End,
    Finish,
    Heartbeat,
    NewRun,
    NewWorker,
    OpenWait,
    ParentLink,
    ParkBlocked,
    ParkHeld,
    ParkRequested,
    Recorded,
    RunEffects,
)

SECOND = 1_000_000
HOUR = 3_600 * SECOND
LEASE = 15 * SECOND
SERVES = (("flow", "1"),)
INPUT = b'{"n":1}'
RESULT = b'"ok"'


def step(ordinal: int = 1, name: str = "charge", **fields: Any) -> StepRecord:
    """A recorded step, its digest odd enough that no two of them cancel out."""
    values: dict[str, Any] = {
        "branch": "",
        "kind": "step",
        "attempt": 1,
        "output": RESULT,
        "error": None,
        "started_at": 10,
        "finished_at": 20,
        "digest": -(2**62) + 7919 * ordinal,
    }
    return StepRecord(ordinal=ordinal, name=name, **(values | fields))


def attempt(ordinal: int = 1, number: int = 1) -> AttemptRecord:
    return AttemptRecord("", ordinal, "charge", number, b'{"type":"X"}', 10, 20, 30)


def receive(ordinal: int = 2, topic: str = "topic", **fields: Any) -> OpenWait:
    """A wait for a message. With `gives_up` it is closed if there is none now."""
    gives_up = fields.pop("gives_up", None)
    return OpenWait(Wait(fields.pop("branch", ""), ordinal, "receive", topic, topic, 10, **fields), gives_up)


def child_wait(run_id: str = "child", ordinal: int = 2, **fields: Any) -> OpenWait:
    """A wait for the end of another run."""
    gives_up = fields.pop("gives_up", None)
    return OpenWait(Wait(fields.pop("branch", ""), ordinal, "child", "flow", run_id, 10, **fields), gives_up)


def child_start(run_id: str = "child", ordinal: int = 2, *, cancels: bool = True, **fields: Any) -> ChildStart:
    """The start of a child of run `r` that is waited for."""
    branch, parent = fields.pop("branch", ""), fields.pop("parent", "r")
    link = ParentLink(parent, branch, ordinal, cancels)
    values: dict[str, Any] = {"workflow": "flow", "version": "1", "input": INPUT, "ready_at": 0}
    wait = Wait(branch, ordinal, "child", "flow", run_id, 10)
    return ChildStart(NewRun(run_id, **(values | fields), parent=link), wait=wait)


class Stage:
    """A store with a clock that stands still, and short words for what happens on it."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self._requests = 0

    # ------------------------------------------------------------ the outside
    async def start(self, run_id: str = "r", **fields: Any) -> None:
        values: dict[str, Any] = {"workflow": "flow", "version": "1", "input": INPUT, "ready_at": self.clock.now()}
        (started,) = await self.store.start([NewRun(run_id, **(values | fields))])
        assert started.created, started

    async def verb(self, verb: Command, run_id: str = "r", **fields: Any) -> CommandReply:
        self._requests += 1
        values: dict[str, Any] = {
            "request_id": f"q-{self._requests}",
            "not_after": self.clock.now() + SECOND,
            "actor": "anna",
            "reason": "because",
        }
        if verb is Command.SEND:
            values |= {"value": "topic", "body": RESULT}
        return await self.store.command(CommandRequest(run_id, verb, **(values | fields)))

    async def run(self, run_id: str = "r") -> RunRecord:
        run = await self.store.get(run_id)
        assert run is not None
        return run

    async def everything(self, run_id: str = "r") -> tuple[object, ...]:
        """All that is stored about a run but its commands, to show that something changed nothing."""
        store = self.store
        run, steps, events = await self.run(run_id), await store.steps(run_id), await store.events(run_id)
        holds, pauses, waits = await store.holds(run_id), await store.pauses(run_id), await store.waits(run_id)
        return run, steps, events, holds, pauses, waits, await store.messages(run_id), await store.published(run_id)

    async def event_types(self, run_id: str = "r") -> list[str]:
        return [event.type for event in await self.store.events(run_id)]

    async def last_event(self, run_id: str = "r") -> Event:
        return (await self.store.events(run_id))[-1]

    # ------------------------------------------------------------ a worker
    async def worker(self, worker_id: str = "w", lease: int = LEASE) -> None:
        await self.store.register_worker(NewWorker(worker_id, "host", 7, 10, ["flow@1"], lease))

    async def claim(self, worker_id: str = "w", limit: int = 10) -> list[Claimed]:
        if worker_id not in [worker.id for worker in await self.store.workers()]:
            await self.worker(worker_id)
        return await self.store.claim(worker_id, SERVES, limit)

    async def running(self, run_id: str = "r", worker_id: str = "w", **fields: Any) -> Claimed:
        """A new run that the worker has just claimed."""
        await self.start(run_id, priority=-1, **fields)
        (claimed,) = await self.claim(worker_id, 1)
        assert claimed.run_id == run_id
        return claimed

    async def record(
        self, claimed: Claimed, *steps: StepRecord, end: End | None = None, worker_id: str = "w", **fields: Any
    ) -> EffectsReply:
        effects = RunEffects(claimed.run_id, claimed.epoch, steps=list(steps), end=end)
        for name, value in fields.items():
            setattr(effects, name, value)
        (reply,) = await self.store.record(worker_id, [effects])
        return reply

    async def end(self, claimed: Claimed, end: End, worker_id: str = "w") -> Status:
        reply = await self.record(claimed, end=end, worker_id=worker_id)
        assert reply.recorded is Recorded.OK, reply
        assert reply.status is not None
        return reply.status

    async def waiting(self, *openings: OpenWait, run_id: str = "r", by_any_child: bool = True) -> Claimed:
        """A run that has opened these waits, which nothing meets, and is parked until one is met."""
        claimed = await self.running(run_id)
        reply = await self.record(claimed, waits=openings)
        assert (reply.recorded, reply.existing) == (Recorded.OK, []), reply
        await self.end(claimed, ParkBlocked(reply.wakeups, NEVER, by_any_child))
        return claimed

    async def lose(self, worker_id: str = "w") -> None:
        """The lease of the worker runs out."""
        (worker,) = [worker for worker in await self.store.workers() if worker.id == worker_id]
        self.clock.advance((worker.lease_until + 1 - self.clock.now()) / SECOND)

    async def renew(self, worker_id: str = "w", **fields: Any):
        return self.store.renew(Heartbeat(worker_id, LEASE, self.clock.now(), **fields))

    # ------------------------------------------------------------ a run in each status
    async def make(self, status: Status, run_id: str = "r", **fields: Any) -> Claimed | None:
        """A run in `status`, with one recorded step where a worker had it. Returns the claim it had."""
        if status in {Status.PENDING, Status.PAUSED}:
            await self.start(run_id, **fields)
            if status is Status.PAUSED:
                await self.verb(Command.PAUSE, run_id)
            return None
        claimed = await self.running(run_id, **fields)
        await self.record(claimed, step(1))
        if status is Status.PAUSING:
            await self.verb(Command.PAUSE, run_id)
        elif status is Status.CANCELLING:
            await self.verb(Command.CANCEL, run_id)
        elif status is Status.WAITING:
            await self.end(claimed, ParkBlocked(claimed.wakeups, self.clock.now() + HOUR))
        elif status is not Status.RUNNING:
            await self.end(claimed, Finish(status, RESULT))
        assert (await self.run(run_id)).status is status
        return claimed

    async def held(self, kind: HoldKind, run_id: str = "r") -> Claimed:
        """A paused run that the engine holds."""
        claimed = await self.running(run_id)
        await self.end(claimed, ParkHeld(kind, "the engine says so"))
        return claimed

    async def paused_at_boundary(self, run_id: str = "r", steps: int = 2) -> Claimed:
        """A run that an operator paused while its worker had it, with some recorded steps."""
        claimed = await self.running(run_id)
        await self.record(claimed, *(step(number) for number in range(1, steps + 1)))
        reply = await self.verb(Command.PAUSE, run_id)
        assert reply.answer is Answer.REQUESTED
        await self.end(claimed, ParkRequested())
        return claimed


def without_seq(steps: list[StepRecord]) -> list[StepRecord]:
    return [dataclasses.replace(step, seq=0) for step in steps]
