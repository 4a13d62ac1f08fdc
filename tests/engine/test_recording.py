"""Steps are recorded once; a replay returns the record and does not call."""

import asyncio
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.engine.running import Gate, audit, event_types, failure, finished, opened, reaches, recorded
from tests.support.manual_clock import ManualClock

import runtrue as rt

if TYPE_CHECKING:
    from decimal import Decimal


@dataclass
class Order:
    number: int
    at: datetime


class Declined(Exception):
    """A declared error."""


class Fussy(Exception):
    """Cannot be made again from its args."""

    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")


async def test_a_step_is_called_once_and_a_replay_returns_its_record(database: Path, clock: ManualClock):
    calls: list[int] = []

    @rt.step
    async def count(number: int) -> int:
        calls.append(number)
        return number + 1

    @rt.workflow
    async def flow() -> list[int]:
        first = await count(1)
        await rt.sleep(60)
        return [first, await count(first)]

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
    async with opened(database, flow, clock=clock) as app:
        clock.advance(60)
        run = await app.get(run.id, flow)
        assert await finished(run) == [2, 3]
        assert calls == [1, 2]
        assert await recorded(app, run) == [("count", 1), ("sleep", 1), ("count", 1)]
        await audit(app, run)


async def test_a_result_comes_back_as_its_annotated_type_live_and_on_replay(database: Path, clock: ManualClock):
    kinds: list[type] = []

    @rt.step
    async def load() -> Order:
        return Order(7, datetime(2026, 1, 2, tzinfo=UTC))

    @rt.workflow
    async def flow() -> Order:
        order = await load()
        kinds.append(type(order))
        await rt.sleep(60)
        return order

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        clock.advance(60)
        assert await finished(run) == Order(7, datetime(2026, 1, 2, tzinfo=UTC))
        assert kinds == [Order, Order]


async def test_a_run_in_memory_works_as_one_in_a_file_does():
    @rt.step
    async def double(number: int) -> int:
        return 2 * number

    @rt.workflow
    async def flow(number: int) -> int:
        await rt.sleep(0.02)
        return await double(number)

    async with opened("sqlite://", flow) as app:
        run = await app.start(flow, 21)
        assert await finished(run) == 42
        await audit(app, run)


async def test_a_result_that_cannot_be_recorded_fails_the_step_without_another_attempt(database: Path):
    calls: list[int] = []

    @rt.step(retry=rt.Retry(5, first_delay=0))
    async def give() -> object:
        calls.append(1)
        return {"inner": [object()]}

    @rt.workflow
    async def flow() -> None:
        await give()

    async with opened(database, flow) as app:
        error = await failure(await app.start(flow))
        assert calls == [1]
        assert error.type == "runtrue.errors.StepFailed"
        assert "step give failed after 1 attempt" in error.message
        assert "$.inner[0]" in error.message


async def test_a_result_that_does_not_fit_its_annotation_fails_the_step(database: Path):
    @rt.step
    async def give() -> int:
        return "three"  # type: ignore[return-value]

    @rt.workflow
    async def flow() -> int:
        return await give()

    async with opened(database, flow) as app:
        error = await failure(await app.start(flow))
        assert "the result of step give cannot be recorded" in error.message


async def test_a_workflow_result_that_cannot_be_recorded_fails_the_run_and_names_the_place(database: Path):
    @rt.workflow
    async def flow() -> object:
        return {"handle": object()}

    async with opened(database, flow) as app:
        error = await failure(await app.start(flow))
        assert error.type == "runtrue.errors.NotEncodable"
        assert "the result of flow cannot be recorded: at $.handle" in error.message


async def test_a_declared_error_is_the_same_class_live_and_on_replay(database: Path, clock: ManualClock):
    caught: list[tuple[type, tuple[object, ...]]] = []
    calls: list[int] = []

    @rt.step(raises=(Declined,), retry=5)
    async def pay() -> None:
        calls.append(1)
        raise Declined("card", 3)

    @rt.workflow
    async def flow() -> str:
        try:
            await pay()
        except Declined as declined:
            caught.append((type(declined), declined.args))
        await rt.sleep(60)
        return "went on"

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
    async with opened(database, flow, clock=clock) as app:
        clock.advance(60)
        assert await finished(await app.get(run.id, flow)) == "went on"
    assert caught == [(Declined, ("card", 3))] * 2
    assert calls == [1], "a declared error is not retried"


