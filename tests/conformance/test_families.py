"""Parents, children and messages over several stores on one file: nobody sleeps through what it waits for."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

import pytest
from tests.conformance.conftest import Database
from tests.conformance.stage import RESULT, SECOND, SERVES, Stage, child_start, child_wait, receive
from tests.support.manual_clock import ManualClock

from runtrue.lifecycle import TERMINAL, Command, Status
from runtrue.store.protocol import NEVER, Claimed, Finish, ParkBlocked, Recorded, Release


@pytest.fixture
async def stages(shared_database: Database, clock: ManualClock) -> AsyncIterator[list[Stage]]:
    async with contextlib.AsyncExitStack() as stack:
        stores = [await shared_database.open(clock) for _ in range(3)]
        for store in stores:
            stack.push_async_callback(store.close)
        yield [Stage(store, clock) for store in stores]
        assert await stores[0].check() == []


async def goes_on(stage: Stage, claimed: Claimed, refused: bool) -> bool:
    """True if the run that was about to park has what it waits for, be it by a look or by a claim."""
    if refused:
        looked = await stage.record(claimed, looks=True)
        return bool(looked.existing)
    return [bool(again.steps) for again in await stage.claim()] == [True]


@pytest.mark.parametrize("turn", range(10))
async def test_a_parent_that_parks_while_its_child_ends_goes_on(stages: list[Stage], turn: int):
    worker, other, *_ = stages
    child = await worker.running("child")
    parent = await worker.running()
    reply = await worker.record(parent, waits=[child_wait()])
    parked, ended = await asyncio.gather(
        worker.record(parent, end=ParkBlocked(reply.wakeups, NEVER, by_any_child=bool(turn % 2))),
        other.record(child, end=Finish(Status.COMPLETED, RESULT)),
    )
    assert ended.recorded is Recorded.OK
    assert await goes_on(worker, parent, parked.recorded is Recorded.REFUSED)
    assert (await worker.run()).children_left == 0


@pytest.mark.parametrize("turn", range(10))
async def test_a_run_that_parks_while_a_message_comes_goes_on(stages: list[Stage], turn: int):
    worker, sender, *_ = stages
    claimed = await worker.running()
    reply = await worker.record(claimed, waits=[receive()])
    parked, sent = await asyncio.gather(
        worker.record(claimed, end=ParkBlocked(reply.wakeups, NEVER)), sender.verb(Command.SEND)
    )
    assert sent.changed
    assert await goes_on(worker, claimed, parked.recorded is Recorded.REFUSED)


@pytest.mark.parametrize("turn", range(6))
async def test_a_wait_that_is_opened_while_its_child_ends_is_met(stages: list[Stage], turn: int):
    worker, other, *_ = stages
    child = await worker.running("child")
    parent = await worker.running()
    opened, _ = await asyncio.gather(
        worker.record(parent, waits=[child_wait()]), other.record(child, end=Finish(Status.FAILED, RESULT))
    )
    looked = await worker.record(parent, looks=True)
    assert len([*opened.existing, *looked.existing]) == 1
    assert (await worker.run()).children_left == 0


async def test_many_who_send_leave_each_message_once(stages: list[Stage]):
    claimed = await stages[0].running()
    await stages[0].record(claimed, waits=[receive(number) for number in range(30)])
    sent = [stages[number % 3].verb(Command.SEND, request_id=f"s-{number}") for number in range(30)]
    looks = [stages[0].record(claimed, looks=True) for _ in range(5)]
    replies = await asyncio.gather(*sent, *looks)
    last = await stages[0].record(claimed, looks=True)
    met = [record.ordinal for reply in [*replies[30:], last] for record in reply.existing]  # type: ignore[union-attr]
    assert sorted(met) == list(range(30))


# ---------------------------------------------------------------- by chance
class Family:
    """Workers that open waits, start children, look, park and finish by chance; and people who send and cancel."""

    def __init__(self, stages: list[Stage], chance: random.Random) -> None:
        self.stages = stages
        self.chance = chance
        self.owned: dict[str, tuple[str, Claimed]] = {}
        self.seen: dict[str, int] = {}
        """The wake counter that the facts of a run were last read at."""
        self.workers = 0
        self.runs = ["r"]
        self.place = 0

    async def turn(self) -> None:
        stage = self.chance.choice(self.stages)
        act = self.chance.choice(
            [self.claim, self.open, self.open, self.look, self.park, self.end, self.send, self.odd]
        )
        await act(stage)

    async def claim(self, stage: Stage) -> None:
        self.workers += 1
        worker_id = f"w{self.workers}"
        await stage.worker(worker_id)
        for claimed in await stage.store.claim(worker_id, SERVES, 2):
            self.owned[claimed.run_id] = (worker_id, claimed)
            self.seen[claimed.run_id] = claimed.wakeups

    async def record(self, stage: Stage, run_id: str, **effects: object) -> None:
        worker_id, claimed = self.owned[run_id]
        reply = await stage.record(claimed, worker_id=worker_id, **effects)
        if reply.recorded is Recorded.FENCED or ("end" in effects and reply.recorded is Recorded.OK):
            del self.owned[run_id]
        elif effects.get("looks"):
            self.seen[run_id] = reply.wakeups

    async def open(self, stage: Stage) -> None:
        if not self.owned:
            return
        run_id = self.chance.choice(sorted(self.owned))
        self.place += 1
        kind = self.chance.randrange(5)
        if kind == 0 and len(self.runs) < 25:
            child = f"c{self.place}"
            self.runs.append(child)
            deadline_at = stage.clock.now() + self.chance.choice([5, 60, 6_000]) * SECOND
            cancels = self.chance.random() < 0.7
            start = child_start(child, self.place, parent=run_id, cancels=cancels, deadline_at=deadline_at)
            await self.record(stage, run_id, children=[start])
        elif kind == 1:
            await self.record(stage, run_id, waits=[child_wait(self.chance.choice([*self.runs, "nobody"]), self.place)])
        elif kind == 2:
            await self.record(stage, run_id, waits=[receive(self.place, self.chance.choice("ab"), gives_up=RESULT)])
        elif kind == 3:
            opened = [wait for wait in await stage.store.waits(run_id) if wait.closed_at is None]
            closing = [(wait.branch, wait.ordinal) for wait in opened if self.chance.random() < 0.3]
            await self.record(stage, run_id, closed_waits=closing)
        else:
            await self.record(stage, run_id, waits=[receive(self.place, self.chance.choice("ab"))])

    async def look(self, stage: Stage) -> None:
        for run_id in sorted(self.owned):
            await self.record(stage, run_id, looks=True)

    async def park(self, stage: Stage) -> None:
        for run_id in sorted(self.owned):
            if any(wait.closed_at is None for wait in await stage.store.waits(run_id)):
                any_child = self.chance.random() < 0.5
                await self.record(stage, run_id, end=ParkBlocked(self.seen[run_id], NEVER, any_child))

    async def end(self, stage: Stage) -> None:
        if self.owned:
            run_id = self.chance.choice(sorted(self.owned))
            status = self.chance.choice(sorted(TERMINAL))
            end = Release() if run_id == "r" or self.chance.random() < 0.3 else Finish(status, RESULT)
            await self.record(stage, run_id, end=end)

    async def send(self, stage: Stage) -> None:
        self.place += 1
        await stage.verb(
            Command.SEND, self.chance.choice(self.runs), value=self.chance.choice("ab"), request_id=f"q{self.place}"
        )

    async def odd(self, stage: Stage) -> None:
        verb = self.chance.choice([Command.PAUSE, Command.RESUME, Command.RESUME, Command.CANCEL, None])
        if verb is None:
            stage.clock.advance(self.chance.choice([1, 16]))
            await stage.store.sweep()
        else:
            self.place += 1
            await stage.verb(verb, self.chance.choice(self.runs[1:] or ["r"]), request_id=f"q{self.place}")


@pytest.mark.parametrize("seed_of_case", range(8))
async def test_whatever_a_family_does_no_promise_breaks(stages: list[Stage], chance: random.Random, seed_of_case: int):
    family = Family(stages, chance)
    await stages[0].start()
    for turn in range(150):
        await family.turn()
        if turn % 25 == 0:
            # Those whose lease is over are nobody's fault before a sweep.
            await stages[0].store.sweep()
            assert await stages[0].store.check() == []
    await stages[0].store.sweep()
