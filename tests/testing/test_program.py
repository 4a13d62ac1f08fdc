"""A program's tests as its author would write them: two days of sleep, a crash, a restart, no waiting."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

import runtrue as rt
from runtrue.testing import TestApp


@rt.step
async def book(nights: int) -> str:
    return f"booked-{nights}"


@rt.step
def remind(booking: str) -> str:
    return f"reminded of {booking}"


@rt.workflow
async def stay(nights: int) -> str:
    booking = await book(nights)
    await rt.sleep(timedelta(days=2))
    confirmed = await rt.receive("confirmation", bool, timeout=timedelta(days=1), default=False)
    if not confirmed:
        raise rt.CancelRun("not confirmed")
    return await remind.aio(booking)


async def fake_book(nights: int) -> str:
    return f"fake-{nights}"


@pytest.fixture
async def app() -> AsyncIterator[TestApp]:
    async with TestApp(workflows=[stay]) as app:
        app.replace(book, fake_book)
        yield app


async def test_it_survives_a_crash_and_waits_for_the_guest(app: TestApp) -> None:
    started = app.now()
    app.crash(book, when="after_effect")
    run = await app.start(stay, 3)
    await run.wait("waiting")
    assert len(app.calls(book)) == 2
    await app.advance(timedelta(days=2))
    await run.wait("waiting")
    await app.restart()
    await run.send("confirmation", True)
    assert await run.result() == "reminded of fake-3"
    assert app.now() - started >= timedelta(days=2)
    await app.replay(run.id)


async def test_nobody_confirms(app: TestApp) -> None:
    run = await app.start(stay, 3)
    with pytest.raises(rt.RunCancelled, match="not confirmed"):
        await run.result()
    assert (await run.info()).status is rt.Status.CANCELLED


async def test_cancel_during_the_sleep(app: TestApp) -> None:
    run = await app.start(stay, 3)
    await run.wait("waiting")
    outcome = await run.cancel(reason="test")
    assert outcome.done
    assert app.calls(remind) == []


async def test_a_step_alone() -> None:
    assert await book(3) == "booked-3"
    with pytest.raises(rt.RuntrueError):
        await stay(3)