@pytest.mark.parametrize(
    "error", [ValueError("bad\0value"), RuntimeError("\udc80"), ValueError("x" * 100_000), Fussy(code=3)], ids=repr
)
async def test_an_error_is_the_same_step_failed_live_and_on_replay(
    database: Path, clock: ManualClock, error: Exception
):
    caught: list[tuple[str, rt.ErrorInfo, int, str]] = []

    @rt.step(raises=(Fussy,))
    async def fail() -> None:
        raise error

    @rt.workflow
    async def flow() -> None:
        try:
            await fail()
        except rt.StepFailed as failed:
            caught.append((failed.step, failed.error, failed.attempts, str(failed)))
        await rt.sleep(60)

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
    async with opened(database, flow, clock=clock) as app:
        clock.advance(60)
        await finished(await app.get(run.id))
    live, replayed = caught
    assert live == replayed
    assert live[0] == "fail"
    assert live[2] == 1
    assert live[1].type.endswith(type(error).__name__)
    assert "\0" not in live[1].message
    assert len(live[1].message) <= 10_000


@pytest.mark.parametrize("error", [SystemExit(3), BaseException("base"), asyncio.CancelledError()], ids=repr)
async def test_what_is_no_exception_fails_its_own_step_and_no_other_run(database: Path, error: BaseException):
    @rt.step(retry=rt.Retry(3, first_delay=0))
    async def leave() -> None:
        raise error

    @rt.step
    async def stay() -> str:
        return "here"

    @rt.workflow
    async def leaving() -> None:
        await leave()

    @rt.workflow
    async def staying() -> str:
        return await stay()

    async with opened(database, leaving, staying) as app:
        recorded_error = await failure(await app.start(leaving))
        assert recorded_error.type == "runtrue.errors.StepFailed"
        assert await finished(await app.start(staying)) == "here"


async def test_a_step_that_raises_cancelled_error_by_itself_has_failed_and_is_retried(database: Path):
    calls: list[int] = []

    @rt.step(retry=rt.Retry(2, first_delay=0))
    async def flaky() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise asyncio.CancelledError
        return "done"

    @rt.workflow
    async def flow() -> str:
        return await flaky()

    async with opened(database, flow) as app:
        assert await finished(await app.start(flow)) == "done"
        assert len(calls) == 2


@pytest.mark.parametrize(
    "error", [ValueError("own"), SystemExit(2), BaseException("base"), asyncio.CancelledError()], ids=repr
)
async def test_whatever_leaves_the_workflow_fails_the_run_with_its_type_and_message(
    database: Path, error: BaseException
):
    @rt.workflow
    async def flow() -> None:
        raise error

    async with opened(database, flow) as app:
        run = await app.start(flow)
        found = await failure(run)
        if not isinstance(error, asyncio.CancelledError):
            assert found.type == type(error).__name__
            assert found.message == str(error)
            assert "raise error" in found.traceback
        with pytest.raises(rt.RunFailed) as failed:
            await run.result()
        assert failed.value.error == found


@pytest.mark.parametrize("in_step", [True, False], ids=["in a step", "in the workflow"])
async def test_cancel_run_ends_the_run_cancelled_with_its_reason(database: Path, in_step: bool):
    after: list[int] = []

    @rt.step(retry=5)
    async def stop() -> None:
        if in_step:
            raise rt.CancelRun("nothing to do")

    @rt.workflow
    async def flow() -> None:
        try:
            await stop()
            if not in_step:
                raise rt.CancelRun("nothing to do")  # noqa: TRY301
        except Exception:  # CancelRun is no Exception: this must not see it
            after.append(1)

    async with opened(database, flow) as app:
        run = await app.start(flow)
        with pytest.raises(rt.RunCancelled) as cancelled:
            await finished(run)
        assert cancelled.value.reason == "nothing to do"
        assert not after
        assert "cancelled" in await event_types(run)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("forgotten", ["step", "sleep"])
