"""Cancels that went wrong elsewhere."""

import asyncio
import sqlite3

import pytest
from tests.support import flows
from tests.support.histories import assert_sound
from tests.support.stage import Stage
from tests.support.waiting import SECOND, until

from runtrue import Refused, ResultTimeout
from runtrue.lifecycle import Status


async def test_cancelling_hundreds_of_runs_while_they_are_claimed_ends_them_all_and_the_worker_works_on(stage: Stage):
    worker = await stage.worker(slots=20)
    runs = [await stage.start("a", "b", "c", run_id=f"run-{n}") for n in range(200)]
    outcomes = await asyncio.gather(*(run.cancel() for run in runs), return_exceptions=True)
    for run, outcome in zip(runs, outcomes, strict=True):
        end = (await run.wait(timeout=45)).status
        assert end is (Status.COMPLETED if isinstance(outcome, Refused) else Status.CANCELLED)
    after = await stage.start("x", run_id="after")
    assert await after.result(timeout=45) == ["x"]
    assert worker.exit_code is None
    await assert_sound(stage.client, *(run.id for run in runs), "after")


async def test_clean_up_of_an_interrupted_step_runs_once(stage: Stage):
    stage.say("hold", "a")
    run = await stage.client.start(flows.interruptible_chain.options(id="run"), str(stage.folder), ["a", "b"])
    await stage.worker()
    await stage.begun("a")
    outcome = await run.cancel(wait=True)
    assert (outcome.status, outcome.done) == (Status.CANCELLED, True)
    assert stage.names() == ["a", "a-cleaned-up"]
    assert (await run.info()).steps_done == 0
    await assert_sound(stage.client, "run")


async def test_a_step_that_looks_for_a_cancel_hears_it_and_no_step_follows(stage: Stage):
    run = await stage.client.start(flows.attentive.options(id="run"), str(stage.folder))
    await stage.worker()
    await stage.begun("a")
    await run.cancel()
    await stage.reached(Status.CANCELLED)
    assert stage.names() == ["a"]
    assert (await run.info()).steps_done == 1, "the step came to its end and is recorded"
    await assert_sound(stage.client, "run")


async def test_a_step_that_hears_no_cancel_is_named_as_still_running(stage: Stage):
    stage.say("hold", "a")
    run = await stage.start("a", "b")
    worker = await stage.worker()
    await stage.begun("a")
    await run.cancel()

    async def told() -> bool:
        return (await run.cancel()).in_flight != ()

    await until(told, "the worker tells what it is executing")
    again = await run.cancel()
    assert [(step.step, step.attempt) for step in again.in_flight] == [("act", 1)]
    assert again.status is Status.CANCELLING
    stage.unsay("hold", "a")
    await stage.reached(Status.CANCELLED)
    assert worker.exit_code is None


async def test_a_running_run_cannot_be_deleted(stage: Stage):
    stage.say("hold", "a")
    run = await stage.start("a")
    await stage.worker()
    await stage.begun("a")
    with stage.raw() as connection, pytest.raises(sqlite3.IntegrityError, match="cancel it first"):
        connection.execute("DELETE FROM runtrue_runs")
    stage.unsay("hold", "a")
    assert await run.result(timeout=45) == ["a"]


async def test_cancelling_one_run_leaves_another_of_the_same_workflow_alone(stage: Stage):
    stage.say("hold", "a")
    one, other = await stage.start("a", "b", run_id="one"), await stage.start("a", "b", run_id="other")
    await stage.worker()
    await stage.begun("a", times=2)
    await one.cancel()
    stage.unsay("hold", "a")
    assert (await one.wait(timeout=45)).status is Status.CANCELLED
    assert await other.result(timeout=45) == ["a", "b"]
    await assert_sound(stage.client, "one", "other")


