"""Workers that are killed: what they had goes on by itself, within the lease and a sweep."""

import pytest
from tests.support.histories import assert_sound, events_of
from tests.support.stage import Stage
from tests.support.waiting import CLOCK, SECOND

from runtrue.lifecycle import HoldKind, Status

LEASE = 1
SWEEP = 1
"""At most: a third of the lease, spread by half either way, and what the machine takes."""


async def test_a_run_goes_on_within_the_lease_and_a_sweep_after_its_worker_was_killed(stage: Stage):
    stage.say("hold", "b")
    run = await stage.start("a", "b", "c")
    first = await stage.worker(lease=LEASE)
    await stage.begun("b")
    await stage.worker(lease=LEASE)
    first.kill()
    killed_at = CLOCK.now()
    stage.unsay("hold", "b")
    assert await run.result(timeout=45) == ["a", "b", "c"]
    claimed = [event for event in await events_of(stage.client, "run") if event.type == "claimed"]
    assert len(claimed) == 2
    # Five leases more than promised: the machine may be busy. What was measured is a second and a bit.
    assert claimed[1].at - killed_at < (LEASE + SWEEP + 5 * LEASE) * SECOND
    assert stage.names() == ["a", "b", "b", "c"]
    assert (await run.info()).attempt == 2
    await assert_sound(stage.client, "run")


async def test_a_run_whose_whole_machine_went_down_goes_on_when_a_worker_is_started_again(stage: Stage):
    stage.say("hold", "b")
    run = await stage.start("a", "b", "c")
    for worker in [await stage.worker(), await stage.worker()]:
        await stage.begun("b")
        worker.kill()
    stage.unsay("hold", "b")
    assert await stage.status() is Status.RUNNING
    await stage.worker()
    assert await run.result(timeout=45) == ["a", "b", "c"]
    assert stage.names() == ["a", "b", "b", "c"]
    await assert_sound(stage.client, "run")


async def test_a_worker_started_at_once_after_a_kill_is_not_taken_for_the_one_before(stage: Stage):
    stage.say("hold", "a")
    run = await stage.start("a")
    first = await stage.worker()
    await stage.begun("a")
    first.kill()
    second = await stage.worker()
    stage.unsay("hold", "a")
    assert await run.result(timeout=45) == ["a"]
    assert first.worker_id != second.worker_id
    assert [e.pid for e in stage.effects()] == [first.pid, second.pid]
    await assert_sound(stage.client, "run")


async def test_runs_of_a_worker_whose_row_was_deleted_are_found_all_the_same(stage: Stage):
    stage.say("hold", "a")
    run = await stage.start("a", "b")
    first = await stage.worker()
    await stage.begun("a")
    first.kill()
    with stage.raw() as connection:
        connection.execute("DELETE FROM runtrue_workers WHERE id = ?", (first.worker_id,))
    await stage.worker()
    stage.unsay("hold", "a")
    assert await run.result(timeout=45) == ["a", "b"]
    lost = next(event for event in await events_of(stage.client, "run") if event.type == "worker_lost")
    assert lost.data["cause"] == "its row is gone"
    await assert_sound(stage.client, "run")


async def test_a_pause_whose_worker_is_killed_is_met_by_the_sweeper(stage: Stage):
    stage.say("hold", "a")
    run = await stage.start("a", "b")
    first = await stage.worker()
    await stage.begun("a")
    await run.pause(reason="wait for me")
    first.kill()
    await stage.worker()
    await stage.reached(Status.PAUSED)
    stage.unsay("hold", "a")
    assert stage.names() == ["a"]
    await run.resume()
    assert await run.result(timeout=45) == ["a", "b"]
    assert stage.names() == ["a", "a", "b"]
    await assert_sound(stage.client, "run")


@pytest.mark.parametrize("answer", ["retry", "fail"])
async def test_a_run_that_takes_five_workers_down_is_held_until_a_person_answers(stage: Stage, answer: str):
    stage.say("die", "b")
    run = await stage.start("a", "b", "c")
    # The back-off between losses is skipped by hand: it doubles from a second, and nothing depends on it here.
    for loss in range(1, 6):
        with stage.raw() as connection:
            connection.execute("UPDATE runtrue_runs SET ready_at = created_at WHERE id = 'run' AND status = 'pending'")
        worker = await stage.worker(lease=0.5)
        await stage.begun("b", times=loss)
        assert await worker.ended() == -9
        sweeping = await stage.worker(lease=0.5, module="tests.support.idle")
        await stage.reached(Status.PAUSED if loss == 5 else Status.PENDING)
        sweeping.kill()
    (hold,) = await run.holds()
    assert hold.kind is HoldKind.KEEPS_LOSING_ITS_WORKER
    assert stage.names("run") == ["a", *["b"] * 5]
    stage.unsay("die", "b")
    outcome = await run.answer(hold.id, answer)
    assert outcome.status is (Status.PENDING if answer == "retry" else Status.FAILED)
    if answer == "retry":
        await stage.worker()
        assert await run.result(timeout=45) == ["a", "b", "c"]
    await assert_sound(stage.client, "run")


async def test_recorded_progress_forgives_the_losses_before_it(stage: Stage):
    names = [f"s{n}" for n in range(6)]
    stage.say("die", *names)
    run = await stage.start(*names, "end")
    for name in names:
        worker = await stage.worker(lease=0.5)
        await stage.begun(name)
        assert await worker.ended() == -9
        stage.unsay("die", name)
    await stage.worker(lease=0.5)
    assert await run.result(timeout=45) == [*names, "end"]
    assert stage.names() == [*(name for name in names for _ in range(2)), "end"]
    await assert_sound(stage.client, "run")
