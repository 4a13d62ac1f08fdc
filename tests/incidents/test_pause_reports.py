"""Pauses and resumes that went wrong elsewhere."""

import pytest
from tests.support import flows
from tests.support.histories import assert_sound, events_of
from tests.support.stage import Stage
from tests.support.waiting import SECOND

from runtrue import Refused
from runtrue.lifecycle import Status


async def test_a_pause_in_the_first_of_three_steps_keeps_its_result_and_starts_no_other(stage: Stage):
    stage.say("hold", "a")
    run = await stage.start("a", "b", "c")
    await stage.worker()
    await stage.begun("a")
    await run.pause()
    assert await stage.status() is Status.PAUSING
    stage.unsay("hold", "a")
    await stage.reached(Status.PAUSED)
    # The worker proves that it goes on with others while this run rests.
    after = await stage.start("x", run_id="after")
    assert await after.result(timeout=45) == ["x"]
    assert stage.names("run") == ["a"]
    assert (await run.info()).steps_done == 1
    assert [event.type for event in await events_of(stage.client, "run")].count("paused") == 1
    await assert_sound(stage.client, "run", ended=False)


async def test_a_paused_run_outlives_all_workers_and_goes_on_where_it_was(stage: Stage):
    stage.say("hold", "a")
    run = await stage.start("a", "b")
    worker = await stage.worker()
    await stage.begun("a")
    await run.pause()
    stage.unsay("hold", "a")
    await stage.reached(Status.PAUSED)
    worker.ask_to_end()
    assert await worker.ended() == 0
    await run.resume()
    await stage.worker()
    assert await run.result(timeout=45) == ["a", "b"]
    assert stage.names() == ["a", "b"]
    await assert_sound(stage.client, "run")


async def test_a_sleeping_run_that_is_paused_does_not_wake_before_the_resume(stage: Stage):
    run = await stage.client.start(flows.napping.options(id="run"), str(stage.folder), 1.2)
    await stage.worker()
    await stage.reached(Status.WAITING)
    outcome = await run.pause()
    assert (outcome.status, outcome.done) == (Status.PAUSED, True)
    wakes_at = (await stage.client.service.get("run")).ready_at
    await stage.passed(wakes_at + SECOND // 2)
    assert await stage.status() is Status.PAUSED
    assert stage.names() == ["a"]
    await run.resume()
    assert await run.result(timeout=45) == "b"
    assert stage.names() == ["a", "b"]
    await assert_sound(stage.client, "run")


async def test_a_delayed_run_that_is_paused_and_resumed_still_starts_at_its_own_time(stage: Stage):
    run = await stage.client.start(flows.chain.options(id="run", delay=1), str(stage.folder), ["a"])
    starts_at = (await stage.client.service.get("run")).ready_at
    await run.pause()
    await run.resume()
    await stage.worker()
    assert await run.result(timeout=45) == ["a"]
    started_at = (await stage.client.service.get("run")).started_at
    assert started_at is not None
    assert started_at >= starts_at
    await assert_sound(stage.client, "run")


async def test_a_paused_run_is_cancelled_at_once_with_no_worker_alive(stage: Stage):
    run = await stage.start("a")
    assert (await run.pause()).done
    outcome = await run.cancel(reason="never mind")
    assert (outcome.status, outcome.done) == (Status.CANCELLED, True)
    assert await stage.client.service.holds("run") == []
    (pause,) = await stage.client.service.pauses("run")
    assert pause.ended_at is not None
    await assert_sound(stage.client, "run")


async def test_a_pause_behind_a_cancel_is_refused_and_names_what_is_possible(stage: Stage):
    stage.say("hold", "a")
    run = await stage.start("a", "b")
    await stage.worker()
    await stage.begun("a")
    await run.cancel()
    for verb in (run.pause, run.resume):
        with pytest.raises(Refused, match="being cancelled") as refused:
            await verb()
        assert refused.value.status is Status.CANCELLING
        assert refused.value.available_actions == ("terminate",)
    stage.unsay("hold", "a")
    await stage.reached(Status.CANCELLED)
    with pytest.raises(Refused, match="too late"):
        await run.resume()
    await assert_sound(stage.client, "run")


async def test_a_resume_of_a_running_run_is_refused_and_starts_nothing_twice(stage: Stage):
    stage.say("hold", "a")
    run = await stage.start("a", "b")
    await stage.worker()
    await stage.worker()
    await stage.begun("a")
    for _ in range(5):
        with pytest.raises(Refused, match="not paused"):
            await run.resume()
    stage.unsay("hold", "a")
    assert await run.result(timeout=45) == ["a", "b"]
    assert stage.names() == ["a", "b"]
    await assert_sound(stage.client, "run")


async def test_a_resume_that_means_an_earlier_pause_does_not_end_a_later_one(stage: Stage):
    run = await stage.start("a")
    first = await run.pause()
    await run.resume(pause_id=first.pause_id)
    await run.pause()
    with pytest.raises(Refused, match="not the active pause"):
        await run.resume(pause_id=first.pause_id)
    assert await stage.status() is Status.PAUSED
    await assert_sound(stage.client, "run", ended=False)