async def test_a_call_that_is_never_awaited_fails_the_run_by_name(database: Path, forgotten: str):
    calls: list[str] = []

    @rt.step
    async def note(word: str) -> str:
        calls.append(word)
        return word

    @rt.workflow
    async def flow() -> str:
        note("forgotten") if forgotten == "step" else rt.sleep(5)
        return await note("awaited")

    async with opened(database, flow) as app:
        run = await app.start(flow)
        what = "step note" if forgotten == "step" else "rt.sleep"
        with pytest.raises(
            rt.RunFailed, match=rf"{what} was called by flow \(call 1\) and never awaited.*write `await`"
        ):
            await finished(run)
        assert calls == ["awaited"]


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
async def test_a_workflow_that_fails_by_itself_is_not_blamed_for_a_forgotten_await(database: Path):
    @rt.step
    async def note() -> None: ...

    @rt.workflow
    async def flow() -> None:
        note()
        raise ValueError("its own")

    async with opened(database, flow) as app:
        with pytest.raises(rt.RunFailed, match="its own"):
            await finished(await app.start(flow))


async def test_the_idempotency_key_is_one_for_all_attempts_and_another_for_each_call(database: Path):
    keys: list[str] = []

    @rt.step(retry=rt.Retry(3, first_delay=0))
    async def pay() -> None:
        keys.append(rt.this_step().idempotency_key)
        if len(keys) < 3:
            raise ValueError("again")

    @rt.workflow
    async def flow() -> None:
        await pay()
        await pay()

    async with opened(database, flow) as app:
        first = await app.start(flow)
        await finished(first)
        second = await app.start(flow)
        await finished(second)
    assert keys[0] == keys[1] == keys[2]
    assert len({keys[2], *keys[3:]}) == 4


async def test_a_result_mutated_after_it_was_recorded_leaves_the_record_alone(database: Path, clock: ManualClock):
    seen: list[list[int]] = []

    @rt.step
    async def give() -> list[int]:
        return [1]

    @rt.workflow
    async def flow() -> None:
        given = await give()
        seen.append(list(given))
        given.append(2)
        await rt.sleep(60)

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        clock.advance(60)
        await finished(run)
    assert seen == [[1], [1]]


async def test_many_runs_at_once_record_each_its_own(database: Path):
    gate = Gate()

    @rt.step
    async def double(number: int) -> int:
        await gate.pass_through()
        return 2 * number

    @rt.workflow
    async def flow(number: int) -> int:
        return await double(number) + await double(number)

    async with opened(database, flow) as app:
        runs = await app.start_many(flow, [{"number": number} for number in range(50)])
        await gate.reached()
        gate.open()
        assert [await finished(run) for run in runs] == [4 * number for number in range(50)]
        await audit(app, runs[0])


async def test_a_result_type_that_is_unknown_fails_the_run_before_the_step_is_called(database: Path):
    calls: list[int] = []

    @rt.step
    async def price() -> "Decimal":
        calls.append(1)
        return 1  # type: ignore[return-value]

    @rt.workflow
    async def flow() -> None:
        await price()

    async with opened(database, flow) as app:
        error = await failure(await app.start(flow))
        assert error.type == "runtrue.errors.ConfigurationError"
        assert "step price: its return annotation 'Decimal' cannot be resolved" in error.message
        assert calls == []


def test_a_keyboard_interrupt_in_a_step_ends_the_program_and_the_run_goes_on_elsewhere(database: Path):
    """It is the person at the keyboard who speaks, whatever code happens to run then."""
    program = f"""
import asyncio, runtrue as rt

@rt.step
async def work() -> str:
    raise KeyboardInterrupt

@rt.workflow
async def flow() -> str:
    return await work()

async def main():
    async with rt.App({str(database)!r}, workflows=[flow]) as app:
        await (await app.start(flow.options(id="one"))).result()

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "interrupted\n", done.stderr

    @rt.step
    async def work() -> str:
        return "worked"

    @rt.workflow
    async def flow() -> str:
        return await work()

    async def go_on() -> str:
        async with opened(database, flow) as app:
            return await finished(await app.get("one"))

    assert asyncio.run(go_on()) == "worked"
