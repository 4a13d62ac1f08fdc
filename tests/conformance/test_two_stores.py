"""Several stores on one database, as several processes have them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from tests.conformance.conftest import Database
from tests.conformance.stage import RESULT, Stage, step
from tests.support.manual_clock import ManualClock
from tests.support.waiting import until

from runtrue.lifecycle import Answer, Command, Status
from runtrue.store.protocol import Finish, ParkBlocked, ParkRequested, Recorded, Release


@pytest.fixture
async def stages(shared_database: Database, clock: ManualClock) -> AsyncIterator[list[Stage]]:
    async with contextlib.AsyncExitStack() as stack:
        stores = [await shared_database.open(clock) for _ in range(4)]
        for store in stores:
            stack.push_async_callback(store.close)
        yield [Stage(store, clock) for store in stores]
        await stores[0].sweep()
        assert await stores[0].check() == []


async def test_what_one_commits_the_others_read(stages: list[Stage]):
    one, other, *_ = stages
    await one.start()
    assert await other.everything() == await one.everything()
    await other.verb(Command.PAUSE)
    assert (await one.run()).status is Status.PAUSED


async def test_a_subscriber_hears_of_what_another_store_commits(stages: list[Stage]):
    one, other, *_ = stages
    heard: list[bool] = []
    leave = one.store.subscribe(lambda: heard.append(True))
    for number in range(3):
        heard.clear()
        await other.start(f"r{number}")
        await until(lambda: heard, "the other's commit is heard of")
    leave()


async def test_runs_are_shared_out_without_overlap(stages: list[Stage]):
    for number in range(60):
        await stages[0].start(f"r{number:02}")
    for number, stage in enumerate(stages):
        await stage.worker(f"w{number}")
    claims = await asyncio.gather(
        *(stage.claim(f"w{number}", 4) for number, stage in enumerate(stages) for _ in range(4))
    )
    run_ids = [claimed.run_id for each in claims for claimed in each]
    assert len(run_ids) == len(set(run_ids)) == 60


async def test_of_many_resumes_through_all_stores_one_changes_the_run(stages: list[Stage]):
    await stages[0].start()
    await stages[0].verb(Command.PAUSE)
    replies = await asyncio.gather(
        *(stages[number % 4].verb(Command.RESUME, request_id=f"resume-{number}") for number in range(20))
    )
    assert [reply.changed for reply in replies].count(True) == 1
    assert (await stages[1].event_types()).count("resumed") == 1


async def test_one_request_sent_through_all_stores_is_carried_out_once(stages: list[Stage]):
    await stages[0].start()
    replies = await asyncio.gather(*(stage.verb(Command.CANCEL, request_id="mine") for stage in stages))
    assert [reply.repeated for reply in replies].count(False) == 1
    assert {reply.answer for reply in replies} == {Answer.DONE}
    assert len(await stages[0].store.commands("r")) == 1


@pytest.mark.parametrize("turn", range(10))
async def test_a_worker_and_an_operator_who_meet_agree_on_what_happened(stages: list[Stage], turn: int):
    worker, operator, *_ = stages
    claimed = await worker.running()
    finish, cancel = await asyncio.gather(
        worker.record(claimed, end=Finish(Status.COMPLETED, RESULT)), operator.verb(Command.CANCEL)
    )
    run = await operator.run()
    assert finish.recorded is Recorded.OK
    assert run.status is finish.status
    if cancel.answer is Answer.REFUSED:
        assert (run.status, run.output) == (Status.COMPLETED, RESULT)
    else:
        assert (cancel.answer, run.status, run.output) == (Answer.REQUESTED, Status.CANCELLED, None)


@pytest.mark.parametrize("seed_of_case", range(6))
async def test_whatever_order_things_happen_in_no_promise_breaks(stages: list[Stage], chance, seed_of_case: int):
    """Workers, operators and sweepers by chance on a few runs; the promises are checked at the end of the test."""
    runs = [f"r{number}" for number in range(5)]
    for run_id in runs:
        await stages[0].start(run_id)
    claims = []
    workers = 0
    for _ in range(80):
        stage = chance.choice(stages)
        action = chance.choice(["verb", "verb", "claim", "record", "record", "end", "lose"])
        if action == "verb":
            await stage.verb(chance.choice([*Command][:3]), chance.choice(runs), request_id=f"q-{chance.random()}")
        elif action == "claim":
            workers += 1
            await stage.worker(f"w{workers}")
            claims += [(f"w{workers}", one) for one in await stage.store.claim(f"w{workers}", (("flow", "1"),), 2)]
        elif action == "lose" and workers:
            stage.clock.advance(chance.choice([1, 16]))
            await stage.store.sweep()
        elif claims:
            worker, claimed = chance.choice(claims)
            ends = [ParkRequested(), ParkBlocked(claimed.wakeups, 5), Release(), Finish(Status.FAILED, RESULT)]
            if action == "end":
                await stage.record(claimed, end=chance.choice(ends), worker_id=worker)
            else:
                place = chance.randrange(1, 6)
                await stage.record(claimed, step(place, name=worker), worker_id=worker)
    for run_id in runs:
        run = await stages[0].run(run_id)
        steps, _ = await stages[0].store.steps(run_id)
        assert run.steps_done == len(steps)
