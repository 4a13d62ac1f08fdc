"""Workers that stand still for a while: a machine that swaps, a paused container, SIGSTOP."""

from tests.support import flows
from tests.support.histories import assert_sound, events_of
from tests.support.stage import Stage
from tests.support.waiting import CLOCK, SECOND, until

from runtrue.lifecycle import Status


async def test_a_worker_frozen_past_its_lease_loses_the_run_and_its_late_write_is_refused_and_counted(stage: Stage):
    stage.say("hold", "b")
    run = await stage.start("a", "b", "c")
    frozen = await stage.worker()
    await stage.begun("b")
    await stage.freeze(frozen)
    other = await stage.worker()
    await stage.begun("b", times=2)
    stage.unsay("hold", "b")
    assert await run.result(timeout=45) == ["a", "b", "c"]
    before = await stage.client.service.get("run")
    frozen.thaw()
    # Its step comes to its end now, and it would record "b" if it could.
    await until(lambda: _fenced_writes(stage), lambda: f"the late write is counted; {frozen.log}")
    assert await stage.client.service.get("run") == before
    assert [effect.name for effect in stage.effects() if effect.pid == other.pid] == ["b", "c"]
    assert stage.names() == ["a", "b", "b", "c"]
    events = await events_of(stage.client, "run")
    assert [event.type for event in events].count("completed") == 1
    await assert_sound(stage.client, "run")


async def _fenced_writes(stage: Stage) -> int:
    return sum(worker.fenced_writes for worker in await stage.client.service.workers())


async def test_a_worker_that_was_lost_registers_under_a_new_id_and_works_on(stage: Stage):
    stage.say("hold", "a")
    await stage.start("a")
    frozen = await stage.worker()
    await stage.begun("a")
    await stage.freeze(frozen)
    other = await stage.worker()
    await stage.begun("a", times=2)
    frozen.thaw()

    async def registered_again() -> bool:
        return len(await stage.rows_of(frozen)) == 2

    await until(registered_again, "the worker registers again")
    old, new = await stage.rows_of(frozen)
    assert (old.id, old.status, new.status) == (frozen.worker_id, "lost", "alive")
    stage.unsay("hold", "a")
    await stage.reached(Status.COMPLETED)
    other.kill()
    after = await stage.start("x", run_id="after")
    assert await after.result(timeout=45) == ["x"]
    assert {effect.pid for effect in stage.effects("after")} == {frozen.pid}
    old, new = await stage.rows_of(frozen)
    assert (old.status, new.status) == ("lost", "alive")
    await assert_sound(stage.client, "run", "after")


async def test_a_worker_frozen_for_less_than_its_lease_keeps_its_runs(stage: Stage):
    stage.say("hold", "a")
    run = await stage.start("a", "b")
    frozen = await stage.worker(lease=5)
    await stage.worker(lease=1)
    await stage.begun("a")
    await stage.freeze(frozen)
    # More than the lease of the other worker, which sweeps all the while, and less than its own.
    await stage.passed(CLOCK.now() + 2 * SECOND)
    frozen.thaw()
    stage.unsay("hold", "a")
    assert await run.result(timeout=45) == ["a", "b"]
    assert stage.names() == ["a", "b"]
    assert {effect.pid for effect in stage.effects()} == {frozen.pid}
    assert [row.status for row in await stage.rows_of(frozen)] == ["alive"]
    assert (await run.info()).attempt == 1
    await assert_sound(stage.client, "run")


async def test_a_finish_that_comes_after_the_takeover_does_not_end_the_new_owners_run(stage: Stage):
    stage.say("hold", "a")
    run = await stage.start("a")
    frozen = await stage.worker()
    await stage.begun("a")
    await stage.freeze(frozen)
    await stage.worker()
    await stage.begun("a", times=2)
    frozen.thaw()
    await stage.lost(frozen.worker_id)
    assert await stage.status() is Status.RUNNING
    stage.unsay("hold", "a")
    assert await run.result(timeout=45) == ["a"]
    completed = [event for event in await events_of(stage.client, "run") if event.type == "completed"]
    assert len(completed) == 1
    assert completed[0].data["worker"] != frozen.worker_id
    await assert_sound(stage.client, "run")


