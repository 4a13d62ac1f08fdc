"""Code that swallows the signal by which its run leaves memory."""

import asyncio
from pathlib import Path

import pytest
from tests.engine.faults import install
from tests.engine.running import Gate, finished, opened, reaches, until
from tests.support.manual_clock import ManualClock

import runtrue as rt
from runtrue.lifecycle import Status
from runtrue.store.protocol import Finish


async def test_what_an_unwound_function_returns_is_sent_nowhere(
    database: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    """The database would refuse it; but nobody should have to."""
    faulty = install(monkeypatch)

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
        ends = [effect.end for batch in faulty.batches for effect in batch if effect.end is not None]
        assert not any(isinstance(end, Finish) for end in ends), ends
        assert await run.status() is Status.WAITING


async def test_code_that_clings_to_a_run_that_was_settled_takes_no_slot(database: Path, clock: ManualClock):
    """The slot is free at once, and not only when a renewal has interrupted the code: no time passes here."""
    gate = Gate()

    @rt.workflow
    async def clings() -> None:
        try:
            await rt.sleep(60)
        except BaseException:  # as above
            await gate.pass_through()
            raise

    @rt.workflow
    async def other() -> str:
        return "other"

    async with opened(database, clings, other, clock=clock, slots=1) as app:
        await app.start(clings)
        await gate.reached()
        assert await finished(await app.start(other)) == "other"
        gate.open()


async def test_code_that_clings_to_a_run_that_was_settled_is_interrupted_by_the_next_renewal(
    database: Path, clock: ManualClock
):
    """Nothing that it waits for needs to come."""
    gate = Gate()
    interrupted: list[str] = []

    @rt.workflow
    async def clings() -> None:
        try:
            await rt.sleep(60)
        except BaseException:  # as above
            try:
                await gate.pass_through()
            except asyncio.CancelledError:
                interrupted.append("interrupted")
                raise

    async with opened(database, clings, clock=clock, lease=15) as app:
        await app.start(clings)
        await gate.reached()
        clock.advance(5)
        await until(lambda: bool(interrupted))
        gate.open()
