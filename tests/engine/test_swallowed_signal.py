"""Code that swallows the signal by which its run leaves memory."""

from pathlib import Path

from tests.engine.running import opened, reaches, until
from tests.support.manual_clock import ManualClock

import runtrue as rt
from runtrue.lifecycle import Status


async def test_what_an_unwound_function_returns_is_sent_nowhere(database: Path, clock: ManualClock):
    """The database would refuse it; a refused write would be counted as one that came too late."""

    @rt.workflow
    async def flow() -> str:
        try:
            await rt.sleep(60)
        except BaseException:  # what such code does must not matter
            return "swallowed"
        return "slept"

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        worker = app._worker
        assert worker is not None
        await until(lambda: worker.running == 0)
        assert worker.fenced_writes == 0
        assert await run.status() is Status.WAITING
