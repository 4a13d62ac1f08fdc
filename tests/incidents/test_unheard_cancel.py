"""A cancel of a run that a worker has must be heard, and nothing may start behind it."""

from typing import Any

from tests.support.flows import stubborn
from tests.support.histories import assert_sound, events_of, path_of
from tests.support.stage import Stage

from runtrue.lifecycle import Status

THIRTY = [f"s{n:02}" for n in range(30)]


async def test_the_first_cancel_ends_a_chain_of_thirty_steps_after_the_step_in_flight(stage: Stage):
    stage.say("hold", *THIRTY[2:])
    run = await stage.start(*THIRTY)
    await stage.worker()
    await stage.begun("s02")
    first = await run.cancel(reason="ordered twice")
    assert (first.status, first.done, first.changed) == (Status.CANCELLING, False, True)
    assert first.request is not None
    for _ in range(14):
        again = await run.cancel(reason="please!")
        assert (again.status, again.done, again.changed) == (Status.CANCELLING, False, False)
        assert again.request == first.request
    assert await stage.status() is Status.CANCELLING
    stage.unsay("hold", "s02")
    await stage.reached(Status.CANCELLED)
    late = await run.cancel()
    assert (late.done, late.changed, late.request) == (True, False, first.request)
    assert stage.names() == THIRTY[:3]
    record = await stage.client.service.get("run")
    assert record.steps_done == 3
    assert record.request == first.request
    assert (first.request.by, first.request.reason) == ("anna", "ordered twice")
    path = path_of(await events_of(stage.client, "run"))
    assert path == [Status.PENDING, Status.RUNNING, Status.CANCELLING, Status.CANCELLED]
    await assert_sound(stage.client, "run")


async def test_a_cancel_before_the_claim_is_done_at_once_and_the_run_never_starts(stage: Stage):
    run = await stage.start(*THIRTY)
    outcome = await run.cancel()
    assert (outcome.status, outcome.done) == (Status.CANCELLED, True)
    await stage.worker()
    after = await stage.start("x", run_id="after")
    await after.result(timeout=45)
    assert stage.names("run") == []
    await assert_sound(stage.client, "run", "after")


async def test_a_cancel_whose_worker_is_killed_is_ended_by_another_worker(stage: Stage):
    stage.say("hold", "s01")
    run = await stage.start(*THIRTY)
    worker = await stage.worker()
    await stage.begun("s01")
    await run.cancel(reason="ordered twice")
    worker.kill()
    await stage.worker()
    await stage.reached(Status.CANCELLED)
    assert stage.names() == THIRTY[:2]
    events: dict[str, Any] = {event.type: event.data for event in await events_of(stage.client, "run")}
    assert events["cancelled"]["by"] == "sweeper"
    assert events["cancel_requested"]["by"] == "anna"
    record = await stage.client.service.get("run")
    assert record.request is not None
    assert record.request.reason == "ordered twice"
    await assert_sound(stage.client, "run")


async def test_no_attempt_follows_a_cancel_of_a_step_that_is_tried_for_ever(stage: Stage):
    stage.say("fail", "a")
    stage.say("hold", "a")
    run = await stage.client.start(stubborn.options(id="run"), str(stage.folder), 0.05)
    await stage.worker()
    await stage.begun("a")
    await run.cancel()
    stage.unsay("hold", "a")
    await stage.reached(Status.CANCELLED)
    assert stage.names() == ["a"]
    await assert_sound(stage.client, "run")
