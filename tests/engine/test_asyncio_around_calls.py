"""asyncio's own tools around durable calls: they work, or fail the run with words; none hangs, none is misnumbered."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engine.running import Gate, audit, failure, finished, opened, reaches, recorded, until
from tests.support.manual_clock import ManualClock
from tests.support.thread_gate import ThreadGate

import runtrue as rt

Call = Callable[[int], Any]
ALL_HAVE_ENDED_SECONDS = 40


@rt.step
async def give(number: int) -> int:
    return number


@rt.step
def give_from_thread(number: int) -> int:
    return number


@rt.step
async def fail(number: int) -> int:
    raise ValueError("no")


@rt.workflow
async def child(number: int) -> int:
    return await give(number)


@rt.workflow
async def neighbour() -> None:
    await rt.sleep(3600)


async def twice(number: int) -> int:
    return await give(number) + await give(number)


CALLS: dict[str, Call] = {
    "step": give,
    "def step": give_from_thread.aio,
    "short sleep": lambda _: rt.sleep(0.01),
    "long sleep": lambda _: rt.sleep(1.1),
    "receive": lambda number: rt.receive("topic", int, timeout=0.01, default=number),
    "send": lambda number: rt.send("a-neighbour", "topic", number),
    "child": child,
    "gather": lambda number: rt.gather(give(number), give(number)),
    "gather of helpers": lambda number: rt.gather(twice(number), twice(number)),
    "first": lambda number: rt.first(give(number), rt.sleep(3600)),
    "map": lambda number: rt.map(give, [number, number]),
}


# ------------------------------------------------------------ what waits
async def by_gather(call: Call) -> Any:
    return await asyncio.gather(call(1), call(2))


async def by_gather_beside_a_failure(call: Call) -> Any:
    first, second = await asyncio.gather(call(1), fail(2), return_exceptions=True)
    return first, type(second).__name__


async def by_task_group(call: Call) -> Any:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(call(number)) for number in (1, 2)]
    return [task.result() for task in tasks]


async def by_wait_for(call: Call) -> Any:
    return await asyncio.wait_for(call(1), 3600)


async def by_timeout(call: Call) -> Any:
    async with asyncio.timeout(3600):
        return await call(1)


async def by_wait(call: Call) -> Any:
    tasks = [asyncio.ensure_future(call(number)) for number in (1, 2)]
    await asyncio.wait(tasks)
    return [task.result() for task in tasks]


async def by_shield(call: Call) -> Any:
    return await asyncio.shield(call(1))


async def by_as_completed(call: Call) -> Any:
    return len([await each for each in asyncio.as_completed([call(1), call(2)])])


async def by_a_task_awaited_late(call: Call) -> Any:
    task = asyncio.ensure_future(call(1))
    return [await give(5), await task]


async def by_several_at_once(call: Call) -> Any:
    return await asyncio.gather(asyncio.wait_for(call(1), 3600), asyncio.shield(call(2)), by_timeout(call))


async def by_gather_in_a_branch(call: Call) -> Any:
    return await rt.gather(by_gather(call), by_task_group(call))


WAITS: dict[str, Callable[[Call], Awaitable[Any]]] = {
    each.__name__: each
    for each in (
        by_gather,
        by_gather_beside_a_failure,
        by_task_group,
        by_wait_for,
        by_timeout,
        by_wait,
        by_shield,
        by_as_completed,
        by_a_task_awaited_late,
        by_gather_in_a_branch,
    )
}


# ------------------------------------------------------------ what gives up
async def given_up_by_wait_for(call: Call) -> Any:
    return await asyncio.wait_for(call(1), 0.05)


async def given_up_by_timeout(call: Call) -> Any:
    async with asyncio.timeout(0.05):
        return await call(1)


async def given_up_by_task_group(call: Call) -> Any:
    async with asyncio.TaskGroup() as group:
        group.create_task(call(1))
        group.create_task(fail(2))


async def given_up_by_gather(call: Call) -> Any:
    return await asyncio.gather(call(1), fail(2))


async def given_up_after_the_first(call: Call) -> Any:
    tasks = [asyncio.ensure_future(call(1)), asyncio.ensure_future(give(2))]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    return "went on"


async def given_up_before_it_began(call: Call) -> Any:
    asyncio.ensure_future(call(1)).cancel()
    return "went on"


async def given_up_in_a_branch(call: Call) -> Any:
    return await rt.gather(given_up_by_timeout(call), give(3))


async def given_up_and_swallowed(call: Call) -> Any:
    try:
        return await asyncio.wait_for(call(1), 0.05)
    except BaseException:  # as people write it
        return "swallowed"


GIVES_UP: dict[str, Callable[[Call], Awaitable[Any]]] = {
    each.__name__: each
    for each in (
        given_up_by_wait_for,
        given_up_by_timeout,
        given_up_by_task_group,
        given_up_by_gather,
        given_up_after_the_first,
        given_up_before_it_began,
        given_up_in_a_branch,
        given_up_and_swallowed,
    )
}
TOLD = (
    "a durable call was cancelled from outside, for example by asyncio.timeout or a TaskGroup; give the step",
    "and never awaited, so it did not happen; write `await` before the call",
    "step fail failed after 1 attempt: ValueError: no",
    "unhandled errors in a TaskGroup",
)

SEEN: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
"""What the tool gave the code, at each replay."""
SLOW: dict[str, Call] = {}


@rt.workflow
async def wrapped(tool: str, kind: str) -> list[int]:
    call = CALLS[kind] if tool in WAITS else SLOW[kind]
    found = repr(await {**WAITS, **GIVES_UP}[tool](call))
    before = await give(77)  # code that is unwound does not get past this
    SEEN[tool, kind].append(found)
    await rt.sleep(1.1)
    return [before, await give(78)]


async def ended(app: rt.App, tools: dict[str, Any], kinds: dict[str, Call]) -> dict[tuple[str, str], rt.Run[Any]]:
    runs = {(tool, kind): await app.start(wrapped, tool, kind) for tool in tools for kind in kinds}
    async with asyncio.timeout(ALL_HAVE_ENDED_SECONDS):
        return {key: await run.wait() for key, run in runs.items()}


async def test_whatever_waits_for_calls_made_in_the_workflow_gives_the_same_at_every_replay(database: Path):
    SEEN.clear()
    async with opened(database, wrapped, child, neighbour, slots=400) as app:
        await app.start(neighbour.options(id="a-neighbour"))
        runs = await ended(app, WAITS, CALLS)
        broken = {key: run for key, run in runs.items() if (run.status, run.output) != ("completed", [77, 78])}
        assert not broken
        unequal = {key: seen for key, seen in SEEN.items() if len(set(seen)) != 1}
        assert not unequal
        assert sum(len(seen) for seen in SEEN.values()) > len(SEEN), "no run was replayed"
        assert not (await app.service.doctor()).findings


# A call whose task never began is a coroutine that nobody awaited; Python says so in its own way.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_whatever_gives_a_call_up_fails_its_run_with_words_and_nothing_hangs(database: Path):
    SEEN.clear()
    gate, thread_gate = Gate(), ThreadGate()

    @rt.step
    async def wait_on_loop(number: int) -> int:
        await gate.pass_through()
        return number

    @rt.step
    def wait_on_thread(number: int) -> int:
        thread_gate.pass_through()
        return number

    @rt.workflow
    async def late_child(number: int) -> int:
        await rt.sleep(2)
        return number

    SLOW.update(
        {
            "step": wait_on_loop,
            "def step": wait_on_thread.aio,
            "short sleep": lambda _: rt.sleep(0.9),
            "long sleep": lambda _: rt.sleep(2),
            "receive": lambda _: rt.receive("never", int, timeout=2, default=0),
            "child": late_child,
            "gather": lambda number: rt.gather(wait_on_loop(number), rt.sleep(2)),
            "first": lambda number: rt.first(wait_on_loop(number), rt.sleep(2)),
            "map": lambda number: rt.map(wait_on_loop, [number]),
        }
    )
    async with opened(database, wrapped, late_child, slots=400, threads=100) as app:
        ending = asyncio.create_task(ended(app, GIVES_UP, SLOW))
        # All have been given up by then: the timeouts are of 50 ms, and these runs sleep for two seconds.
        await until(lambda: len(SEEN) > 0)
        gate.open()
        thread_gate.open()
        runs = await ending
        wrong = {
            key: run
            for key, run in runs.items()
            if (run.status, run.output) != ("completed", [77, 78])
            and (run.error is None or not any(told in run.error.message for told in TOLD))
        }
        assert not wrong
        for key in runs:  # these stay in memory, so their call was given up for certain
            if key[0] in ("given_up_by_wait_for", "given_up_by_timeout") and key[1] in ("step", "def step"):
                assert runs[key].error is not None
        assert all(len(set(seen)) == 1 for seen in SEEN.values())
        assert not (await app.service.doctor()).findings


# ------------------------------------------------------------ at rest
@pytest.mark.parametrize("tool", ["gather", "task group"])
async def test_a_run_leaves_memory_while_its_own_tasks_wait_though_others_have_ended(
    database: Path, clock: ManualClock, tool: str
):
    @rt.workflow
    async def flow() -> int:
        calls = [give(1), rt.sleep(3600), give(2), rt.sleep(7200)]
        if tool == "gather":
            await asyncio.gather(*calls)
        else:
            async with asyncio.TaskGroup() as group:
                for call in calls:
                    group.create_task(call)
        return await give(3)

    async with opened(database, flow, clock=clock, slots=1) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        await run.pause()
        await reaches(run, "paused")
        await run.resume()
        clock.advance(3600)
        await until(lambda: app._worker is not None and app._worker.is_idle)
        await reaches(run, "waiting")
        clock.advance(3600)
        assert await finished(run) == 3
        names = [name for name, _ in await recorded(app, run)]
        assert sorted(names) == ["give", "give", "give", "sleep", "sleep"]
        await audit(app, run)


async def test_a_failed_sibling_in_a_task_group_ends_the_run_though_another_call_waits(
    database: Path, clock: ManualClock
):
    @rt.workflow
    async def flow() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(rt.sleep(3600))
            group.create_task(fail(1))

    async with opened(database, flow, clock=clock) as app:
        error = await failure(await app.start(flow))
        assert "a durable call was cancelled from outside" in error.message


async def test_code_that_goes_on_after_the_first_of_its_tasks_is_not_cut_off(database: Path, clock: ManualClock):
    @rt.workflow
    async def flow() -> list[int]:
        waiting = asyncio.ensure_future(rt.receive("topic", int))
        await asyncio.wait([waiting, asyncio.ensure_future(give(1))], return_when=asyncio.FIRST_COMPLETED)
        return [await give(2), await waiting]

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        assert len(await recorded(app, run)) == 2
        await run.send("topic", 9)
        assert await finished(run) == [2, 9]
