"""gather, first and map, awaited and blocking: what reaches the engine, and what is refused."""

import asyncio
from typing import Any

import pytest
from tests.authoring.fake_engine import FakeRuntime, in_async_workflow, in_branch_of, in_def_workflow, in_step

import runtrue as rt
import runtrue.sync
from runtrue.authoring import Threaded


@rt.step
async def double(number: int) -> int:
    return 2 * number


@rt.step
def half(number: int) -> int:
    return number // 2


@rt.workflow
async def child(number: int) -> int:
    return number


async def helper(number: int) -> int:
    return 10 * number


def close(*calls: Any) -> None:
    for call in calls:
        call.close()


# ---------------------------------------------------------------- awaited
@pytest.mark.parametrize("word", ["gather", "first"])
async def test_the_calls_of_a_group_are_handed_over_as_they_are(word: str):
    with in_async_workflow(gather=(1, 2), first=(0, 1), call_step=7) as runtime:
        calls = [double(1), helper(2), rt.sleep(3)]
        group = getattr(rt, word)(*calls)
        assert runtime.made[-1] == (word, calls)
        assert await group == runtime.answers[word]
        close(*calls)


async def test_gather_of_nothing_has_a_place_and_no_results():
    with in_async_workflow(gather=()) as runtime:
        assert await rt.gather() == ()
    assert runtime.made == [("gather", [])]


async def test_first_of_nothing_would_never_end_and_is_refused():
    with in_async_workflow() as runtime, pytest.raises(rt.ConfigurationError, match="there is nothing to wait for"):
        await rt.first()
    with in_def_workflow() as blocking, pytest.raises(rt.ConfigurationError, match="there is nothing to wait for"):
        runtrue.sync.first()
    assert runtime.made == blocking.made == []


@pytest.mark.parametrize("word", ["gather", "first"])
async def test_a_task_of_asyncio_is_no_item_of_a_group(word: str):
    tasks = [
        asyncio.create_task(helper(1)),
        asyncio.ensure_future(helper(2)),
        asyncio.get_running_loop().create_future(),
    ]
    tasks.append(asyncio.gather(helper(3)))
    for task in tasks:
        with in_async_workflow() as runtime, pytest.raises(rt.ConfigurationError) as refused:
            getattr(rt, word)(task)
        assert "item 1 is an asyncio " in str(refused.value)
        assert f"hand over the calls themselves, as in rt.{word}(a(1), b(2))" in str(refused.value)
        assert runtime.made == []
        task.cancel()
    await asyncio.wait(tasks)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (7, "item 2 is of type int, nothing to await; hand over calls, without `await`"),
        (None, "item 2 is of type NoneType, nothing to await"),
        (helper, "item 2 is of type function, nothing to await"),
        ([1], r"item 2 is of type list, nothing to await; write rt.gather\(\*calls\)"),
    ],
)
async def test_what_cannot_be_awaited_is_no_item_of_a_group(item: Any, message: str):
    call = helper(1)
    with in_async_workflow() as runtime, pytest.raises(rt.ConfigurationError, match=message):
        await rt.gather(call, item)
    assert runtime.made == []
    close(call)


async def test_one_call_cannot_be_two_items_of_a_group():
    call = helper(1)
    with in_async_workflow(), pytest.raises(rt.ConfigurationError, match="items 1 and 2 are one and the same call"):
        await rt.gather(call, call)
    close(call)


def mapped(runtime: FakeRuntime) -> tuple[Any, ...]:
    ((_, *given),) = runtime.made
    return tuple(given)


async def test_map_calls_its_function_in_the_branch_of_each_item_and_not_before():
    called: list[int] = []

    async def note(number: int) -> None:
        called.append(number)

    with in_async_workflow(map=["results"]) as runtime:
        assert await rt.map(note, iter([1, 2, 3]), limit=2, return_exceptions=True) == ["results"]
        make, items, limit, keys, return_exceptions = mapped(runtime)
        assert (items, limit, keys, return_exceptions, called) == ([1, 2, 3], 2, None, True, [])
        await make(1)
    assert called == [1]


async def test_map_takes_steps_and_workflows_of_either_colour():
    for fn, word in [(double, "call_step"), (half, "call_step"), (child, "call_child"), (rt.ref("far"), "call_child")]:
        with in_async_workflow() as runtime:
            await rt.map(fn, [5])  # type: ignore[arg-type]
            make = mapped(runtime)[0]
            await make(5)
        assert runtime.made[-1] == (word, fn, (5,), {})


async def test_a_function_of_map_that_gives_nothing_to_await_is_refused_in_its_branch():
    with in_async_workflow() as runtime:
        await rt.map(lambda number: number, [5])  # type: ignore[arg-type, return-value]
        with pytest.raises(rt.ConfigurationError, match="<lambda> gave int, nothing to await; hand over a step"):
            mapped(runtime)[0](5)


