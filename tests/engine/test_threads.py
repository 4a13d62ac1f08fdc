"""Blocking code on threads: what passes between a thread and the loop, and who waits for whom."""

import asyncio
import contextvars
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import pytest
from tests.engine.running import SOON
from tests.support import waiting

from runtrue.authoring._context import (
    RunInfo,
    Runtime,
    StepInfo,
    blocking_variable,
    runtime_variable,
    step_variable,
)
from runtrue.engine import threads
from runtrue.engine.signals import Unwound
from runtrue.engine.threads import NoThreadError, StepThreads, WorkflowThread
from runtrue.errors import CancelRun, WrongPlace

INFO = RunInfo("run-1", "flow", "1", 1, {})
COLOUR: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")


async def until(condition: Callable[[], object], what: str | Callable[[], str]) -> None:
    await waiting.until(condition, what, seconds=SOON)


class FakeRuntime:
    """Counts what it is asked, and in which task. A test opens `gate` to let `wait` go on."""

    def __init__(self) -> None:
        self.asked = 0
        self.tasks: set[Any] = set()
        self.waiting = asyncio.Event()
        self.gate = asyncio.Event()

    def info(self) -> RunInfo:
        return INFO

    def value(self, given: object) -> object:
        self.asked += 1
        self.tasks.add(asyncio.current_task())
        return given

    async def wait(self, given: object = None) -> object:
        self.asked += 1
        self.waiting.set()
        await self.gate.wait()
        return given

    def refuse(self, kind: type[BaseException]) -> None:
        self.asked += 1
        raise kind


