"""Messages, timers and children that went wrong elsewhere."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.engine import faults
from tests.engine.looking import open_waits, outside, passing, until_event, until_open, until_parked_for
from tests.engine.running import audit, event_types, finished, opened, reaches
from tests.support.manual_clock import ManualClock
from tests.support.waiting import until

import runtrue as rt
from runtrue.lifecycle import TERMINAL, Status

MINUTE = 60
begun: list[str] = []


@pytest.fixture
def database(tmp_path: Path) -> Path:
    begun.clear()
    return tmp_path / "runs.db"


@pytest.fixture
async def clock() -> ManualClock:
    return ManualClock()


@rt.step
async def work(name: str) -> str:
    begun.append(name)
    return name


@rt.workflow
async def listens(name: str) -> str:
    heard = await rt.receive("note", str)
    return f"{await work(name)} {heard}"


@rt.workflow
async def child_of_one_step(name: str) -> str:
    return await work(name)


# ---------------------------------------------------------------- waits
@rt.workflow
async def signal_or_an_hour() -> list[Any]:
    return [*await rt.first(rt.receive("signal", str), rt.sleep(60 * MINUTE))]


async def test_a_race_of_a_signal_and_a_sleep_ends_at_the_signal_and_leaves_no_wait(database: Path, clock: ManualClock):
    """A losing timer that is not taken down shows a finished run as running for hours."""
    async with opened(database, signal_or_an_hour, clock=clock) as app:
        run = await app.start(signal_or_an_hour)
        await until_parked_for(app, run, "signal")
        await run.send("signal", "now")
        assert await finished(run) == [0, "now"]
        assert await open_waits(app, run) == []
        clock.advance(2 * 60 * MINUTE)
        assert (await app.store.sweep()).runs_cancelled == 0
        assert await run.status() is Status.COMPLETED
        assert (await event_types(run)).count("claimed") == 2, "the hour wakes nobody"


async def test_a_timer_that_fires_as_a_run_ends_changes_nothing_of_its_end(database: Path, clock: ManualClock):
    """The timeout of a wait, the deadline of the run and a cancel in one instant: one of them, once."""

    @rt.workflow(deadline=MINUTE)
    async def waits() -> str:
        return await rt.receive("note", str, timeout=MINUTE, default="timeout")

    ends = Counter[str]()
    for number in range(12):
        async with opened(database, waits, clock=clock) as app, outside(database, clock) as client:
            run = await app.start(waits.options(id=f"run-{number}"))
            await until_parked_for(app, run, "note")
            clock.advance(MINUTE)
            acts = [app.store.sweep(), client.handle(run.id).cancel(), client.handle(run.id).send("note", "a")]
            shift = number % 3
            await asyncio.gather(*acts[shift:], *acts[:shift], return_exceptions=True)
            ended = await run.wait()
            types = await event_types(run)
            assert sum(types.count(status) for status in TERMINAL) == 1, types
            assert types[-1] == ended.status
            ends[ended.status] += 1
            await audit(app, run)
    assert ends[Status.CANCELLED]


async def test_a_wait_and_its_timer_are_there_both_or_neither(
    database: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    """A wait that is registered without its timer hangs for ever; here each write is lost once."""
    faulty = faults.install(monkeypatch)

    @rt.workflow
    async def waits() -> str:
        return await rt.receive("note", str, timeout=MINUTE, default="timeout")

    faulty.before["record"] = faults.every_other(rt.StoreBusy("busy"))
    faulty.after["record"] = faults.every_other(rt.OutcomeUnknown("the answer is lost"))
    async with opened(database, waits, clock=clock) as app:
        run = await app.start(waits)
        await passing(clock, run)
        assert await finished(run) == "timeout"
        (wait,) = await app.store.waits(run.id)
        assert wait.outcome == "expired"
        assert wait.deadline_at is not None
        assert wait.closed_at is not None
        assert wait.closed_at >= wait.deadline_at
        worker = app._worker
        assert worker is not None

        def is_answered() -> bool:
            clock.advance(0.5)
            return not worker.running

        await until(is_answered, "the journal has an answer to the end of the run")


async def test_a_repeat_of_a_run_with_parallel_waits_leaves_no_wait_of_the_first_time(
    database: Path, clock: ManualClock
):
    """Each claim comes by the same places: however often the worker is lost, there is one wait for each."""

    @rt.workflow
    async def waits() -> list[str]:
        return list(await rt.gather(*(rt.receive(topic, str) for topic in ("a", "b", "c"))))

    run_id = ""
    for times in range(4):
        async with opened(database, waits, clock=clock) as app:
            run = await (app.get(run_id) if run_id else app.start(waits))
            run_id = run.id
            if times:
                await run.pause()
                await run.resume()
                await until_event(run, "claimed", times + 1)
            await until_parked_for(app, run, "a", "b", "c")
            assert len(await app.store.waits(run_id)) == 3
    async with opened(database, waits, clock=clock) as app:
        run = await app.get(run_id)
        for topic in ("c", "b", "a"):
            await run.send(topic, topic)
        assert await finished(run) == ["a", "b", "c"]
        assert await open_waits(app, run) == []


# ---------------------------------------------------------------- children
async def test_half_of_fifty_children_are_cancelled_and_their_parent_ends_with_no_stale_count(
    database: Path, clock: ManualClock
):
    @rt.workflow
    async def parent() -> list[str]:
        results = await rt.map(ask, range(50), return_exceptions=True)
        return ["cancelled" if isinstance(result, rt.RunCancelled) else str(result) for result in results]

    async def ask(number: int) -> str:
        return await listens.options(id=f"child-{number}")(f"c{number}")

    async with opened(database, parent, listens, clock=clock, slots=60) as app:
        run = await app.start(parent)
        children = [app.handle(f"child-{number}", listens) for number in range(50)]
        await until_open(app, run, *(child.id for child in children))
        for child in children:
            await reaches(child, "waiting")
        for number, child in enumerate(children):
            await (child.cancel() if number % 2 else child.send("note", "hi"))
        ended = await finished(run)
        assert Counter(ended)["cancelled"] == 25
        assert [one for one in ended if one != "cancelled"] == [f"c{number} hi" for number in range(0, 50, 2)]
        assert (await app.service.get(run.id)).children_left == 0
        await audit(app, run)


async def test_three_children_of_one_instant_are_executed_once_each(database: Path):
    @rt.workflow
    async def parent() -> list[str]:
        return list(await rt.gather(*(child_of_one_step(name) for name in ("a", "b", "c"))))

    async with opened(database, parent, child_of_one_step) as app:
        assert await finished(await app.start(parent)) == ["a", "b", "c"]
    assert sorted(begun) == ["a", "b", "c"]


async def test_a_pause_of_a_parent_leaves_its_children_to_themselves_and_starts_no_further_one(
    database: Path, clock: ManualClock
):
    """A pause is of one run: what its children do meanwhile is kept for it."""

    @rt.workflow
    async def parent() -> list[str]:
        first = await listens.options(id="first")("first")
        return [first, await listens.options(id="second")("second")]

    async with opened(database, parent, listens, clock=clock) as app:
        run, first, second = await app.start(parent), app.handle("first"), app.handle("second")
        await until_parked_for(app, run, "first")
        await reaches(first, "waiting")
        await run.pause()
        await first.send("note", "a")
        await finished(first)
        assert await run.status() is Status.PAUSED
        assert await app.store.get("second") is None
        await run.resume()
        await until_parked_for(app, run, "second")
        await second.send("note", "b")
        assert await finished(run) == ["first a", "second b"]


async def test_parents_that_are_cancelled_while_their_children_end_leave_nothing_undone(database: Path):
    """A parent and its child change each other's rows; whoever is first, both end and nothing waits."""

    @rt.workflow
    async def parent(number: int) -> list[str]:
        return list(await rt.gather(*(child_of_one_step(f"{number}.{n}") for n in range(4))))

    async with opened(database, parent, child_of_one_step, slots=40) as app:
        runs = [await app.start(parent.options(id=f"p-{number}"), number) for number in range(20)]
        await asyncio.gather(*(run.cancel() for run in runs[::2]), return_exceptions=True)
        ended = [await run.wait(timeout=30) for run in runs]
        assert all(run.status is Status.COMPLETED for run in ended[1::2])
        await app.store.sweep()
        for run in runs:
            for child in await app.store.children(run.id):
                await app.handle(child.id).wait(timeout=30)
            assert await open_waits(app, run) == []
        await audit(app, runs[0])
    assert max(Counter(begun).values()) == 1
