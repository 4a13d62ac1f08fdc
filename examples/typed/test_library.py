"""Tests of a workflow that lasts three weeks, without waiting: no server, and a clock that only the test moves.

pytest examples/typed/test_library.py
"""

from collections.abc import AsyncGenerator
from datetime import timedelta

import pytest
import pytest_asyncio

import runtrue as rt
from runtrue.testing import TestApp


@rt.step
async def hand_out(book: str) -> str:
    """Give the book to the reader."""
    return f"the library's {book}"


@rt.step
def remind(copy: str) -> str:
    """Write to the reader."""
    return f"bring back {copy}"


@rt.workflow
async def lend(book: str) -> str:
    """Hand the book out, and remind the reader after three weeks."""
    copy = await hand_out(book)
    await rt.sleep(timedelta(weeks=3))
    return await remind.aio(copy)


async def hand_out_nothing(book: str) -> str:
    """Stands in for the step."""
    return f"no {book}"


@pytest_asyncio.fixture
async def app() -> AsyncGenerator[TestApp, None]:
    """An App in memory whose books stay on their shelves."""
    async with TestApp(workflows=[lend]) as app:
        app.replace(hand_out, hand_out_nothing)
        yield app


@pytest.mark.asyncio
async def test_a_loan_outlives_a_crash_and_three_weeks(app: TestApp) -> None:
    """The worker is lost when the book was handed out and nothing was recorded yet."""
    started = app.now()
    app.crash(hand_out, when="after_effect")
    run = await app.start(lend, "atlas")
    await run.wait("waiting")
    assert len(app.calls(hand_out)) == 2
    await app.restart()
    await app.advance(timedelta(weeks=3))
    assert await run.result() == "bring back no atlas"
    assert app.now() - started >= timedelta(weeks=3)
    await app.replay(run.id)


@pytest.mark.asyncio
async def test_time_runs_on_by_itself_while_a_result_is_waited_for(app: TestApp) -> None:
    """Nothing else moves the clock."""
    run = await app.start(lend, "atlas")
    assert await run.result() == "bring back no atlas"
    assert (await run.info()).status is rt.Status.COMPLETED


@pytest.mark.asyncio
async def test_a_loan_that_is_cancelled_reminds_nobody(app: TestApp) -> None:
    """A waiting run is cancelled at once."""
    run = await app.start(lend, "atlas")
    await run.wait("waiting")
    outcome = await run.cancel(reason="given back")
    assert outcome.done
    assert app.calls(remind) == []


@pytest.mark.asyncio
async def test_a_step_alone_is_its_function() -> None:
    """A workflow is not: it is started, or its plain function is called."""
    assert await hand_out("atlas") == "the library's atlas"
    with pytest.raises(rt.WrongPlace):
        await lend("atlas")