async def test_keys_name_the_branches_of_map():
    with in_async_workflow() as runtime:
        await rt.map(double, [1, 2], key=lambda number: f"part/{number}")
    assert mapped(runtime)[3] == ["part/1", "part/2"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"key": lambda _: "same"}, "items 1 and 2 have the same key 'same'; a key names one item"),
        ({"key": lambda number: number}, "rt.map: the key of item 1 must be text, not int"),
        ({"key": lambda _: ""}, "the key of item 1 must have 1 to 200 characters"),
        ({"key": lambda _: "\udc80"}, "the key of item 1 .* holds the character"),
        ({"limit": 0}, "limit must be a whole number from 1"),
        ({"limit": 1.5}, "limit must be a whole number from 1"),
        ({"limit": True}, "limit must be a whole number from 1"),
    ],
)
async def test_settings_of_map_that_can_be_none_are_refused_where_it_is_called(settings: dict[str, Any], message: str):
    with in_async_workflow() as runtime, pytest.raises(rt.ConfigurationError, match=message):
        await rt.map(double, [1, 2], **settings)
    with in_def_workflow() as blocking, pytest.raises(rt.ConfigurationError, match=message):
        runtrue.sync.map(double, [1, 2], **settings)
    assert runtime.made == blocking.made == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((7, [1]), "its first argument must be a step or a function, not int"),
        ((double, 7), "the items must be something to iterate over, not int"),
    ],
)
def test_map_without_a_function_or_without_items_is_refused(given: tuple[Any, Any], message: str):
    with in_async_workflow(), pytest.raises(rt.ConfigurationError, match=message):
        rt.map(*given)
    with in_def_workflow(), pytest.raises(rt.ConfigurationError, match=message):
        runtrue.sync.map(*given)


# ---------------------------------------------------------------- blocking
@pytest.mark.parametrize("word", ["gather", "first"])
def test_the_functions_of_a_blocking_group_become_threaded_branches(word: str):
    called: list[int] = []
    with in_def_workflow(gather=(1, 2), first=(1, 2)) as runtime:
        assert getattr(runtrue.sync, word)(lambda: called.append(1), lambda: 7) == (1, 2)
        ((_, (one, two)),) = runtime.made
        assert called == []
        assert isinstance(one, Threaded)
        one.call()
        assert called == [1]
        assert two.call() == 7


def test_a_blocking_gather_of_nothing_is_allowed():
    with in_def_workflow(gather=()):
        assert runtrue.sync.gather() == ()


@pytest.mark.parametrize("word", ["gather", "first"])
def test_what_is_no_function_is_no_item_of_a_blocking_group(word: str):
    with in_def_workflow() as runtime:
        for item in (7, helper(1)):
            with pytest.raises(rt.ConfigurationError) as refused:
                getattr(runtrue.sync, word)(lambda: 1, item)
            assert f"item 2 is of type {type(item).__name__}, no function; write rt.{word}(lambda: a(1)" in str(
                refused.value
            )
    assert runtime.made == []


def test_a_function_of_a_blocking_group_that_gives_something_to_await_is_refused_in_its_branch():
    with in_def_workflow() as runtime:
        runtrue.sync.gather(lambda: helper(1))
        runtrue.sync.map(helper, [1])
    (_, (item,)), (_, make, *_) = runtime.made
    for threaded in (item, make(1)):
        with pytest.raises(rt.ConfigurationError, match=r"a function gave coroutine, .* write `.sync\(...\)`"):
            threaded.call()


def test_a_blocking_map_of_a_step_or_workflow_needs_no_threads():
    for fn, word in [(double, "call_step"), (half, "call_step"), (child, "call_child")]:
        with in_def_workflow(map=[7]) as runtime:
            assert runtrue.sync.map(fn, [5], limit=3, key=str) == [7]
            make, items, limit, keys, return_exceptions = mapped(runtime)
            assert (items, limit, keys, return_exceptions) == ([5], 3, ["5"], False)
            with in_branch_of(runtime):
                make(5).close()
        assert runtime.made[-1] == (word, fn, (5,), {})


def test_a_blocking_map_of_a_function_calls_it_on_a_thread_for_each_item():
    class Service:
        def sync(self, number: int) -> int:
            return number + 1

    for fn in (lambda number: number + 1, Service()):
        with in_def_workflow() as runtime:
            runtrue.sync.map(fn, [5])  # type: ignore[arg-type]
            item = mapped(runtime)[0](5)
        assert isinstance(item, Threaded)
        assert item.call() == 6


def test_inside_a_step_a_group_is_refused():
    with in_step(), pytest.raises(rt.WrongPlace, match=r"rt.gather was called inside step work"):
        rt.gather()
