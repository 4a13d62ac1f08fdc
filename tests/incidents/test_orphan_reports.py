"""Runs that nobody had any more elsewhere: recovery that came late, twice, or not at all."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support import flows
from tests.support.histories import assert_sound, events_of
from tests.support.stage import Stage
from tests.support.waiting import CLOCK, SECOND, turning_until, until

from runtrue.codec import encode
from runtrue.lifecycle import Status
from runtrue.store import open_store
from runtrue.store.protocol import Finish, NewRun, NewWorker, Recorded, RunEffects

IDLE = "tests.support.idle"


async def test_five_sweepers_at_once_release_each_lost_run_once(stage: Stage):
    stage.say("hold", "a")
    runs = [await stage.start("a", run_id=f"run-{n:04}") for n in range(100)]
    worker = await stage.worker(slots=100, lease=0.5)
    await stage.begun("a", times=100)
    worker.kill()
    await stage.passed(CLOCK.now() + SECOND // 2)
    stores = [await open_store(stage.database, clock=CLOCK) for _ in range(5)]
    try:
        swept = await asyncio.gather(*(store.sweep() for store in stores))
    finally:
        await asyncio.gather(*(store.close() for store in stores))
    assert sum(one.runs_released for one in swept) == 100
    for run in runs:
        types = Counter(event.type for event in await events_of(stage.client, run.id))
        assert types == {"created": 1, "claimed": 1, "worker_lost": 1}
    stage.unsay("hold", "a")
    await stage.worker(slots=100)
    for run in runs:
        assert await run.result(timeout=45) == ["a"]
    await assert_sound(stage.client, *(run.id for run in runs))


async def test_a_worker_that_does_not_know_the_workflow_only_releases_its_lost_runs(stage: Stage):
    stage.say("hold", "a")
    run = await stage.start("a", "b")
    worker = await stage.worker(lease=0.5)
    await stage.begun("a")
    worker.kill()
    await stage.worker(lease=0.5, module=IDLE)
    await stage.reached(Status.PENDING)
    assert (await run.info()).error is None
    stage.unsay("hold", "a")
    await stage.worker()
    assert await run.result(timeout=45) == ["a", "b"]
    await assert_sound(stage.client, "run")


async def test_attempts_are_counted_on_behind_a_crash(stage: Stage):
    stage.say("fail", "a")
    run = await stage.client.start(flows.stubborn.options(id="run"), str(stage.folder), 0.05)
    worker = await stage.worker(lease=0.5)
    await stage.begun("a", times=3)
    stage.say("die", "a")
    assert await worker.ended() == -9
    stage.unsay("die", "a")
    stage.unsay("fail", "a")
    await stage.worker(lease=0.5)
    assert await run.result(timeout=45) == "a"
    attempts = [effect.attempt for effect in stage.effects()]
    crashed = attempts[-2]
    # The attempt that took the process down left no record: it counts again, and nothing before it does.
    assert attempts == [*range(1, crashed + 1), crashed]
    assert len({effect.key for effect in stage.effects()}) == 1
    (step,), failed = await stage.client.service.steps("run")
    assert (step.attempt, [record.attempt for record in failed]) == (crashed, list(range(1, crashed)))
    await assert_sound(stage.client, "run")


async def test_a_start_repeated_under_the_key_of_a_lost_run_finds_it_and_it_is_recovered(stage: Stage):
    stage.say("hold", "a")
    keyed = flows.chain.options(idempotency_key="order-7")
    run = await stage.client.start(keyed, str(stage.folder), ["a"])
    worker = await stage.worker()
    await stage.begun("a")
    worker.kill()
    again = await stage.client.start(keyed, str(stage.folder), ["a"])
    assert again.id == run.id
    stage.unsay("hold", "a")
    await stage.worker()
    assert await again.result(timeout=45) == ["a"]
    assert [effect.run_id for effect in stage.effects()] == [run.id] * 2
    await assert_sound(stage.client, run.id)


async def test_the_doctor_names_runs_without_an_owner_until_a_sweeper_is_back(stage: Stage):
    stage.say("hold", "a")
    run = await stage.start("a")
    worker = await stage.worker()
    await stage.begun("a")
    worker.kill()
    assert await stage.client.service.store.check() == []
    with stage.raw() as connection:
        # An hour without any sweeper.
        connection.execute("UPDATE runtrue_workers SET lease_until = lease_until - 3600000000")
    (finding,) = await stage.client.service.store.check()
    assert (finding.run_id, finding.promise) == ("run", "no zombies")
    assert worker.worker_id in finding.problem
    await stage.worker(module=IDLE)
    await stage.reached(Status.PENDING)
    assert await stage.client.service.store.check() == []
    stage.unsay("hold", "a")
    await stage.worker()
    assert await run.result(timeout=45) == ["a"]


async def test_a_killed_sweeper_leaves_nothing_half_done(stage: Stage):
    runs = 1_200  # more than one round takes
    body = encode({"folder": str(stage.folder), "names": []}, what="input")
    store = stage.client.service.store
    await store.start([NewRun(f"run-{n:04}", "chain", "1", body, CLOCK.now()) for n in range(runs)])
    await store.register_worker(NewWorker("w-gone", "elsewhere", 1, runs, ["chain@1"], SECOND // 100))
    assert len(await store.claim("w-gone", [("chain", "1")], runs)) == runs
    sweeper = await stage.worker(module=IDLE, lease=0.5)

    async def begun() -> bool:
        return (await store.count_runs()).get(Status.RUNNING, 0) < runs

    await until(begun, "the sweeper has begun")
    sweeper.kill()
    await stage.worker(slots=100)

    async def all_done() -> bool:
        return (await store.count_runs()).get(Status.COMPLETED) == runs

    await until(all_done, "every run is completed")
    await assert_sound(stage.client, *(f"run-{n:04}" for n in range(runs)))


async def test_a_finish_and_a_sweep_at_the_end_of_the_lease_make_one_of_two_histories(
    stage: Stage, chance: random.Random
):
    await _finish_against_sweep(stage, chance, 40)


@pytest.mark.prove
async def test_a_finish_and_a_sweep_at_the_end_of_the_lease_make_one_of_two_histories_every_time(
    stage: Stage, chance: random.Random
):
    ends = await _finish_against_sweep(stage, chance, 500)
    assert min(ends[Recorded.OK], ends[Recorded.FENCED]) > 25, f"both come first now and then: {ends}"


async def _finish_against_sweep(stage: Stage, chance: random.Random, times: int) -> Counter[Recorded]:
    """Both come within a millisecond of the lease's end, each by a connection of its own."""
    store = stage.client.service.store
    sweeping = await open_store(stage.database, clock=CLOCK)
    body = encode({"folder": "", "names": []}, what="input")
    ends: Counter[Recorded] = Counter()
    lease = 15_000
    try:
        for number in range(times):
            run_id, worker_id = f"run-{number}", f"w-{number}"
            await store.start([NewRun(run_id, "chain", "1", body, CLOCK.now())])
            await store.register_worker(NewWorker(worker_id, "here", 1, 1, ["chain@1"], lease))
            runs_out = CLOCK.now() + lease
            (claimed,) = await store.claim(worker_id, [("chain", "1")], 1)
            finish = RunEffects(run_id, claimed.epoch, end=Finish(Status.COMPLETED, encode([], what="output")))
            reply, _ = await asyncio.gather(
                _at(runs_out + chance.randint(-1_000, 1_000), lambda f=finish, w=worker_id: store.record(w, [f])),
                _at(runs_out + chance.randint(-1_000, 1_000), sweeping.sweep),
            )
            recorded = reply[0].recorded
            await sweeping.sweep()
            status = await stage.status(run_id)
            assert status is (Status.COMPLETED if recorded is Recorded.OK else Status.PENDING)
            ends[recorded] += 1
            if status is Status.PENDING:
                await (await stage.client.get(run_id)).cancel()
    finally:
        await sweeping.close()
    await assert_sound(stage.client, *(f"run-{number}" for number in range(times)))
    return ends


async def _at(moment: int, what: Callable[[], Awaitable[Any]]) -> Any:
    """Do it at this moment of the wall clock."""
    await turning_until(lambda: CLOCK.now() >= moment)
    return await what()
