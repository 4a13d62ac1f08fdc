"""What has gone wrong in engines like this one, each case against ours."""

import asyncio
import sqlite3

import pytest
from tests.support import flows
from tests.support.histories import assert_sound, events_of
from tests.support.stage import Stage
from tests.support.waiting import CLOCK, SECOND, until

from runtrue import Client, Refused
from runtrue.codec import encode
from runtrue.lifecycle import Status
from runtrue.store.protocol import NewRun

RESUMERS = 20


async def test_of_twenty_resumes_at_once_one_wins_and_the_steps_run_once(stage: Stage):
    stage.say("hold", "b")
    run = await stage.start("a", "b", "c")
    await stage.worker()
    await stage.begun("b")
    await run.pause()
    stage.unsay("hold", "b")
    await stage.reached(Status.PAUSED)
    clients = [await Client(stage.database).open() for _ in range(RESUMERS)]
    try:
        replies = await asyncio.gather(*(c.service.resume("run") for c in clients), return_exceptions=True)
    finally:
        await asyncio.gather(*(client.close() for client in clients))
    refused = [reply for reply in replies if isinstance(reply, Refused)]
    assert len(refused) == RESUMERS - 1
    assert await run.result(timeout=45) == ["a", "b", "c"]
    assert stage.names() == ["a", "b", "c"]
    assert [event.type for event in await events_of(stage.client, "run")].count("resumed") == 1
    await assert_sound(stage.client, "run")


async def test_a_pause_meant_for_one_attempt_does_not_stop_a_later_one(stage: Stage):
    stage.say("fail", "a")
    stage.say("hold", "a")
    run = await stage.client.start(flows.stubborn.options(id="run"), str(stage.folder), 0.05)
    await stage.worker()
    await stage.begun("a")
    await run.pause(request_id="first")
    stage.unsay("hold", "a")
    await stage.reached(Status.PAUSED)
    assert stage.names() == ["a"]
    await run.resume(request_id="second")
    await stage.begun("a", times=3)
    # The first pause comes once more, as after a connection that broke before its answer came.
    repeated = await run.pause(request_id="first")
    assert repeated.repeated
    stage.unsay("fail", "a")
    assert await run.result(timeout=45) == "a"
    await assert_sound(stage.client, "run")


async def test_a_cancel_given_while_paused_is_done_and_no_resume_brings_the_run_back(stage: Stage):
    stage.say("hold", "a")
    run = await stage.start("a", "b")
    await stage.worker()
    await stage.begun("a")
    await run.pause()
    stage.unsay("hold", "a")
    await stage.reached(Status.PAUSED)
    outcome = await run.cancel()
    assert (outcome.status, outcome.done) == (Status.CANCELLED, True)
    with pytest.raises(Refused, match="too late"):
        await run.resume()
    assert stage.names() == ["a"]
    await assert_sound(stage.client, "run")


async def test_a_run_whose_worker_dies_between_the_resume_and_the_next_step_goes_on_elsewhere(stage: Stage):
    stage.say("hold", "a")
    run = await stage.start("a", "b")
    worker = await stage.worker()
    await stage.begun("a")
    await run.pause()
    stage.unsay("hold", "a")
    await stage.reached(Status.PAUSED)
    stage.say("die", "b")
    await run.resume()
    assert await worker.ended() == -9
    stage.unsay("die", "b")
    await stage.worker()
    assert await run.result(timeout=45) == ["a", "b"]
    assert stage.names() == ["a", "b", "b"]
    await assert_sound(stage.client, "run")


async def test_a_step_longer_than_three_leases_runs_once_on_a_healthy_worker(stage: Stage):
    stage.say("hold", "a")
    run = await stage.start("a", "b")
    first, _ = await stage.worker(lease=1), await stage.worker(lease=1)
    await stage.begun("a")
    await stage.passed(CLOCK.now() + 3 * SECOND)
    stage.unsay("hold", "a")
    assert await run.result(timeout=45) == ["a", "b"]
    assert stage.names() == ["a", "b"]
    assert len(await stage.rows_of(first)) == 1
    assert (await run.info()).attempt == 1


