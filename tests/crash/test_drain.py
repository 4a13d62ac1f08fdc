"""SIGTERM: a worker stops without losing or repeating anything that need not be."""

import pytest
from tests.support.histories import assert_sound, events_of
from tests.support.stage import Stage
from tests.support.waiting import CLOCK

from runtrue.lifecycle import Status

GRACE_SECONDS = 2
"""What interrupted steps get to return, after the deadline of the drain."""
SLACK_SECONDS = 6
"""For a busy machine: the promise is the deadline, the grace and a moment."""


async def test_a_draining_worker_ends_its_step_gives_the_run_back_and_claims_no_other(stage: Stage):
    stage.say("hold", "a")
    run = await stage.start("a", "b")
    worker = await stage.worker(slots=1)
    await stage.begun("a")
    later = await stage.start("x", run_id="later")
    worker.ask_to_end()
    stage.unsay("hold", "a")
    assert await worker.ended() == 0
    assert await stage.status() is Status.PENDING
    assert await stage.status("later") is Status.PENDING
    assert (await run.info()).steps_done == 1
    assert [row.status for row in await stage.rows_of(worker)] == ["stopped"]
    assert stage.names() == ["a"]
    await stage.worker()
    assert await run.result(timeout=45) == ["a", "b"]
    assert await later.result(timeout=45) == ["x"]
    assert stage.names("run") == ["a", "b"]
    assert (await run.info()).attempt == 1, "no worker was lost"
    await assert_sound(stage.client, "run", "later")


@pytest.mark.parametrize(("verb", "end"), [("pause", Status.PAUSED), ("cancel", Status.CANCELLED)])
async def test_what_was_asked_before_the_drain_is_carried_out_by_it(stage: Stage, verb: str, end: Status):
    stage.say("hold", "a")
    run = await stage.start("a", "b")
    worker = await stage.worker()
    await stage.begun("a")
    await getattr(run, verb)(reason="before the drain")
    worker.ask_to_end()
    stage.unsay("hold", "a")
    assert await worker.ended() == 0
    assert await stage.status() is end
    assert (await run.info()).steps_done == 1
    await assert_sound(stage.client, "run", ended=end is Status.CANCELLED)


async def test_a_step_in_flight_after_the_deadline_is_interrupted_and_its_run_given_back_at_once(stage: Stage):
    stage.say("hold", "a")
    run = await stage.start("a", "b")
    worker = await stage.worker(DRAIN="0.3")
    await stage.begun("a")
    worker.ask_to_end()
    assert await worker.ended() == 0
    assert await stage.status() is Status.PENDING
    assert [event.type for event in await events_of(stage.client, "run")] == ["created", "claimed", "released"]
    stage.unsay("hold", "a")
    await stage.worker()
    assert await run.result(timeout=45) == ["a", "b"]
    assert stage.names() == ["a", "a", "b"]
    await assert_sound(stage.client, "run")


@pytest.mark.parametrize("word", ["deaf", "thread"])
async def test_a_worker_whose_step_cannot_be_interrupted_ends_in_time_and_the_run_goes_on_elsewhere(
    stage: Stage, word: str
):
    stage.say(word, "a")
    run = await stage.start("a", "b")
    worker = await stage.worker(DRAIN="0.3")
    await stage.begun("a")
    worker.ask_to_end()
    asked = CLOCK.steady()
    await worker.ended(seconds=0.3 + GRACE_SECONDS + SLACK_SECONDS)
    assert CLOCK.steady() - asked < 0.3 + GRACE_SECONDS + SLACK_SECONDS
    stage.unsay(word, "a")
    await stage.worker()
    assert await run.result(timeout=45) == ["a", "b"]
    await assert_sound(stage.client, "run")


async def test_in_a_rolling_restart_every_run_ends_and_no_step_runs_twice(stage: Stage):
    names = [f"s{n}" for n in range(20)]
    runs = [await stage.start(*names, run_id=f"run-{n}") for n in range(12)]
    worker = await stage.worker(slots=6)
    for restart in range(3):
        await stage.begun(f"s{4 * restart}")
        successor = await stage.worker(slots=6)
        worker.ask_to_end()
        assert await worker.ended() == 0
        worker = successor
    for run in runs:
        assert await run.result(timeout=45) == names
    begun = [(effect.run_id, effect.name) for effect in stage.effects()]
    assert len(begun) == len(set(begun)) == len(runs) * len(names)
    await assert_sound(stage.client, *(run.id for run in runs))
