"""Code that does not fit the history: the run is held, nothing is executed, and fitting code takes it on."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.engine.running import audit, failure, finished, opened, reaches, recorded
from tests.support import waiting
from tests.support.manual_clock import ManualClock

import runtrue as rt
from runtrue.lifecycle import HoldKind, Status

if TYPE_CHECKING:
    from decimal import Decimal

executed: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_executed() -> None:
    executed.clear()


def plain(name: str) -> rt.AsyncStep[[], str]:
    @rt.step(name=name)
    async def step() -> str:
        executed.append(name)
        return name

    return step


a, b, c = plain("a"), plain("b"), plain("c")


def flow_of(body: Callable[[], Awaitable[Any]]) -> rt.AsyncWorkflow[[], Any]:
    @rt.workflow
    async def flow() -> Any:
        return await body()

    return flow


async def original() -> str:
    await a()
    await b()
    await rt.sleep(60)
    return await c()


async def renamed() -> str:
    await a()
    await plain("new b")()
    await rt.sleep(60)
    return await c()


async def reordered() -> str:
    await b()
    await a()
    await rt.sleep(60)
    return await c()


async def removed() -> str:
    await a()
    await rt.sleep(60)
    return await c()


async def inserted() -> str:
    await a()
    await c()
    await b()
    await rt.sleep(60)
    return await c()


async def another_kind() -> str:
    await a()
    await rt.sleep(0)
    await rt.sleep(60)
    return await c()


async def ends_early() -> str:
    await a()
    return "early"


async def fails_early() -> str:
    await a()
    raise ValueError("early")


async def a_value_in_its_place() -> str:
    await a()
    return str(rt.uuid4())


async def a_value_whose_refusal_is_swallowed() -> str:
    await a()
    try:
        rt.now()
    except Exception:  # an author's code may do that; it must not help
        executed.append("swallowed")
    return await c()


CHANGES = [
    (renamed, "call 2 of flow is step new b, but the history holds step b there"),
    (reordered, "call 1 of flow is step b, but the history holds step a there"),
    (removed, "call 2 of flow is rt.sleep, but the history holds step b there"),
    (inserted, "call 2 of flow is step c, but the history holds step b there"),
    (another_kind, "call 2 of flow is rt.sleep, but the history holds step b there"),
    (ends_early, "the history holds step b as call 2, but the code of flow ended after 1 call"),
    (fails_early, "the history holds step b as call 2, but the code of flow ended after 1 call"),
    (a_value_in_its_place, "call 2 of flow is rt.uuid4, but the history holds step b there"),
    (a_value_whose_refusal_is_swallowed, "call 2 of flow is rt.now, but the history holds step b there"),
]


async def asleep(database: Path, clock: ManualClock, body: Callable[[], Awaitable[Any]] = original) -> str:
    """A run of the original code, left in its sleep."""
    flow = flow_of(body)
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
    executed.clear()
    return run.id


@pytest.mark.parametrize(("change", "sentence"), CHANGES, ids=lambda each: getattr(each, "__name__", ""))
async def test_code_that_changed_holds_the_run_names_both_sides_and_executes_nothing(
    database: Path, clock: ManualClock, change: Callable[[], Awaitable[Any]], sentence: str
):
    run_id = await asleep(database, clock)
    async with opened(database, flow_of(change), clock=clock) as app:
        clock.advance(60)
        run = await app.get(run_id)
        await reaches(run, "paused")
        (hold,) = await run.holds()
        assert hold.kind is HoldKind.CODE_MISMATCH
        assert hold.reason == sentence
        assert not [name for name in executed if name != "swallowed"]
        assert await recorded(app, run) == [("a", 1), ("b", 1), ("sleep", 1)]
        await audit(app, run)


async def test_fitting_code_completes_the_run_after_a_resume(database: Path, clock: ManualClock):
    run_id = await asleep(database, clock)
    async with opened(database, flow_of(renamed), clock=clock) as app:
        clock.advance(60)
        await reaches(await app.get(run_id), "paused")
    flow = flow_of(original)
    async with opened(database, flow, clock=clock) as app:
        run = await app.get(run_id)
        assert await run.status() is Status.PAUSED, "nothing goes on before it is resumed"
        outcome = await run.resume()
        assert outcome.status is Status.PENDING
        assert await finished(run) == "c"
        assert executed == ["c"]
        holds = await app.service.holds(run_id, open_only=False)
        assert [(hold.kind, hold.outcome) for hold in holds] == [(HoldKind.CODE_MISMATCH, "resumed")]
        await audit(app, run)


async def test_a_resume_under_code_that_still_does_not_fit_holds_the_run_again(database: Path, clock: ManualClock):
    run_id = await asleep(database, clock)
    async with opened(database, flow_of(renamed), clock=clock) as app:
        clock.advance(60)
        run = await app.get(run_id)
        await reaches(run, "paused")
        await run.resume()
        await until_holds(app, run_id, 2)
        await reaches(run, "paused")
        assert len(await run.holds()) == 1


async def until_holds(app: rt.App, run_id: str, number: int) -> None:
    """The run has been held so many times."""

    async def enough() -> bool:
        return len(await app.service.holds(run_id, open_only=False)) >= number

    await waiting.until(enough, f"run {run_id} was held {number} times")


async def test_a_held_run_can_be_cancelled(database: Path, clock: ManualClock):
    run_id = await asleep(database, clock)
    async with opened(database, flow_of(renamed), clock=clock) as app:
        clock.advance(60)
        run = await app.get(run_id)
        await reaches(run, "paused")
        assert (await run.cancel()).done
        assert await run.status() is Status.CANCELLED


async def test_more_steps_after_the_recorded_ones_fit(database: Path, clock: ManualClock):
    run_id = await asleep(database, clock)

    async def longer() -> str:
        last = await original()
        return last + await a()

    async with opened(database, flow_of(longer), clock=clock) as app:
        clock.advance(60)
        assert await finished(await app.get(run_id)) == "ca"


async def test_a_recorded_result_that_does_not_fit_its_new_type_holds_the_run(database: Path, clock: ManualClock):
    @rt.step(name="load")
    async def load_text() -> str:
        return "seven"

    @rt.step(name="load")
    async def load_number() -> int:
        return 7

    async def before() -> str:
        loaded = await load_text()
        await rt.sleep(60)
        return loaded

    async def after() -> int:
        loaded = await load_number()
        await rt.sleep(60)
        return loaded

    run_id = await asleep(database, clock, before)
    async with opened(database, flow_of(after), clock=clock) as app:
        clock.advance(60)
        run = await app.get(run_id)
        await reaches(run, "paused")
        (hold,) = await run.holds()
        assert hold.kind is HoldKind.CODE_MISMATCH
        assert "call 1 of flow: the result of step load cannot be read as int" in hold.reason
    async with opened(database, flow_of(before), clock=clock) as app:
        run = await app.get(run_id)
        await run.resume()
        assert await finished(run) == "seven"


async def test_a_result_type_that_became_unknown_holds_the_run(database: Path, clock: ManualClock):
    @rt.step(name="a")
    async def forgot_the_import() -> "Decimal":
        raise AssertionError("it is recorded")

    async def after() -> None:
        await forgot_the_import()

    run_id = await asleep(database, clock)
    async with opened(database, flow_of(after), clock=clock) as app:
        clock.advance(60)
        run = await app.get(run_id)
        await reaches(run, "paused")
        (hold,) = await run.holds()
        assert "step a: its return annotation 'Decimal' cannot be resolved" in hold.reason


async def test_an_input_that_does_not_fit_its_new_type_holds_a_run_with_a_history(database: Path, clock: ManualClock):
    @rt.workflow(name="flow")
    async def before(number: int) -> int:
        await rt.sleep(60)
        return number

    @rt.workflow(name="flow")
    async def after(number: str) -> str:
        await rt.sleep(60)
        return number

    async with opened(database, before, clock=clock) as app:
        run = await app.start(before, 3)
        await reaches(run, "waiting")
    async with opened(database, after, clock=clock) as app:
        clock.advance(60)
        run = await app.get(run.id)
        await reaches(run, "paused")
        (hold,) = await run.holds()
        assert "the input of flow, argument number, cannot be read as str" in hold.reason


async def test_an_input_that_never_fitted_fails_a_run_without_a_history(database: Path):
    @rt.workflow
    async def flow(number: int) -> int:
        return number

    async with rt.Client(database) as client:
        run = await client.start("flow", number="three")
        unknown = await client.start("flow", number=3, other=4)
    async with opened(database, flow) as app:
        assert "argument number, cannot be read as int" in (await failure(await app.get(run.id))).message
        assert "there is no parameter other" in (await failure(await app.get(unknown.id))).message


async def test_a_step_that_took_the_place_of_one_with_failed_attempts_holds_the_run(database: Path, clock: ManualClock):
    """The failed attempts may have had effects, and the new step would go by their number and their key."""

    @rt.step(retry=rt.Retry(5, first_delay=60, jitter=False))
    async def flaky() -> str:
        raise ValueError("no")

    @rt.step
    async def other() -> str:
        executed.append("other")
        return "other"

    async def before() -> str:
        await a()
        return await flaky()

    async def after() -> str:
        await a()
        return await other()

    run_id = await asleep(database, clock, before)
    async with opened(database, flow_of(after), clock=clock) as app:
        clock.advance(60)
        run = await app.get(run_id)
        await reaches(run, "paused")
        (hold,) = await run.holds()
        assert hold.reason == "call 2 of flow is step other, but the history holds step flaky there"
        assert executed == []


async def test_code_that_ends_before_a_step_with_failed_attempts_holds_the_run(database: Path, clock: ManualClock):
    @rt.step(retry=rt.Retry(5, first_delay=60, jitter=False))
    async def flaky() -> str:
        raise ValueError("no")

    async def after() -> str:
        return "early"

    run_id = await asleep(database, clock, flaky)
    async with opened(database, flow_of(after), clock=clock) as app:
        clock.advance(60)
        run = await app.get(run_id)
        await reaches(run, "paused")
        (hold,) = await run.holds()
        assert hold.reason == "the history holds step flaky as call 1, but the code of flow ended after 0 calls"


async def test_a_pause_and_a_mismatch_leave_one_paused_run_with_both_holds_told(database: Path, clock: ManualClock):
    run_id = await asleep(database, clock)
    async with opened(database, flow_of(renamed), clock=clock) as app:
        clock.advance(60)
        run = await app.get(run_id)
        await reaches(run, "paused")
        await run.pause(reason="look into it")
        assert {hold.kind for hold in await run.holds()} == {HoldKind.CODE_MISMATCH, HoldKind.OPERATOR}
        outcome = await run.resume()
        assert outcome.status is Status.PENDING


@pytest.mark.parametrize("other", ["a step", "another topic"])
async def test_another_call_at_the_place_of_an_open_wait_holds_the_run_and_executes_nothing(database: Path, other: str):
    called: list[str] = []

    @rt.step
    async def work() -> str:
        called.append("work")
        return "done"

    @rt.workflow(name="waits")
    async def first_code() -> str:
        return await rt.receive("go", str)

    @rt.workflow(name="waits")
    async def other_code() -> str:
        return await (work() if other == "a step" else rt.receive("start", str))

    async with opened(database, first_code) as app:
        run = await app.start(first_code.options(id="r"))
        await reaches(run, "waiting")
        await run.pause()
    async with opened(database, other_code) as app:
        run = await app.get("r")
        await run.resume()
        await reaches(run, "paused")
        (hold,) = await run.holds()
        assert hold.kind is HoldKind.CODE_MISMATCH
        assert "the run waits for rt.receive of go there" in hold.reason
        await audit(app, run)
    assert called == []
