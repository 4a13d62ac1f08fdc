"""`def` workflows: they run on threads of their own, with the words of runtrue.sync."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.engine.running import (
    audit,
    failure,
    finished,
    opened,
    reaches,
    recorded,
    until,
    until_heard,
)
from tests.support import waiting
from tests.support.manual_clock import ManualClock
from tests.support.thread_gate import SOON_SECONDS, ThreadGate, our_threads

import runtrue
import runtrue.sync as rt
from runtrue.lifecycle import Status

LEFT_BY_OTHERS: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
async def _no_thread_outlives_its_test() -> AsyncIterator[None]:
    before = our_threads()
    LEFT_BY_OTHERS.clear()
    LEFT_BY_OTHERS.update(before)
    yield
    await waiting.until(
        lambda: our_threads() <= before, lambda: f"no thread is left: {our_threads()}", seconds=SOON_SECONDS
    )


@pytest.fixture
def gate() -> ThreadGate:
    return ThreadGate()


@rt.step
def double(number: int) -> int:
    return 2 * number


@rt.step
async def triple(number: int) -> int:
    return 3 * number


@rt.workflow
def adding(left: int, right: int) -> int:
    return double(left) + double(right)


@rt.workflow
async def adding_on_the_loop(left: int, right: int) -> int:
    return await triple(left) + await triple(right)


def workflow_threads() -> int:
    """How many threads of workflows and their branches there are; other tests may have left some."""
    ours = ("runtrue-step-", "runtrue-heartbeat", "runtrue-reader", "runtrue-writer", "runtrue-turn", "runtrue-client")
    return sum(not thread.name.startswith(ours) for thread in our_threads() - LEFT_BY_OTHERS)


# ------------------------------------------------------------ where code runs
async def test_a_workflow_and_its_direct_steps_share_one_daemon_thread_and_async_steps_run_on_the_loop(database: Path):
    seen: dict[str, threading.Thread] = {}

    @rt.step
    def direct() -> None:
        seen["direct"] = threading.current_thread()

    @rt.step
    async def on_the_loop() -> None:
        seen["on the loop"] = threading.current_thread()

    @rt.workflow
    def flow() -> str:
        seen["workflow"] = threading.current_thread()
        direct()
        on_the_loop.sync()
        direct.sync()
        return threading.current_thread().name

    async with opened(database, flow) as app:
        run = await app.start(flow)
        assert await finished(run) == seen["workflow"].name
        assert await recorded(app, run) == [("direct", 1), ("on_the_loop", 1), ("direct", 1)]
        await audit(app, run)
    assert seen["direct"] is seen["workflow"]
    assert seen["workflow"].daemon
    assert seen["on the loop"] is threading.main_thread()


async def test_every_word_works_and_gives_the_same_on_every_replay(database: Path, clock: ManualClock):
    drawn: list[tuple[Any, ...]] = []

    @rt.workflow
    def flow(given: int) -> list[Any]:
        values = (rt.now(), rt.uuid4(), rt.random().random(), rt.patched("new"), rt.this_run().id)
        drawn.append((*values, rt.this_run().replaying))
        rt.publish("how far", {"at": given})
        rt.set_progress(done=1, total=3, note="a third")
        one = double(given)
        two = triple.sync(one)
        rt.sleep(60)
        rt.sleep_until(datetime(2026, 1, 1, 0, 5, tzinfo=UTC))
        child = adding(1, 2)
        other = rt.start_child(adding_on_the_loop, 1, 2)
        rt.send(other, "unused", "hello")
        both = rt.gather(lambda: double(1), lambda: triple.sync(1))
        number, winner = rt.first(lambda: double(7), lambda: rt.sleep(3600))
        mapped = rt.map(double, [1, 2]) + rt.map(lambda item: triple.sync(item) + double(item), [3], key=str)
        message = rt.receive("go", int, timeout=600)
        return [two, child, other.result(), list(both), number, winner, mapped, message]

    async with opened(database, flow, adding, adding_on_the_loop, clock=clock) as app:
        run = await app.start(flow, 5)
        await reaches(run, "waiting")
        assert await run.published("how far") == {"at": 5}
        progress = (await app.service.get(run.id)).progress
        assert progress is not None
        assert progress.note == "a third"
        clock.advance(60)
        await until(lambda: len(drawn) == 2)
        clock.advance(240)
        await run.send("go", 9)
        assert await finished(run) == [30, 6, 9, [2, 3], 0, 14, [2, 4, 15], 9]
        assert len({values[:5] for values in drawn}) == 1
        assert drawn[0][4:] == (run.id, False)
        assert drawn[-1][4:] == (run.id, True)
        await audit(app, run)


async def test_each_branch_of_a_group_has_a_thread_and_the_steps_of_a_map_need_none(database: Path):
    names: set[str] = set()
    together = threading.Barrier(3, timeout=SOON_SECONDS)

    @rt.step
    def meet() -> int:
        names.add(threading.current_thread().name)
        together.wait()
        return threading.get_ident()

    def twice() -> bool:
        return meet() == meet()

    @rt.workflow
    def flow() -> tuple[bool, ...]:
        return rt.gather(twice, twice, twice)

    @rt.workflow
    def steps() -> list[int]:
        before = workflow_threads()
        found = rt.map(double, range(5))
        return [*found, workflow_threads() - before]

    async with opened(database, flow, steps) as app:
        run = await app.start(flow)
        assert await finished(run) == (True, True, True)
        assert len(names) == 3
        assert await finished(await app.start(steps)) == [0, 2, 4, 6, 8, 0]


async def test_contextvars_of_the_workflow_reach_its_direct_steps_and_branches_and_no_other_run(database: Path):
    colour: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")

    @rt.step
    def see() -> str:
        return colour.get()

    @rt.workflow
    def flow(paint: str) -> list[str]:
        before = see()
        colour.set(paint)
        return [before, see(), *rt.gather(see, lambda: see() + see()), *rt.map(lambda _: see(), [1])]

    async with opened(database, flow) as app:
        for paint in ("red", "green"):
            assert await finished(await app.start(flow, paint)) == ["none", paint, paint, 2 * paint, paint]


# ------------------------------------------------------------ many, and what is left
async def test_two_hundred_run_at_once_and_leave_no_thread(database: Path):
    together = threading.Barrier(200, timeout=30)

    @rt.workflow
    def flow(number: int) -> int:
        first = double(number)
        together.wait()
        return first + triple.sync(number)

    async with opened(database, flow, slots=200) as app:
        runs = [await app.start(flow, number) for number in range(200)]
        async with asyncio.timeout(40):
            assert [await run.result() for run in runs] == [5 * number for number in range(200)]
        await until(lambda: not workflow_threads())


async def test_a_run_that_leaves_memory_leaves_its_thread(database: Path, clock: ManualClock):
    @rt.workflow
    def flow() -> str:
        rt.gather(lambda: rt.sleep(3600), lambda: rt.sleep(7200))
        return "slept"

    async with opened(database, flow, clock=clock) as app:
        runs = [await app.start(flow) for _ in range(20)]
        for run in runs:
            await reaches(run, "waiting")
        await until(lambda: not workflow_threads())
        clock.advance(7200)
        for run in runs:
            assert await finished(run) == "slept"
        await until(lambda: not workflow_threads())


async def test_workflows_take_no_thread_of_the_pool(database: Path):
    @rt.workflow
    def outer(number: int) -> int:
        return rt.map(double, [number])[0] + adding(number, number)

    async with opened(database, outer, adding, threads=1, slots=50) as app:
        runs = [await app.start(outer, number) for number in range(20)]
        assert [await finished(run) for run in runs] == [6 * number for number in range(20)]


async def test_one_slot_is_enough_for_a_parent_and_its_child(database: Path):
    @rt.workflow
    def parent() -> int:
        return adding(1, 2) + adding_on_the_loop.sync(1, 2)

    async with opened(database, parent, adding, adding_on_the_loop, slots=1) as app:
        assert await finished(await app.start(parent)) == 15


# ------------------------------------------------------------ errors
class Declined(Exception):
    pass


@pytest.mark.parametrize("kind", [ValueError, SystemExit, GeneratorExit, StopIteration, asyncio.CancelledError])
async def test_whatever_leaves_the_workflow_fails_its_run_and_no_other(database: Path, kind: type[BaseException]):
    @rt.workflow
    def flow() -> None:
        raise kind("no")

    async with opened(database, flow, adding) as app:
        error = await failure(await app.start(flow))
        assert kind.__name__ in error.type + error.message or "was cancelled" in error.message
        assert await finished(await app.start(adding, 1, 2)) == 6


async def test_errors_of_steps_and_children_are_raised_where_they_were_called(database: Path):
    @rt.step(raises=(Declined,), retry=rt.Retry(2, first_delay=0))
    def decline() -> None:
        raise Declined("the card")

    @rt.step(retry=rt.Retry(2, first_delay=0))
    def broken() -> None:
        raise StopIteration("nothing more")

    @rt.workflow(raises=(Declined,))
    def child() -> None:
        raise Declined("the child")

    @rt.workflow
    def flow() -> list[str]:
        told: list[str] = []
        for call in (
            decline,
            broken,
            child,
            lambda: rt.gather(decline, broken),
            lambda: rt.receive("x", int, timeout=0),
        ):
            try:
                call()
            except Exception as error:  # the test reads what each call was told
                told.append(f"{type(error).__name__}: {error}")
        rt.sleep(1.1)
        return told

    async with opened(database, flow, child) as app:
        told = await finished(await app.start(flow))
        assert told[0] == "Declined: the card"
        assert told[1] == "StepFailed: step broken failed after 2 attempts: StopIteration: nothing more"
        assert told[2] == "Declined: the child"
        assert told[3] == "Declined: the card"
        assert told[4].startswith("WaitTimeout: no message on topic x came")


async def test_cancel_run_ends_the_run_from_the_workflow_a_step_and_a_branch(database: Path):
    def give_up() -> None:
        raise rt.CancelRun("sold out")

    @rt.step
    def step_gives_up() -> None:
        give_up()

    @rt.workflow
    def flow(where: str) -> None:
        try:
            if where == "workflow":
                give_up()
            elif where == "step":
                step_gives_up()
            else:
                rt.gather(give_up, lambda: double(1))
        except Exception as error:
            raise AssertionError("an Exception") from error

    async with opened(database, flow) as app:
        for where in ("workflow", "step", "branch"):
            with pytest.raises(rt.RunCancelled, match="sold out"):
                await finished(await app.start(flow, where))


# ------------------------------------------------------------ pause, cancel, drain
class TwoSteps:
    """A workflow of two steps; the first one, or the code behind it, waits at a gate."""

    def __init__(self, in_code: bool = False) -> None:
        self.gate = ThreadGate()
        self.calls: list[str] = []

        @rt.step
        def note(name: str) -> str:
            self.calls.append(name)
            if name == "first" and not in_code:
                self.gate.pass_through()
            return name

        @rt.workflow
        def flow() -> list[str]:
            told = [note("first")]
            if in_code:
                self.gate.pass_through()
            return [*told, note("second")]

        self.flow = flow


@pytest.mark.parametrize("in_code", [False, True], ids=["in a step", "in the workflow's own code"])
async def test_a_pause_acts_at_the_next_call_and_the_resume_goes_on_without_repeating(
    database: Path, clock: ManualClock, in_code: bool
):
    two = TwoSteps(in_code)
    async with opened(database, two.flow, clock=clock) as app:
        run = await app.start(two.flow)
        await two.gate.reached()
        assert not (await run.pause()).done
        clock.advance(1.1)
        await until(lambda: app._worker is not None and all(e.is_asked for e in app._worker._executions.values()))
        two.gate.open()
        await reaches(run, "paused")
        assert two.calls == ["first"]
        await until(lambda: not workflow_threads())
        await run.resume()
        assert await finished(run) == ["first", "second"]
        assert two.calls == ["first", "second"]


async def test_a_cancelled_run_stays_cancelling_until_its_direct_step_has_returned(database: Path, clock: ManualClock):
    two = TwoSteps()
    async with opened(database, two.flow, clock=clock) as app:
        run = await app.start(two.flow)
        await two.gate.reached()
        await run.cancel()
        clock.advance(1.1)
        await until_heard(app)
        assert await run.status() is Status.CANCELLING
        two.gate.open()
        await reaches(run, "cancelled")
        assert two.calls == ["first"]
        assert len(await recorded(app, run)) == 1
        await until(lambda: not workflow_threads())


async def test_a_cancel_does_not_wait_for_the_workflows_own_code(database: Path, clock: ManualClock):
    two = TwoSteps(in_code=True)
    async with opened(database, two.flow, clock=clock, slots=1) as app:
        run = await app.start(two.flow)
        await two.gate.reached()
        await run.cancel()
        clock.advance(1.1)
        await reaches(run, "cancelled")
        await until(lambda: app._worker is not None and app._worker.is_idle)
        two.gate.open()
        await until(lambda: not workflow_threads())
        assert two.calls == ["first"]


async def test_a_terminated_run_lets_its_thread_go(database: Path, clock: ManualClock):
    two = TwoSteps(in_code=True)
    async with opened(database, two.flow, clock=clock) as app:
        run = await app.start(two.flow)
        await two.gate.reached()
        assert (await run.terminate()).done
        clock.advance(1.1)
        await until_heard(app)
        two.gate.open()
        await until(lambda: not workflow_threads())
        assert two.calls == ["first"]


@pytest.mark.parametrize("in_code", [False, True], ids=["in a step", "in the workflow's own code"])
async def test_a_worker_that_drains_gives_the_run_back_and_another_goes_on(database: Path, in_code: bool):
    two = TwoSteps(in_code)
    async with opened(database, two.flow) as app:
        run = await app.start(two.flow)
        await two.gate.reached()
        closing = asyncio.create_task(app.close())
        await until(lambda: app._worker is None)
        two.gate.open()
        await closing
    async with opened(database, two.flow) as app:
        assert await finished(await app.get(run.id)) == ["first", "second"]
        assert two.calls == ["first", "second"]


@pytest.mark.parametrize("in_code", [False, True], ids=["in a step", "in the workflow's own code"])
async def test_at_the_end_of_a_drain_the_run_is_given_back_while_its_thread_goes_on(database: Path, in_code: bool):
    two = TwoSteps(in_code)
    async with opened(database, two.flow, drain=0) as app:
        run = await app.start(two.flow)
        await two.gate.reached()
    assert two.calls == ["first"], "nothing has waited for the thread"
    async with rt_client(database) as client:
        assert await (await client.get(run.id)).status() is Status.PENDING
    two.gate.open()


def rt_client(database: Path) -> runtrue.Client:
    return runtrue.Client(database)


async def test_a_late_direct_step_is_waited_for_though_it_may_be_abandoned(
    database: Path, clock: ManualClock, gate: ThreadGate
):
    told: list[str] = []
    infos: list[rt.StepInfo] = []

    @rt.step(timeout=30, retry=rt.Retry(2, first_delay=0), timeout_abandons=True)
    def slow() -> str:
        number = rt.this_step().attempt
        told.append(f"{number} begins")
        if number == 1:
            infos.append(rt.this_step())
            gate.pass_through()
        told.append(f"{number} ends")
        return f"from {number}"

    @rt.workflow
    def flow() -> str:
        return slow()

    async with opened(database, flow, adding, clock=clock) as app:
        run = await app.start(flow)
        await gate.reached()
        await clock.sleeper(30)
        clock.advance(30)
        await until(infos[0].cancel_requested)
        for _ in range(3):  # time enough for an attempt that would not wait for the thread
            await finished(await app.start(adding, 1, 2))
        clock.advance(31)
        gate.open()
        assert await finished(run) == "from 2"
        assert told == ["1 begins", "1 ends", "2 begins", "2 ends"]


# ------------------------------------------------------------ unwinding
class Trap:
    """A workflow that meets its unwinding in `rt.sleep`, and clings to it in one of the ways that people write."""

    def __init__(self, how: str) -> None:
        self.calls: list[str] = []

        @rt.step
        def note(name: str) -> None:
            self.calls.append(name)

        def finally_with_a_step() -> None:
            try:
                rt.sleep(60)
            finally:
                note("in finally")

        def except_everything() -> None:
            try:
                rt.sleep(60)
            except BaseException:  # as people write it
                note("in except")

        def suppress() -> None:
            with contextlib.suppress(BaseException):
                rt.sleep(60)
            with contextlib.suppress(BaseException):
                note("after")
                return
            raise ValueError("an error of its own")

        ways = {each.__name__: each for each in (finally_with_a_step, except_everything, suppress)}

        @rt.workflow
        def flow(in_branch: bool) -> str:
            if in_branch:
                rt.gather(ways[how], lambda: rt.sleep(90))
            else:
                ways[how]()
            return "through"

        self.flow = flow


WAYS = ["finally_with_a_step", "except_everything", "suppress"]


@pytest.mark.parametrize("in_branch", [False, True], ids=["in the workflow", "in a branch"])
@pytest.mark.parametrize("how", WAYS)
async def test_code_that_is_unwound_starts_no_step_and_goes_its_way_after_the_replay(
    database: Path, clock: ManualClock, how: str, in_branch: bool
):
    trap = Trap(how)
    async with opened(database, trap.flow, clock=clock, slots=1) as app:
        run = await app.start(trap.flow, in_branch)
        await reaches(run, "waiting")
        await until(lambda: not workflow_threads())
        assert trap.calls == []
        clock.advance(91)
        assert await finished(run) == "through"
        assert (
            trap.calls == {"finally_with_a_step": ["in finally"], "except_everything": [], "suppress": ["after"]}[how]
        )
        await audit(app, run)


@pytest.mark.parametrize("in_branch", [False, True], ids=["in the workflow", "in a branch"])
@pytest.mark.parametrize("how", WAYS)
async def test_code_that_clings_to_a_cancelled_run_goes_no_further(
    database: Path, clock: ManualClock, how: str, in_branch: bool
):
    trap = Trap(how)
    async with opened(database, trap.flow, adding, clock=clock, slots=1) as app:
        run = await app.start(trap.flow, in_branch)
        await reaches(run, "waiting")
        await run.cancel()
        await reaches(run, "cancelled")
        assert trap.calls == []
        assert await finished(await app.start(adding, 1, 2)) == 6, "the slot is free"


# ------------------------------------------------------------ the words of the other colour
async def test_what_is_awaited_is_refused_with_the_words_that_block(database: Path):
    told: list[str] = []

    @rt.workflow
    def flow() -> None:
        calls = (lambda: runtrue.sleep(1), lambda: triple(1), lambda: double.aio(1), lambda: adding.aio(1, 2))
        for call in (*calls, runtrue.gather, lambda: adding_on_the_loop(1, 2)):
            try:
                call()
            except rt.WrongPlace as refused:
                told.append(str(refused))

    async with opened(database, flow) as app:
        await finished(await app.start(flow))
    assert ["import runtrue.sync as rt" in each for each in (told[0], told[4])] == [True, True]
    assert "write triple.sync(...)" in told[1]
    assert "write double(...)" in told[2]
    assert "write adding(...)" in told[3]
    assert "write adding_on_the_loop.sync(...)" in told[5]


async def test_a_call_from_a_thread_that_the_workflow_started_is_refused_and_the_run_goes_on(database: Path):
    told: list[str] = []

    def foreign() -> None:
        try:
            double(1)
        except BaseException as error:  # the test reads what the foreign thread was told
            told.append(f"{type(error).__name__}: {error}")

    @rt.workflow
    def flow() -> int:
        helper = threading.Thread(target=contextvars.copy_context().run, args=(foreign,))
        helper.start()
        helper.join()
        return double(2)

    async with opened(database, flow) as app:
        run = await app.start(flow)
        assert await finished(run) == 4
        assert await recorded(app, run) == [("double", 1)]
    assert told
    assert told[0].startswith("WrongPlace: a durable call was made in thread Thread-")
