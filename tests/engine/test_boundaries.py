"""What was asked of a run is carried out at its next step boundary, or at once where no worker has it."""

import asyncio
from pathlib import Path

import pytest
from tests.engine.running import (
    Gate,
    audit,
    event_types,
    failure,
    finished,
    opened,
    reaches,
    recorded,
    until,
    until_heard,
)
from tests.support.manual_clock import ManualClock

import runtrue as rt
from runtrue.lifecycle import HoldKind, Status


class TwoSteps:
    """A workflow of two steps, the first with a gate in it."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.calls: list[str] = []
        gate, calls = self.gate, self.calls

        @rt.step
        async def first() -> str:
            calls.append("first")
            await gate.pass_through()
            return "one"

        @rt.step
        async def second() -> str:
            calls.append("second")
            return "two"

        @rt.workflow
        async def flow() -> list[str]:
            return [await first(), await second()]

        self.flow = flow


@pytest.fixture
async def two() -> TwoSteps:
    return TwoSteps()


async def test_a_pause_waits_for_the_step_in_flight_and_the_resume_goes_on_without_repeating_it(
    database: Path, two: TwoSteps
):
    async with opened(database, two.flow) as app:
        run = await app.start(two.flow)
        await two.gate.reached()
        outcome = await run.pause(reason="lunch")
        assert (outcome.status, outcome.done, outcome.changed) == (Status.PAUSING, False, True)
        assert await run.status() is Status.PAUSING
        two.gate.open()
        await reaches(run, "paused")
        assert await recorded(app, run) == [("first", 1)]
        (hold,) = await run.holds()
        assert (hold.kind, hold.reason) == (HoldKind.OPERATOR, "lunch")
        (pause,) = await app.service.pauses(run.id)
        assert pause.steps_done == 1
        assert pause.ended_at is None
        await audit(app, run)
        resumed = await run.resume()
        assert (resumed.status, resumed.done) == (Status.PENDING, True)
        assert await finished(run) == ["one", "two"]
        assert two.calls == ["first", "second"]
        assert [pause.ended_at is not None for pause in await app.service.pauses(run.id)] == [True]


async def test_a_pause_that_is_resumed_before_the_boundary_is_withdrawn(database: Path, two: TwoSteps):
    async with opened(database, two.flow) as app:
        run = await app.start(two.flow)
        await two.gate.reached()
        await run.pause()
        outcome = await run.resume()
        assert (outcome.status, outcome.done) == (Status.RUNNING, True)
        two.gate.open()
        assert await finished(run) == ["one", "two"]
        assert "paused" not in await event_types(run)
        await audit(app, run)


async def test_a_pause_that_the_worker_has_heard_of_can_still_be_withdrawn(
    database: Path, clock: ManualClock, two: TwoSteps
):
    async with opened(database, two.flow, clock=clock) as app:
        run = await app.start(two.flow)
        await two.gate.reached()
        await run.pause()
        clock.advance(1)
        worker = app._worker
        assert worker is not None
        await until(lambda: all(execution.is_asked for execution in worker._executions.values()))
        await run.resume()
        two.gate.open()
        assert await finished(run) == ["one", "two"]


async def test_a_second_pause_finds_its_wish_fulfilled(database: Path, two: TwoSteps):
    async with opened(database, two.flow) as app:
        run = await app.start(two.flow)
        await two.gate.reached()
        await run.pause(reason="first")
        again = await run.pause(reason="second")
        assert (again.status, again.changed, again.done) == (Status.PAUSING, False, False)
        two.gate.open()
        await reaches(run, "paused")
        third = await run.pause(reason="third")
        assert (third.status, third.changed, third.done) == (Status.PAUSED, False, True)
        assert [hold.reason for hold in await run.holds()] == ["first"]
        assert len(await app.service.pauses(run.id)) == 1


async def test_a_cancel_lets_the_step_in_flight_finish_and_starts_no_other(database: Path, two: TwoSteps):
    async with opened(database, two.flow) as app:
        run = await app.start(two.flow)
        await two.gate.reached()
        outcome = await run.cancel(reason="changed my mind")
        assert (outcome.status, outcome.done) == (Status.CANCELLING, False)
        two.gate.open()
        with pytest.raises(rt.RunCancelled, match="changed my mind"):
            await finished(run)
        assert two.calls == ["first"]
        assert await recorded(app, run) == [("first", 1)]
        await audit(app, run)


async def test_cancel_with_wait_returns_when_the_run_has_ended(database: Path, two: TwoSteps):
    async with opened(database, two.flow) as app:
        run = await app.start(two.flow)
        await two.gate.reached()
        cancelling = asyncio.create_task(run.cancel(wait=True))
        await until(lambda: bool(two.calls))
        assert not cancelling.done()
        two.gate.open()
        outcome = await cancelling
        assert (outcome.status, outcome.done) == (Status.CANCELLED, True)


async def test_a_cancel_asked_of_a_pausing_run_wins_over_the_pause(database: Path, two: TwoSteps):
    async with opened(database, two.flow) as app:
        run = await app.start(two.flow)
        await two.gate.reached()
        await run.pause()
        await run.cancel()
        with pytest.raises(rt.Refused, match="being cancelled") as refused:
            await run.pause()
        assert refused.value.status is Status.CANCELLING
        two.gate.open()
        await reaches(run, "cancelled")


async def test_an_acknowledged_cancel_ends_cancelled_though_the_function_returns(database: Path):
    gate = Gate()

    @rt.step
    async def last() -> str:
        await gate.pass_through()
        return "done"

    @rt.workflow
    async def flow() -> str:
        return await last()

    async with opened(database, flow) as app:
        run = await app.start(flow)
        await gate.reached()
        await run.cancel()
        gate.open()
        await reaches(run, "cancelled")
        assert (await run.info()).output is None


@pytest.mark.parametrize("ending", ["returns", "fails", "swallows and returns", "swallows and fails"])
async def test_an_acknowledged_cancel_ends_cancelled_whatever_the_workflows_own_code_does(
    database: Path, clock: ManualClock, ending: str
):
    gate = Gate()

    @rt.workflow
    async def flow() -> str:
        try:
            await gate.pass_through()
        except asyncio.CancelledError:
            if "swallows" not in ending:
                raise
        if "fails" in ending:
            raise ValueError("failed")
        return "returned"

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await gate.reached()
        await run.cancel()
        if "swallows" in ending:
            clock.advance(1)  # the renewal brings the cancel, which interrupts code that is in no step
        else:
            gate.open()
        await reaches(run, "cancelled")
        assert (await run.info()).error is None
        await audit(app, run)


async def test_a_cancel_reaches_code_that_awaits_something_that_is_no_step(database: Path, clock: ManualClock):
    gate = Gate()

    @rt.workflow
    async def flow() -> None:
        await gate.pass_through()

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await gate.reached()
        await run.cancel()
        clock.advance(1)
        await reaches(run, "cancelled")


async def test_terminate_ends_a_run_now_and_the_late_result_of_its_step_is_refused(
    database: Path, clock: ManualClock, two: TwoSteps
):
    async with opened(database, two.flow, clock=clock) as app:
        run = await app.start(two.flow)
        await two.gate.reached()
        outcome = await run.terminate(reason="now")
        assert (outcome.status, outcome.done) == (Status.CANCELLED, True)
        before = [event async for event in run.events()]
        two.gate.open()
        worker = app._worker
        assert worker is not None
        await until(lambda: worker.running == 0)
        assert two.calls == ["first"]
        assert await recorded(app, run) == []
        assert [event async for event in run.events()] == before
        assert worker.fenced_writes == 1
        await audit(app, run)


async def test_a_pending_run_is_paused_resumed_and_cancelled_at_once(database: Path, two: TwoSteps):
    async with rt.Client(database) as client:
        run = await client.start(two.flow)
        assert (await run.pause()).done
        assert await run.status() is Status.PAUSED
        assert (await run.resume()).status is Status.PENDING
        assert (await run.cancel()).done
        assert await run.status() is Status.CANCELLED


async def test_a_delayed_run_that_was_paused_over_its_time_begins_with_the_resume(
    database: Path, clock: ManualClock, two: TwoSteps
):
    two.gate.open()
    async with opened(database, two.flow, clock=clock) as app:
        run = await app.start(two.flow.options(delay=100))
        assert await run.status() is Status.PENDING
        await run.pause()
        clock.advance(200)
        assert await run.status() is Status.PAUSED
        await run.resume()
        assert await finished(run) == ["one", "two"]


async def test_a_delayed_run_that_is_resumed_before_its_time_still_waits_for_it(
    database: Path, clock: ManualClock, two: TwoSteps
):
    two.gate.open()
    async with opened(database, two.flow, clock=clock) as app:
        run = await app.start(two.flow.options(delay=100))
        await run.pause()
        await run.resume()
        clock.advance(99)
        assert await run.status() is Status.PENDING
        clock.advance(1)
        assert await finished(run) == ["one", "two"]


async def test_a_sleeping_run_is_paused_at_once_and_its_timer_acts_after_the_resume(database: Path, clock: ManualClock):
    @rt.workflow
    async def flow() -> str:
        await rt.sleep(100)
        return "awake"

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        assert (await run.pause()).done
        clock.advance(200)
        assert await run.status() is Status.PAUSED
        await run.resume()
        assert await finished(run) == "awake"


async def test_a_sleeping_run_that_is_resumed_before_its_time_sleeps_on(database: Path, clock: ManualClock):
    @rt.workflow
    async def flow() -> str:
        await rt.sleep(100)
        return "awake"

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        await run.pause()
        await run.resume()
        await reaches(run, "waiting")
        clock.advance(99)
        assert await run.status() is Status.WAITING
        clock.advance(1)
        assert await finished(run) == "awake"
        assert await recorded(app, run) == [("sleep", 1)]


async def test_a_run_that_finishes_before_any_boundary_completes_and_closes_the_pause_as_moot(database: Path):
    gate = Gate()

    @rt.workflow
    async def flow() -> str:
        await gate.pass_through()
        return "done"

    async with opened(database, flow) as app:
        run = await app.start(flow)
        await gate.reached()
        assert not (await run.pause()).done
        gate.open()
        assert await finished(run) == "done"
        assert await run.status() is Status.COMPLETED
        types = await event_types(run)
        assert "paused" not in types
        events = [event async for event in run.events()]
        assert any("moot" in str(event.data) for event in events), events
        assert not await run.holds()
        await audit(app, run)


async def test_a_run_that_fails_while_pausing_has_failed(database: Path):
    gate = Gate()

    @rt.workflow
    async def flow() -> None:
        await gate.pass_through()
        raise ValueError("broke")

    async with opened(database, flow) as app:
        run = await app.start(flow)
        await gate.reached()
        await run.pause()
        gate.open()
        assert (await failure(run)).message == "broke"
        await audit(app, run)


@pytest.mark.parametrize("call", ["step", "sleep"])
async def test_a_pause_asked_while_code_awaits_something_foreign_acts_before_the_next_durable_call(
    database: Path, clock: ManualClock, call: str
):
    gate = Gate()
    calls: list[str] = []

    @rt.step
    async def after() -> None:
        calls.append("after")

    @rt.workflow
    async def flow() -> str:
        await gate.pass_through()
        await (after() if call == "step" else rt.sleep(0))
        return "done"

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await gate.reached()
        await run.pause()
        clock.advance(1)
        worker = app._worker
        assert worker is not None
        await until(lambda: all(execution.is_asked for execution in worker._executions.values()))
        assert await run.status() is Status.PAUSING
        gate.open()
        await reaches(run, "paused")
        assert calls == []
        assert await recorded(app, run) == []
        await run.resume()
        assert await finished(run) == "done"


async def test_a_pause_acts_at_once_during_a_short_sleep_and_the_sleep_is_over_after_the_resume(
    database: Path, clock: ManualClock
):
    @rt.workflow
    async def flow() -> str:
        await rt.sleep(0.9)
        return "awake"

    async with opened(database, flow, clock=clock, lease=1.5) as app:
        run = await app.start(flow)
        await clock.sleeper(0.9)
        await run.pause()
        clock.advance(0.5)
        await reaches(run, "paused")
        clock.advance(0.4)
        await run.resume()
        assert await finished(run) == "awake"
        assert await recorded(app, run) == [("sleep", 1)]


async def test_every_verb_on_a_finished_run_is_refused_but_a_cancel_of_a_cancelled_one(database: Path):
    @rt.workflow
    async def flow(fails: bool) -> None:
        if fails:
            raise ValueError("no")

    async with opened(database, flow) as app:
        completed, failed = await app.start(flow, False), await app.start(flow, True)
        await completed.wait()
        await failed.wait()
        for run in (completed, failed):
            for verb in (run.pause, run.resume, run.cancel, run.terminate):
                with pytest.raises(rt.Refused, match="too late") as refused:
                    await verb()
                assert refused.value.available_actions == ()
        cancelled = await app.start(flow.options(delay=100), False)
        await cancelled.cancel()
        assert not (await cancelled.cancel()).changed
        assert not (await cancelled.terminate()).changed
        with pytest.raises(rt.Refused):
            await cancelled.pause()


async def test_a_request_that_is_repeated_under_its_id_changes_nothing_twice(database: Path, two: TwoSteps):
    async with opened(database, two.flow) as app:
        run = await app.start(two.flow)
        await two.gate.reached()
        first = await run.pause(request_id="one")
        await run.resume()
        again = await run.pause(request_id="one")
        assert again.repeated
        assert (again.status, again.done) == (first.status, first.done)
        assert await run.status() is Status.RUNNING
        with pytest.raises(rt.Conflict, match="was used for another command"):
            await run.cancel(request_id="one")
        two.gate.open()
        await finished(run)


async def test_a_resume_that_names_another_pause_does_not_end_the_present_one(database: Path, two: TwoSteps):
    async with rt.Client(database) as client:
        run = await client.start(two.flow)
        old = (await run.pause()).pause_id
        assert old is not None
        await run.resume(pause_id=old)
        new = (await run.pause()).pause_id
        with pytest.raises(rt.Refused):
            await run.resume(pause_id=old)
        assert await run.status() is Status.PAUSED
        assert (await run.resume(pause_id=new)).done


async def test_a_worker_that_drains_gives_runs_back_at_their_boundary_and_another_goes_on(
    database: Path, two: TwoSteps
):
    async with opened(database, two.flow) as app:
        run = await app.start(two.flow)
        await two.gate.reached()
        closing = asyncio.create_task(app.close())
        await until(lambda: app._worker is None)
        two.gate.open()
        await closing
    async with rt.Client(database) as client:
        found = await (await client.get(run.id)).info()
        assert found.status is Status.PENDING
        assert found.steps_done == 1
        assert found.attempt == 1, "a drain is no loss"
    async with opened(database, two.flow) as app:
        assert await finished(await app.get(run.id)) == ["one", "two"]
        assert two.calls == ["first", "second"]


async def test_a_drain_whose_time_is_up_interrupts_the_step_and_records_no_attempt(database: Path, two: TwoSteps):
    async with opened(database, two.flow, drain=0) as app:
        run = await app.start(two.flow)
        await two.gate.reached()
    async with rt.Client(database) as client:
        found = await client.get(run.id)
        assert await found.status() is Status.PENDING
        steps, attempts = await client.service.steps(run.id)
        assert (steps, attempts) == ([], [])


async def test_a_cancel_and_a_drain_at_once_end_the_run_cancelled(database: Path, clock: ManualClock, two: TwoSteps):
    async with opened(database, two.flow, clock=clock, drain=100) as app:
        run = await app.start(two.flow)
        await two.gate.reached()
        await run.cancel()
        clock.advance(1)
        await until_heard(app)
        closing = asyncio.create_task(app.close())
        await until(lambda: app._worker is None)
        two.gate.open()
        await closing
    async with rt.Client(database) as client:
        assert await (await client.get(run.id)).status() is Status.CANCELLED
