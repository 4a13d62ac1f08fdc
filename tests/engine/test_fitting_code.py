"""Code that did not fit is not for ever: who brings other code lets the run try again, and so does a person."""

from pathlib import Path
from typing import Any

import pytest
from tests.engine.looking import outside, until_event, until_recorded
from tests.engine.running import audit, event_types, finished, opened, reaches
from tests.support.manual_clock import ManualClock

import runtrue as rt
from runtrue.lifecycle import HoldKind, Status

MINUTE = 60
executed: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_executed() -> None:
    executed.clear()


@rt.step
async def load() -> str:
    executed.append("load")
    return "loaded"


@rt.step
async def store() -> str:
    executed.append("store")
    return "stored"


@rt.step
async def check() -> str:
    executed.append("check")
    return "checked"


@rt.workflow(name="flow")
async def begun_with() -> list[str]:
    done = [await load()]
    await rt.sleep(MINUTE)
    return [*done, await store()]


@rt.workflow(name="flow")
async def mended() -> list[str]:
    """Other text, the same calls."""
    loaded = await load()
    await rt.sleep(MINUTE)
    stored = await store()
    return [loaded, stored]


@rt.workflow(name="flow")
async def unfit() -> list[str]:
    done = [await check()]
    await rt.sleep(MINUTE)
    return [*done, await store()]


@rt.workflow(name="flow")
async def unfit_too() -> list[str]:
    done = [await check(), await load()]
    await rt.sleep(MINUTE)
    return done


@rt.workflow(name="flow", version="2")
async def next_version() -> list[str]:
    return [await check()]


async def begin(database: Path, clock: ManualClock) -> str:
    async with opened(database, begun_with, clock=clock) as app:
        run = await app.start(begun_with)
        await until_recorded(app, run, "sleep")
    clock.advance(MINUTE)
    return run.id


async def holds(app: rt.Client, run: rt.RunHandle[Any]) -> list[rt.Hold]:
    return await app.store.holds(run.id)


async def test_a_hold_names_both_sides_and_which_code_it_was(database: Path, clock: ManualClock):
    run_id = await begin(database, clock)
    async with opened(database, unfit, clock=clock) as app:
        run = await app.get(run_id)
        await reaches(run, "paused")
        (hold,) = await holds(app, run)
        assert (hold.kind, hold.closed_at) == (HoldKind.CODE_MISMATCH, None)
        assert hold.reason == "call 1 of flow is step check, but the history holds step load there"
        assert hold.code_digest == unfit.code_digest
    assert executed == ["load"], "nothing of the code that does not fit was executed"


async def test_a_worker_with_other_code_lets_the_run_try_again_and_it_goes_on(database: Path, clock: ManualClock):
    run_id = await begin(database, clock)
    async with opened(database, unfit, clock=clock) as app:
        await reaches(await app.get(run_id), "paused")
    async with opened(database, mended, clock=clock) as app:
        run = await app.get(run_id)
        assert await finished(run) == ["loaded", "stored"]
        (hold,) = await holds(app, run)
        assert (hold.outcome, hold.closed_by) == ("resumed", app.worker_id)
        await audit(app, run)
    assert executed == ["load", "store"]


async def test_the_same_code_does_not_try_again_and_other_code_that_does_not_fit_does_so_once(
    database: Path, clock: ManualClock
):
    run_id = await begin(database, clock)
    tried: set[str] = set()
    for code in (unfit, unfit_too, unfit, unfit_too):
        async with opened(database, code, clock=clock) as app:
            run = await app.get(run_id)
            tried.add(code.code_digest)
            await until_event(run, "hold_opened", len(tried))
            await reaches(run, "paused")
            digests = [hold.code_digest for hold in await holds(app, run)]
            assert sorted(digests) == sorted(tried), "each code is held once"
    async with opened(database, begun_with, clock=clock) as app:
        assert await finished(await app.get(run_id)) == ["loaded", "stored"]
    assert executed == ["load", "store"]


