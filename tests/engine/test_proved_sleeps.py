"""When a replay takes a recorded sleep for over although the clock has not reached its end."""

from pathlib import Path

import pytest
from tests.engine.running import audit, finished, opened, reaches
from tests.support.manual_clock import ManualClock

import runtrue as rt

DAY = 86_400


@pytest.fixture
def called() -> list[str]:
    return []


def flow(called: list[str], *, whole: bool = True, behind: bool = False):
    @rt.step
    async def one() -> int:
        return 1

    @rt.step
    async def two() -> int:
        return 2

    @rt.step
    async def charge() -> int:
        called.append("charge")
        return 3

    async def later() -> int:
        await rt.sleep(30 * DAY)
        return await charge()

    async def now() -> int:
        return await one() + (await two() if whole else 0)

    @rt.workflow(name="month")
    async def branches() -> list[int]:
        return list(await rt.gather(later(), now()))

    @rt.workflow(name="month")
    async def line() -> int:
        await rt.sleep(30 * DAY)
        result = await charge()
        await rt.receive("go", int)
        return result

    return line if behind else branches


async def test_a_record_that_another_branch_does_not_reach_any_more_ends_no_sleep_early(
    database: Path, clock: ManualClock, called: list[str]
):
    async with opened(database, flow(called), clock=clock) as app:
        run = await app.start(flow(called).options(id="r"))
        await reaches(run, "waiting")
        await run.pause()
    async with opened(database, flow(called, whole=False), clock=clock) as app:
        run = await app.get("r")
        await run.resume()
        await reaches(run, "waiting")
        assert called == []
        clock.advance(30 * DAY)
        await reaches(run, "paused")
        (hold,) = await run.holds()
        assert hold.kind is rt.HoldKind.CODE_MISMATCH
        assert "branch 0.1" in hold.reason
        await audit(app, run)


async def test_a_sleep_that_has_records_behind_it_is_over_on_a_clock_that_was_set_back(
    database: Path, clock: ManualClock, called: list[str]
):
    line = flow(called, behind=True)
    async with opened(database, line, clock=clock) as app:
        run = await app.start(line.options(id="r"))
        await reaches(run, "waiting")
        clock.advance(30 * DAY)
        await (await app.get("r")).wait("waiting")
        while not called:  # the row said waiting before as well
            await app.changed(0.05)
        await reaches(run, "waiting")
    set_back = ManualClock()
    async with opened(database, line, clock=set_back) as app:
        run = await app.get("r")
        await run.send("go", 1)
        set_back.advance(1)
        assert await finished(run) == 3
    assert called == ["charge"]
