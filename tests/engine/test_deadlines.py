"""The deadline of a run: when it has passed, the run is cancelled, whatever it is then."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.engine.looking import outside, passing
from tests.engine.running import Gate, audit, event_types, finished, opened, reaches, until_heard
from tests.support.manual_clock import ManualClock

import runtrue as rt
from runtrue.lifecycle import Status

MINUTE = 60
begun: list[str] = []


@rt.workflow
async def listens() -> str:
    return await rt.receive("note", str)


@rt.workflow(deadline=timedelta(minutes=1))
async def hurries() -> str:
    return await rt.receive("note", str)


async def assert_over(app: rt.Client, run: rt.RunHandle[Any]) -> None:
    await reaches(run, "cancelled")
    request = (await app.service.get(run.id)).request
    assert request is not None
    assert (request.verb, request.by, request.reason) == ("cancel", "deadline", "its deadline has passed")
    with pytest.raises(rt.RunCancelled, match="its deadline has passed"):
        await run.result()


@pytest.mark.parametrize("how", ["by options", "by the workflow", "options before the workflow"])
async def test_a_run_that_waits_is_cancelled_when_its_deadline_has_passed_and_not_before(
    database: Path, clock: ManualClock, how: str
):
    flow = listens if how == "by options" else hurries
    seconds = MINUTE if how == "by the workflow" else 30
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow if how == "by the workflow" else flow.options(deadline=seconds))
        await reaches(run, "waiting")
        clock.advance(seconds - 0.000_001)
        assert (await app.store.sweep()).runs_cancelled == 0
        assert await run.status() is Status.WAITING
        clock.advance(0.000_001)
        await app.store.sweep()
        await assert_over(app, run)
        await audit(app, run)


@pytest.mark.parametrize("status", [Status.PENDING, Status.PAUSED])
async def test_a_run_that_no_worker_has_is_cancelled_at_its_deadline(
    database: Path, clock: ManualClock, status: Status
):
    async with outside(database, clock) as client:
        run = await client.start(hurries)
        if status is Status.PAUSED:
            await run.pause()
        clock.advance(MINUTE)
    async with opened(database, listens, clock=clock) as app:
        run = await app.get(run.id, hurries)
        await app.store.sweep()
        await assert_over(app, run)
        assert [hold.outcome for hold in await app.store.holds(run.id)] == ["moot"] * (status is Status.PAUSED)


@pytest.mark.parametrize("status", [Status.RUNNING, Status.PAUSING, Status.CANCELLING])
async def test_a_run_in_a_step_is_cancelled_at_the_boundary_after_its_deadline(
    database: Path, clock: ManualClock, status: Status
):
    gate = Gate()
    begun.clear()

    @rt.step
    async def works(name: str) -> None:
        begun.append(name)
        await gate.pass_through()

    @rt.workflow(deadline=MINUTE)
    async def flow() -> None:
        await works("a")
        await works("b")

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await gate.reached()
        if status is Status.PAUSING:
            await run.pause()
        elif status is Status.CANCELLING:
            await run.cancel(reason="anna was first")
        clock.advance(MINUTE)
        await app.store.sweep()
        assert await run.status() is Status.CANCELLING
        clock.advance(1)
        await until_heard(app)
        gate.open()
        if status is Status.CANCELLING:
            with pytest.raises(rt.RunCancelled, match="anna was first"):
                await finished(run)
        else:
            await assert_over(app, run)
        assert begun == ["a"]
        assert [step.name for step in (await app.service.steps(run.id))[0]] == ["works"]


async def test_a_run_that_has_ended_in_time_is_left_alone(database: Path, clock: ManualClock):
    async with opened(database, hurries, clock=clock) as app:
        run = await app.start(hurries)
        await run.send("note", "in time")
        assert await finished(run) == "in time"
        before = await event_types(run)
        clock.advance(2 * MINUTE)
        assert (await app.store.sweep()).runs_cancelled == 0
        assert await event_types(run) == before
        assert await finished(run) == "in time"


async def test_a_deadline_that_passed_while_nobody_was_there_is_carried_out_by_the_first_who_comes(
    database: Path, clock: ManualClock
):
    async with opened(database, hurries, clock=clock) as app:
        run = await app.start(hurries)
        await reaches(run, "waiting")
    clock.advance(9 * MINUTE)
    async with opened(database, hurries, clock=clock) as app:
        run = await app.get(run.id, hurries)
        await passing(clock, run)
        await assert_over(app, run)


async def test_a_child_has_a_deadline_of_its_own_and_its_parent_is_told(database: Path, clock: ManualClock):
    @rt.workflow
    async def parent() -> str:
        try:
            return await hurries.options(id="child")()
        except rt.RunCancelled as cancelled:
            return cancelled.reason

    async with opened(database, parent, hurries, clock=clock) as app:
        run, child = await app.start(parent), app.handle("child")
        await reaches(run, "waiting")
        await reaches(child, "waiting")
        clock.advance(MINUTE)
        await app.store.sweep()
        assert await finished(run) == "its deadline has passed"


async def test_children_go_with_a_parent_whose_deadline_has_passed(database: Path, clock: ManualClock):
    @rt.workflow(deadline=MINUTE)
    async def parent() -> str:
        return await listens.options(id="child")()

    async with opened(database, parent, listens, clock=clock) as app:
        run, child = await app.start(parent), app.handle("child")
        await reaches(run, "waiting")
        await reaches(child, "waiting")
        clock.advance(MINUTE)
        await app.store.sweep()
        await assert_over(app, run)
        await reaches(child, "cancelled")
        await audit(app, run)
