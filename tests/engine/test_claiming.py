"""When a worker looks for due runs."""

from pathlib import Path

import pytest
from tests.engine.faults import install
from tests.engine.running import finished, opened
from tests.support.manual_clock import ManualClock

import runtrue as rt


async def test_a_run_that_falls_due_while_a_full_worker_claims_on_is_claimed_at_once(
    database: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    """A claim that filled every slot is followed by another one without a look; what that one missed is looked for."""
    faulty = install(monkeypatch)
    claims = 0

    def fall_due_meanwhile() -> None:
        nonlocal claims
        claims += 1
        if claims == 2:
            clock.advance(60)

    @rt.workflow
    async def flow() -> str:
        await rt.sleep(60)
        return "slept"

    faulty.after["claim"] = fall_due_meanwhile
    async with opened(database, flow, clock=clock, slots=1) as app:
        assert app._worker is not None
        app._worker._unsubscribe()  # hints only shorten waits, and here one might come by chance
        run = await app.start(flow)
        app._worker.wake()
        assert await finished(run) == "slept"
        assert claims >= 3
