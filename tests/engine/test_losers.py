"""Branches that lost: what their code still does has no meaning, and holds up nothing."""

import asyncio
from pathlib import Path

import pytest
from tests.engine.running import audit, finished, opened, reaches
from tests.support.manual_clock import ManualClock

import runtrue as rt


@rt.step
async def one() -> int:
    return 1


async def gives_up() -> int:
    try:
        await rt.sleep(500)
    except BaseException:
        raise rt.CancelRun("given up") from None
    return 0


async def waits_for_something_of_its_own() -> int:
    await asyncio.get_running_loop().create_future()
    return await one()


@pytest.mark.parametrize("loser", [gives_up, waits_for_something_of_its_own])
async def test_a_loser_neither_ends_nor_holds_up_the_run_live_and_on_replay(
    database: Path, clock: ManualClock, loser: object
):
    @rt.workflow
    async def race() -> int:
        _, value = await rt.first(loser(), one())  # type: ignore[operator]
        await rt.sleep(60)
        return value

    async with opened(database, race, clock=clock) as app:
        run = await app.start(race)
        await reaches(run, "waiting")
        clock.advance(60)
        assert await finished(run) == 1
        await audit(app, run)
