"""Attempts: how many, how far apart, and what survives a restart."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from tests.engine.running import audit, event_types, failure, finished, opened, reaches, recorded, until
from tests.support.manual_clock import ManualClock

import runtrue as rt
from runtrue.lifecycle import Status


def failing(times: int, retry: rt.Retry, calls: list[int], **settings: object) -> rt.AsyncWorkflow[[], int]:
    """A workflow whose one step fails so many times before it returns the number of its attempt."""

    @rt.step(retry=retry, **settings)
    async def flaky() -> int:
        calls.append(rt.this_step().attempt)
        if len(calls) <= times:
            raise ValueError(f"attempt {len(calls)}")
        return rt.this_step().attempt

    @rt.workflow
    async def flow() -> int:
        return await flaky()

    return flow


async def test_a_step_is_tried_once_unless_it_says_otherwise(database: Path):
    calls: list[int] = []

    @rt.step
    async def once() -> None:
        calls.append(1)
        raise ValueError("no")

    @rt.workflow
    async def flow() -> None:
        await once()

    async with opened(database, flow) as app:
        error = await failure(await app.start(flow))
        assert error.message == "step once failed after 1 attempt: ValueError: no"
        assert calls == [1]


async def test_the_number_of_attempts_counts_the_first_one(database: Path):
    calls: list[int] = []
    flow = failing(9, rt.Retry(3, first_delay=0), calls)
    async with opened(database, flow) as app:
        run = await app.start(flow)
        error = await failure(run)
        assert error.message == "step flaky failed after 3 attempts: ValueError: attempt 3"
        assert calls == [1, 2, 3]
        _, attempts = await app.service.steps(run.id)
        assert [attempt.attempt for attempt in attempts] == [1, 2]
        assert await recorded(app, run) == [("flaky", 3)]


async def test_retry_none_tries_for_ever(database: Path):
    calls: list[int] = []
    flow = failing(30, rt.Retry(None, first_delay=0), calls)
    async with opened(database, flow) as app:
        assert await finished(await app.start(flow)) == 31


async def test_back_off_grows_by_its_factor_up_to_its_most(database: Path, clock: ManualClock):
    calls: list[int] = []
    flow = failing(4, rt.Retry(9, first_delay=0.5, factor=2, max_delay=1.5, jitter=False), calls)
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        for delay in (0.5, 1, 1.5, 1.5):
            await clock.sleeper(delay)
            assert await run.status() is Status.RUNNING, "a short back-off stays in memory"
            clock.advance(delay)
        assert await finished(run) == 5


@pytest.mark.parametrize("attempt", range(1, 8))
def test_jitter_spreads_a_delay_by_half_either_way_and_never_over_the_most(attempt: int):
    plain = rt.Retry(first_delay=1, factor=2, max_delay=20, jitter=False).delay_seconds(attempt)
    assert plain == min(20, 2 ** (attempt - 1))
    spread = [rt.Retry(first_delay=1, factor=2, max_delay=20).delay_seconds(attempt) for _ in range(300)]
    assert all(0.5 * plain <= delay <= min(20, 1.5 * plain) for delay in spread)
    assert len(set(spread)) > 100


def test_the_delay_of_the_millionth_attempt_is_still_a_number():
    assert rt.Retry(None, factor=1_000, jitter=False).delay_seconds(1_000_000) == 300


@pytest.mark.parametrize(
    ("retry_on", "tried"),
    [
        (ValueError, 2),
        ((KeyError, ValueError), 2),
        (KeyError, 1),
        ((), 1),
        (lambda error: "attempt" in str(error), 2),
        (lambda error: False, 1),
    ],
    ids=["its type", "a tuple with it", "another type", "no type", "a function: yes", "a function: no"],
)
async def test_retry_on_says_which_errors_are_worth_another_attempt(
    database: Path, retry_on: Callable[[Exception], bool], tried: int
):
    calls: list[int] = []
    flow = failing(9, rt.Retry(2, first_delay=0, retry_on=retry_on), calls)
    async with opened(database, flow) as app:
        await failure(await app.start(flow))
        assert len(calls) == tried


async def test_give_up_on_wins_over_retry_on(database: Path):
    calls: list[int] = []
    flow = failing(9, rt.Retry(5, first_delay=0, give_up_on=(KeyError, ValueError)), calls)
    async with opened(database, flow) as app:
        await failure(await app.start(flow))
        assert calls == [1]


async def test_a_retry_on_that_raises_fails_the_step_with_its_own_error_and_says_what_it_judged(database: Path):
    calls: list[int] = []

    def judge(error: Exception) -> bool:
        raise LookupError("no rule")

    flow = failing(9, rt.Retry(5, first_delay=0, retry_on=judge), calls)
    async with opened(database, flow) as app:
        run = await app.start(flow)
        assert "LookupError: no rule" in (await failure(run)).message
        steps, _ = await app.service.steps(run.id)
        assert b"raised by retry_on of step flaky while it judged ValueError('attempt 1')" in (steps[0].error or b"")
        assert calls == [1]


async def test_a_long_back_off_leaves_memory_and_comes_back_with_the_next_attempt(database: Path, clock: ManualClock):
    calls: list[int] = []
    flow = failing(2, rt.Retry(5, first_delay=timedelta(hours=1), factor=1, jitter=False, max_delay=3600), calls)
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        assert calls == [1]
        clock.advance(3599)
        assert await run.status() is Status.WAITING
        clock.advance(1)
        await until(lambda: len(calls) == 2)
        await reaches(run, "waiting")
        clock.advance(3600)
        assert await finished(run) == 3
        assert calls == [1, 2, 3]
        assert (await event_types(run)).count("attempt_failed") == 2


async def test_attempts_are_counted_on_over_a_restart(database: Path, clock: ManualClock):
    calls: list[int] = []
    flow = failing(9, rt.Retry(3, first_delay=60, factor=1, jitter=False), calls)
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
    async with opened(database, flow, clock=clock) as app:
        clock.advance(60)
        await until(lambda: len(calls) == 2)
        await reaches(await app.get(run.id), "waiting")
    async with opened(database, flow, clock=clock) as app:
        clock.advance(60)
        assert "failed after 3 attempts" in (await failure(await app.get(run.id))).message
    assert calls == [1, 2, 3]


async def test_a_cancel_during_a_short_back_off_acts_at_once_and_no_attempt_follows(database: Path, clock: ManualClock):
    calls: list[int] = []
    flow = failing(9, rt.Retry(5, first_delay=2.5, jitter=False), calls)
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await clock.sleeper(2.5)
        outcome = await run.cancel(reason="enough")
        assert not outcome.done
        clock.advance(1)  # the next renewal brings the request
        await reaches(run, "cancelled")
        clock.advance(10)
        assert calls == [1]


async def test_a_cancel_during_a_long_back_off_is_done_at_once(database: Path, clock: ManualClock):
    calls: list[int] = []
    flow = failing(9, rt.Retry(5, first_delay=100, jitter=False), calls)
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        assert (await run.cancel()).done
        clock.advance(1_000)
        assert await run.status() is Status.CANCELLED
        assert calls == [1]


async def test_a_pause_during_a_short_back_off_acts_at_once_and_the_next_attempt_comes_after_the_resume(
    database: Path, clock: ManualClock
):
    calls: list[int] = []
    flow = failing(1, rt.Retry(5, first_delay=2.5, jitter=False), calls)
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await clock.sleeper(2.5)
        await run.pause()
        clock.advance(1)
        await reaches(run, "paused")
        clock.advance(100)
        assert calls == [1]
        await run.resume()
        assert await finished(run) == 2


async def test_an_endless_retry_without_delay_lets_others_run_and_can_be_cancelled(database: Path):
    calls: list[int] = []
    flow = failing(10**9, rt.Retry(None, first_delay=0), calls)
    async with opened(database, flow) as app:
        run = await app.start(flow)
        await until(lambda: len(calls) > 20)
        await run.cancel()
        await reaches(run, "cancelled")
        made = len(calls)
        await audit(app, run)
        assert len(calls) == made


async def test_a_declared_error_is_never_tried_again(database: Path):
    calls: list[int] = []
    flow = failing(9, rt.Retry(5, first_delay=0), calls, raises=(ValueError,))
    async with opened(database, flow) as app:
        error = await failure(await app.start(flow))
        assert error.type == "ValueError"
        assert calls == [1]


async def test_other_options_of_a_call_leave_the_step_alone(database: Path):
    calls: list[int] = []

    @rt.step
    async def flaky() -> int:
        calls.append(1)
        if len(calls) < 3:
            raise ValueError("no")
        return len(calls)

    @rt.workflow
    async def flow() -> int:
        return await flaky.options(retry=rt.Retry(3, first_delay=0), name="flaky:eu")()

    async with opened(database, flow) as app:
        run = await app.start(flow)
        assert await finished(run) == 3
        assert await recorded(app, run) == [("flaky:eu", 3)]
        assert flaky.name == "flaky"
        assert flaky.settings.retry.attempts == 1
