"""Work that was done twice elsewhere, or by two at once."""

import asyncio

import pytest
from tests.support import flows
from tests.support.histories import assert_sound, events_of
from tests.support.stage import Stage
from tests.support.waiting import CLOCK, SECOND, until

from runtrue import Client, Conflict
from runtrue.lifecycle import Status


async def test_a_worker_that_wakes_up_while_its_run_sleeps_elsewhere_changes_nothing(stage: Stage):
    stage.say("hold", "a")
    run = await stage.client.start(flows.napping.options(id="run"), str(stage.folder), 2.5)
    frozen = await stage.worker()
    await stage.begun("a")
    await stage.freeze(frozen)
    other = await stage.worker()
    await stage.begun("a", times=2)
    stage.unsay("hold", "a")
    await stage.reached(Status.WAITING)
    asleep = await stage.client.service.get("run")
    frozen.thaw()

    async def counted() -> bool:
        return any(worker.fenced_writes for worker in await stage.client.service.workers())

    await until(counted, "the late write is counted")
    assert await stage.client.service.get("run") == asleep
    assert await run.result(timeout=45) == "b"
    assert stage.names() == ["a", "a", "b"]
    assert other.exit_code is None
    await assert_sound(stage.client, "run")


async def test_a_step_that_blocks_the_event_loop_for_longer_than_the_lease_keeps_it(stage: Stage):
    stage.say("block", "a")
    run = await stage.start("a", "b")
    worker = await stage.worker(lease=1)
    await stage.begun("a")
    await stage.worker(lease=1)
    await stage.passed(CLOCK.now() + 2 * SECOND)
    stage.unsay("block", "a")
    assert await run.result(timeout=45) == ["a", "b"]
    assert stage.names() == ["a", "b"]
    assert {effect.pid for effect in stage.effects()} == {worker.pid}
    assert [row.status for row in await stage.rows_of(worker)] == ["alive"]
    await assert_sound(stage.client, "run")


async def test_an_id_taken_by_another_workflow_is_refused_and_the_first_run_still_recovers(stage: Stage):
    stage.say("hold", "a")
    run = await stage.start("a", "b")
    worker = await stage.worker()
    await stage.begun("a")
    with pytest.raises(Conflict, match="nothing was started"):
        await stage.client.start(flows.napping.options(id="run"), str(stage.folder), 1.0)
    with pytest.raises(Conflict, match="nothing was started"):
        await stage.start("a", "other input")
    worker.kill()
    stage.unsay("hold", "a")
    await stage.worker()
    assert await run.result(timeout=45) == ["a", "b"]
    await assert_sound(stage.client, "run")


async def test_fifty_starts_at_once_under_one_key_give_one_run(stage: Stage):
    clients = [await Client(stage.database).open() for _ in range(10)]
    keyed = flows.chain.options(idempotency_key="order-7")
    await stage.worker()
    try:
        handles = await asyncio.gather(
            *(client.start(keyed, str(stage.folder), ["a"]) for client in clients for _ in range(5))
        )
        assert await asyncio.gather(*(handle.result(timeout=45) for handle in handles)) == [["a"]] * 50
    finally:
        await asyncio.gather(*(client.close() for client in clients))
    (run_id,) = {handle.id for handle in handles}
    assert stage.names() == ["a"]
    # The key stays taken, also behind the end.
    again = await stage.client.start(keyed, str(stage.folder), ["a"])
    assert again.id == run_id
    assert stage.names() == ["a"]
    await assert_sound(stage.client, run_id)


async def test_runs_shared_by_two_workers_are_executed_once_each(stage: Stage):
    runs = [await stage.start("a", "b", run_id=f"run-{n:02}") for n in range(60)]
    workers = [await stage.worker(slots=5), await stage.worker(slots=5)]
    for run in runs:
        assert await run.result(timeout=45) == ["a", "b"]
    assert stage.names().count("a") == stage.names().count("b") == len(runs)
    for run in runs:
        (claimed,) = [event for event in await events_of(stage.client, run.id) if event.type == "claimed"]
        assert claimed.data["worker"] in {worker.worker_id for worker in workers}
    await assert_sound(stage.client, *(run.id for run in runs))


async def test_two_workers_that_both_believe_to_own_a_run_agree_on_its_result(stage: Stage):
    """The value that comes back is the one that is recorded, whoever else has computed one."""
    stage.say("hold", "a")
    run = await stage.start("a", "b")
    first = await stage.worker(lease=5)
    await stage.begun("a")
    with stage.raw() as connection:
        # As a sweeper with another idea of time would do it: the worker is alive, and the run is claimable.
        connection.execute(
            "UPDATE runtrue_runs SET status = 'pending', worker_id = NULL, event_seq = event_seq + 1 WHERE id = 'run'"
        )
        connection.execute(
            "INSERT INTO runtrue_events (run_id, seq, at, type, data)"
            " SELECT id, event_seq, updated_at, 'released', '{}' FROM runtrue_runs WHERE id = 'run'"
        )
    await stage.begun("a", times=2)
    stage.unsay("hold", "a")
    assert await run.result(timeout=45) == ["a", "b"]
    steps, _ = await stage.client.service.steps("run")
    assert len(steps) == 2
    assert stage.names().count("b") == 1
    assert first.exit_code is None
    await assert_sound(stage.client, "run")
