"""Waits and timers that went wrong elsewhere."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest
from tests.support import flows
from tests.support.histories import assert_sound
from tests.support.stage import Stage
from tests.support.waiting import until

import runtrue as rt
from runtrue import App, NotFound
from runtrue.lifecycle import Status

woken: dict[str, tuple[datetime, datetime]] = {}


@rt.step
async def look_at_the_clock(target: datetime) -> None:
    woken[rt.this_step().run_id] = (target, datetime.now(UTC))


@rt.workflow
async def wakes_at(target: datetime) -> None:
    await rt.sleep_until(target)
    await look_at_the_clock(target)


@rt.step
async def ask_from_threads() -> list[str]:
    """The step's own information, asked from a thread that asyncio made and from one that knows nothing of it."""
    found = [await asyncio.to_thread(lambda: rt.this_step().name)]

    def ask() -> None:
        try:
            found.append(rt.this_step().name)
        except rt.WrongPlace as refused:
            found.append(str(refused))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return found


@rt.workflow
async def asks_from_threads() -> list[str]:
    return await ask_from_threads()


async def test_every_verb_and_every_wait_on_an_unknown_id_says_so_at_once(stage: Stage):
    with pytest.raises(NotFound, match="no run 'nobody'"):
        await stage.client.get("nobody")
    handle = await stage.start("a")
    with stage.raw() as connection:
        connection.execute("UPDATE runtrue_runs SET status = 'cancelled', finished_at = 1 WHERE id = 'run'")
        connection.execute("DELETE FROM runtrue_runs")
    for verb in (handle.result, handle.wait, handle.status, handle.info, handle.pause, handle.cancel, handle.terminate):
        with pytest.raises(NotFound, match="no run 'run'"):
            await verb()


async def test_timers_never_fire_early(stage: Stage):
    woken.clear()
    async with App(stage.database, workflows=[wakes_at]) as app:
        now = datetime.now(UTC)
        targets = [now + timedelta(milliseconds=20 * n) for n in range(100)]
        runs = [await app.start(wakes_at, target) for target in targets]
        for run in runs:
            await run.result(timeout=45)
    assert len(woken) == len(runs)
    assert all(at >= target for target, at in woken.values())


async def test_many_waiting_runs_cost_their_worker_no_threads_and_no_slots(stage: Stage):
    worker = await stage.worker(slots=10)
    runs = [
        await stage.client.start(flows.napping.options(id=f"run-{n}"), str(stage.folder), 3_600.0) for n in range(200)
    ]

    async def all_asleep() -> bool:
        return (await stage.client.service.store.count_runs()).get(Status.WAITING) == len(runs)

    await until(all_asleep, "all runs sleep")
    assert worker.threads < 20
    after = await stage.start("x", run_id="after")
    assert await after.result(timeout=45) == ["x"]


async def test_a_step_knows_itself_in_a_thread_of_asyncio_and_is_told_clearly_in_another(stage: Stage):
    async with App(stage.database, workflows=[asks_from_threads]) as app:
        run = await app.start(asks_from_threads)
        here, there = await run.result(timeout=45)
    assert here == "ask_from_threads"
    assert "step" in there
    assert there != here


async def test_a_due_timer_is_not_held_up_by_delayed_runs_before_it(stage: Stage):
    await stage.worker(slots=1)
    late = await stage.client.start(flows.chain.options(id="late", delay=3_600), str(stage.folder), ["a"])
    ready = await stage.start("b", run_id="ready")
    assert await ready.result(timeout=45) == ["b"]
    assert await stage.status("late") is Status.PENDING
    assert (await late.info()).started_at is None
    await assert_sound(stage.client, "ready")
