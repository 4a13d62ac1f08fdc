"""Every word in every place: it works there, or its message names the place and what to write instead."""

import asyncio
import contextvars
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.engine.running import finished, opened, recorded

import runtrue as rt
import runtrue.sync as blocking

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
WORKS = "works"


@rt.step
async def on_loop(number: int) -> int:
    return number


@rt.step
def on_thread(number: int) -> int:
    return number


@rt.workflow
async def awaited_child(number: int) -> int:
    return number


@rt.workflow
def blocking_child(number: int) -> int:
    return number


class Ready:
    """Something to await that complains about nothing if it is not."""

    def __await__(self) -> Generator[None, None, int]:
        yield from ()
        return 1


Word = Callable[[], Any]
AWAITED: dict[str, Word] = {
    "rt.sleep": lambda: rt.sleep(0),
    "rt.sleep_until": lambda: rt.sleep_until(LONG_AGO),
    "rt.receive": lambda: rt.receive("topic", int, timeout=0, default=1),
    "rt.send": lambda: rt.send("a-neighbour", "topic", 1),
    "rt.start_child": lambda: rt.start_child(awaited_child, 1),
    "rt.gather": rt.gather,
    "rt.map": lambda: rt.map(on_loop, [1]),
    "rt.first": lambda: rt.first(Ready()),
}
"""What gives something to await."""
AWAITED_STEPS: dict[str, Word] = {
    "step on_loop": lambda: on_loop(1),
    "step on_loop, by aio": lambda: on_loop.aio(1),
    "step on_thread, by aio": lambda: on_thread.aio(1),
}
AWAITED_CHILDREN: dict[str, Word] = {
    "awaited_child": lambda: awaited_child(1),
    "awaited_child, by aio": lambda: awaited_child.aio(1),
    "blocking_child, by aio": lambda: blocking_child.aio(1),
}
BLOCKING: dict[str, Word] = {
    "rt.sleep": lambda: blocking.sleep(0),
    "rt.sleep_until": lambda: blocking.sleep_until(LONG_AGO),
    "rt.receive": lambda: blocking.receive("topic", int, timeout=0, default=1),
    "rt.send": lambda: blocking.send("a-neighbour", "topic", 1),
    "rt.start_child": lambda: blocking.start_child(blocking_child, 1),
    "rt.gather": blocking.gather,
    "rt.map": lambda: blocking.map(on_thread, [1]),
    "rt.first": lambda: blocking.first(lambda: 1),
}
"""What blocks until its result is there."""
BLOCKING_STEPS: dict[str, Word] = {
    "step on_thread": lambda: on_thread(1),
    "step on_thread, by sync": lambda: on_thread.sync(1),
    "step on_loop, by sync": lambda: on_loop.sync(1),
}
BLOCKING_CHILDREN: dict[str, Word] = {
    "blocking_child": lambda: blocking_child(1),
    "blocking_child, by sync": lambda: blocking_child.sync(1),
    "awaited_child, by sync": lambda: awaited_child.sync(1),
}
DRAWN: dict[str, Word] = {
    "rt.now": rt.now,
    "rt.uuid4": rt.uuid4,
    "rt.random": rt.random,
    "rt.patched": lambda: rt.patched("change"),
    "rt.publish": lambda: rt.publish("key", 1),
}
"""What has a place, and its result at once."""
TOLD: dict[str, Word] = {
    "rt.this_run": rt.this_run,
    "rt.state": lambda: rt.state(dict),
    "rt.set_progress": lambda: rt.set_progress(done=1),
}
"""What steps may ask too."""
THIS_STEP: dict[str, Word] = {"rt.this_step": rt.this_step}

ALL = {
    "awaited": AWAITED,
    "awaited steps": AWAITED_STEPS,
    "awaited children": AWAITED_CHILDREN,
    "blocking": BLOCKING,
    "blocking steps": BLOCKING_STEPS,
    "blocking children": BLOCKING_CHILDREN,
    "drawn": DRAWN,
    "told": TOLD,
    "this step": THIS_STEP,
}