class Gate:
    """A place on a thread that a test lets code come to, and go on from."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._open = threading.Event()

    def pass_through(self) -> None:
        self.reached.set()
        assert self._open.wait(SOON)

    async def is_reached(self) -> None:
        await until(self.reached.is_set, "the thread has come to the gate")

    def open(self) -> None:
        self._open.set()


@pytest.fixture(autouse=True)
async def _no_thread_outlives_its_test() -> AsyncIterator[None]:
    before = set(threading.enumerate())
    yield
    await until(lambda: set(threading.enumerate()) <= before, lambda: f"no thread is left: {threading.enumerate()}")


@pytest.fixture
async def fake() -> FakeRuntime:
    return FakeRuntime()


@pytest.fixture
async def thread(fake: FakeRuntime) -> WorkflowThread:
    return WorkflowThread(cast("Runtime", fake), "flow of run-1")


@asynccontextmanager
async def opened(count: int) -> AsyncIterator[StepThreads]:
    pool = StepThreads(count)
    try:
        yield pool
    finally:
        pool.close()


async def call_direct(thread: WorkflowThread, function: Callable[[], Any]) -> Any:
    """Call the function on the thread of the workflow that asks for it."""
    return (await thread.start(function).end()).take()


async def call_on(pool: StepThreads, function: Callable[[], Any]) -> Any:
    """Queue for a thread and call the function there."""
    there = asyncio.Event()
    turn = pool.queue_up(there.set)
    try:
        if not turn.has_come:
            await there.wait()
        return (await turn.start(function).end()).take()
    finally:
        turn.give_up()


def a_step(name: str) -> StepInfo:
    return StepInfo(INFO, name, 1, "key", lambda: False, lambda done, total, note: None)


def ask(thread: WorkflowThread, method: str, *args: object) -> Any:
    return thread.block(lambda runtime: getattr(runtime, method)(*args))


async def settled(task: "asyncio.Task[Any]") -> BaseException | None:
    """What the task has raised, once it is through."""
    await asyncio.wait({task}, timeout=SOON)
    assert task.done()
    return asyncio.CancelledError() if task.cancelled() else task.exception()


ERRORS = [ValueError, SystemExit, CancelRun, asyncio.CancelledError, GeneratorExit]


# ------------------------------------------------------------ the workflow's own thread
async def test_a_function_runs_on_a_daemon_thread_of_its_own_and_its_result_comes_back(thread: WorkflowThread):
    ran_on = await thread.run(threading.current_thread)
    assert ran_on is not threading.main_thread()
    assert (ran_on.name, ran_on.daemon) == ("flow of run-1", True)
    assert thread.left.is_set()


@pytest.mark.parametrize("kind", [*ERRORS, KeyboardInterrupt])
async def test_whatever_the_function_raises_reaches_the_task_that_waits_for_it(
    thread: WorkflowThread, kind: type[BaseException]
):
    def function() -> None:
        raise kind

    with pytest.raises(kind):
        await thread.run(function)


async def test_the_code_sees_the_context_of_the_task_and_is_in_a_blocking_workflow(
    thread: WorkflowThread, fake: FakeRuntime
):
    def function() -> tuple[object, ...]:
        seen = COLOUR.get(), blocking_variable.get(), runtime_variable.get(), step_variable.get()
        COLOUR.set("green")
        return seen

    COLOUR.set("red")
    runtime_variable.set(cast("Runtime", fake))
    step_variable.set(a_step("outer"))
    assert await thread.run(function) == ("red", thread, None, None)
    assert COLOUR.get() == "red"


async def test_a_request_is_carried_out_in_the_waiting_task_and_awaited_if_it_can_be(
    thread: WorkflowThread, fake: FakeRuntime
):
    def function() -> list[object]:
        return [ask(thread, "value", 1), ask(thread, "wait", 2), ask(thread, "value", 3)]

    fake.gate.set()
    assert await thread.run(function) == [1, 2, 3]
    assert fake.tasks == {asyncio.current_task()}


@pytest.mark.parametrize("kind", [*ERRORS, StopIteration])
async def test_what_a_request_raises_is_raised_in_the_code_and_the_code_goes_on(
    thread: WorkflowThread, kind: type[BaseException]
):
    def function() -> object:
        with pytest.raises(kind):
            ask(thread, "refuse", kind)
        return ask(thread, "value", "went on")

    assert await thread.run(function) == "went on"


async def test_an_interrupt_of_the_program_leaves_through_the_loop_and_the_code_is_unwound(thread: WorkflowThread):
    met: list[str] = []

    def function() -> None:
        try:
            ask(thread, "refuse", KeyboardInterrupt)
        except BaseException as signal:
            met.append(type(signal).__name__)
            raise

    with pytest.raises(KeyboardInterrupt):
        await thread.run(function)
    async with asyncio.timeout(SOON):
        await thread.left.wait()
    assert met == ["Unwound"]


async def test_the_loop_turns_while_the_code_computes_and_two_threads_run_side_by_side(fake: FakeRuntime):
    both = threading.Barrier(2)
    runs = [WorkflowThread(cast("Runtime", fake), f"branch {n}").run(lambda: both.wait(SOON)) for n in "ab"]
    assert sorted(await asyncio.gather(*runs)) == [0, 1]


async def test_the_run_can_be_asked_about_from_any_thread(thread: WorkflowThread):
    assert thread.info() is INFO
    assert await thread.run(thread.info) is INFO


async def test_a_durable_call_from_a_foreign_thread_is_refused_though_it_has_the_context(
    thread: WorkflowThread, fake: FakeRuntime
):
    refused: list[str] = []

    def foreign() -> None:
        blocking = blocking_variable.get()
        assert blocking is thread
        with pytest.raises(WrongPlace) as refusal:
            ask(thread, "value", 1)
        refused.append(str(refusal.value))

    def function() -> None:
        other = threading.Thread(target=contextvars.copy_context().run, args=(foreign,), name="helper")
        other.start()
        other.join()

    await thread.run(function)
    assert "in thread helper; make it in the workflow function itself" in refused[0]
    with pytest.raises(WrongPlace):
        ask(thread, "value", 1)
    assert fake.asked == 0


async def test_a_thread_that_got_the_number_of_one_that_has_left_is_a_foreign_one(thread: WorkflowThread):
    """The system hands the numbers of threads out again, mostly at once."""
    refused: list[int] = []

    def function() -> None:
        with pytest.raises(WrongPlace):
            ask(thread, "value", 1)
        refused.append(threading.get_ident())

    numbers = [await thread.run(threading.get_ident)]
    for _ in range(20):
        other = threading.Thread(target=function, daemon=True)
        other.start()
        await until(lambda other=other: not other.is_alive(), "the other thread has been refused")
        numbers.append(refused[-1])
    assert len(set(numbers)) < len(numbers), "no number was handed out twice: this has shown nothing"


# ------------------------------------------------------------ its direct steps
async def test_a_direct_step_runs_on_the_workflows_own_thread_in_the_step_of_its_caller(thread: WorkflowThread):
    own = threading.local()

    def step() -> tuple[object, ...]:
        return own.session, COLOUR.get(), step_variable.get(), blocking_variable.get(), runtime_variable.get()

    async def carry_out(runtime: Runtime) -> object:
        step_variable.set(a_step("charge"))
        return await call_direct(thread, step)

    def function() -> object:
        own.session = "session"
        COLOUR.set("green")
        session, colour, info, blocking, runtime = thread.block(carry_out)
        assert (blocking_variable.get(), step_variable.get()) == (thread, None)
        assert info.name == "charge"
        return session, colour, blocking, runtime

    assert await thread.run(function) == ("session", "green", None, None)


@pytest.mark.parametrize("kind", ERRORS)
async def test_whatever_a_direct_step_raises_reaches_the_task_that_called_it(
    thread: WorkflowThread, kind: type[BaseException]
):
    def step() -> None:
        raise kind

    async def carry_out(runtime: Runtime) -> str:
        with pytest.raises(kind):
            await call_direct(thread, step)
        return "failed"

    assert await thread.run(lambda: thread.block(carry_out)) == "failed"


async def test_a_direct_step_whose_waiting_is_given_up_goes_on_and_its_end_can_be_waited_for_again(
    thread: WorkflowThread,
):
    """A timeout is such a giving up: the next attempt begins when this one has come back."""
    gate = Gate()
    order: list[str] = []

    def step(name: str) -> str:
        if name == "first":
            gate.pass_through()
        order.append(name)
        return name

    async def carry_out(runtime: Runtime) -> str:
        call = thread.start(lambda: step("first"))
        waiter = asyncio.ensure_future(call.end())
        await gate.is_reached()
        waiter.cancel()
        assert isinstance(await settled(waiter), asyncio.CancelledError)
        assert not call.has_ended
        gate.open()
        order.append(f"end of {(await call.end()).take()}")
        return await call_direct(thread, lambda: step("second"))

    assert await thread.run(lambda: thread.block(carry_out)) == "second"
    assert order == ["first", "end of first", "second"]


async def test_the_code_goes_on_only_when_a_step_that_nobody_waits_for_has_come_back(thread: WorkflowThread):
    gate = Gate()
    order: list[str] = []

    def step() -> None:
        gate.pass_through()
        order.append("step")

    def unwound(runtime: Runtime) -> None:
        thread.start(step)
        raise Unwound

    def function() -> None:
        try:
            thread.block(unwound)
        finally:
            order.append("code")

    task = asyncio.create_task(thread.run(function))
    await gate.is_reached()
    gate.open()
    assert isinstance(await settled(task), Unwound)
    assert order == ["step", "code"]


async def test_a_durable_call_inside_a_direct_step_is_refused_and_does_not_lock_the_thread_up(thread: WorkflowThread):
    """The step has no engine in its context; code that kept the workflow's own context finds one."""

    def function() -> None:
        kept = contextvars.copy_context()

        def step() -> None:
            kept.run(ask, thread, "value", 1)

        with pytest.raises(WrongPlace, match="inside a step"):
            thread.block(lambda runtime: call_direct(thread, step))
        assert ask(thread, "value", 2) == 2

    await thread.run(function)


