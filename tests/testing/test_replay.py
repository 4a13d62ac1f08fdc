"""Code that is tried against the history of a run."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import runtrue as rt
from runtrue.testing import ReplayMismatch, Standstill, TestApp

called: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_called() -> None:
    called.clear()


@rt.step
async def first(n: int) -> int:
    called.append("first")
    return n + 1


@rt.step
async def second(n: int) -> int:
    called.append("second")
    return n * 2


Flow = Callable[[int], Coroutine[Any, Any, int]]


async def original(n: int) -> int:
    n = await first(n)
    await rt.sleep(3_600)
    return await second(n)


async def other_first_step(n: int) -> int:
    n = await second(n)
    await rt.sleep(3_600)
    return await second(n)


async def ends_early(n: int) -> int:
    return await first(n)


async def goes_on(n: int) -> int:
    return await first(await original(n))


async def goes_on_with_a_sleep(n: int) -> int:
    n = await original(n)
    await rt.sleep(60)
    return n


async def fails_at_the_end(n: int) -> int:
    await original(n)
    raise ValueError("no more")


async def cancels_at_the_end(n: int) -> int:
    await original(n)
    raise rt.CancelRun("no more")


async def waits_for_something_else(n: int) -> int:
    await asyncio.Event().wait()
    return n


async def history(database: Path, code: Flow, *, finished: bool = True) -> str:
    """The id of a run of this code."""
    async with TestApp(workflows=[rt.workflow(name="flow")(code)], database=database) as app:
        run = await app.start("flow", n=1)
        if finished:
            await run.result()
        else:
            await run.wait("waiting")
    called.clear()
    return run.id


async def replayed(database: Path, run_id: str, code: Flow, patience: float = 10) -> None:
    """Try other code against the history; nothing is called and nothing recorded by that."""
    async with TestApp(workflows=[rt.workflow(name="flow")(code)], database=database, patience=patience) as app:
        before = await app.store.get(run_id), await app.store.steps(run_id)
        try:
            await app.replay(run_id)
        finally:
            assert (await app.store.get(run_id), await app.store.steps(run_id)) == before
            assert called == []


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.mark.parametrize("finished", [True, False])
async def test_the_code_that_made_a_history_fits_it(database: Path, finished: bool):
    run_id = await history(database, original, finished=finished)
    await replayed(database, run_id, original)


@pytest.mark.parametrize("finished", [True, False])
async def test_another_step_at_a_recorded_place_is_named_with_what_is_recorded(database: Path, finished: bool):
    run_id = await history(database, original, finished=finished)
    with pytest.raises(
        ReplayMismatch, match=rf"flow@1 does not fit the history of run {run_id}: .*step second.*step first"
    ):
        await replayed(database, run_id, other_first_step)


async def test_code_that_ends_before_its_records_do_is_told(database: Path):
    run_id = await history(database, original)
    with pytest.raises(ReplayMismatch, match=r"the history holds .*sleep"):
        await replayed(database, run_id, ends_early)


@pytest.mark.parametrize(("code", "what"), [(goes_on, "step first"), (goes_on_with_a_sleep, r"rt\.sleep")])
async def test_code_that_goes_on_where_a_completed_run_had_ended_is_told(database: Path, code: Flow, what: str):
    run_id = await history(database, original)
    with pytest.raises(ReplayMismatch, match=f"completed after 3 recorded calls, but the code goes on with {what}"):
        await replayed(database, run_id, code)


@pytest.mark.parametrize(
    ("code", "what"), [(fails_at_the_end, "now fails: ValueError: no more"), (cancels_at_the_end, "now cancels it")]
)
async def test_code_that_ends_a_completed_run_otherwise_is_told(database: Path, code: Flow, what: str):
    run_id = await history(database, original)
    with pytest.raises(ReplayMismatch, match=f"it was completed, but the code {what}"):
        await replayed(database, run_id, code)


async def test_what_comes_after_the_records_of_an_unfinished_run_is_free(database: Path):
    run_id = await history(database, original, finished=False)
    await replayed(database, run_id, goes_on)


async def test_code_that_waits_for_something_else_is_not_waited_for(database: Path):
    run_id = await history(database, original)
    with pytest.raises(Standstill, match="waits for something that is no durable call"):
        await replayed(database, run_id, waits_for_something_else, patience=0.3)


async def test_a_run_that_has_only_failed_attempts_fits_its_code():
    @rt.step(retry=rt.Retry(None, first_delay=60))
    async def fails() -> None:
        called.append("fails")
        raise ConnectionError

    @rt.workflow
    async def flow() -> None:
        await fails()

    async with TestApp(workflows=[flow]) as app:
        run = await app.start(flow)
        await app.advance(600)
        times = len(called)
        assert times > 1
        await app.replay(run.id)
        assert len(called) == times


async def test_a_run_that_has_not_begun_fits_any_code(database: Path):
    async with TestApp(workflows=[rt.workflow(name="flow")(original)], database=database) as app:
        workflow = app.workflows[0]
        run = await app.start(workflow.options(delay=60), 1)
        await app.replay(run.id)
        assert called == []


async def test_an_unknown_run_and_one_that_nobody_serves_are_refused():
    async with TestApp(workflows=[rt.workflow(name="flow")(original)]) as app:
        with pytest.raises(rt.NotFound):
            await app.replay("nobody")
        run = await app.start("elsewhere")
        with pytest.raises(
            rt.ConfigurationError, match=r"one of elsewhere@1, which this TestApp does not serve: flow@1"
        ):
            await app.replay(run.id)


async def test_a_message_that_a_loser_of_first_had_taken_and_gave_back_is_no_difference():
    topic = rt.Topic("notes", int)

    async def quick() -> int:
        return 1

    @rt.workflow
    async def race() -> list[int]:
        winner, _ = await rt.first(rt.receive(topic), quick())
        return [winner, await rt.receive(topic)]

    async with TestApp(workflows=[race]) as app:
        run = await app.start(race.options(delay=5))
        await run.send(topic, 7)
        assert (await run.result())[1] == 7
        await app.replay(run.id)
