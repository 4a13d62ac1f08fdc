"""Calls that are made in the workflow and awaited by tasks of somebody else."""

import asyncio
from pathlib import Path

from tests.engine.running import finished, opened, reaches
from tests.support.manual_clock import ManualClock

import runtrue as rt

HOUR = 3_600


@rt.step
async def double(number: int) -> int:
    return 2 * number


async def test_a_run_whose_other_calls_sleep_parks_and_pauses_though_one_of_them_has_ended(
    database: Path, clock: ManualClock
):
    @rt.workflow
    async def flow() -> int:
        doubled, _ = await asyncio.gather(double(1), rt.sleep(HOUR))
        return doubled

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        assert (await run.pause()).done
        await run.resume()
        await reaches(run, "waiting")
        clock.advance(HOUR)
        assert await finished(run) == 2


async def test_code_that_goes_on_with_the_first_of_several_calls_is_not_parked_beside_the_others(
    database: Path, clock: ManualClock
):
    @rt.workflow
    async def flow() -> int:
        fast = asyncio.ensure_future(double(1))
        slow = asyncio.ensure_future(rt.sleep(HOUR))
        await asyncio.wait({fast, slow}, return_when=asyncio.FIRST_COMPLETED)
        doubled = await double(fast.result())
        rt.publish("doubled", doubled)
        await slow
        return doubled

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        assert await run.published("doubled") == 4
        clock.advance(HOUR)
        assert await finished(run) == 4