async def test_nothing_can_be_called_on_a_thread_that_is_in_its_own_code(thread: WorkflowThread):
    gate = Gate()
    task = asyncio.create_task(thread.run(gate.pass_through))
    await gate.is_reached()
    with pytest.raises(AssertionError, match="not blocked"):
        thread.start(int)
    gate.open()
    await task


# ------------------------------------------------------------ unwinding
async def test_unwound_code_meets_the_signal_at_each_call_and_the_loop_hears_nothing_of_them(
    thread: WorkflowThread, fake: FakeRuntime
):
    met: list[str] = []

    def function() -> str:
        for call in (Unwound, None, None, None):
            try:
                ask(thread, *(("refuse", call) if call else ("value", 1)))
            except BaseException as signal:  # what such code does must not matter
                met.append(type(signal).__name__)
        return "swallowed"

    assert await thread.run(function) == "swallowed"
    assert met == ["Unwound"] * 4
    assert fake.asked == 1


async def test_the_task_stays_until_unwound_code_has_left_its_thread(thread: WorkflowThread):
    gate = Gate()

    def function() -> None:
        try:
            ask(thread, "refuse", Unwound)
        finally:
            gate.pass_through()

    task = asyncio.create_task(thread.run(function))
    await gate.is_reached()
    await asyncio.sleep(0)
    assert not task.done()
    assert not thread.left.is_set()
    gate.open()
    assert isinstance(await settled(task), Unwound)
    assert thread.left.is_set()


