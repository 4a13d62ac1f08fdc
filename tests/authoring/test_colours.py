"""Each call has the colour of its function, and is told where it was made in the wrong one."""

import asyncio
import threading
from typing import Any

import pytest
from tests.authoring.fake_engine import in_async_workflow, in_def_workflow, in_step

import runtrue as rt


@rt.step
async def charge(cents: int, *, currency: str = "EUR") -> str:
    return f"{cents} {currency}"


@rt.step
def reserve(count: int) -> int:
    return count * threading.get_ident()


@rt.workflow
async def fulfil(order: int) -> int:
    return order


@rt.workflow
def onboard(user: int) -> int:
    return user


CHARGE, RESERVE, FULFIL, ONBOARD = (1,), (2,), (3,), (4,)


def test_the_colour_of_a_step_or_workflow_is_that_of_its_function():
    assert isinstance(charge, rt.AsyncStep)
    assert charge.is_async
    assert isinstance(reserve, rt.SyncStep)
    assert not reserve.is_async
    assert isinstance(fulfil, rt.AsyncWorkflow)
    assert fulfil.is_async
    assert isinstance(onboard, rt.SyncWorkflow)
    assert not onboard.is_async


# ---------------------------------------------------------------- in an `async def` workflow
@pytest.mark.parametrize(
    ("call", "called"),
    [
        (lambda: charge(1), ("call_step", charge, (1,), {})),
        (lambda: charge.aio(1, currency="USD"), ("call_step", charge, (1,), {"currency": "USD"})),
        (lambda: reserve.aio(2), ("call_step", reserve, (2,), {})),
        (lambda: fulfil(3), ("call_child", fulfil, (3,), {})),
        (lambda: fulfil.aio(order=3), ("call_child", fulfil, (), {"order": 3})),
        (lambda: onboard.aio(4), ("call_child", onboard, (4,), {})),
    ],
)
async def test_in_an_async_workflow_a_call_is_made_at_once_and_carried_out_when_awaited(call: Any, called: Any):
    with in_async_workflow(call_step="step", call_child="child") as runtime:
        coroutine = call()
        assert runtime.made == [called]
        assert await coroutine in {"step", "child"}
        assert runtime.made == [called]


@pytest.mark.parametrize(
    ("call", "otherwise"),
    [
        (lambda: reserve(2), "step reserve was called .* write `await reserve.aio(...)`"),
        (lambda: reserve.sync(2), "step reserve was called .* write `await reserve.aio(...)`"),
        (lambda: charge.sync(1), "step charge was called .* write `await charge(...)`"),
        (lambda: onboard(4), "workflow onboard was called .* write `await onboard.aio(...)`"),
        (lambda: onboard.sync(4), "workflow onboard was called .* write `await onboard.aio(...)`"),
        (lambda: fulfil.sync(3), "workflow fulfil was called .* write `await fulfil(...)`"),
        (lambda: rt.ref("far").sync(n=1), 'workflow far was called .* write `await rt.ref("far").aio(...)`'),
    ],
)
async def test_in_an_async_workflow_what_would_block_is_refused_with_the_right_words(call: Any, otherwise: str):
    with in_async_workflow() as runtime, pytest.raises(rt.WrongPlace) as refused:
        call()
    start, end = otherwise.split(" .* ")
    assert str(refused.value).startswith(start)
    assert "would block the event loop of an `async def` workflow" in str(refused.value)
    assert str(refused.value).endswith(end)
    assert runtime.made == []


# ---------------------------------------------------------------- in a `def` workflow
@pytest.mark.parametrize(
    ("call", "called"),
    [
        (lambda: reserve(2), ("call_step", reserve, (2,), {})),
        (lambda: reserve.sync(2), ("call_step", reserve, (2,), {})),
        (lambda: charge.sync(1, currency="USD"), ("call_step", charge, (1,), {"currency": "USD"})),
        (lambda: onboard(4), ("call_child", onboard, (4,), {})),
        (lambda: onboard.sync(user=4), ("call_child", onboard, (), {"user": 4})),
        (lambda: fulfil.sync(3), ("call_child", fulfil, (3,), {})),
    ],
)
def test_in_a_def_workflow_a_call_blocks_until_its_result_is_there(call: Any, called: Any):
    with in_def_workflow(call_step="step", call_child="child") as runtime:
        assert call() in {"step", "child"}
    assert runtime.made == [called]