WOULD_BLOCK = {
    "blocking": "where it would block the event loop; `import runtrue as rt` has the same words, to be awaited",
    "blocking steps": "would block the event loop of an `async def` workflow; write `await ",
    "blocking children": "would block the event loop of an `async def` workflow; write `await ",
}
CANNOT_AWAIT = {
    "awaited": "in a `def` workflow, where nothing can be awaited; `import runtrue.sync as rt`",
    "awaited steps": "in a `def` workflow, where nothing can be; write on_",
    "awaited children": "in a `def` workflow, where nothing can be; write ",
}
BETWEEN_STEPS = {"this step": "in a workflow, between its steps; it works inside a function under @rt.step"}
IN_A_STEP = {
    **dict.fromkeys(("awaited", "blocking", "drawn"), "was called inside step place; durable calls belong in the"),
    **dict.fromkeys(("awaited children", "blocking children"), "was called inside step place; a workflow calls its"),
}
NOWHERE = {
    **dict.fromkeys(("awaited", "blocking", "drawn", "told"), "was called outside of a running workflow; it works"),
    "awaited children": "was called outside of a workflow; start it with `",
    "blocking children": "was called outside of a workflow; start it with `",
    "this step": "was called outside of a running step; it works inside a function under @rt.step",
}
ANOTHER_TASK = dict.fromkeys(
    ("awaited", "awaited steps", "awaited children", "drawn"),
    "was called in another asyncio task (create_task, TaskGroup); call it in the workflow function itself",
)
ANOTHER_THREAD = dict.fromkeys(
    ("awaited", "awaited steps", "awaited children", "drawn"),
    "was called in another thread; call it in the workflow function itself",
)
FOREIGN_THREAD = dict.fromkeys(
    ("blocking", "blocking steps", "blocking children", "drawn", "told"),
    "a durable call was made in thread helper; make it in the workflow function itself",
)
A_LOOP_RUNS = {"step on_loop, by sync": "was called so that it blocks, where an event loop runs; write `await on_loop"}


# ------------------------------------------------------------ calling all words
def words() -> Iterator[tuple[str, str, Word]]:
    return ((group, name, word) for group, of_group in ALL.items() for name, word in of_group.items())


async def awaited(word: Word) -> str:
    try:
        made = word()
        if inspect.isawaitable(made):
            await made
    except rt.RuntrueError as refused:
        return f"{type(refused).__name__}: {refused}"
    return WORKS


def blocked(word: Word) -> str:
    try:
        made = word()
        if inspect.iscoroutine(made):
            made.close()
    except rt.RuntrueError as refused:
        return f"{type(refused).__name__}: {refused}"
    return WORKS


def in_a_helper(word: Word) -> str:
    """In a thread that has the context of its starter, as those of most libraries do."""
    told: list[str] = []
    call = contextvars.copy_context().run
    helper = threading.Thread(target=lambda: told.append(call(blocked, word)), name="helper")
    helper.start()
    helper.join()
    return told[0]


Heard = list[tuple[str, str, str]]
HEARD: Heard = []
"""Group, word and what became of it, at each replay."""


def all_blocked(call: Callable[[Word], str] = blocked) -> None:
    HEARD.extend((group, name, call(word)) for group, name, word in words())


async def all_awaited() -> None:
    for group, name, word in words():
        HEARD.append((group, name, await awaited(word)))


@rt.workflow
async def in_async_workflow() -> None:
    await all_awaited()


@rt.workflow
def in_def_workflow() -> None:
    all_blocked()


@rt.workflow
async def in_branch() -> None:
    await rt.gather(all_awaited())


@rt.workflow
def in_blocking_branch() -> None:
    blocking.gather(all_blocked)


@rt.step(name="place")
async def async_step() -> None:
    await all_awaited()


@rt.step(name="place")
def def_step() -> None:
    all_blocked()


@rt.step(name="place")
async def step_with_a_task() -> None:
    await asyncio.create_task(all_awaited())


@rt.step(name="place")
async def step_with_a_thread() -> None:
    await asyncio.to_thread(all_blocked)


@rt.step(name="place")
def step_with_a_helper() -> None:
    all_blocked(in_a_helper)


@rt.workflow
async def in_async_step() -> None:
    await async_step()


@rt.workflow
async def in_def_step() -> None:
    await def_step.aio()


@rt.workflow
def in_direct_step() -> None:
    def_step()


@rt.workflow
def in_async_step_of_def_workflow() -> None:
    async_step.sync()


@rt.workflow
async def in_task_of_step() -> None:
    await step_with_a_task()


@rt.workflow
async def in_thread_of_step() -> None:
    await step_with_a_thread()


@rt.workflow
def in_helper_of_step() -> None:
    step_with_a_helper()