async def test_code_that_swallows_the_signal_in_a_loop_is_put_to_rest(
    thread: WorkflowThread, fake: FakeRuntime, monkeypatch: pytest.MonkeyPatch
):
    """Else it would take the interpreter from everybody else, for as long as the process lives."""
    monkeypatch.setattr(threads, "SIGNALS_SWALLOWED_MAX", 10)
    swallowed = 0

    def function() -> None:
        nonlocal swallowed
        while swallowed < 100:
            try:
                ask(thread, "refuse", Unwound)
            except BaseException:  # what such code does must not matter
                swallowed += 1

    task = asyncio.create_task(thread.run(function))
    await until(lambda: swallowed >= 11, "the code has swallowed the signal eleven times")
    task.cancel()
    assert isinstance(await settled(task), asyncio.CancelledError)
    assert (swallowed, fake.asked) == (11, 1)
    # A thread can only be ended from within: let this one go, for the next test.
    monkeypatch.undo()
    thread._for_thread.put(threads.Outcome())


async def test_a_task_cancelled_while_its_thread_computes_leaves_at_once_and_the_next_call_is_the_threads_end(
    thread: WorkflowThread, fake: FakeRuntime
):
    gate = Gate()
    met: list[BaseException] = []

    def function() -> None:
        gate.pass_through()
        for _ in range(2):
            try:
                ask(thread, "value", 1)
            except BaseException as signal:  # to look at it
                met.append(signal)

    task = asyncio.create_task(thread.run(function))
    await gate.is_reached()
    task.cancel()
    assert isinstance(await settled(task), asyncio.CancelledError)
    assert not thread.left.is_set()
    gate.open()
    async with asyncio.timeout(SOON):
        await thread.left.wait()
    assert [type(signal) for signal in met] == [Unwound, Unwound]
    assert fake.asked == 0


async def test_a_task_cancelled_at_the_moment_of_a_request_does_not_leave_its_thread_waiting(
    thread: WorkflowThread, fake: FakeRuntime
):
    """The request is made, and the loop has not turned yet."""
    gate = Gate()

    def function() -> None:
        gate.pass_through()
        ask(thread, "value", 1)

    task = asyncio.create_task(thread.run(function))
    await gate.is_reached()
    gate.open()
    while thread._request is None:  # the loop must not turn here
        pass
    task.cancel()
    assert isinstance(await settled(task), asyncio.CancelledError)
    async with asyncio.timeout(SOON):
        await thread.left.wait()
    assert fake.asked == 0


