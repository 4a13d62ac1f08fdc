"""Fakes in the place of steps, and what steps were called with."""

import asyncio
import threading

import pytest

import runtrue as rt
from runtrue.testing import TestApp


@rt.step
async def fetch(url: str, *, limit: int = 10) -> list[str]:
    return [f"real {url}"] * limit


@rt.step
def parse(page: str) -> int:
    return len(page)


@rt.workflow
async def crawl(url: str) -> list[int]:
    pages = await fetch(url, limit=2)
    return [await parse.aio(page) for page in pages]


class Shop:
    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    @rt.step
    async def sell(self, item: str) -> str:
        return f"{self.prefix} {item}"

    @rt.workflow
    async def open(self, item: str) -> str:
        return await self.sell(item)


async def test_without_a_fake_a_step_is_its_own_function():
    async with TestApp(workflows=[crawl]) as app:
        assert await app.run(crawl, "x") == [6, 6]


async def test_a_fake_of_either_colour_stands_in_for_an_async_step():
    async def fake(url: str, *, limit: int = 10) -> list[str]:
        return [url] * limit

    def blocking_fake(url: str, *, limit: int = 10) -> list[str]:
        return [url * 2] * limit

    async with TestApp(workflows=[crawl]) as app:
        app.replace(fetch, fake)
        assert await app.run(crawl, "abc") == [3, 3]
        app.replace(fetch, blocking_fake)
        assert await app.run(crawl, "abc") == [6, 6]


async def test_a_fake_of_either_colour_stands_in_for_a_blocking_step():
    threads: list[bool] = []
    infos: list[str] = []
    opened = asyncio.Event()

    def fake(page: str) -> int:
        threads.append(threading.current_thread() is threading.main_thread())
        return -1

    async def awaiting_fake(page: str) -> int:
        threads.append(threading.current_thread() is threading.main_thread())
        infos.append(rt.this_step().name)
        opened.set()
        await opened.wait()
        return -2

    async with TestApp(workflows=[crawl]) as app:
        app.replace(parse, fake)
        assert await app.run(crawl, "x") == [-1, -1]
        app.replace(parse, awaiting_fake)
        assert await app.run(crawl, "x") == [-2, -2]
    assert threads == [False, False, True, True]
    assert infos == ["parse", "parse"]


async def test_what_a_fake_raises_is_retried_and_recorded_like_an_error_of_the_step():
    attempts: list[int] = []

    async def fake(url: str, *, limit: int = 10) -> list[str]:
        attempts.append(rt.this_step().attempt)
        raise ConnectionError("no route")

    patient = fetch.options(retry=3, name="fetch patiently")

    @rt.workflow
    async def flow() -> str:
        try:
            await patient("x")
        except rt.StepFailed as failed:
            return f"{failed.step}: {failed.error.message}, {failed.attempts}"
        return "came"

    async with TestApp(workflows=[flow]) as app:
        app.replace(fetch, fake)
        assert await app.run(flow) == "fetch patiently: no route, 3"
    assert attempts == [1, 2, 3]


async def test_what_a_fake_returns_must_be_what_the_step_promises():
    async with TestApp(workflows=[crawl]) as app:
        app.replace(fetch, lambda url, limit: {"not": "a list"})  # type: ignore[arg-type]
        with pytest.raises(rt.RunFailed, match="the result of step fetch"):
            await app.run(crawl, "x")


async def test_a_step_of_an_instance_is_replaced_for_all_instances():
    shop = Shop("real")

    async def fake(item: str) -> str:
        return f"fake {item}"

    async with TestApp(workflows=[shop.open]) as app:
        app.replace(shop.sell, fake)
        assert await app.run(shop.open, "pear") == "fake pear"
        assert app.calls(Shop.sell) == app.calls(shop.sell) == [{"item": "pear"}]


async def test_calls_are_told_by_name_with_defaults_in_order():
    async with TestApp(workflows=[crawl]) as app:
        assert app.calls(fetch) == []
        await app.run(crawl, "a")
        await app.run(crawl, "bc")
        assert app.calls(fetch) == [{"url": "a", "limit": 2}, {"url": "bc", "limit": 2}]
        assert app.calls(parse) == [{"page": page} for page in ("real a", "real a", "real bc", "real bc")]


async def test_each_attempt_is_a_call_and_a_replay_is_none():
    failures = iter([ConnectionError("once"), ConnectionError("twice")])

    @rt.step(retry=3)
    async def flaky(number: int) -> int:
        for error in failures:
            raise error
        return number

    @rt.workflow
    async def flow() -> int:
        result = await flaky(7)
        await rt.sleep(60)
        return result

    async with TestApp(workflows=[flow]) as app:
        assert await app.run(flow) == 7
        assert app.calls(flaky) == [{"number": 7}] * 3


async def test_a_call_that_does_not_fit_the_function_fails_the_step_and_is_no_call():
    @rt.workflow
    async def flow() -> None:
        await fetch("x", "y", "z")  # type: ignore[call-arg]

    async with TestApp(workflows=[flow]) as app:
        with pytest.raises(rt.RunFailed, match="positional argument"):
            await app.run(flow)
        assert app.calls(fetch) == []


async def test_results_are_seen_as_they_are_read_back_unless_the_test_says_otherwise():
    @rt.step
    async def pair() -> list[int]:
        return (1, 2)  # type: ignore[return-value]

    @rt.workflow
    async def kind() -> str:
        return type(await pair()).__name__

    async with TestApp(workflows=[kind]) as app:
        assert await app.run(kind) == "list"
    async with TestApp(workflows=[kind], check_roundtrip=False) as app:
        assert await app.run(kind) == "tuple"


async def test_state_takes_the_place_of_a_lifespan():
    class Till:
        def __init__(self) -> None:
            self.cents = 0

    till = Till()

    @rt.step
    async def earn() -> int:
        rt.state(Till).cents += 5
        return rt.state(Till).cents

    @rt.workflow
    async def flow() -> int:
        return await earn()

    async with TestApp(workflows=[flow], state=till) as app:
        assert await app.run(flow) == 5
    async with TestApp(workflows=[flow], state=(till, "beside it")) as app:
        assert await app.run(flow) == 10
    assert till.cents == 10