@rt.workflow
async def in_foreign_task() -> None:
    await asyncio.create_task(all_awaited())


@rt.workflow
async def in_task_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(all_awaited())


@rt.workflow
async def in_foreign_thread() -> None:
    await asyncio.to_thread(all_blocked)


@rt.workflow
def in_foreign_thread_of_def_workflow() -> None:
    all_blocked(in_a_helper)


PLACES: list[tuple[rt.Workflow[[], None], dict[str, str]]] = [
    (in_async_workflow, {**WOULD_BLOCK, **BETWEEN_STEPS}),
    (in_branch, {**WOULD_BLOCK, **BETWEEN_STEPS}),
    (in_def_workflow, {**CANNOT_AWAIT, **BETWEEN_STEPS}),
    (in_blocking_branch, {**CANNOT_AWAIT, **BETWEEN_STEPS}),
    (in_async_step, {**IN_A_STEP, **A_LOOP_RUNS}),
    (in_async_step_of_def_workflow, {**IN_A_STEP, **A_LOOP_RUNS}),
    (in_task_of_step, {**IN_A_STEP, **A_LOOP_RUNS}),
    (in_def_step, IN_A_STEP),
    (in_direct_step, IN_A_STEP),
    (in_thread_of_step, IN_A_STEP),
    (in_helper_of_step, IN_A_STEP),
    (in_foreign_task, {**WOULD_BLOCK, **BETWEEN_STEPS, **ANOTHER_TASK}),
    (in_task_group, {**WOULD_BLOCK, **BETWEEN_STEPS, **ANOTHER_TASK}),
    (in_foreign_thread, {**WOULD_BLOCK, **BETWEEN_STEPS, **ANOTHER_THREAD}),
    (in_foreign_thread_of_def_workflow, {**CANNOT_AWAIT, **BETWEEN_STEPS, **FOREIGN_THREAD, "rt.this_run": WORKS}),
]


def check(expected: dict[str, str]) -> None:
    wrong = [
        f"{name}: {told}"
        for group, name, told in HEARD
        if expected.get(name, expected.get(group, WORKS)) not in told
        or (told != WORKS and not told.startswith("WrongPlace: "))
    ]
    assert not wrong, "\n".join(wrong)
    assert {(group, name) for group, name, _ in HEARD} == {(group, name) for group, name, _ in words()}


@pytest.fixture(autouse=True)
def _hears_nothing_of_other_tests() -> None:
    HEARD.clear()


@asynccontextmanager
async def lifespan() -> AsyncIterator[dict[str, int]]:
    yield {"pool": 1}


@pytest.mark.parametrize(("place", "expected"), PLACES, ids=[place.name for place, _ in PLACES])
async def test_every_word_works_in_this_place_or_names_it(
    database: Path, place: rt.Workflow[[], None], expected: dict[str, str]
):
    async with opened(database, place, awaited_child, blocking_child, lifespan=lifespan) as app:
        await app.start(awaited_child.options(id="a-neighbour", delay=3600), 1)
        run = await app.start(place)
        await finished(run)
        check(expected)
        names = {name for name, _ in await recorded(app, run)}
        if expected.get("drawn"):
            assert names <= {"place"}, "nothing that was refused has taken a place"


async def test_outside_of_any_run_a_step_is_its_function_and_all_else_is_refused():
    await all_awaited()
    check({**NOWHERE, **A_LOOP_RUNS})
    HEARD.clear()
    await asyncio.to_thread(all_blocked)
    check(NOWHERE)


async def test_a_thread_without_the_context_of_its_run_is_outside_of_any(database: Path):
    @rt.workflow
    def flow() -> None:
        helper = threading.Thread(target=all_blocked)
        helper.start()
        helper.join()

    async with opened(database, flow) as app:
        run = await app.start(flow)
        await finished(run)
        check(NOWHERE)
        assert await recorded(app, run) == []


async def test_a_task_that_outlives_its_run_is_refused_what_it_calls_late(database: Path):
    ended = asyncio.Event()
    tasks: list[asyncio.Task[None]] = []

    async def late() -> None:
        await ended.wait()
        await all_awaited()

    @rt.workflow
    async def flow() -> None:
        tasks.append(asyncio.create_task(late()))

    async with opened(database, flow, lifespan=lifespan) as app:
        await finished(await app.start(flow))
        ended.set()
        await tasks[0]
        check({**WOULD_BLOCK, **BETWEEN_STEPS, **ANOTHER_TASK})
