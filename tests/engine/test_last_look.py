"""What was asked happens at the next boundary, and a wait that something came between is taken up again."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.engine.faults import FaultyStore, install
from tests.engine.running import Gate, event_types, finished, opened, reaches, until
from tests.support.manual_clock import ManualClock

import runtrue as rt
from runtrue.store.protocol import EffectsReply, ParkRequested, RunEffects


async def test_code_behind_a_step_does_not_run_once_a_cancel_was_acknowledged(database: Path):
    gate = Gate()
    behind: list[str] = []

    @rt.step
    async def work() -> None:
        await gate.pass_through()

    @rt.workflow
    async def flow() -> None:
        await work()
        behind.append("behind")

    async with opened(database, flow) as app:
        run = await app.start(flow)
        await gate.reached()
        await run.cancel()
        gate.open()
        await reaches(run, "cancelled")
        assert behind == []


async def test_a_run_whose_park_a_resume_overtook_goes_on_where_it_is(
    database: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    """A worker that unwound the run before the reply would own it by the row and execute it no more."""
    faulty = install(monkeypatch)
    inner_record = FaultyStore.record
    overtaken: list[str] = []
    gate = Gate()

    async def record(worker_id: str, effects: Sequence[RunEffects]) -> list[EffectsReply]:
        if any(isinstance(effect.end, ParkRequested) for effect in effects) and not overtaken:
            overtaken.append("the park")
            await run.resume()
        return await inner_record(faulty, worker_id, effects)

    faulty.record = record  # type: ignore[method-assign]

    @rt.step
    async def work() -> None:
        await gate.pass_through()

    @rt.workflow
    async def flow() -> str:
        await work()
        return "done"

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await gate.reached()
        await run.pause()
        gate.open()
        assert await finished(run) == "done"
        assert overtaken
        assert (await event_types(run)).count("claimed") == 1


async def test_a_run_whose_park_was_refused_for_a_resume_parks_again(database: Path, clock: ManualClock):
    """The pause and its withdrawal raise the counter that the worker read with its claim."""
    gate = Gate()

    @rt.step
    async def work() -> None:
        await gate.pass_through()

    @rt.workflow
    async def flow() -> str:
        await work()
        await rt.sleep(60)
        return "slept"

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await gate.reached()
        await run.pause()
        await run.resume()
        gate.open()
        await reaches(run, "waiting")
        clock.advance(60)
        assert await finished(run) == "slept"


async def test_a_back_off_is_kept_over_a_restart(database: Path, clock: ManualClock):
    """A resume has the run claimed at once; the next attempt comes in its own time all the same."""
    calls: list[int] = []

    @rt.step(retry=rt.Retry(3, first_delay=60, factor=1, jitter=False))
    async def flaky() -> int:
        calls.append(rt.this_step().attempt)
        if len(calls) == 1:
            raise ValueError("not yet")
        return len(calls)

    @rt.workflow
    async def flow() -> int:
        return await flaky()

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        await run.pause()
        await run.resume()
        worker = app._worker
        assert worker is not None
        await until(lambda: worker.running == 0)
        await reaches(run, "waiting")
        assert (await event_types(run)).count("claimed") == 2
        assert calls == [1]
        clock.advance(60)
        assert await finished(run) == 2
        assert calls == [1, 2]
