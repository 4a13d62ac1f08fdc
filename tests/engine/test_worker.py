"""The worker: slots, its lease, runs that it owns without knowing, and what it does when the database fails."""

import asyncio
import logging
from pathlib import Path

import pytest
from tests.engine.faults import FaultyStore, SweepingThread, always, every_other, for_times, install
from tests.engine.running import Gate, audit, event_types, failure, finished, opened, reaches, recorded, until
from tests.support import waiting
from tests.support.manual_clock import ManualClock

import runtrue as rt
from runtrue.lifecycle import Status
from runtrue.store.protocol import EffectsReply, Recorded, RunEffects

PATIENCE = 30
"""Seconds within which the other thread must have let the blocked loop go on."""


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> FaultyStore:
    return install(monkeypatch)


class Gated:
    """A workflow of two steps; the first passes a gate."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.calls: list[str] = []
        gate, calls = self.gate, self.calls

        self.steps: list[rt.StepInfo] = []
        steps = self.steps

        @rt.step
        async def first() -> int:
            calls.append("first")
            steps.append(rt.this_step())
            await gate.pass_through()
            return 1

        @rt.step
        async def second() -> int:
            calls.append("second")
            return 2

        @rt.workflow
        async def flow() -> int:
            return await first() + await second()

        self.flow = flow


@pytest.fixture
async def gated() -> Gated:
    return Gated()


async def workers(app: rt.App) -> dict[str, str]:
    return {worker.id: worker.status for worker in await app.service.workers()}


async def test_a_worker_executes_no_more_runs_at_a_time_than_it_has_slots(database: Path):
    now, most = 0, 0
    gate = Gate()

    @rt.step
    async def work() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await gate.pass_through()
        await asyncio.sleep(0)
        now -= 1

    @rt.workflow
    async def flow() -> None:
        await work()

    async with opened(database, flow, slots=3) as app:
        runs = await app.start_many(flow, [{}] * 10)
        await until(lambda: now == 3)
        gate.open()
        for run in runs:
            await finished(run)
        assert most == 3


async def test_a_step_that_blocks_the_event_loop_does_not_cost_the_lease(database: Path):
    """The lease is one second; the loop stands still for two and a half while another process sweeps."""
    another = SweepingThread(database, lambda swept, seconds: seconds > 2.5 or bool(swept.workers_lost))

    @rt.step
    async def block() -> bool:
        another.start()
        return another.ended.wait(PATIENCE)

    @rt.workflow
    async def flow() -> bool:
        return await block()

    async with opened(database, flow, lease=1) as app:
        run = await app.start(flow)
        assert await finished(run)
        another.join()
        assert (await run.info()).attempt == 1
        assert "worker_lost" not in await event_types(run)
        assert list((await workers(app)).values()) == ["alive"]


async def test_a_loop_that_stands_still_over_the_stall_limit_costs_the_lease_and_the_run_is_done_again(
    database: Path, caplog: pytest.LogCaptureFixture
):
    another = SweepingThread(database, lambda swept, seconds: bool(swept.workers_lost) or seconds > PATIENCE)
    calls: list[int] = []

    @rt.step
    async def block() -> int:
        calls.append(1)
        if len(calls) == 1:
            another.start()
            another.ended.wait(PATIENCE)
        return len(calls)

    @rt.workflow
    async def flow() -> int:
        return await block()

    async with opened(database, flow, lease=1, stall_limit=0.5) as app:
        first_id = app.worker_id
        run = await app.start(flow)
        assert await finished(run) == 2
        another.join()
        found = await workers(app)
        assert found[first_id] == "lost"
        assert found[app.worker_id] == "alive"
        assert (await run.info()).attempt == 2
    assert "has stood still for" in caplog.text
    assert f"step block of run {run.id}" in caplog.text


async def test_a_worker_whose_renewals_fail_stops_executing_before_its_lease_ends(
    database: Path, clock: ManualClock, faulty: FaultyStore, gated: Gated
):
    async with opened(database, gated.flow, clock=clock, lease=15) as app:
        run = await app.start(gated.flow)
        await gated.gate.reached()
        faulty.before["renew"] = always(rt.StoreBusy("the disk is away"))
        worker = app._worker
        assert worker is not None
        clock.advance(11.9)
        assert worker.may_execute()
        clock.advance(0.1)
        assert not worker.may_execute()
        gated.gate.open()
        await until(lambda: worker.running == 0)
        assert gated.calls == ["first"], "no step begins"
        assert await recorded(app, run) == [], "and nothing is written"
        second = await app.start(gated.flow)
        assert await second.status() is Status.PENDING, "nor is anything claimed"

        del faulty.before["renew"]
        await beats(clock, 1, app, seconds=1)  # before anybody could have swept the worker
        await beats(clock, 3, app)
        assert await finished(run) == 3
        assert gated.calls.count("first") >= 2
        assert await finished(second) == 3
        assert (await run.info()).attempt == 1, "the worker was never lost"


async def test_no_step_begins_once_the_lease_may_have_run_out_by_the_workers_own_clock(
    database: Path, clock: ManualClock, faulty: FaultyStore
):
    """The journal would refuse the result, but the effect would have been made."""
    calls: list[str] = []

    @rt.step
    async def first() -> None:
        calls.append("first")

    @rt.step
    async def second() -> None:
        calls.append("second")

    @rt.workflow
    async def flow() -> None:
        await first()
        faulty.before["renew"] = always(rt.StoreBusy("the disk is away"))
        clock.advance(12)
        await second()

    async with opened(database, flow, clock=clock, lease=15) as app:
        await app.start(flow)
        worker = app._worker
        assert worker is not None
        await until(lambda: calls == ["first"] and worker.running == 0)
        assert worker.fenced_writes == 0, "nothing was even tried"


async def turn(clock: ManualClock) -> None:
    """Let every thread and task have its turn."""
    await clock.sleep(0.05)


async def test_a_lost_worker_registers_again_under_a_new_id_and_its_run_is_completed(
    database: Path, faulty: FaultyStore, gated: Gated
):
    async with opened(database, gated.flow, lease=0.5) as app:
        first_id = app.worker_id
        run = await app.start(gated.flow)
        await gated.gate.reached()
        faulty.before["renew"] = always(rt.StoreBusy("the disk is away"))

        async def lost() -> bool:
            return (await workers(app))[first_id] == "lost"

        await waiting.until(lost, "the sweeper found the worker lost")
        del faulty.before["renew"]
        await until(lambda: app.worker_id not in ("", first_id))
        assert gated.steps[0].cancel_requested(), "the step in flight can learn that its run is lost"
        await until(lambda: gated.calls == ["first", "first"])
        gated.gate.open()
        assert await finished(run) == 3
        assert (await run.info()).attempt == 2
        assert gated.calls == ["first", "first", "second"]
        assert await recorded(app, run) == [("first", 1), ("second", 1)]
        found = await workers(app)
        assert found == {first_id: "lost", app.worker_id: "alive"}
        await audit(app, run)


async def test_another_app_completes_what_a_lost_one_left_and_the_late_result_is_refused(
    database: Path, faulty: FaultyStore, gated: Gated
):
    async with opened(database, gated.flow, lease=0.5) as one:
        run = await one.start(gated.flow)
        await gated.gate.reached()
        faulty.before["renew"] = always(rt.StoreBusy("away"))
        faulty.before["sweep"] = always(rt.StoreBusy("away"))
        faulty.before["claim"] = always(rt.StoreBusy("away"))
        async with opened(database, gated.flow, lease=0.5) as other:
            await until(lambda: gated.calls == ["first", "first"])
            gated.gate.open()
            assert await finished(await other.get(run.id)) == 3
            assert await recorded(other, run) == [("first", 1), ("second", 1)]
            assert gated.calls.count("second") == 1
            await audit(other, run)
        faulty.before.clear()


@pytest.mark.parametrize(
    "error",
    [rt.StoreBusy("busy; nothing was changed"), rt.OutcomeUnknown("the answer was lost")],
    ids=["busy", "unknown"],
)
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_the_journal_repeats_a_batch_until_the_database_takes_it_and_records_nothing_twice(
    database: Path, faulty: FaultyStore, moment: str, error: Exception
):
    calls: list[int] = []

    @rt.step
    async def count(number: int) -> int:
        calls.append(number)
        return number + 1

    @rt.workflow
    async def flow() -> int:
        rt.set_progress(done=1)
        return await count(await count(await count(0)))

    async with opened(database, flow) as app:
        for _ in range(3):
            getattr(faulty, moment)["record"] = for_times(3, error)
            run = await app.start(flow)
            assert await finished(run) == 3
            assert await recorded(app, run) == [("count", 1)] * 3
            assert (await run.info()).steps_done == 3
            assert [event.seq async for event in run.events()] == list(range(1, 7))
            await audit(app, run)
        assert calls == [0, 1, 2] * 3


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_whatever_a_worker_writes_may_be_written_twice(database: Path, faulty: FaultyStore, moment: str):
    """Steps, failed attempts, values, parking and every end: the answer to each is lost once."""

    @rt.step(retry=rt.Retry(2, first_delay=0))
    async def flaky() -> str:
        if rt.this_step().attempt == 1:
            raise ValueError("once")
        return str(rt.this_step().attempt)

    @rt.workflow
    async def flow(end: str) -> str:
        drawn = rt.uuid4()
        found = await flaky()
        await rt.sleep(1.2)
        assert rt.uuid4() != drawn
        if end == "fails":
            raise ValueError("at the end")
        if end == "cancels":
            raise rt.CancelRun("at the end")
        return found

    getattr(faulty, moment)["record"] = every_other(rt.OutcomeUnknown("the answer was lost"))
    async with opened(database, flow) as app:
        runs = completes, fails, cancels = [await app.start(flow, end) for end in ("completes", "fails", "cancels")]
        assert await finished(completes) == "2"
        assert (await failure(fails)).message == "at the end"
        await reaches(cancels, "cancelled")
        for run in runs:
            assert await recorded(app, run) == [("uuid4", 1), ("flaky", 2), ("sleep", 1), ("uuid4", 1)]
            assert (await event_types(run)).count("attempt_failed") == 1
        assert app._worker is not None
        assert app._worker.fenced_writes == 0
        await audit(app, completes)


async def test_a_fault_of_the_store_reaches_no_workflow_and_its_runs_are_given_back(
    database: Path, clock: ManualClock, faulty: FaultyStore, caplog: pytest.LogCaptureFixture
):
    @rt.step
    async def one() -> int:
        return 1

    caught: list[BaseException] = []

    @rt.workflow
    async def flow() -> int:
        try:
            return await one()
        except Exception as error:  # it would be taken for an error of the step
            caught.append(error)
            return -1

    async with opened(database, flow, clock=clock, lease=15) as app:
        faulty.before["record"] = for_times(1, RuntimeError("a bug in the store"))
        run = await app.start(flow)
        worker = app._worker
        assert worker is not None
        await until(lambda: bool(faulty.batches) and worker.running == 0)
        await beats(clock, 3, app)
        assert await finished(run) == 1
        assert "a bug in the store" in caplog.text
        assert not caught


async def beats(clock: ManualClock, number: int, app: rt.App, seconds: float = 5) -> None:
    """So many renewals, one after the other, each of them heard on the loop."""
    worker = app._worker
    assert worker is not None
    for _ in range(number):
        heartbeat = worker._heartbeat
        assert heartbeat is not None
        begun = heartbeat.beats_begun
        clock.advance(seconds)
        await until(lambda heartbeat=heartbeat, begun=begun: heartbeat.beats_begun > begun)
        await turn(clock)


async def test_an_effect_that_the_database_condemns_fails_its_own_run_only(database: Path, faulty: FaultyStore):
    gate = Gate()

    @rt.step
    async def work(word: str) -> str:
        await gate.pass_through()
        return word

    @rt.workflow
    async def flow(word: str) -> str:
        return await work(word)

    def condemn(batch: list[RunEffects], replies: list[EffectsReply]) -> None:
        for effects, reply in zip(batch, replies, strict=True):
            if any(step.output == b'"bad"' for step in effects.steps):
                reply.recorded = Recorded.CONDEMNED
                reply.error = "DataError: \0 nobody stores this"

    faulty.change_replies = condemn
    async with opened(database, flow) as app:
        good = [await app.start(flow, f"good {number}") for number in range(5)]
        bad = await app.start(flow, "bad")
        await gate.reached()
        gate.open()
        error = await failure(bad)
        assert error.message == "the database refused the result of step work: DataError: \\x00 nobody stores this"
        assert [await finished(run) for run in good] == [f"good {number}" for number in range(5)]


async def test_a_condemned_result_of_the_run_fails_it_with_safe_text(database: Path, faulty: FaultyStore):
    @rt.workflow
    async def flow() -> str:
        return "bad"

    condemned: list[str] = []
    inner_record = FaultyStore.record

    async def record(self: FaultyStore, worker_id: str, effects: list[RunEffects]) -> list[EffectsReply]:
        (effect,) = effects
        if effect.end is not None and getattr(effect.end, "payload", None) == b'"bad"':
            condemned.append(effect.run_id)
            return [EffectsReply(Recorded.CONDEMNED, Status.RUNNING, error="too odd")]
        return await inner_record(self, worker_id, effects)

    faulty.record = lambda *given: record(faulty, *given)  # type: ignore[method-assign]
    async with opened(database, flow) as app:
        error = await failure(await app.start(flow))
        assert error.message == "the database refused the result: too odd"
        assert len(condemned) == 1, "it is not tried again"


async def test_a_run_claimed_by_a_reply_that_was_lost_is_given_back_after_two_renewals(
    database: Path, clock: ManualClock, faulty: FaultyStore, caplog: pytest.LogCaptureFixture
):
    @rt.workflow
    async def flow() -> str:
        return "done"

    async with opened(database, flow, clock=clock, lease=15) as app:
        faulty.after["claim"] = for_times(1, rt.OutcomeUnknown("the answer was lost"))
        run = await app.start(flow)
        await until(lambda: "could not claim" in caplog.text)
        assert await run.status() is Status.RUNNING, "by the row it is this worker's"
        await beats(clock, 1, app)
        assert await run.status() is Status.RUNNING, "one renewal could have crossed the claim"
        await beats(clock, 1, app)
        assert await finished(run) == "done"
        assert "owns run" in caplog.text
        assert (await run.info()).attempt == 1, "it is no loss"
        assert "released" in await event_types(run)


async def test_a_claim_that_fails_is_tried_again(database: Path, faulty: FaultyStore):
    @rt.workflow
    async def flow() -> str:
        return "done"

    faulty.before["claim"] = for_times(1, rt.StoreBusy("busy"))
    async with opened(database, flow) as app:
        assert await finished(await app.start(flow)) == "done"


@pytest.mark.parametrize("error", [rt.StoreBusy("busy"), RuntimeError("a bug")], ids=["busy", "bug"])
async def test_the_sweeper_outlives_a_sweep_that_fails(
    database: Path, faulty: FaultyStore, error: Exception, caplog: pytest.LogCaptureFixture
):
    swept: list[int] = []
    strike = for_times(2, error)

    def sweep() -> None:
        swept.append(1)
        strike()

    faulty.before["sweep"] = sweep
    caplog.set_level(logging.WARNING)
    async with opened(database, lease=0.5):
        await until(lambda: len(swept) >= 4)
    assert any("sweep" in record.getMessage() for record in caplog.records)


async def test_effects_of_one_run_are_never_in_two_batches_and_those_of_many_share_one(
    database: Path, faulty: FaultyStore
):
    @rt.step
    async def count(number: int) -> int:
        return number + 1

    @rt.workflow
    async def flow() -> int:
        number = 0
        for _ in range(10):
            rt.set_progress(done=number)
            number = await count(number)
        return number

    async with opened(database, flow, slots=100) as app:
        runs = await app.start_many(flow, [{}] * 60)
        assert [await finished(run) for run in runs] == [10] * 60
        assert all(len({effect.run_id for effect in batch}) == len(batch) for batch in faulty.batches)
        assert max(map(len, faulty.batches)) > 20
        for batch in faulty.batches:
            for effect in batch:
                assert effect.end is None or not (effect.steps or effect.attempts or effect.progress)
        await audit(app, runs[0])


async def test_a_draining_worker_claims_nothing_more(database: Path, gated: Gated):
    async with opened(database, gated.flow) as app:
        run = await app.start(gated.flow)
        await gated.gate.reached()
        closing = asyncio.create_task(app.close())
        await until(lambda: app._worker is None)
        async with rt.Client(database) as client:
            second = await client.start(gated.flow)
            gated.gate.open()
            await closing
            assert await second.status() is Status.PENDING
            assert await (await client.get(run.id)).status() is Status.PENDING
            assert [worker.status for worker in await client.service.workers()] == ["stopped"]
    assert gated.calls == ["first"]


async def test_an_app_that_serves_nothing_leaves_runs_alone(database: Path, gated: Gated):
    async with opened(database) as app:
        run = await app.start(gated.flow)
        await asyncio.sleep(0)
        assert await run.status() is Status.PENDING


async def test_a_version_that_is_not_served_waits_for_a_worker_that_serves_it(database: Path):
    @rt.workflow(name="flow", version="1")
    async def old() -> str:
        return "old"

    @rt.workflow(name="flow", version="2")
    async def new() -> str:
        return "new"

    async with opened(database, new) as app:
        left = await app.start(old)
        assert await finished(await app.start(new)) == "new"
        assert await left.status() is Status.PENDING
    async with opened(database, old, new) as app:
        assert await finished(await app.get(left.id)) == "old"


async def test_two_apps_on_one_file_share_the_runs_and_each_run_is_executed_once(database: Path):
    executed: list[str] = []

    @rt.step
    async def note() -> None:
        executed.append(rt.this_run().id)
        await asyncio.sleep(0)

    @rt.workflow
    async def flow() -> None:
        await note()

    async with opened(database, flow, slots=5) as one, opened(database, flow, slots=5) as other:
        runs = await one.start_many(flow, [{}] * 40)
        for run in runs:
            await finished(await other.get(run.id))
        assert sorted(executed) == sorted(run.id for run in runs)
        await audit(one, runs[0])


async def test_a_paused_run_takes_no_slot(database: Path, gated: Gated):
    @rt.workflow
    async def other() -> str:
        return "other"

    async with opened(database, gated.flow, other, slots=1) as app:
        run = await app.start(gated.flow)
        await gated.gate.reached()
        await run.pause()
        gated.gate.open()
        await reaches(run, "paused")
        assert await finished(await app.start(other)) == "other"
