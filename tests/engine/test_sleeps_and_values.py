"""Sleeps, and values that are drawn once: now, uuid4, random."""

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from tests.engine.running import Gate, event_types, failure, finished, opened, reaches, recorded, until
from tests.support.manual_clock import ManualClock

import runtrue as rt
from runtrue.lifecycle import Status

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


def sleeping(how: Callable[[], Any]) -> rt.AsyncWorkflow[[], str]:
    @rt.workflow
    async def flow() -> str:
        await how()
        return "awake"

    return flow


@pytest.mark.parametrize("span", [1, 1.5, 3600, timedelta(days=400)], ids=str)
async def test_a_sleep_of_a_second_or_more_leaves_memory_and_ends_just_in_time(
    database: Path, clock: ManualClock, span: float | timedelta
):
    flow = sleeping(lambda: rt.sleep(span))
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        worker = app._worker
        assert worker is not None
        # The row is first: the worker hears a moment later that its run is parked. The clock stands still meanwhile.
        await until(lambda: worker.running == 0)
        clock.advance(seconds - 0.01)
        assert await run.status() is Status.WAITING
        clock.advance(0.01)
        assert await finished(run) == "awake"


async def test_a_shorter_sleep_stays_in_memory_and_is_recorded_all_the_same(database: Path, clock: ManualClock):
    flow = sleeping(lambda: rt.sleep(0.9))
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await clock.sleeper(0.9)
        assert await run.status() is Status.RUNNING
        clock.advance(0.9)
        assert await finished(run) == "awake"
        assert await recorded(app, run) == [("sleep", 1)]
        assert "waiting" not in await event_types(run)


@pytest.mark.parametrize(
    "how",
    [
        lambda: rt.sleep(0),
        lambda: rt.sleep(timedelta()),
        lambda: rt.sleep_until(BEGINNING - timedelta(days=1)),
        lambda: rt.sleep_until(BEGINNING),
    ],
    ids=["zero", "zero timedelta", "past", "now"],
)
async def test_a_sleep_that_is_over_at_once_goes_on_at_once_and_is_recorded(
    database: Path, clock: ManualClock, how: Callable[[], Any]
):
    flow = sleeping(how)
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        assert await finished(run) == "awake"
        assert await recorded(app, run) == [("sleep", 1)]


async def test_sleep_until_takes_a_time_in_any_zone(database: Path, clock: ManualClock):
    there = timezone(timedelta(hours=5))
    flow = sleeping(lambda: rt.sleep_until(datetime(2026, 1, 1, 5, 1, tzinfo=there)))
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        clock.advance(60)
        assert await finished(run) == "awake"


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (lambda: rt.sleep(-1), "rt.sleep: the duration must be from 0 seconds to a hundred years, not -1"),
        (lambda: rt.sleep(math.nan), "not nan"),
        (lambda: rt.sleep(math.inf), "not inf"),
        (lambda: rt.sleep(timedelta(days=40_000)), "hundred years"),
        (lambda: rt.sleep("1"), "rt.sleep: the duration must be seconds or a timedelta, not str"),  # type: ignore[arg-type]
        (lambda: rt.sleep(True), "not bool"),
        (lambda: rt.sleep_until(datetime(2026, 1, 1)), "2026-01-01T00:00:00 has no time zone; say which"),
        (lambda: rt.sleep_until(3), "must be a datetime, not int"),  # type: ignore[arg-type]
    ],
    ids=["negative", "nan", "infinite", "too long", "text", "bool", "naive", "no datetime"],
)
async def test_a_sleep_that_can_be_none_is_refused_with_the_reason(
    database: Path, how: Callable[[], Any], message: str
):
    flow = sleeping(how)
    async with opened(database, flow) as app:
        error = await failure(await app.start(flow))
        assert error.type == "runtrue.errors.ConfigurationError"
        assert message in error.message


async def test_a_sleep_goes_on_while_no_worker_is_there(database: Path, clock: ManualClock):
    flow = sleeping(lambda: rt.sleep(3600))
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
    clock.advance(7200)
    async with opened(database, flow, clock=clock) as app:
        assert await finished(await app.get(run.id)) == "awake"


async def test_now_uuid4_and_random_are_the_same_on_every_replay(database: Path, clock: ManualClock):
    seen: list[tuple[object, ...]] = []

    @rt.workflow
    async def flow() -> None:
        chance = rt.random()
        seen.append((rt.now(), rt.uuid4(), rt.uuid4(), chance.random(), chance.randint(1, 10**9)))
        await rt.sleep(60)
        seen.append((rt.now(),))

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
    async with opened(database, flow, clock=clock) as app:
        clock.advance(90)
        await finished(await app.get(run.id))
    first, replayed, after = seen
    assert first == replayed
    assert first[0] == BEGINNING
    assert first[1] != first[2]
    assert after == (BEGINNING + timedelta(seconds=90),)


async def test_a_drawn_value_is_recorded_before_the_step_that_may_depend_on_it_begins(database: Path):
    """A worker lost within the step must not leave an effect made with a value that nobody knows any more."""
    gate = Gate()
    drawn: list[object] = []
    used: list[object] = []

    @rt.step
    async def use(value: str) -> None:
        used.append(value)
        await gate.pass_through()

    @rt.workflow
    async def flow() -> str:
        value = str(rt.uuid4())
        drawn.append(value)
        await use(value)
        return value

    async with opened(database, flow, drain=0) as app:
        run = await app.start(flow)
        await gate.reached()
        assert await recorded(app, run) == [("uuid4", 1)]
    gate.open()
    async with opened(database, flow) as app:
        assert await finished(await app.get(run.id)) == drawn[0]
    assert len(drawn) == 2
    assert len(used) == 2
    assert len({*drawn, *used}) == 1


async def test_values_drawn_last_are_recorded_with_the_end(database: Path):
    @rt.workflow
    async def flow() -> str:
        return str(rt.uuid4())

    async with opened(database, flow) as app:
        run = await app.start(flow)
        value = await finished(run)
        steps, _ = await app.service.steps(run.id)
        assert [step.output for step in steps] == [f'"{value}"'.encode()]
