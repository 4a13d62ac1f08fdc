"""Time in a TestApp: who moves it, how far, and what happens on the way."""

import asyncio
import threading
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.support.waiting import CLOCK

import runtrue as rt
from runtrue.testing import Standstill, TestApp
from runtrue.testing._clock import BEGINNING, BREATH_SECONDS, ManualClock

DAY = timedelta(days=1)
IMPATIENT_SECONDS = 0.2


@rt.step
async def note(text: str) -> str:
    return text


@rt.workflow
async def sleeps(*days: float) -> list[datetime]:
    moments: list[datetime] = []
    for span in days:
        await rt.sleep(timedelta(days=span))
        moments.append(rt.now())
    return moments


@rt.workflow
async def talks(topic: str) -> str:
    return await rt.receive(topic, str)


@rt.workflow
async def ticks() -> None:
    while True:
        await rt.sleep(1)


async def test_a_hundred_runs_that_sleep_for_days_are_over_in_no_time():
    began = CLOCK.steady()
    async with TestApp(workflows=[sleeps]) as app:
        started = app.now()
        runs = [await app.start(sleeps, 1 + number / 100, 2) for number in range(100)]
        results = [await run.result() for run in runs]
    assert app.now() - started >= 3 * DAY
    assert [result[0] - started for result in results] == [(1 + number / 100) * DAY for number in range(100)]
    assert CLOCK.steady() - began < 60


async def test_the_clock_begins_with_2026_and_stands_still():
    async with TestApp(workflows=[sleeps]) as app:
        assert app.now().isoformat() == "2026-01-01T00:00:00+00:00"
        run = await app.start(sleeps, 1)
        await run.wait("waiting")
        await run.status()
        assert app.now().isoformat() == "2026-01-01T00:00:00+00:00"


async def test_result_jumps_just_to_the_end_of_the_sleep():
    async with TestApp(workflows=[sleeps]) as app:
        started = app.now()
        run = await app.start(sleeps, 1, 2)
        assert await run.result() == [started + DAY, started + 3 * DAY]
        assert app.now() == started + 3 * DAY


async def test_even_the_shortest_sleep_leaves_memory_so_that_it_is_replayed():
    async with TestApp(workflows=[sleeps]) as app:
        run = await app.start(sleeps, 0.1 / 86_400)
        assert (await run.wait("waiting")).status is rt.Status.WAITING
        assert len(await run.result()) == 1


async def test_advance_stops_wherever_something_is_due_and_in_that_order():
    order: list[tuple[str, timedelta]] = []

    @rt.step
    async def tell(name: str) -> None:
        order.append((name, app.now() - started))

    @rt.workflow
    async def walks(name: str, *hours: float) -> None:
        for span in hours:
            await rt.sleep(timedelta(hours=span))
            await tell(name)

    async with TestApp(workflows=[walks]) as app:
        started = app.now()
        for name, hours in (("a", (3, 3)), ("b", (1, 1, 5)), ("c", (4,))):
            await app.start(walks, name, *hours)
        assert await app.advance(timedelta(hours=6.5)) == started + timedelta(hours=6.5)
        assert order == [
            (name, timedelta(hours=hours)) for name, hours in (("b", 1), ("b", 2), ("a", 3), ("c", 4), ("a", 6))
        ]
        await app.advance(timedelta(hours=1))
        assert order[-1] == ("b", timedelta(hours=7))


async def test_advance_by_nothing_lets_the_worker_do_what_it_can():
    async with TestApp(workflows=[sleeps]) as app:
        run = await app.start(sleeps, 1)
        await app.advance(0)
        assert await run.status() is rt.Status.WAITING


async def test_two_days_are_not_as_many_looks_as_they_have_seconds():
    """Sweeper, worker and watcher poll; the clock stops for none of them."""
    async with TestApp(workflows=[sleeps]) as app:
        run = await app.start(sleeps, 30)
        await run.wait("waiting")
        moves: list[int] = []
        move_to = app._own_clock.move_to
        app._own_clock.move_to = lambda at: (moves.append(at), move_to(at))[1]
        watching = asyncio.ensure_future(run.wait())
        await app.advance(29 * DAY)
        assert len(moves) == 1
        watching.cancel()


async def test_wait_never_moves_the_clock_and_says_what_would():
    async with TestApp(workflows=[sleeps]) as app:
        run = await app.start(sleeps, 1)
        with pytest.raises(Standstill, match=r"is waiting, not completed: sleeps until .* does not move the clock"):
            await run.wait("completed")
        assert app.now().isoformat() == "2026-01-01T00:00:00+00:00"


async def test_wait_waits_for_what_another_task_of_the_test_brings():
    async with TestApp(workflows=[sleeps]) as app:
        run = await app.start(sleeps, 1)
        ended, _ = await asyncio.gather(run.wait("completed"), app.advance(DAY))
        assert ended.status is rt.Status.COMPLETED