async def test_a_task_cancelled_within_a_request_cancels_the_code_there_as_it_would_a_coroutine(
    thread: WorkflowThread, fake: FakeRuntime
):
    met: list[str] = []

    def function() -> None:
        try:
            ask(thread, "wait")
        except asyncio.CancelledError:
            met.append("cancelled")
            raise

    task = asyncio.create_task(thread.run(function))
    await fake.waiting.wait()
    task.cancel()
    assert isinstance(await settled(task), asyncio.CancelledError)
    assert met == ["cancelled"]
    assert thread.left.is_set()


@pytest.mark.parametrize("within_a_request", [True, False])
async def test_the_thread_is_unwound_when_the_interpreter_closes_its_task(within_a_request: bool):
    """Nothing can be awaited any more then."""
    gate = Gate()
    fake = FakeRuntime()
    thread = WorkflowThread(cast("Runtime", fake), "flow")
    met: list[str] = []

    def function() -> None:
        gate.pass_through()
        try:
            ask(thread, "wait")
        except BaseException as signal:
            met.append(type(signal).__name__)
            raise

    running = thread.run(function)
    running.send(None)
    if within_a_request:
        gate.open()
        await until(thread._heard.is_set, "the thread has asked")
        running.send(None)
    running.close()
    gate.open()
    async with asyncio.timeout(SOON):
        await thread.left.wait()
    assert met == ["Unwound"]


def test_code_that_asks_a_closed_loop_is_unwound_and_its_thread_ends():
    gate = Gate()
    met: list[str] = []
    loop = asyncio.new_event_loop()

    async def begin() -> None:
        thread = WorkflowThread(cast("Runtime", FakeRuntime()), "late")

        def function() -> None:
            gate.pass_through()
            for _ in range(2):
                try:
                    ask(thread, "value", 1)
                except BaseException as signal:  # to look at it
                    met.append(type(signal).__name__)

        running.append(asyncio.ensure_future(thread.run(function)))
        await gate.is_reached()

    running: list[asyncio.Future[None]] = []
    loop.run_until_complete(begin())
    [late] = [thread for thread in threading.enumerate() if thread.name == "late"]
    # Not cancelled, as asyncio.run would do: just gone.
    running[0]._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    gate.open()
    late.join(SOON)
    assert not late.is_alive()
    assert met == ["Unwound", "Unwound"]


# ------------------------------------------------------------ what is left behind
@pytest.mark.parametrize("ends", ["returns", "raises", "is unwound"])
async def test_nothing_of_a_run_is_kept_once_it_has_ended(ends: str):
    """Not even until the garbage collector comes by: a worker carries out thousands in a minute."""

    class Value:
        pass

    kept: list[weakref.ref[Any]] = []

    def function(thread: WorkflowThread) -> object:
        value = Value()
        kept.append(weakref.ref(value))
        with suppress(ValueError):
            ask(thread, "refuse", ValueError)
        if ends == "is unwound":
            ask(thread, "refuse", Unwound)
        if ends == "raises":
            raise LookupError
        return value

    async def whole() -> None:
        thread = WorkflowThread(cast("Runtime", FakeRuntime()), "flow")
        kept.append(weakref.ref(thread))
        with suppress(LookupError, Unwound):
            await thread.run(lambda: function(thread))

    gc.collect()
    gc.disable()
    try:
        for _ in range(50):
            await whole()
        await until(
            lambda: not any(thread.name == "flow" for thread in threading.enumerate()), "the threads have ended"
        )
        assert len(kept) == 100
        await until(lambda: not any(reference() for reference in kept), "nothing is kept")
    finally:
        gc.enable()


