"""rt.patched: runs that are new go the new way, runs that were begun before keep to the old one, for good."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engine.looking import until_recorded
from tests.engine.running import audit, finished, opened, reaches, recorded
from tests.support.manual_clock import ManualClock

import runtrue as rt

MINUTE = 60


@rt.step
async def old() -> str:
    return "old"


@rt.step
async def new() -> str:
    return "new"


@rt.step
async def same() -> str:
    return "same"


def flow_of(body: Callable[[], Awaitable[list[str]]]) -> rt.AsyncWorkflow[[], list[str]]:
    @rt.workflow
    async def flow() -> list[str]:
        return await body()

    return flow


async def before_the_change() -> list[str]:
    done = [await old()]
    await rt.sleep(MINUTE)
    return [*done, await same()]


async def with_the_change() -> list[str]:
    done = [await new() if rt.patched("faster") else await old()]
    await rt.sleep(MINUTE)
    return [*done, await same()]


async def asks_twice() -> list[str]:
    done = [await new() if rt.patched("faster") else await old()]
    await rt.sleep(MINUTE)
    done.append(await new() if rt.patched("faster") else await old())
    return [*done, await same()]


async def asks_again_later() -> list[str]:
    """A second change, past the point where runs of the first one stand."""
    done = [await new() if rt.patched("faster") else await old()]
    await rt.sleep(MINUTE)
    done.append(await new() if rt.patched("later") else await old())
    return [*done, await same()]


async def without_the_question() -> list[str]:
    done = [await new()]
    await rt.sleep(MINUTE)
    return [*done, await same()]


async def run_over(
    database: Path, clock: ManualClock, first: Callable[[], Awaitable[list[str]]], *others: Any
) -> list[str]:
    """Begin with the first code, sleep, and go on with each of the others in turn; the result."""
    async with opened(database, flow_of(first), clock=clock) as app:
        run = await app.start(flow_of(first))
        await until_recorded(app, run, "sleep")
    for body in others[:-1]:
        async with opened(database, flow_of(body), clock=clock) as app:
            run = await app.get(run.id)
            await run.pause()
            await run.resume()
            await reaches(run, "waiting")
    clock.advance(MINUTE)
    async with opened(database, flow_of(others[-1] if others else first), clock=clock) as app:
        run = await app.get(run.id)
        result = await finished(run)
        await audit(app, run)
        return result


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([with_the_change, with_the_change], ["new", "same"]),
        ([before_the_change, with_the_change], ["old", "same"]),
        ([before_the_change, with_the_change, with_the_change], ["old", "same"]),
        ([before_the_change, asks_twice], ["old", "old", "same"]),
        ([with_the_change, asks_twice], ["new", "new", "same"]),
        ([with_the_change, asks_again_later], ["new", "new", "same"]),
        ([before_the_change, asks_again_later], ["old", "new", "same"]),
        ([with_the_change, without_the_question], ["new", "same"]),
        ([with_the_change, with_the_change, without_the_question], ["new", "same"]),
    ],
    ids=lambda given: " then ".join(getattr(one, "__name__", one) for one in given),
)
async def test_a_run_goes_the_way_that_it_began_with(
    database: Path, clock: ManualClock, codes: list[Any], expected: list[str]
):
    assert await run_over(database, clock, *codes) == expected


async def test_asking_takes_no_place_of_the_calls_after_it(database: Path):
    async with opened(database, flow_of(with_the_change)) as app:
        run = await app.start(flow_of(with_the_change))
        await until_recorded(app, run, "sleep")
        steps, _ = await app.service.steps(run.id)
        assert [(step.branch, step.ordinal, step.name) for step in steps] == [
            ("", 0, "new"),
            ("", 1, "sleep"),
            ("#faster", 0, "faster"),
        ]


async def test_each_branch_answers_for_itself(database: Path, clock: ManualClock):
    """A branch that had passed the place keeps to the old way; one that comes to it now goes the new one."""

    def body(patched: bool) -> Callable[[], Awaitable[list[str]]]:
        async def branch(topic: str) -> str:
            await rt.receive(topic, str)
            which = await new() if patched and rt.patched("faster") else await old()
            await rt.receive(f"end {topic}", str)
            return which

        async def flow() -> list[str]:
            return list(await rt.gather(branch("a"), branch("b")))

        return flow

    async with opened(database, flow_of(body(False)), clock=clock) as app:
        run = await app.start(flow_of(body(False)))
        await reaches(run, "waiting")
        await run.send("a", "go")
        await until_recorded(app, run, "old")
    async with opened(database, flow_of(body(True)), clock=clock) as app:
        run = await app.get(run.id)
        for topic in ("b", "end a", "end b"):
            await run.send(topic, "go")
        assert await finished(run) == ["old", "new"]
        assert sorted(name for name, _ in await recorded(app, run) if name in {"old", "new"}) == ["new", "old"]
        await audit(app, run)


async def test_an_answer_is_recorded_before_the_step_that_depends_on_it_begins(database: Path, clock: ManualClock):
    """A worker lost within the new step must not leave an effect of the new way and a run that goes the old one."""
    seen: list[list[str]] = []

    @rt.step
    async def looks() -> str:
        steps, _ = await app.service.steps(rt.this_step().run_id)
        seen.append([step.branch for step in steps])
        return "new"

    @rt.workflow
    async def flow() -> list[str]:
        return [await looks() if rt.patched("faster") else await old()]

    async with opened(database, flow, clock=clock) as app:
        assert await finished(await app.start(flow)) == ["new"]
    assert seen == [["#faster"]]


async def test_a_run_that_was_waiting_before_the_change_came_keeps_to_the_old_path(database: Path, clock: ManualClock):
    @rt.workflow(name="waits")
    async def before() -> str:
        return await rt.receive("go", str)

    @rt.workflow(name="waits")
    async def after() -> str:
        if rt.patched("no more waiting"):
            return "new"
        return await rt.receive("go", str)

    async with opened(database, before, clock=clock) as app:
        run = await app.start(before.options(id="r"))
        await reaches(run, "waiting")
        await run.pause()
    async with opened(database, after, clock=clock) as app:
        run = await app.get("r")
        await run.resume()
        await reaches(run, "waiting")
        await run.send("go", "old")
        assert await finished(run) == "old"