async def test_wait_returns_when_the_run_has_ended_otherwise():
    async with TestApp(workflows=[sleeps]) as app:
        run = await app.start(sleeps, 1)
        await run.cancel()
        assert (await run.wait("completed")).status is rt.Status.CANCELLED


async def test_result_says_that_a_message_is_missing_instead_of_hanging():
    async with TestApp(workflows=[talks]) as app:
        run = await app.start(talks, "answer")
        with pytest.raises(Standstill, match=r"is waiting, and no time ends that: waits for a message on answer"):
            await run.result()
        await run.send("answer", "yes")
        assert await run.result() == "yes"


async def test_result_says_that_a_run_is_paused_instead_of_hanging():
    async with TestApp(workflows=[sleeps]) as app:
        run = await app.start(sleeps, 1)
        await run.pause(reason="lunch")
        with pytest.raises(Standstill, match=r"is paused, and no time ends that: paused by .*lunch"):
            await run.result()
        await run.resume()
        assert len(await run.result()) == 1


async def test_result_says_that_a_run_is_paused_though_others_go_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("runtrue.testing._time.MOVES_IN_VAIN_MAX", 5)
    async with TestApp(workflows=[sleeps, ticks]) as app:
        await app.start(ticks)
        run = await app.start(sleeps, 1)
        await run.pause()
        with pytest.raises(Standstill, match="is paused, and no time ends that"):
            await run.result()


async def test_result_says_that_nobody_serves_a_run():
    async with TestApp(workflows=[sleeps]) as app:
        run = await app.start("unheard_of")
        with pytest.raises(Standstill, match="no worker serves unheard_of"):
            await run.result()


