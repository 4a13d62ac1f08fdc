"""Blocking code that swallows its unwinding in an endless loop: its thread is put to rest, and stays."""

from pathlib import Path

import pytest
from tests.engine.running import finished, opened, reaches, until
from tests.support.manual_clock import ManualClock

import runtrue.sync as rt
from runtrue.engine.threads import SIGNALS_SWALLOWED_MAX


@rt.step
def double(number: int) -> int:
    return 2 * number


@rt.workflow
def doubling(number: int) -> int:
    return double(number)


class Loop:
    def __init__(self) -> None:
        self.passes = 0

        def cling() -> None:
            while True:
                try:
                    rt.sleep(60)
                    return
                except BaseException:  # as people write it
                    self.passes += 1

        @rt.workflow
        def flow(in_branch: bool) -> str:
            if in_branch:
                rt.gather(cling, lambda: rt.sleep(90))
            else:
                cling()
            return "through"

        self.flow = flow


@pytest.mark.parametrize("in_branch", [False, True], ids=["in the workflow", "in a branch"])
@pytest.mark.parametrize("verb", ["cancel", "pause", "nothing"])
async def test_code_that_swallows_the_signal_for_ever_comes_to_rest_and_its_slot_is_free(
    database: Path, clock: ManualClock, in_branch: bool, verb: str
):
    loop = Loop()
    async with opened(database, loop.flow, doubling, clock=clock, slots=1) as app:
        run = await app.start(loop.flow, in_branch)
        await reaches(run, "waiting")
        if verb != "nothing":
            await getattr(run, verb)()
            await reaches(run, {"cancel": "cancelled", "pause": "paused"}[verb])
        assert await finished(await app.start(doubling, 1)) == 2, "the slot is free"
        await until(lambda: loop.passes == 1 + SIGNALS_SWALLOWED_MAX)
        if verb == "nothing":
            clock.advance(91)
            assert await finished(run) == "through"
