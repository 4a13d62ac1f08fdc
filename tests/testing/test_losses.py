"""Workers that are lost where a test wants it, and runs that are recovered without anybody's help."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest
from tests.support.histories import assert_sound

import runtrue as rt
import runtrue.sync as blocking
from runtrue.testing import Standstill, TestApp
from runtrue.testing._steps import POINTS, Point

done: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()


@rt.step
async def add(name: str) -> str:
    done[name] += 1
    return name


@rt.step
def add_on_a_thread(name: str) -> str:
    done[name] += 1
    return name


@rt.workflow
async def adds(*names: str) -> list[str]:
    return [await add(name) for name in names]


@rt.workflow
async def adds_side_by_side(*names: str) -> list[str]:
    return list(await rt.gather(*(add(name) for name in names)))


@rt.workflow
async def adds_on_threads(*names: str) -> list[str]:
    return [await add_on_a_thread.aio(name) for name in names]


@pytest.mark.parametrize(
    ("when", "times_done", "steps_then"), [("before", 1, 0), ("after_effect", 2, 0), ("after_commit", 1, 1)]
)
async def test_a_worker_is_lost_just_where_the_test_says(when: Point, times_done: int, steps_then: int):
    recorded: list[int] = []

    @rt.workflow
    async def flow() -> str:
        recorded.append((await app.service.get(rt.this_run().id)).steps_done)
        return await add("a")

    async with TestApp(workflows=[flow]) as app:
        app.crash(add, when=when)
        run = await app.start(flow)
        assert await run.result() == "a"
        assert done["a"] == len(app.calls(add)) == times_done
        assert recorded == [0, steps_then]
        assert (await run.info()).attempt == 2
        await assert_sound(app, run.id)


async def test_the_code_of_a_lost_run_does_not_go_on():
    passed: list[int] = []

    @rt.workflow
    async def flow() -> None:
        await add("a")
        passed.append(rt.this_run().attempt)

    async with TestApp(workflows=[flow]) as app:
        app.crash(add, when="after_commit")
        await app.run(flow)
    assert passed == [2]


async def test_a_step_on_a_thread_is_struck_at_the_same_points():
    for when in POINTS:
        async with TestApp(workflows=[adds_on_threads]) as app:
            app.crash(add_on_a_thread, when=when)
            run = await app.start(adds_on_threads, when)
            assert await run.result() == [when]
            assert (await run.info()).attempt == 2
    assert done == {"before": 1, "after_effect": 2, "after_commit": 1}


async def test_the_first_loss_costs_no_time_and_wait_is_enough():
    async with TestApp(workflows=[adds]) as app:
        started = app.now()
        app.crash(add)
        run = await app.start(adds, "a", "b")
        assert (await run.wait()).output == ["a", "b"]
        assert app.now() == started
        assert done == {"a": 2, "b": 1}


async def test_a_second_loss_in_a_row_is_followed_by_a_wait_that_result_lets_pass():
    async with TestApp(workflows=[adds]) as app:
        started = app.now()
        app.crash(add, times=2)
        run = await app.start(adds, "a")
        with pytest.raises(Standstill, match="lost its worker 2 times, may be claimed again"):
            await run.wait()
        assert await run.result() == ["a"]
        assert app.now() - started == timedelta(seconds=1)
        assert done["a"] == 3


async def test_the_fifth_loss_in_a_row_holds_the_run():
    async with TestApp(workflows=[adds]) as app:
        app.crash(add, times=5)
        run = await app.start(adds, "a")
        with pytest.raises(Standstill, match="keeps losing its worker"):
            await run.result()
        (hold,) = await run.holds()
        await run.answer(hold.id, "retry")
        assert await run.result() == ["a"]
        assert done["a"] == 6


async def test_all_runs_of_the_worker_are_lost_with_it():
    reached = asyncio.Event()
    attempts: list[int] = []

    @rt.step
    async def hangs_once() -> None:
        attempts.append(rt.this_run().attempt)
        if len(attempts) == 1:
            reached.set()
            await asyncio.Event().wait()

    @rt.workflow
    async def bystander() -> None:
        await hangs_once()

    async with TestApp(workflows=[adds, bystander]) as app:
        beside = await app.start(bystander)
        await reached.wait()
        app.crash(add)
        run = await app.start(adds, "a")
        assert (await run.wait()).status is rt.Status.COMPLETED
        assert (await beside.wait()).status is rt.Status.COMPLETED
        assert attempts == [1, 2]
        await assert_sound(app, run.id, beside.id)


async def test_a_step_that_one_loss_interrupts_does_not_bring_on_the_next():
    reached = asyncio.Event()

    @rt.step
    async def hangs_once() -> None:
        if not reached.is_set():
            reached.set()
            await asyncio.Event().wait()

    @rt.workflow
    async def flow() -> None:
        await hangs_once()

    async with TestApp(workflows=[flow]) as app:
        app.crash(hangs_once, when="after_effect")
        run = await app.start(flow)
        await reached.wait()
        await app.restart()
        await app.advance(1)
        assert (await run.wait()).attempt == 3
        assert len(app.calls(hangs_once)) == 3


async def test_a_lost_worker_is_told_as_lost_and_another_has_its_own_name():
    async with TestApp(workflows=[adds]) as app:
        first = app.worker_id
        app.crash(add)
        run = await app.start(adds, "a")
        await run.wait()
        assert app.worker_id != first
        lost = [event.data async for event in run.events() if event.type == "worker_lost"]
        assert [(data["worker"], data["cause"]) for data in lost] == [(first, "its lease ran out")]


async def test_restart_loses_a_step_at_work_and_begins_it_again():
    reached = asyncio.Event()
    told: list[str] = []

    @rt.step
    async def hangs_once() -> str:
        if reached.is_set():
            return "second"
        reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            told.append("interrupted")
        return "first"

    @rt.workflow
    async def flow() -> str:
        return await hangs_once()

    async with TestApp(workflows=[flow]) as app:
        run = await app.start(flow)
        await reached.wait()
        await app.restart()
        assert (await run.wait()).output == "second"
        assert told == ["interrupted"]
        assert (await run.info()).attempt == 2


async def test_restart_leaves_what_no_worker_has_as_it_is():
    @rt.workflow
    async def sleeps() -> str:
        await rt.sleep(3_600)
        return "slept"

    async with TestApp(workflows=[sleeps]) as app:
        asleep, paused = await app.start(sleeps), await app.start(sleeps)
        await asleep.wait("waiting")
        await paused.pause()
        await app.restart()
        assert (await asleep.info()).attempt == (await paused.info()).attempt == 1
        assert await asleep.result() == "slept"
        assert await paused.status() is rt.Status.PAUSED


async def test_a_run_that_is_being_cancelled_when_its_worker_is_lost_ends_cancelled():
    async def cancel_itself(name: str) -> str:
        await run.cancel()
        return name

    async with TestApp(workflows=[adds]) as app:
        app.replace(add, cancel_itself)
        app.crash(add)
        run = await app.start(adds, "a", "b")
        assert (await run.wait()).status is rt.Status.CANCELLED
        assert len(app.calls(add)) == 1


async def test_crash_everywhere_strikes_each_point_of_each_call_once():
    async with TestApp(workflows=[adds]) as app:
        with app.crash_everywhere() as struck:
            run = await app.start(adds, "a", "b", "c")
            assert await run.result() == ["a", "b", "c"]
        assert struck == [("add", point) for _ in "abc" for point in POINTS]
        assert done == {"a": 2, "b": 2, "c": 2}
        assert (await run.info()).attempt == 10
        await assert_sound(app, run.id)
        assert await app.run(adds, "d") == ["d"]
        assert done["d"] == 1


async def test_crash_everywhere_reaches_branches_and_outlasts_holds():
    """Losses without a recorded step add up over branches, and five of them hold a run."""
    names = [f"branch-{number}" for number in range(6)]
    async with TestApp(workflows=[adds_side_by_side]) as app:
        with app.crash_everywhere() as struck:
            run = await app.start(adds_side_by_side, *names)
            assert await run.result() == names
        strikes = Counter(point for _, point in struck)
        assert strikes["before"] == strikes["after_effect"] == 6
        # What was committed together has this loss in common.
        assert 1 <= strikes["after_commit"] <= 6
        assert all(done[name] >= 2 for name in names)
        assert [hold async for hold in _events_of(run, "hold_opened")]
        await assert_sound(app, run.id)
        await app.replay(run.id)


async def test_crash_everywhere_reaches_blocking_workflows():
    @rt.workflow
    def adds_and_naps(*names: str) -> list[str]:
        added: list[str] = []
        for name in names:
            added.append(add_on_a_thread(name))
            blocking.sleep(3_600)
            added.append(add.sync(name))
        return added

    async with TestApp(workflows=[adds_and_naps]) as app:
        with app.crash_everywhere() as struck:
            run = await app.start(adds_and_naps, "a", "b")
            assert await run.result() == ["a", "a", "b", "b"]
        assert Counter(struck) == {(step, point): 2 for step in ("add", "add_on_a_thread") for point in POINTS}
        assert done == {"a": 4, "b": 4}
        await app.replay(run.id)


async def test_crash_everywhere_reaches_children():
    @rt.workflow
    async def parent(*names: str) -> list[list[str]]:
        return await rt.map(adds, names)

    async with TestApp(workflows=[parent, adds]) as app:
        with app.crash_everywhere() as struck:
            run = await app.start(parent, "a", "b")
            assert await run.result() == [["a"], ["b"]]
        assert Counter(point for _, point in struck)["before"] == 2
        assert await app.store.check() == []
        await app.replay(run.id)


async def _events_of(run: rt.RunHandle[list[str]], kind: str):
    async for event in run.events():
        if event.type == kind:
            yield event


async def test_crash_everywhere_is_refused_within_itself():
    async with TestApp(workflows=[adds]) as app:
        with app.crash_everywhere():
            with pytest.raises(rt.ConfigurationError, match="already"), app.crash_everywhere():
                pass
            assert await app.run(adds, "a") == ["a"]


async def test_a_crash_that_cannot_be_meant_is_refused():
    app = TestApp(workflows=[adds])
    with pytest.raises(rt.ConfigurationError, match="before, after_effect, after_commit, not 'during'"):
        app.crash(add, when="during")  # type: ignore[arg-type]
    with pytest.raises(rt.ConfigurationError, match="times must be a whole number from 1"):
        app.crash(add, times=0)
