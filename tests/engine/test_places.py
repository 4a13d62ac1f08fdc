"""Durable calls work in the workflow function itself; every other place is refused with the right one named."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engine.running import Gate, failure, finished, opened, recorded, until
from tests.support.manual_clock import ManualClock

import runtrue as rt
from runtrue.authoring import runtime_variable


@rt.step
async def double(number: int) -> int:
    return 2 * number


@rt.step
async def quadruple(number: int) -> int:
    return await double(await double(number))


async def test_a_step_outside_a_workflow_is_its_function():
    assert await double(3) == 6
    assert await quadruple(3) == 12


async def test_a_step_called_inside_a_step_is_its_function_and_not_recorded(database: Path):
    @rt.workflow
    async def flow() -> int:
        return await quadruple(1)

    async with opened(database, flow) as app:
        run = await app.start(flow)
        assert await finished(run) == 4
        assert await recorded(app, run) == [("quadruple", 1)]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: rt.sleep(1), "rt.sleep"),
        (lambda: rt.sleep_until(None), "rt.sleep_until"),  # type: ignore[arg-type]
        (rt.now, "rt.now"),
        (rt.uuid4, "rt.uuid4"),
        (rt.random, "rt.random"),
        (lambda: rt.set_progress(done=1), "rt.set_progress"),
        (rt.this_run, "rt.this_run"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_outside_a_workflow_a_durable_call_is_refused_by_name(call: Callable[[], Any], name: str):
    with pytest.raises(rt.WrongPlace, match=f"{name} was called outside of a running workflow"):
        call()


def test_this_step_outside_a_step_is_refused():
    with pytest.raises(rt.WrongPlace, match=r"rt\.this_step was called outside of a running step"):
        rt.this_step()


async def test_this_step_in_a_workflow_between_its_steps_is_refused(database: Path):
    @rt.workflow
    async def flow() -> None:
        rt.this_step()

    async with opened(database, flow) as app:
        error = await failure(await app.start(flow))
        assert "rt.this_step was called in a workflow, between its steps" in error.message


@pytest.mark.parametrize(
    ("call", "name"),
    [(lambda: rt.sleep(1), "rt.sleep"), (rt.now, "rt.now"), (rt.uuid4, "rt.uuid4"), (rt.random, "rt.random")],
    ids=["sleep", "now", "uuid4", "random"],
)
async def test_inside_a_step_a_durable_call_is_refused_and_names_the_step(
    database: Path, call: Callable[[], Any], name: str
):
    @rt.step
    async def wrong() -> None:
        call()

    @rt.workflow
    async def flow() -> None:
        await wrong()

    async with opened(database, flow) as app:
        error = await failure(await app.start(flow))
        assert f"WrongPlace: {name} was called inside step wrong" in error.message


def make_task() -> Any:
    return asyncio.create_task(call_double())


async def call_double() -> int:
    return await double(1)


async def gathered() -> Any:
    return await asyncio.gather(call_double(), call_double())


async def in_thread() -> Any:
    return await asyncio.to_thread(lambda: double(1))


async def in_task_group() -> Any:
    async with asyncio.TaskGroup() as group:
        return group.create_task(call_double())


@pytest.mark.parametrize(
    ("how", "where"),
    [
        (make_task, "another asyncio task"),
        (gathered, "another asyncio task"),
        (in_thread, "another thread"),
        (lambda: asyncio.to_thread(rt.now), "another thread"),
        (lambda: asyncio.to_thread(rt.sleep, 1), "another thread"),
    ],
    ids=["create_task", "gather", "to_thread", "now in a thread", "sleep in a thread"],
)
async def test_a_durable_call_in_a_foreign_task_or_thread_is_refused(
    database: Path, how: Callable[[], Any], where: str
):
    @rt.workflow
    async def flow() -> None:
        await how()

    async with opened(database, flow) as app:
        run = await app.start(flow)
        error = await failure(run)
        assert error.type == "runtrue.errors.WrongPlace"
        assert where in error.message
        assert "in the workflow function itself" in error.message
        assert await recorded(app, run) == []


async def test_calls_made_in_the_workflow_itself_may_be_gathered_by_asyncio(database: Path):
    @rt.workflow
    async def flow() -> list[int]:
        return await asyncio.gather(double(1), double(2))

    async with opened(database, flow) as app:
        assert await finished(await app.start(flow)) == [2, 4]


async def test_a_step_may_use_tasks_and_threads_of_its_own(database: Path):
    @rt.step
    async def busy() -> list[Any]:
        async def name() -> str:
            return rt.this_step().name

        return [
            await asyncio.create_task(name()),
            await asyncio.to_thread(lambda: rt.this_run().workflow),
            *await asyncio.gather(double(1), double(2)),
        ]

    @rt.workflow
    async def flow() -> list[Any]:
        return await busy()

    async with opened(database, flow) as app:
        assert await finished(await app.start(flow)) == ["busy", "flow", 2, 4]


async def test_asyncio_timeout_around_a_step_fails_the_run_and_names_the_steps_own_timeout(database: Path):
    gate = Gate()

    @rt.step
    async def slow() -> None:
        await gate.pass_through()

    @rt.workflow
    async def flow() -> None:
        async with asyncio.timeout(0.05):
            await slow()

    async with opened(database, flow) as app:
        error = await failure(await app.start(flow))
        assert error.type == "runtrue.errors.WrongPlace"
        assert "asyncio.timeout" in error.message
        assert "timeout=" in error.message


async def test_asyncio_timeout_around_a_sleep_in_memory_fails_the_run_too(database: Path):
    @rt.workflow
    async def flow() -> None:
        async with asyncio.timeout(0.05):
            await rt.sleep(0.9)

    async with opened(database, flow) as app:
        assert "asyncio.timeout" in (await failure(await app.start(flow))).message


async def test_asyncio_timeout_around_code_that_is_no_step_is_the_authors_own(database: Path):
    @rt.workflow
    async def flow() -> str:
        try:
            async with asyncio.timeout(0.02):
                await asyncio.Event().wait()
        except TimeoutError:
            return "timed out"
        return "never"

    async with opened(database, flow) as app:
        assert await finished(await app.start(flow)) == "timed out"


async def test_a_workflow_called_outside_of_one_is_refused_and_both_right_ways_are_named(database: Path):
    @rt.workflow
    async def inner(number: int) -> int:
        return await double(number)

    @rt.workflow
    async def nested() -> int:
        return await inner.fn(1)

    with pytest.raises(rt.WrongPlace, match=r"start it with `await app.start\(inner, ...\)`"):
        inner(1)
    assert await inner.fn(2) == 4
    async with opened(database, nested) as app:
        assert await finished(await app.start(nested)) == 2


async def test_this_run_tells_the_same_in_the_workflow_and_in_its_steps(database: Path, clock: ManualClock):
    seen: list[rt.RunInfo] = []

    @rt.step
    async def look() -> None:
        seen.append(rt.this_run())
        assert rt.this_step().run_id == rt.this_run().id

    @rt.workflow(version="7")
    async def flow() -> None:
        seen.append(rt.this_run())
        await look()
        await rt.sleep(60)
        seen.append(rt.this_run())

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow.options(tags={"team": "red"}))
        await until(lambda: len(seen) == 2)
        await run.wait("waiting")
        clock.advance(60)
        await finished(run)
    for info in seen:
        assert (info.id, info.workflow, info.version, info.attempt) == (run.id, "flow", "7", 1)
        assert info.tags == {"team": "red"}
    assert [info.replaying for info in seen] == [False, False, True, False]


async def test_nothing_of_a_run_is_left_in_the_context_around_it(database: Path):
    @rt.workflow
    async def flow() -> int:
        return await double(1)

    async with opened(database, flow) as app:
        await finished(await app.start(flow))
        assert runtime_variable.get() is None
        assert await double(2) == 4