async def test_a_thread_that_the_system_refuses_is_told_as_such_and_not_as_the_codes_own_error(
    thread: WorkflowThread, monkeypatch: pytest.MonkeyPatch
):
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(NoThreadError, match=r"flow of run-1 could not be started .*ulimit -u"):
        await thread.run(int)
    async with opened(1) as pool:
        for _ in range(2):  # a refusal costs no turn
            with pytest.raises(NoThreadError):
                await call_on(pool, int)
        monkeypatch.undo()
        assert await call_on(pool, int) == 0


# ------------------------------------------------------------ the pool
async def test_no_more_functions_run_at_once_than_the_pool_has_threads():
    gates = [Gate() for _ in range(3)]
    async with opened(2) as pool:
        calls = [asyncio.create_task(call_on(pool, gate.pass_through)) for gate in gates]
        await gates[0].is_reached()
        await gates[1].is_reached()
        assert not gates[2].reached.is_set()
        gates[1].open()
        await gates[2].is_reached()
        gates[0].open()
        gates[2].open()
        await asyncio.gather(*calls)


async def test_a_thread_is_started_only_when_no_other_is_free():
    async with opened(8) as pool:
        assert pool_threads() == 0
        assert len({await call_on(pool, threading.get_ident) for _ in range(10)}) == 1
        assert pool_threads() == 1
        both = threading.Barrier(2)
        await asyncio.gather(*(call_on(pool, lambda: both.wait(SOON)) for _ in range(2)))
        assert pool_threads() == 2


def pool_threads() -> int:
    return sum(thread.name.startswith("runtrue-step-") for thread in threading.enumerate())


async def test_a_function_on_the_pool_has_a_copy_of_the_callers_context():
    def function() -> tuple[str, StepInfo | None]:
        seen = COLOUR.get(), step_variable.get()
        COLOUR.set("green")
        return seen

    COLOUR.set("red")
    info = a_step("charge")
    step_variable.set(info)
    async with opened(1) as pool:
        assert await call_on(pool, function) == ("red", info)
        assert await call_on(pool, function) == ("red", info)
    assert COLOUR.get() == "red"


@pytest.mark.parametrize("kind", [*ERRORS, KeyboardInterrupt])
async def test_whatever_a_function_on_the_pool_raises_reaches_its_caller_and_its_thread_serves_on(
    kind: type[BaseException],
):
    def function() -> None:
        raise kind

    async with opened(1) as pool:
        with pytest.raises(kind):
            await call_on(pool, function)
        assert await call_on(pool, lambda: "served") == "served"


async def test_a_cancelled_call_lets_its_function_end_and_keeps_the_turn_until_then():
    gate = Gate()
    ended: list[str] = []

    def function() -> None:
        gate.pass_through()
        ended.append("ended")

    async with opened(1) as pool:
        task = asyncio.create_task(call_on(pool, function))
        await gate.is_reached()
        task.cancel()
        assert isinstance(await settled(task), asyncio.CancelledError)
        following = asyncio.create_task(call_on(pool, lambda: list(ended)))
        for _ in range(3):
            await asyncio.sleep(0)
        assert pool_threads() == 1
        gate.open()
        assert await following == ["ended"]


async def test_a_call_that_is_cancelled_while_it_waits_for_its_turn_starts_nothing():
    gate = Gate()
    called: list[str] = []
    async with opened(1) as pool:
        task = asyncio.create_task(call_on(pool, gate.pass_through))
        await gate.is_reached()
        waiting = asyncio.create_task(call_on(pool, lambda: called.append("called")))
        await asyncio.sleep(0)
        waiting.cancel()
        assert isinstance(await settled(waiting), asyncio.CancelledError)
        gate.open()
        await task
        assert await call_on(pool, lambda: list(called)) == []


def never_heard() -> None:
    raise AssertionError("the turn has come at once, or was given up")