@pytest.mark.parametrize(("verb", "end"), [("cancel", Status.CANCELLED), ("pause", Status.PAUSED)])
@pytest.mark.parametrize("delay", [1.5, 3.5])
async def test_no_attempt_follows_a_verb_given_during_back_off(stage: Stage, verb: str, end: Status, delay: float):
    """The shorter back-off waits in memory, the longer one has left it."""
    stage.say("fail", "a")
    run = await stage.client.start(flows.stubborn.options(id="run"), str(stage.folder), delay)
    await stage.worker()

    async def failed_once() -> int:
        (_, attempts) = await stage.client.service.steps("run")
        return attempts[0].next_at if attempts else 0

    next_at = await until(failed_once, "the first attempt has failed")
    if delay > 3:
        await stage.reached(Status.WAITING)
    await getattr(run, verb)()
    await stage.reached(end)
    run_as_it_is = await stage.client.service.get("run")
    assert run_as_it_is.updated_at < next_at, "it does not wait for the next attempt"
    await stage.passed(next_at + SECOND // 2)
    assert stage.names() == ["a"]
    assert await stage.client.service.get("run") == run_as_it_is
    await assert_sound(stage.client, "run", ended=end is Status.CANCELLED)


async def test_a_sleeping_run_is_cancelled_at_once_and_never_wakes(stage: Stage):
    run = await stage.client.start(flows.napping.options(id="run"), str(stage.folder), 1.5)
    await stage.worker()
    await stage.reached(Status.WAITING)
    outcome = await run.cancel()
    assert (outcome.status, outcome.done) == (Status.CANCELLED, True)
    ready_at = (await stage.client.service.get("run")).ready_at
    await stage.passed(ready_at + SECOND // 2)
    assert stage.names() == ["a"]
    await assert_sound(stage.client, "run")


async def test_a_delayed_run_is_cancelled_at_once_and_never_starts(stage: Stage):
    delayed = flows.chain.options(id="run", delay=0.5)
    run = await stage.client.start(delayed, str(stage.folder), ["a"])
    assert (await run.cancel()).done
    await stage.worker()
    await stage.passed((await stage.client.service.get("run")).ready_at + SECOND // 2)
    assert stage.names() == []
    await assert_sound(stage.client, "run")


async def test_terminate_ends_a_run_whose_worker_stands_still_and_fences_it_out(stage: Stage):
    stage.say("hold", "a")
    run = await stage.start("a", "b")
    worker = await stage.worker(lease=5)
    await stage.begun("a")
    await stage.freeze(worker)
    outcome = await run.terminate(reason="the machine hangs")
    assert (outcome.status, outcome.done) == (Status.CANCELLED, True)
    before = await stage.client.service.get("run")
    worker.thaw()
    stage.unsay("hold", "a")

    async def counted() -> bool:
        return any(w.fenced_writes for w in await stage.client.service.workers())

    await until(counted, "the late write is counted")
    assert await stage.client.service.get("run") == before
    assert stage.names() == ["a"]
    assert [row.status for row in await stage.rows_of(worker)] == ["alive"]
    await assert_sound(stage.client, "run")


async def test_terminate_ends_a_run_whose_step_blocks_the_event_loop_and_its_result_is_ignored(stage: Stage):
    stage.say("block", "a")
    run = await stage.start("a", "b")
    worker = await stage.worker(lease=1)
    await stage.begun("a")
    assert (await run.terminate()).done
    stage.unsay("block", "a")
    after = await stage.start("x", run_id="after")
    assert await after.result(timeout=45) == ["x"]
    assert stage.names("run") == ["a"]
    assert (await run.info()).steps_done == 0
    assert worker.exit_code is None
    await assert_sound(stage.client, "run", "after")


async def test_a_step_of_a_run_that_was_taken_away_is_told_to_stop(stage: Stage):
    run = await stage.client.start(flows.attentive.options(id="run"), str(stage.folder))
    worker = await stage.worker()
    await stage.begun("a")
    await run.terminate()
    # One that does not hear would keep the loop turning for ever, and the only slot would not come free.
    after = await stage.start("x", run_id="after")
    assert await after.result(timeout=45) == ["x"]
    worker.ask_to_end()
    assert await worker.ended() == 0
    await assert_sound(stage.client, "run", "after")


async def test_a_cancelled_run_gives_the_only_slot_back(stage: Stage):
    stage.say("hold", "a")
    hanging = await stage.client.start(flows.interruptible_chain.options(id="run"), str(stage.folder), ["a"])
    await stage.worker(slots=1)
    await stage.begun("a")
    await hanging.cancel()
    after = await stage.start("x", run_id="after")
    assert await after.result(timeout=45) == ["x"]
    await assert_sound(stage.client, "run", "after")


async def test_a_cancel_during_the_only_step_ends_as_it_was_answered(stage: Stage):
    stage.say("hold", "a")
    run = await stage.start("a")
    await stage.worker()
    await stage.begun("a")
    assert (await run.cancel()).status is Status.CANCELLING
    stage.unsay("hold", "a")
    assert (await run.wait(timeout=45)).status is Status.CANCELLED
    record = await stage.client.service.get("run")
    assert (record.steps_done, record.output) == (1, None)
    await assert_sound(stage.client, "run")


async def test_a_wait_that_gives_up_cancels_nothing(stage: Stage):
    stage.say("hold", "a")
    run = await stage.start("a")
    await stage.worker()
    await stage.begun("a")
    with pytest.raises(ResultTimeout, match="it goes on"):
        await run.result(timeout=0.05)
    waiting = asyncio.ensure_future(run.result())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert await stage.status() is Status.RUNNING
    stage.unsay("hold", "a")
    assert await run.result(timeout=45) == ["a"]


async def test_nothing_stays_cancelling_when_workers_are_killed_just_behind_the_cancel(stage: Stage):
    stage.say("hold", "a")
    for number in range(4):
        run = await stage.start("a", run_id=f"run-{number}")
        worker = await stage.worker(lease=0.5)
        await stage.begun("a", run_id=run.id)
        _, _ = await asyncio.gather(run.cancel(), asyncio.to_thread(worker.kill))
    await stage.worker(lease=0.5)
    for number in range(4):
        await stage.reached(Status.CANCELLED, f"run-{number}")
    await assert_sound(stage.client, *(f"run-{number}" for number in range(4)))
