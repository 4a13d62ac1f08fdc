"""What is recorded at a place counts, whoever wrote it there."""

from pathlib import Path

from tests.engine.running import finished, opened, reaches, recorded
from tests.support.manual_clock import ManualClock

import runtrue as rt
from runtrue.codec import place_digest
from runtrue.lifecycle import HoldKind
from runtrue.records import StepRecord
from runtrue.store.protocol import RunEffects


async def test_a_step_that_was_recorded_before_goes_on_with_that_result_and_not_with_its_own(database: Path):
    """As if the answer to its first recording had been lost, and the step had been executed again since."""
    seen: list[str] = []

    @rt.step
    async def draw() -> str:
        digest = place_digest("", 0, b'"first"', None)
        before = StepRecord("", 0, "draw", "step", 1, b'"first"', None, 1, 2, digest)
        await app.service.store.record(app.worker_id, [RunEffects(rt.this_run().id, 1, [before])])
        return "second"

    @rt.workflow
    async def flow() -> str:
        seen.append(await draw())
        return seen[-1]

    async with opened(database, flow) as app:
        run = await app.start(flow)
        assert await finished(run) == "first"
        assert seen == ["first"]
        assert await recorded(app, run) == [("draw", 1)]


async def test_a_step_that_is_named_as_a_recorded_sleep_does_not_fit(database: Path, clock: ManualClock):
    calls: list[str] = []

    @rt.workflow(name="flow")
    async def old() -> None:
        await rt.sleep(60)

    @rt.step(name="sleep")
    async def work() -> None:
        calls.append("work")

    @rt.workflow(name="flow")
    async def new() -> None:
        await work()

    async with opened(database, old, clock=clock) as app:
        run = await app.start(old)
        await reaches(run, "waiting")
    async with opened(database, new, clock=clock) as app:
        clock.advance(60)
        run = await app.get(run.id)
        await reaches(run, "paused")
        (hold,) = await run.holds()
        assert hold.kind is HoldKind.CODE_MISMATCH
        assert "is step sleep, but the history holds rt.sleep there" in hold.reason
        assert calls == []


async def test_code_that_differs_executes_no_step_behind_the_difference(database: Path, clock: ManualClock):
    """The call that differs is held at once, not when the code has come to its end."""
    calls: list[str] = []

    def step(name: str):
        @rt.step(name=name)
        async def work() -> None:
            calls.append(name)

        return work

    before, other, behind = step("before"), step("other"), step("behind")

    @rt.workflow(name="flow")
    async def old() -> None:
        await before()
        await rt.sleep(60)

    @rt.workflow(name="flow")
    async def new() -> None:
        await other()
        await other()
        await behind()

    async with opened(database, old, clock=clock) as app:
        run = await app.start(old)
        await reaches(run, "waiting")
    async with opened(database, new, clock=clock) as app:
        clock.advance(60)
        await reaches(await app.get(run.id), "paused")
    assert calls == ["before"]
