"""Timeouts of attempts, and interruption."""

import asyncio
import contextlib
from pathlib import Path

from tests.engine.running import Gate, audit, failure, finished, opened, reaches, recorded, until, until_heard
from tests.support.manual_clock import ManualClock

import runtrue as rt
from runtrue.lifecycle import Status


async def test_an_attempt_over_its_timeout_has_failed_and_the_next_one_has_the_whole_time_again(
    database: Path, clock: ManualClock
):
    calls: list[int] = []
    stopped: list[str] = []

    @rt.step(timeout=30, retry=rt.Retry(3, first_delay=0))
    async def slow() -> str:
        calls.append(1)
        if len(calls) < 3:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                stopped.append("told")
                raise
        return "in time"

    @rt.workflow
    async def flow() -> str:
        return await slow()

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        for _ in range(2):
            await clock.sleeper(30)
            clock.advance(30)
        assert await finished(run) == "in time"
        assert stopped == ["told", "told"]
        _, attempts = await app.service.steps(run.id)
        assert all(b"step slow took longer than its timeout of 30 s" in attempt.error for attempt in attempts)


async def test_a_timeout_error_of_the_steps_own_is_told_apart_from_the_engines(database: Path):
    @rt.step(timeout=30)
    async def own() -> None:
        raise TimeoutError("the service did not answer")

    @rt.workflow
    async def flow() -> None:
        await own()

    async with opened(database, flow) as app:
        assert (await failure(await app.start(flow))).message.endswith("TimeoutError: the service did not answer")


async def test_a_step_that_returns_in_spite_of_its_timeout_has_its_result_recorded(database: Path, clock: ManualClock):
    @rt.step(timeout=30)
    async def stubborn() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "all the same"

    @rt.workflow
    async def flow() -> str:
        return await stubborn()

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await clock.sleeper(30)
        clock.advance(30)
        assert await finished(run) == "all the same"


async def test_a_cancel_interrupts_a_step_that_asked_for_it(database: Path, clock: ManualClock):
    gate = Gate()
    told: list[bool] = []

    @rt.step(interruptible=True, retry=5)
    async def long() -> None:
        try:
            await gate.pass_through()
        except asyncio.CancelledError:
            told.append(rt.this_step().cancel_requested())
            raise

    @rt.workflow
    async def flow() -> None:
        await long()

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await gate.reached()
        assert not (await run.cancel()).done
        clock.advance(1)
        await reaches(run, "cancelled")
        assert told == [True]
        assert await recorded(app, run) == [], "an interrupted attempt has no outcome"
        await audit(app, run)


async def test_a_step_that_catches_its_interruption_and_returns_is_recorded_and_the_run_ends_cancelled(
    database: Path, clock: ManualClock
):
    gate = Gate()

    @rt.step(interruptible=True)
    async def tidy() -> str:
        try:
            await gate.pass_through()
        except asyncio.CancelledError:
            return "tidied up"
        return "came through"

    @rt.workflow
    async def flow() -> None:
        await tidy()

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await gate.reached()
        await run.cancel()
        clock.advance(1)
        await reaches(run, "cancelled")
        steps, _ = await app.service.steps(run.id)
        assert steps[0].output == b'"tidied up"'


async def test_a_step_that_did_not_ask_for_it_is_not_interrupted_and_can_look_for_itself(
    database: Path, clock: ManualClock
):
    gate = Gate()
    asked: list[bool] = []

    @rt.step
    async def long() -> str:
        step = rt.this_step()
        asked.append(step.cancel_requested())
        await gate.pass_through()
        asked.append(step.cancel_requested())
        return "finished"

    @rt.step
    async def next_one() -> None:
        raise AssertionError("no step begins after a cancel")

    @rt.workflow
    async def flow() -> None:
        await long()
        await next_one()

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await gate.reached()
        await run.cancel()
        clock.advance(1)
        await until_heard(app)
        assert await run.status() is Status.CANCELLING
        gate.open()
        await reaches(run, "cancelled")
        assert asked == [False, True]
        assert await recorded(app, run) == [("long", 1)]


async def test_terminate_interrupts_an_interruptible_step_too(database: Path, clock: ManualClock):
    gate = Gate()
    ended = asyncio.Event()

    @rt.step(interruptible=True)
    async def long() -> None:
        try:
            await gate.pass_through()
        finally:
            ended.set()

    @rt.workflow
    async def flow() -> None:
        await long()

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await gate.reached()
        assert (await run.terminate()).done
        assert await run.status() is Status.CANCELLED
        clock.advance(1)
        async with asyncio.timeout(10):
            await ended.wait()
        assert await recorded(app, run) == []


async def test_a_step_whose_run_was_terminated_learns_of_it_by_looking(database: Path, clock: ManualClock):
    gate = Gate()
    steps: list[rt.StepInfo] = []

    @rt.step
    async def long() -> None:
        steps.append(rt.this_step())
        await gate.pass_through()

    @rt.workflow
    async def flow() -> None:
        await long()

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await gate.reached()
        await run.terminate()
        assert not steps[0].cancel_requested()
        clock.advance(1)
        await until(steps[0].cancel_requested)
        gate.open()


async def test_a_worker_that_was_idle_hears_a_cancel_within_a_second_of_renewals(database: Path, clock: ManualClock):
    """An idle worker renews rarely; with its first run it must not go on at that pace."""
    gate = Gate()

    @rt.step(interruptible=True)
    async def long() -> None:
        await gate.pass_through()

    @rt.workflow
    async def flow() -> None:
        await long()

    async with opened(database, flow, clock=clock, lease=3_000) as app:
        worker = app._worker
        assert worker is not None
        await until(lambda: worker._heartbeat is not None and worker._heartbeat.beats_begun == 1)
        run = await app.start(flow)
        await gate.reached()
        await run.cancel()
        clock.advance(1)
        await reaches(run, "cancelled")
