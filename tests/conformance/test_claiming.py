"""Which runs a worker gets, and what it gets with them."""

import asyncio

from tests.conformance.stage import HOUR, INPUT, Stage, attempt, step

from runtrue.lifecycle import Status
from runtrue.store.protocol import Claimed, ParkBlocked


async def claimed_ids(
    stage: Stage, limit: int = 10, serves: tuple[tuple[str, str], ...] = (("flow", "1"),)
) -> list[str]:
    if not await stage.store.workers():
        await stage.worker()
    return [claimed.run_id for claimed in await stage.store.claim("w", serves, limit)]


async def test_runs_are_claimed_by_priority_then_time_then_id(stage: Stage):
    now = stage.clock.now()
    for run_id, priority, ready_at in [
        ("e", 5, now - 9),
        ("d", 1, now),
        ("b", 1, now - 5),
        ("a", 1, now - 5),
        ("c", 1, now - 3),
        ("first", -(2**31), now),
        ("last", 2**31 - 1, now - HOUR),
    ]:
        await stage.start(run_id, priority=priority, ready_at=ready_at)
    assert await claimed_ids(stage, limit=3) == ["first", "a", "b"]
    assert await claimed_ids(stage, limit=3) == ["c", "d", "e"]
    assert await claimed_ids(stage, limit=3) == ["last"]
    assert await claimed_ids(stage) == []


async def test_the_order_holds_over_several_workflows_and_versions(stage: Stage):
    now = stage.clock.now()
    for run_id, workflow, version, priority in [
        ("a", "flow", "1", 2),
        ("c", "flow", "2", 1),
        ("b", "other", "1", 1),
        ("d", "unserved", "1", 0),
        ("e", "flow", "3", 0),
        ("f", "other", "1", 2),
    ]:
        await stage.start(run_id, workflow=workflow, version=version, priority=priority, ready_at=now - 1)
    serves = (("flow", "1"), ("flow", "2"), ("other", "1"))
    assert await claimed_ids(stage, 3, serves) == ["b", "c", "a"]
    assert await claimed_ids(stage, 3, serves) == ["f"]
    assert (await stage.run("d")).status is Status.PENDING


async def test_a_claim_takes_no_more_than_its_limit(stage: Stage):
    for number in range(5):
        await stage.start(f"r{number}")
    assert await claimed_ids(stage, limit=0) == []
    assert await claimed_ids(stage, limit=2) == ["r0", "r1"]
    assert await claimed_ids(stage, serves=()) == []


async def test_a_claimed_run_says_all_that_its_worker_must_know(stage: Stage):
    await stage.start(tags={"shop": "17"})
    stage.clock.advance(1)
    (claimed,) = await stage.claim()
    assert claimed == Claimed(
        run_id="r",
        workflow="flow",
        version="1",
        epoch=1,
        status=Status.RUNNING,
        wakeups=0,
        attempt=1,
        input=INPUT,
        tags={"shop": "17"},
        created_at=stage.clock.now() - 1_000_000,
        steps=[],
        attempts=[],
    )
    run = await stage.run()
    assert (run.status, run.worker_id, run.epoch, run.started_at) == (Status.RUNNING, "w", 1, stage.clock.now())
    event = await stage.last_event()
    assert (event.type, event.data) == ("claimed", {"worker": "w", "epoch": 1, "attempt": 1})


async def test_a_run_claimed_again_brings_its_history_and_keeps_its_first_start(stage: Stage):
    first = await stage.running()
    await stage.record(first, step(1), attempts=[attempt(2, 1)])
    await stage.lose()
    await stage.store.sweep()
    (again,) = await stage.claim("w-2")
    assert (again.epoch, again.attempt) == (2, 2)
    assert [one.ordinal for one in again.steps] == [1]
    assert [one.ordinal for one in again.attempts] == [2]
    assert (again.steps, again.attempts) == await stage.store.steps("r")
    assert (await stage.run()).started_at == (await stage.run()).created_at


async def test_a_sleeper_is_claimed_when_it_is_due_and_keeps_its_time(stage: Stage):
    claimed = await stage.running()
    wake_at = stage.clock.now() + HOUR
    await stage.end(claimed, ParkBlocked(0, wake_at))
    assert await claimed_ids(stage) == []
    assert await stage.store.next_ready_at((("flow", "1"),)) == wake_at
    stage.clock.advance(3_600)
    assert await stage.claim("w-2") != []
    assert (await stage.run()).ready_at == wake_at


async def test_only_a_worker_whose_row_is_alive_gets_runs(stage: Stage):
    await stage.start()
    assert await stage.store.claim("unknown", (("flow", "1"),), 1) == []
    await stage.worker("gone")
    await stage.store.retire_worker("gone")
    assert await stage.store.claim("gone", (("flow", "1"),), 1) == []
    await stage.worker("lost")
    await stage.lose("lost")
    await stage.store.sweep()
    assert await stage.store.claim("lost", (("flow", "1"),), 1) == []
    assert (await stage.run()).status is Status.PENDING


async def test_the_next_time_is_the_earliest_of_what_is_served(stage: Stage):
    now = stage.clock.now()
    await stage.start("a", priority=1, ready_at=now + 50)
    await stage.start("b", priority=2, ready_at=now + 20)
    await stage.start("c", workflow="other", ready_at=now + 10)
    assert await stage.store.next_ready_at((("flow", "1"),)) == now + 20
    assert await stage.store.next_ready_at((("flow", "1"), ("other", "1"))) == now + 10
    assert await stage.store.next_ready_at((("unserved", "1"),)) is None
    assert await stage.store.next_ready_at(()) is None


async def test_claims_at_once_share_the_runs(stage: Stage):
    for number in range(40):
        await stage.start(f"r{number:02}")
    for worker in ("w1", "w2", "w3", "w4"):
        await stage.worker(worker)
    claims = await asyncio.gather(*(stage.claim(worker, 15) for worker in ("w1", "w2", "w3", "w4")))
    run_ids = [claimed.run_id for each in claims for claimed in each]
    assert len(run_ids) == len(set(run_ids)) == 40
