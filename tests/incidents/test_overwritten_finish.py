"""A pause that arrives while a run finishes must never bring a finished run back."""

import pytest
from tests.support.histories import assert_sound
from tests.support.stage import Stage
from tests.support.waiting import CLOCK

from runtrue import Refused, StoreBusy
from runtrue.lifecycle import Status

NINE = [f"s{n}" for n in range(9)]


async def test_a_pause_during_a_run_is_answered_at_once_and_holds_at_the_next_boundary(stage: Stage):
    stage.say("hold", "s4")
    run = await stage.start(*NINE)
    await stage.worker()
    await stage.begun("s4")
    asked = CLOCK.steady()
    outcome = await run.pause(reason="look at it first")
    assert CLOCK.steady() - asked < 2
    assert (outcome.status, outcome.done) == (Status.PAUSING, False)
    assert await stage.status() is Status.PAUSING
    stage.unsay("hold", "s4")
    await stage.reached(Status.PAUSED)
    assert (await run.info()).steps_done == 5
    assert stage.names() == NINE[:5]
    await run.resume()
    assert await run.result(timeout=45) == NINE
    assert stage.names() == NINE
    await assert_sound(stage.client, "run")


async def test_a_finished_run_refuses_every_verb_and_stays_as_it_is(stage: Stage):
    run = await stage.start(*NINE)
    await stage.worker()
    assert await run.result(timeout=45) == NINE
    before = await stage.client.service.get("run")
    for verb in (run.pause, run.resume, run.cancel, run.terminate):
        with pytest.raises(Refused, match="too late") as refused:
            await verb()
        assert refused.value.status is Status.COMPLETED
        assert refused.value.available_actions == ()
    assert await stage.client.service.get("run") == before
    await assert_sound(stage.client, "run")


async def test_a_pause_asked_in_the_last_step_holds_at_the_boundary_behind_it(stage: Stage):
    stage.say("hold", "s8")
    run = await stage.start(*NINE)
    await stage.worker()
    await stage.begun("s8")
    await run.pause()
    stage.unsay("hold", "s8")
    await stage.reached(Status.PAUSED)
    await run.resume()
    assert await run.result(timeout=45) == NINE
    assert stage.names() == NINE
    await assert_sound(stage.client, "run")


async def test_a_verb_behind_a_foreign_write_lock_is_told_busy_within_two_seconds_and_does_nothing_later(stage: Stage):
    run = await stage.start(*NINE)
    before = await stage.client.service.get("run")
    with stage.write_lock():
        for verb in (run.pause, run.cancel):
            asked = CLOCK.steady()
            with pytest.raises(StoreBusy, match="nothing was changed"):
                await verb()
            assert CLOCK.steady() - asked < 2
    # A verb that goes through now would come behind one that had been left in a queue.
    with pytest.raises(Refused):
        await run.resume()
    assert await stage.client.service.get("run") == before
    assert [command.verb for command in await stage.client.service.commands("run")] == ["resume"]
    await stage.worker()
    assert await run.result(timeout=45) == NINE
    await assert_sound(stage.client, "run")