@pytest.mark.parametrize(
    ("call", "otherwise"),
    [
        (lambda: charge(1), "write charge.sync(...)"),
        (lambda: charge.aio(1), "write charge.sync(...)"),
        (lambda: reserve.aio(2), "write reserve(...)"),
        (lambda: fulfil(3), "write fulfil.sync(...)"),
        (lambda: fulfil.aio(3), "write fulfil.sync(...)"),
        (lambda: onboard.aio(4), "write onboard(...)"),
        (lambda: rt.ref("far").aio(n=1), 'write rt.ref("far").sync(...)'),
    ],
)
def test_in_a_def_workflow_what_is_to_be_awaited_is_refused_with_the_right_words(call: Any, otherwise: str):
    with in_def_workflow() as runtime, pytest.raises(rt.WrongPlace) as refused:
        call()
    assert "in a `def` workflow, where nothing can be" in str(refused.value)
    assert str(refused.value).endswith(otherwise)
    assert runtime.made == []


def test_an_error_reaches_the_def_workflow_where_the_call_stands():
    with in_def_workflow(call_step=LookupError("gone")), pytest.raises(LookupError, match="gone"):
        reserve(1)


# ---------------------------------------------------------------- elsewhere
async def test_outside_of_a_workflow_a_step_is_its_function():
    assert await charge(7) == "7 EUR"
    assert await charge.aio(7, currency="USD") == "7 USD"
    assert reserve(1) == threading.get_ident()
    assert reserve.sync(1) == threading.get_ident()
    assert await reserve.aio(1) != threading.get_ident()


def test_outside_of_a_workflow_sync_runs_an_async_step_to_its_end():
    assert charge.sync(7) == "7 EUR"


async def test_inside_a_step_a_step_is_its_function_and_keeps_the_context():
    @rt.step
    def asks() -> str:
        return rt.this_step().name

    with in_step():
        assert await charge(7) == "7 EUR"
        assert reserve(1) == threading.get_ident()
        assert await asks.aio() == "work"
        assert await asyncio.to_thread(charge.sync, 7) == "7 EUR"


async def test_an_async_step_is_not_run_to_its_end_where_an_event_loop_runs():
    with pytest.raises(rt.WrongPlace, match=r"step charge was called .* where an event loop runs; write `await charge"):
        charge.sync(7)


@pytest.mark.parametrize(
    ("call", "ways"),
    [
        (lambda: fulfil(3), "start it with `await app.start(fulfil, ...)`, or call its plain function fulfil.fn(...)"),
        (lambda: fulfil.sync(3), "or call its plain function fulfil.fn(...)"),
        (lambda: onboard(4), "start it with `client.start(onboard, ...)`, or call its plain function onboard.fn(...)"),
        (lambda: onboard.aio(4), "or call its plain function onboard.fn(...)"),
        (lambda: rt.ref("far").aio(), 'start it with `await app.start(rt.ref("far"), ...)`'),
    ],
)
def test_outside_of_a_workflow_a_workflow_is_refused_and_the_right_ways_are_named(call: Any, ways: str):
    with pytest.raises(rt.WrongPlace) as refused:
        call()
    assert "was called outside of a workflow; " in str(refused.value)
    assert str(refused.value).endswith(ways)


@pytest.mark.parametrize("call", [lambda: fulfil(3), lambda: onboard(3), lambda: onboard.aio(3)])
def test_inside_a_step_a_workflow_is_refused_with_the_step_named(call: Any):
    with in_step(), pytest.raises(rt.WrongPlace, match="was called inside step work; a workflow calls its children"):
        call()


async def test_the_plain_function_of_a_workflow_can_be_called_anywhere():
    assert await fulfil.fn(3) == 3
    assert onboard.fn(4) == 4


def test_options_keep_the_colour_and_the_function():
    other = reserve.options(name="reserve:eu", deadline=9)
    assert isinstance(other, rt.SyncStep)
    assert other.settings.deadline_seconds == 9
    assert other.options(deadline=None).settings.deadline_seconds is None
    assert other.function is reserve.function is reserve.fn
    with in_def_workflow() as runtime:
        other(5)
    assert runtime.made == [("call_step", other, (5,), {})]
    assert isinstance(onboard.options(id="x"), rt.SyncWorkflow)