async def test_a_crash_between_effect_and_record_repeats_the_step_under_the_same_key(stage: Stage):
    stage.say("die", "b")
    run = await stage.start("a", "b", "c")
    worker = await stage.worker()
    assert await worker.ended() == -9
    stage.unsay("die", "b")
    await stage.worker()
    assert await run.result(timeout=45) == ["a", "b", "c"]
    first, second = [effect for effect in stage.effects() if effect.name == "b"]
    assert (first.key, first.attempt) == (second.key, second.attempt)
    assert first.pid != second.pid
    assert len({effect.key for effect in stage.effects()}) == 3
    await assert_sound(stage.client, "run")


async def test_every_command_delivered_twice_changes_nothing_the_second_time(stage: Stage):
    stage.say("hold", "a")
    run = await stage.start("a", "b")
    await stage.worker()
    await stage.begun("a")
    first = await run.pause(request_id="p1")
    assert (await run.pause(request_id="p1")).repeated
    withdrawn = await run.resume(request_id="r1")
    assert withdrawn.status is Status.RUNNING
    # Late copies of both, in the wrong order: each is told what it was told before.
    assert (await run.pause(request_id="p1")).status is first.status
    assert (await run.resume(request_id="r1")).status is withdrawn.status
    assert await stage.status() is Status.RUNNING
    cancelling = await run.cancel(request_id="c1")
    assert (await run.cancel(request_id="c1")).repeated
    stage.unsay("hold", "a")
    await stage.reached(Status.CANCELLED)
    assert (await run.cancel(request_id="c1")).status is cancelling.status
    assert (await run.resume(request_id="r1")).repeated
    before = await stage.client.service.get("run")
    assert (await run.pause(request_id="p1")).repeated
    assert await stage.client.service.get("run") == before
    assert [c.request_id for c in await stage.client.service.commands("run")] == ["p1", "r1", "c1"]
    await assert_sound(stage.client, "run")


async def test_a_sweep_puts_thousands_of_lost_runs_right_without_a_pause_between_rounds(stage: Stage):
    await _many_lost_runs(stage, 1_500)


@pytest.mark.prove
async def test_a_sweep_puts_twelve_thousand_lost_runs_right(stage: Stage):
    await _many_lost_runs(stage, 12_000)


async def _many_lost_runs(stage: Stage, count: int) -> None:
    """Runs that a worker claimed whose row then vanished, beside old finished and queued ones."""
    store = stage.client.service.store
    now = CLOCK.now()
    body = encode({"folder": str(stage.folder), "names": []}, what="input")
    queued = [NewRun(f"queued-{n}", "no_worker_serves_it", "1", body, now) for n in range(count // 10)]
    lost = [NewRun(f"lost-{n:05}", "chain", "1", body, now) for n in range(count)]
    for begin in range(0, count, 500):
        await store.start(lost[begin : begin + 500])
    await store.start(queued)
    with stage.raw() as connection:
        _claim_all_by_hand(connection)
    await stage.worker(slots=500)

    async def none_left() -> bool:
        counts = await store.count_runs()
        return counts.get(Status.COMPLETED) == count

    await until(none_left, "all lost runs are completed", seconds=100)
    counts = await store.count_runs()
    assert counts == {Status.COMPLETED: count, Status.PENDING: len(queued)}
    assert await store.check() == []


def _claim_all_by_hand(connection: sqlite3.Connection) -> None:
    """As a worker would that claims everything and whose row is then deleted by somebody."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(
        "UPDATE runtrue_runs SET status = 'running', epoch = 1, worker_id = 'w-gone', event_seq = event_seq + 1,"
        " started_at = created_at WHERE workflow = 'chain'"
    )
    connection.execute(
        "INSERT INTO runtrue_events (run_id, seq, at, type, data)"
        " SELECT id, event_seq, created_at, 'claimed', '{}' FROM runtrue_runs WHERE workflow = 'chain'"
    )
    connection.execute("COMMIT")