async def test_a_turn_that_is_not_taken_is_given_back_and_one_that_is_serves_one_function():
    async with opened(1) as pool:
        turn = pool.queue_up(never_heard)
        assert turn.has_come
        turn.give_up()
        turn = pool.queue_up(never_heard)
        call = turn.start(lambda: 1)
        with pytest.raises(AssertionError, match="one function"):
            turn.start(lambda: 2)
        assert (await call.end()).take() == 1
        assert call.has_ended
        turn.give_up()
        turn.give_up()
        assert await call_on(pool, lambda: 3) == 3


async def test_turns_come_in_order_and_one_that_was_given_up_while_it_waited_is_passed_over():
    heard: list[str] = []
    async with opened(1) as pool:
        holder = pool.queue_up(never_heard)
        left = pool.queue_up(never_heard)
        second = pool.queue_up(lambda: heard.append("second"))
        third = pool.queue_up(lambda: heard.append("third"))
        with pytest.raises(AssertionError, match="has not come"):
            second.start(int)
        left.give_up()
        holder.give_up()
        left.give_up()  # a second time it gives nothing back
        assert (heard, third.has_come) == (["second"], False)
        second.give_up()  # it had come, and nobody used it
        assert heard == ["second", "third"]
        third.give_up()
        assert [pool.queue_up(never_heard).has_come, pool.queue_up(never_heard).has_come] == [True, False]


async def test_the_end_of_a_function_can_be_waited_for_after_its_turn_was_given_up():
    gate = Gate()
    async with opened(1) as pool:
        turn = pool.queue_up(never_heard)
        call = turn.start(lambda: gate.pass_through() or "back")
        turn.give_up()
        assert not call.has_ended
        assert not pool.queue_up(lambda: None).has_come, "the function keeps its turn until its end"
        gate.open()
        await call.ended()
        assert (await call.end()).take() == "back"
        with pytest.raises(AssertionError, match="taken before"):
            await call.end()


async def test_a_closed_pool_lets_what_runs_come_to_its_end_and_starts_nothing():
    gate = Gate()
    pool = StepThreads(2)
    task = asyncio.create_task(call_on(pool, lambda: gate.pass_through() or "done"))
    await gate.is_reached()
    await call_on(pool, int)
    pool.close()
    await until(lambda: pool_threads() == 1, "the idle thread has ended")
    with pytest.raises(AssertionError, match="closed"):
        await call_on(pool, int)
    gate.open()
    assert await task == "done"


@pytest.mark.parametrize("is_waited_for", [True, False])
async def test_the_pool_keeps_nothing_of_a_call_that_has_ended(is_waited_for: bool):
    class Value:
        pass

    gate = Gate()
    kept: list[weakref.ref[Value]] = []

    def function() -> Value:
        gate.pass_through()
        value = Value()
        kept.append(weakref.ref(value))
        return value

    async with opened(1) as pool:
        task = asyncio.create_task(call_on(pool, function))
        await gate.is_reached()
        if not is_waited_for:
            task.cancel()
            await settled(task)
        gate.open()
        if is_waited_for:
            await task
        del task
        await until(lambda: kept and kept[0]() is None, "the result is not kept")


NEVER_RETURNS = """
import asyncio, threading
from runtrue.engine.threads import StepThreads, WorkflowThread

def never():
    begun.release()
    threading.Event().wait()

begun = threading.Semaphore(0)

async def main():
    call = StepThreads(1).queue_up(print).start(never)
    task = asyncio.create_task(WorkflowThread(None, "flow").run(never))
    await asyncio.sleep(0)
    begun.acquire()
    begun.acquire()
    print("left")

asyncio.run(main())
"""


def test_code_that_never_returns_does_not_keep_the_process_from_leaving():
    left = subprocess.run(
        [sys.executable, "-c", NEVER_RETURNS], check=False, capture_output=True, text=True, timeout=SOON
    )
    assert (left.returncode, left.stdout, left.stderr) == (0, "left\n", "")
