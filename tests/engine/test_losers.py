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


LET_GO: list[asyncio.Event] = []


@pytest.fixture(autouse=True)
async def let_go() -> asyncio.Event:
    """Set at the end of a test, or the loop could never end."""
    LET_GO[:] = [asyncio.Event()]
    return LET_GO[0]


async def clings() -> int:
    event = LET_GO[0]
    while not event.is_set():
        try:
            await event.wait()
        except asyncio.CancelledError:
            continue
    return 0


@pytest.mark.parametrize("loser", [gives_up, waits_for_something_of_its_own, clings])
async def test_a_loser_neither_ends_nor_holds_up_the_run_live_and_on_replay(
    database: Path, clock: ManualClock, let_go: asyncio.Event, loser: object
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
        let_go.set()


async def test_a_failed_gather_waits_for_steps_of_its_other_items_and_not_for_code_that_clings(
    database: Path, clock: ManualClock, let_go: asyncio.Event
):
    @rt.step
    async def bad() -> int:
        raise ValueError("no")

    @rt.workflow
    async def group() -> str:
        try:
            await rt.gather(clings(), bad())
        except rt.StepFailed as failed:
            await rt.sleep(60)
            return failed.error.message
        return "never"

    async with opened(database, group, clock=clock) as app:
        run = await app.start(group)
        await reaches(run, "waiting")
        clock.advance(60)
        assert await finished(run) == "no"
        let_go.set()