async def test_a_renewal_that_comes_too_late_is_refused_even_if_nobody_took_the_runs_yet(stage: Stage):
    """Expiry goes one way: the sweeper marks the worker lost first, whoever comes first afterwards."""
    stage.say("hold", "a")
    run = await stage.start("a", "b")
    worker = await stage.worker()
    await stage.begun("a")
    with stage.raw() as connection:
        connection.execute("UPDATE runtrue_workers SET status = 'lost' WHERE id = ?", (worker.worker_id,))

    async def registered_again() -> bool:
        return len(await stage.rows_of(worker)) == 2

    await until(registered_again, "the worker registers again")
    await stage.begun("a", times=2)
    stage.unsay("hold", "a")
    assert await run.result(timeout=45) == ["a", "b"]
    assert [row.status for row in await stage.rows_of(worker)] == ["lost", "alive"]
    assert (await run.info()).attempt == 2
    # The step of the first claim ended late, in the same process.
    await until(lambda: _fenced_writes(stage), "the late write is counted")
    await assert_sound(stage.client, "run")


async def test_a_worker_that_wakes_up_past_its_lease_starts_no_step_before_it_has_renewed(stage: Stage):
    stage.say("think", "1")
    stage.say("hold", "b")
    run = await stage.client.start(flows.musing.options(id="run"), str(stage.folder))
    frozen = await stage.worker()
    await stage.reached(Status.RUNNING)
    await stage.freeze(frozen)
    other = await stage.worker(lease=15)
    await stage.begun("b")
    with stage.write_lock():
        # Neither a renewal nor a reply can tell it that it was lost. Its own clock can.
        stage.unsay("think", "1")
        frozen.thaw()
        await until(lambda: "could not be renewed" in frozen.log, "the renewal was told busy")
        assert {effect.pid for effect in stage.effects()} == {other.pid}
    stage.unsay("hold", "b")
    assert await run.result(timeout=45) == "b"
    assert [effect.pid for effect in stage.effects()] == [other.pid]
    await assert_sound(stage.client, "run")


async def test_an_end_that_comes_while_the_worker_believes_in_its_claim_is_refused_by_the_row(stage: Stage):
    """The run was taken over, and the first owner has not heard of it yet: the fence in the database must hold."""
    stage.say("think", "1", "2")
    run = await stage.client.start(flows.only_musing.options(id="run"), str(stage.folder))
    first = await stage.worker(lease=3, slots=1)
    await stage.reached(Status.RUNNING)
    second = await stage.worker(lease=3)
    with stage.raw() as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(
            "UPDATE runtrue_runs SET status = 'pending', worker_id = NULL, attempt = 2, event_seq = event_seq + 1"
        )
        connection.execute(
            "INSERT INTO runtrue_events (run_id, seq, at, type, data)"
            " SELECT id, event_seq, updated_at, 'released', '{}' FROM runtrue_runs"
        )
        connection.execute("COMMIT")
    await stage.reached(Status.RUNNING)
    stage.unsay("think", "1")
    ended = CLOCK.now()

    async def renewed_twice() -> bool:
        (row,) = await stage.rows_of(first)
        return row.heartbeat_at > ended + 2 * SECOND

    await until(renewed_twice, "the first worker has done with it")
    assert await stage.status() is Status.RUNNING
    stage.unsay("think", "2")
    assert await run.result(timeout=45) == 2
    completed = next(event for event in await events_of(stage.client, "run") if event.type == "completed")
    assert (completed.data["worker"], completed.data["epoch"]) == (second.worker_id, 2)
    assert [row.status for row in await stage.rows_of(first)] == ["alive"]
    await assert_sound(stage.client, "run")
