"""`deadline=`: how long all attempts of a step may take together, with the waits between them."""

import asyncio
from pathlib import Path

import pytest
from tests.engine.running import failure, finished, opened, reaches, recorded, until
from tests.support.manual_clock import ManualClock

import runtrue as rt


class Hanging:
    """An async step whose attempts hang, or fail at once; the numbers of those that began."""

    def __init__(self, hangs: bool, retry: rt.Retry) -> None:
        self.begun: list[int] = []

        @rt.step(deadline=100, timeout=60, retry=retry)
        async def work() -> None:
            self.begun.append(rt.this_step().attempt)
            if hangs:
                await asyncio.Event().wait()
            raise ConnectionError("away")

        @rt.workflow
        async def flow() -> None:
            await work()

        self.flow = flow


async def test_the_attempt_in_flight_at_the_deadline_is_the_last_and_has_only_what_was_left(
    database: Path, clock: ManualClock
):
    hanging = Hanging(True, rt.Retry(9, first_delay=0))
    async with opened(database, hanging.flow, clock=clock) as app:
        run = await app.start(hanging.flow)
        await clock.sleeper(60)
        clock.advance(60)
        await until(lambda: len(hanging.begun) == 2)
        await clock.sleeper(40)
        clock.advance(40)
        error = await failure(run)
        assert "step work failed after 2 attempts" in error.message
        assert "step work took longer than its deadline of 100 s" in error.message
        assert hanging.begun == [1, 2]


async def test_no_attempt_is_waited_for_that_would_begin_after_the_deadline(database: Path, clock: ManualClock):
    failing = Hanging(False, rt.Retry(9, first_delay=30, factor=2, jitter=False))
    async with opened(database, failing.flow, clock=clock) as app:
        run = await app.start(failing.flow)
        await reaches(run, "waiting")  # for 30 seconds; 60 more would end before the deadline, 120 would not
        clock.advance(30)
        await until(lambda: len(failing.begun) == 2)
        await reaches(run, "waiting")
        clock.advance(60)
        error = await failure(run)
        assert "step work failed after 3 attempts: ConnectionError: away" in error.message
        assert failing.begun == [1, 2, 3]


async def test_the_deadline_counts_from_the_first_attempt_over_a_restart_too(database: Path, clock: ManualClock):
    failing = Hanging(False, rt.Retry(9, first_delay=80, jitter=False))
    async with opened(database, failing.flow, clock=clock) as app:
        run = await app.start(failing.flow)
        await reaches(run, "waiting")
    clock.advance(150)
    async with opened(database, failing.flow, clock=clock) as app:
        error = await failure(await app.get(run.id))
        assert "step work took longer than its deadline of 100 s" in error.message
        assert failing.begun == [1]


@pytest.mark.parametrize("attempts", [1, 2])
async def test_a_step_within_its_deadline_is_none_the_wiser(database: Path, clock: ManualClock, attempts: int):
    @rt.step(deadline=100, retry=rt.Retry(2, first_delay=99, jitter=False))
    async def work() -> str:
        if rt.this_step().attempt < attempts:
            raise ConnectionError
        return "done"

    @rt.workflow
    async def flow() -> str:
        return await work()

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        if attempts == 2:
            await reaches(run, "waiting")
            clock.advance(99)
        assert await finished(run) == "done"
        assert await recorded(app, run) == [("work", attempts)]