async def test_a_person_who_resumes_lets_even_the_same_code_try_again(database: Path, clock: ManualClock):
    run_id = await begin(database, clock)
    async with opened(database, unfit, clock=clock) as app:
        run = await app.get(run_id)
        for times in (1, 2):
            await until_event(run, "hold_opened", times)
            await reaches(run, "paused")
            if times == 1:
                await run.resume(reason="look again")
        assert {hold.outcome for hold in await holds(app, run)} == {"resumed", None}
        await audit(app, run)


async def test_a_worker_of_another_version_leaves_the_run_alone(database: Path, clock: ManualClock):
    run_id = await begin(database, clock)
    async with opened(database, unfit, clock=clock) as app:
        await reaches(await app.get(run_id), "paused")
    async with opened(database, next_version, clock=clock) as app:
        run = await app.get(run_id)
        assert await run.status() is Status.PAUSED
        assert await finished(await app.start(next_version)) == ["checked"]
        assert await run.status() is Status.PAUSED
        assert (await event_types(run)).count("claimed") == 2


async def test_an_operators_hold_stays_when_fitting_code_comes(database: Path, clock: ManualClock):
    run_id = await begin(database, clock)
    async with opened(database, unfit, clock=clock) as app:
        run = await app.get(run_id)
        await reaches(run, "paused")
        await run.pause(reason="wait for anna")
    async with opened(database, mended, clock=clock) as app:
        run = await app.get(run_id)
        open_kinds = [hold.kind for hold in await holds(app, run) if hold.closed_at is None]
        assert open_kinds == [HoldKind.OPERATOR]
        assert await run.status() is Status.PAUSED
        await run.resume()
        assert await finished(run) == ["loaded", "stored"]


async def test_a_cancelled_run_is_not_brought_back_by_fitting_code(database: Path, clock: ManualClock):
    run_id = await begin(database, clock)
    async with opened(database, unfit, clock=clock) as app:
        run = await app.get(run_id)
        await reaches(run, "paused")
        await run.cancel()
    async with opened(database, mended, clock=clock) as app:
        assert await (await app.get(run_id)).status() is Status.CANCELLED


async def test_code_that_changed_while_the_run_was_paused_is_met_after_the_resume(database: Path, clock: ManualClock):
    """The pause is not the mismatch: code that fits goes on, code that does not is held with the difference named."""
    run_id = await begin_and_pause(database, clock)
    async with opened(database, unfit, clock=clock) as app:
        run = await app.get(run_id)
        await run.resume()
        await until_event(run, "hold_opened", 2)
        assert await run.status() is Status.PAUSED
        (hold,) = [hold for hold in await holds(app, run) if hold.kind is HoldKind.CODE_MISMATCH]
        assert "is step check, but the history holds step load there" in hold.reason
    async with opened(database, mended, clock=clock) as app:
        assert await finished(await app.get(run_id)) == ["loaded", "stored"]
    assert executed == ["load", "store"]


async def begin_and_pause(database: Path, clock: ManualClock) -> str:
    async with opened(database, begun_with, clock=clock) as app:
        run = await app.start(begun_with)
        await until_recorded(app, run, "sleep")
        await run.pause()
    clock.advance(MINUTE)
    return run.id


async def test_a_paused_run_keeps_to_its_own_version_while_the_next_one_is_served(database: Path, clock: ManualClock):
    run_id = await begin_and_pause(database, clock)
    async with opened(database, mended, next_version, clock=clock) as app:
        run = await app.get(run_id)
        await run.resume()
        assert await finished(run) == ["loaded", "stored"]


async def test_fitting_code_that_is_open_already_is_not_asked_a_second_time_by_its_own_restart(
    database: Path, clock: ManualClock
):
    """Rolling over a fleet: each process that brings the code which was held changes nothing."""
    run_id = await begin(database, clock)
    async with opened(database, unfit, clock=clock) as app:
        run = await app.get(run_id)
        await reaches(run, "paused")
        before = await event_types(run)
    for _ in range(3):
        async with opened(database, unfit, clock=clock) as app:
            assert await event_types(await app.get(run_id)) == before
    async with outside(database, clock) as client:
        assert len(await client.store.holds(run_id)) == 1
