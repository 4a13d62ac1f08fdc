"""A run that leaves memory is unwound. What its code does meanwhile is not used, and hurts no run."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from tests.engine.faults import install
from tests.engine.running import Gate, audit, finished, opened, reaches, recorded, until
from tests.support.manual_clock import ManualClock

import runtrue as rt
from runtrue.lifecycle import Status


async def test_a_step_in_finally_does_not_run_while_the_run_is_unwound_and_runs_in_its_place(
    database: Path, clock: ManualClock
):
    calls: list[str] = []

    @rt.step
    async def clean_up() -> None:
        calls.append("clean up")

    @rt.workflow
    async def flow() -> str:
        try:
            await rt.sleep(60)
        finally:
            await clean_up()
        return "done"

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        assert calls == []
        clock.advance(60)
        assert await finished(run) == "done"
        assert calls == ["clean up"]
        assert await recorded(app, run) == [("sleep", 1), ("clean_up", 1)]


async def test_code_that_swallows_everything_meets_the_signal_again_at_each_durable_call(
    database: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    faulty = install(monkeypatch)
    met: list[str] = []
    calls: list[str] = []

    @rt.step
    async def work() -> None:
        calls.append("work")

    @rt.workflow
    async def flow() -> str:
        for call in (lambda: rt.sleep(60), work, lambda: rt.sleep(0)):
            try:
                await call()
            except BaseException as signal:  # what such code does must not matter
                met.append(type(signal).__name__)
        try:
            rt.now()
        except BaseException as signal:  # as above
            met.append(type(signal).__name__)
        return "returned"

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        worker = app._worker
        assert worker is not None
        await until(lambda: worker.running == 0)
        assert met == ["Unwound"] * 4
        assert calls == []
        assert await run.status() is Status.WAITING, "what it returned is not used"
        ends = [type(effect.end).__name__ for batch in faulty.batches for effect in batch if effect.end]
        assert ends == ["ParkBlocked"], "nor is it sent to the database"
        clock.advance(60)
        assert await finished(run) == "returned"
        assert calls == ["work"]
        await audit(app, run)


async def test_code_that_suppresses_the_signal_and_raises_its_own_error_does_not_fail_the_run(
    database: Path, clock: ManualClock
):
    @rt.workflow
    async def flow() -> str:
        asleep = True
        try:
            with contextlib.suppress(BaseException):
                await rt.sleep(60)
                asleep = False
        finally:
            if asleep:
                raise ValueError("raised while being unwound")
        return "done"

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        worker = app._worker
        assert worker is not None
        await until(lambda: worker.running == 0)
        assert await run.status() is Status.WAITING
        clock.advance(60)
        assert await finished(run) == "done"


async def test_a_call_made_before_and_awaited_while_unwound_raises_the_signal_too(database: Path, clock: ManualClock):
    calls: list[str] = []

    @rt.step
    async def work() -> None:
        calls.append("work")

    @rt.workflow
    async def flow() -> None:
        later = work()
        try:
            await rt.sleep(60)
        finally:
            await later

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        assert calls == []
        clock.advance(60)
        await finished(run)
        assert calls == ["work"]


async def test_code_that_is_unwound_and_then_waits_for_something_foreign_gives_its_slot_back(
    database: Path, clock: ManualClock
):
    """Nobody would ever end it: the row is not the worker's any more, yet a slot would be taken for good."""
    gate = Gate()
    replays: list[int] = []

    @rt.workflow
    async def clings() -> str:
        replays.append(1)
        try:
            await rt.sleep(60)
        except BaseException:  # what such code does must not matter
            await gate.pass_through()
            raise
        return "done"

    @rt.workflow
    async def other() -> str:
        return "other"

    async with opened(database, clings, other, clock=clock, slots=1) as app:
        run = await app.start(clings)
        await gate.reached()
        await reaches(run, "waiting")
        second = await app.start(other)
        clock.advance(1)
        assert await finished(second) == "other"
        clock.advance(60)
        assert await finished(run) == "done"
        assert len(replays) == 2


async def test_a_workflow_that_swallows_its_cancel_cannot_go_on(database: Path, clock: ManualClock):
    gate = Gate()
    calls: list[str] = []

    @rt.step
    async def work() -> None:
        calls.append("work")

    @rt.workflow
    async def flow() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await gate.pass_through()
        await work()
        return "went on"

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await gate.reached()
        await run.cancel()
        clock.advance(1)
        await reaches(run, "cancelled")
        assert calls == []
        await audit(app, run)


async def test_a_context_managers_exit_runs_at_every_unwinding(database: Path, clock: ManualClock):
    exits: list[str] = []

    @contextlib.asynccontextmanager
    async def resource():
        try:
            yield
        finally:
            exits.append("closed")

    @rt.workflow
    async def flow() -> None:
        async with resource():
            await rt.sleep(60)

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        await until(lambda: exits == ["closed"])
        clock.advance(60)
        await finished(run)
        assert exits == ["closed", "closed"]
