"""Clocks that somebody sets, and workers that disagree about the time."""

from collections.abc import AsyncIterator

import pytest
from tests.support import flows
from tests.support.histories import assert_sound, events_of
from tests.support.stage import Stage
from tests.support.waiting import SECOND, until

from runtrue import App
from runtrue.clock import SystemClock

TEN_MINUTES = 600 * SECOND


class SetClock(SystemClock):
    """The machine's clocks, with a wall clock that was set by `offset` microseconds. The steady one is never set."""

    def __init__(self) -> None:
        self.offset = 0

    def now(self) -> int:
        return super().now() + self.offset


@pytest.fixture
async def clock() -> SetClock:
    return SetClock()


@pytest.fixture
async def app(stage: Stage, clock: SetClock) -> AsyncIterator[App]:
    made = App(stage.database, workflows=[flows.chain], lease=1)
    made.clock = clock
    async with made as opened:
        yield opened


async def test_a_wall_clock_that_is_set_back_costs_no_worker_its_lease(stage: Stage, app: App, clock: SetClock):
    stage.say("hold", "a")
    run = await stage.start("a", "b")
    await stage.begun("a")
    worker_id = app.worker_id
    clock.offset = -TEN_MINUTES

    async def renewed() -> bool:
        (worker,) = await stage.client.service.workers()
        return worker.heartbeat_at < SystemClock().now() - TEN_MINUTES // 2

    await until(renewed, "the lease is renewed by the new time")
    stage.unsay("hold", "a")
    assert await run.result(timeout=45) == ["a", "b"]
    assert stage.names() == ["a", "b"]
    assert app.worker_id == worker_id
    assert (await run.info()).attempt == 1


async def test_a_wall_clock_that_is_set_forward_may_cost_a_lease_and_never_a_record(
    stage: Stage, app: App, clock: SetClock
):
    """All leases seem to have run out at once: who renews first keeps its own, who is swept first starts again."""
    stage.say("hold", "a")
    run = await stage.start("a", "b")
    await stage.begun("a")
    clock.offset = TEN_MINUTES

    async def renewed() -> bool:
        workers = await stage.client.service.workers()
        return workers[-1].heartbeat_at > SystemClock().now() + TEN_MINUTES // 2

    await until(renewed, "a lease is held by the new time")
    stage.unsay("hold", "a")
    assert await run.result(timeout=45) == ["a", "b"]
    assert stage.names().count("a") <= 2
    assert stage.names().count("b") == 1
    steps, _ = await stage.client.service.steps("run")
    assert len(steps) == 2


async def test_a_worker_whose_clock_is_fast_may_take_a_run_early_and_the_fence_keeps_one_record(
    stage: Stage, clock: SetClock
):
    """On one machine all processes read the same clock; a copied file or a wrong container may differ all the same."""
    stage.say("hold", "a")
    run = await stage.start("a", "b")
    slow = await stage.worker(lease=5)
    await stage.begun("a")
    clock.offset = TEN_MINUTES
    fast = App(stage.database, workflows=[flows.chain], lease=1)
    fast.clock = clock
    async with fast:
        await stage.begun("a", times=2)
        stage.unsay("hold", "a")
        assert await run.result(timeout=45) == ["a", "b"]
    assert stage.names() == ["a", "a", "b"]
    types = [event.type for event in await events_of(stage.client, "run")]
    assert types.count("completed") == 1
    steps, _ = await stage.client.service.steps("run")
    assert len(steps) == 2
    assert slow.exit_code is None
    await assert_sound(stage.client, "run")