async def test_result_gives_up_where_other_runs_go_round_in_circles(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("runtrue.testing._time.MOVES_IN_VAIN_MAX", 5)
    async with TestApp(workflows=[talks, ticks]) as app:
        await app.start(ticks)
        run = await app.start(talks, "answer")
        with pytest.raises(Standstill, match="was moved 6 times for other runs"):
            await run.result()


async def test_a_long_sleep_is_waited_for_however_often_others_wake(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("runtrue.testing._time.MOVES_IN_VAIN_MAX", 5)
    async with TestApp(workflows=[sleeps, ticks]) as app:
        await app.start(ticks)
        run = await app.start(sleeps, 20 / 86_400)
        assert len(await run.result()) == 1


async def test_result_with_a_timeout_ends_there_by_the_clock_of_the_app():
    async with TestApp(workflows=[sleeps]) as app:
        started = app.now()
        run = await app.start(sleeps, 1, 1)
        with pytest.raises(rt.ResultTimeout, match="still waiting"):
            await run.result(timeout=1.5 * DAY)
        assert app.now() == started + 1.5 * DAY
        assert len(await run.result(timeout=DAY)) == 2
        assert app.now() == started + 2 * DAY


async def test_a_timeout_of_result_passes_also_where_nothing_else_is_due():
    async with TestApp(workflows=[talks]) as app:
        run = await app.start(talks, "answer")
        with pytest.raises(rt.ResultTimeout):
            await run.result(timeout=60)


async def test_the_result_of_a_run_that_does_not_exist_is_not_waited_for():
    async with TestApp(workflows=[sleeps]) as app:
        with pytest.raises(rt.NotFound):
            await app.handle("nobody").result()


async def test_retries_come_when_their_time_has_come():
    seen: list[timedelta] = []

    @rt.step(retry=rt.Retry(4, first_delay=60, factor=10, max_delay=3_600, jitter=False))
    async def fails_thrice() -> str:
        seen.append(app.now() - started)
        if len(seen) < 4:
            raise ConnectionError("not yet")
        return "at last"

    @rt.workflow
    async def tries() -> str:
        return await fails_thrice()

    async with TestApp(workflows=[tries]) as app:
        started = app.now()
        run = await app.start(tries)
        assert (await run.wait("waiting")).status is rt.Status.WAITING
        assert await run.result() == "at last"
        assert seen == [timedelta(seconds=at) for at in (0, 60, 660, 4_260)]


async def test_a_delayed_start_is_waited_for():
    async with TestApp(workflows=[sleeps]) as app:
        started = app.now()
        assert await app.run(sleeps.options(delay=DAY)) == []
        assert app.now() == started + DAY


async def test_a_run_meets_its_deadline_when_the_clock_does():
    async with TestApp(workflows=[sleeps, talks]) as app:
        started = app.now()
        run = await app.start(talks.options(deadline=2 * DAY), "answer")
        await app.advance(timedelta(days=1.9))
        assert await run.status() is rt.Status.WAITING
        with pytest.raises(rt.RunCancelled):
            await run.result()
        assert app.now() == started + 2 * DAY


async def test_a_wait_for_a_message_gives_up_when_its_time_has_come():
    @rt.workflow
    async def listens() -> str:
        return await rt.receive("answer", str, timeout=DAY, default="nobody")

    async with TestApp(workflows=[listens]) as app:
        started = app.now()
        assert await app.run(listens) == "nobody"
        assert app.now() == started + DAY


async def test_the_clock_stands_while_a_step_is_at_work():
    """It waits for no time: what it does takes none by this clock."""

    @rt.step
    async def takes_its_time() -> None:
        await asyncio.to_thread(threading.Event().wait, 0.3)

    @rt.workflow
    async def works() -> datetime:
        await takes_its_time()
        return rt.now()

    async with TestApp(workflows=[works, sleeps]) as app:
        started = app.now()
        sleeper = await app.start(sleeps, 1)
        worker = await app.start(works)
        assert await worker.result() == started
        assert await sleeper.result() == [started + DAY]


async def test_a_step_that_never_comes_back_is_named():
    reached = asyncio.Event()

    @rt.step
    async def hangs() -> None:
        reached.set()
        await asyncio.Event().wait()

    @rt.workflow
    async def flow() -> None:
        await hangs()

    async with TestApp(workflows=[flow], patience=IMPATIENT_SECONDS) as app:
        run = await app.start(flow)
        await reached.wait()
        with pytest.raises(Standstill, match=rf"step hangs of run {run.id} did not come back within 0.2 s"):
            await run.result()
        with pytest.raises(Standstill, match="step hangs"):
            await run.wait()


async def test_advance_goes_on_without_a_step_at_work_and_brings_its_timeout_on():
    @rt.step(timeout=30)
    async def hangs() -> None:
        await asyncio.Event().wait()

    @rt.workflow
    async def flow() -> None:
        await hangs()

    async with TestApp(workflows=[flow]) as app:
        run = await app.start(flow)
        await app.advance(29)
        assert await run.status() is rt.Status.RUNNING
        await app.advance(1)
        assert (await run.info()).status is rt.Status.FAILED


async def test_a_cancel_reaches_a_step_at_work_though_no_time_passes():
    reached = asyncio.Event()

    @rt.step(interruptible=True)
    async def hangs() -> None:
        reached.set()
        await asyncio.Event().wait()

    @rt.workflow
    async def flow() -> None:
        await hangs()

    async with TestApp(workflows=[flow]) as app:
        run = await app.start(flow)
        await reached.wait()
        await run.cancel()
        assert (await run.wait()).status is rt.Status.CANCELLED


async def test_an_app_on_a_file_behaves_alike(tmp_path: Path):
    async with TestApp(workflows=[sleeps], database=tmp_path / "runs.db") as app:
        started = app.now()
        run = await app.start(sleeps, 1, 1)
        await app.advance(DAY)
        await app.restart()
        assert await run.result() == [started + DAY, started + 2 * DAY]
    async with app:
        assert len(await (await app.get(run.id, sleeps)).result()) == len(await run.result()) == 2


async def test_a_closed_app_and_one_never_opened_say_so():
    app = TestApp(workflows=[sleeps])
    for attempt in (lambda: app.advance(1), app.restart, lambda: app.start(sleeps, 1)):
        with pytest.raises(rt.ConfigurationError, match="not open"):
            await attempt()
    assert app.now().year == 2026


async def test_closing_is_not_held_up_by_a_step_that_does_not_listen():
    reached = asyncio.Event()
    over = asyncio.Event()

    @rt.step
    async def deaf() -> None:
        reached.set()
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue

    @rt.workflow
    async def flow() -> None:
        await deaf()

    try:
        async with asyncio.timeout(20), TestApp(workflows=[flow]) as app:
            await app.start(flow)
            await reached.wait()
    finally:
        over.set()


# ---------------------------------------------------------------- the clock itself
async def test_what_polls_is_woken_but_is_nothing_that_time_brings():
    clock = ManualClock()

    async def sleeps_for(seconds: float) -> None:
        await clock.sleep(seconds)

    polling = asyncio.create_task(sleeps_for(1), name="runtrue-sweeper")
    asking = asyncio.create_task(sleeps_for(5), name="somebody")
    await clock.sleeper(5)
    assert clock.next_alarm() == BEGINNING + 5_000_000
    clock.advance(2)
    await polling
    assert not asking.done()
    clock.advance(3)
    await asking
    assert clock.next_alarm() is None


async def test_a_clock_that_runs_freely_lets_everybody_go_on():
    clock = ManualClock()
    asleep = asyncio.create_task(clock.sleep(3_600))
    await clock.sleeper(3_600)
    clock.run_freely()
    await asleep
    await clock.sleep(2 * BREATH_SECONDS)
    assert clock.now() == BEGINNING


def test_a_nudge_that_comes_while_a_thread_is_at_work_is_not_lost_on_it():
    clock = ManualClock()
    never = threading.Event()
    assert not clock.wait_in_thread(never, 0)
    clock.nudge_threads()
    assert not clock.wait_in_thread(never, 3_600)
