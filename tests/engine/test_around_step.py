"""What an App puts around every attempt of every step, and what its lifespan yields to them."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from tests.engine.running import failure, finished, opened, reaches, recorded
from tests.support.manual_clock import ManualClock
from tests.support.thread_gate import ThreadGate

import runtrue as rt
import runtrue.sync as blocking

SESSION: ContextVar[str] = ContextVar("session", default="none")


class Log(list[str]):
    """What happened around steps, in order."""

    def around(self, info: rt.StepInfo) -> AbstractContextManager[None]:
        return self.session(info)

    @contextmanager
    def session(self, info: rt.StepInfo) -> Iterator[None]:
        name = f"{info.name} {info.attempt}"
        self.append(f"{name} opens")
        token = SESSION.set(name)
        try:
            yield
        except BaseException as error:
            self.append(f"{name} rolls back {type(error).__name__}")
            raise
        else:
            self.append(f"{name} commits")
        finally:
            SESSION.reset(token)


@rt.step(retry=rt.Retry(2, first_delay=0))
async def on_loop() -> str:
    if rt.this_step().attempt == 1:
        raise ConnectionError
    return SESSION.get()


@rt.step(retry=rt.Retry(2, first_delay=0))
def on_thread() -> str:
    if rt.this_step().attempt == 1:
        raise ConnectionError
    return SESSION.get()


@rt.workflow
async def async_flow() -> list[str]:
    return [await on_loop(), await on_thread.aio(), SESSION.get()]


@rt.workflow
def def_flow() -> list[str]:
    return [on_loop.sync(), on_thread(), SESSION.get(), *blocking.map(on_thread, []), *blocking.gather(on_thread)]


@pytest.mark.parametrize("flow", [async_flow, def_flow], ids=["async", "def"])
async def test_each_attempt_is_entered_and_left_by_itself_and_sees_what_was_set_for_it(
    database: Path, flow: rt.Workflow[[], list[str]]
):
    log = Log()
    async with opened(database, flow, around_step=log.around) as app:
        result = await finished(await app.start(flow))
        assert result[:3] == ["on_loop 2", "on_thread 2", "none"]
    told = []
    for name in ("on_loop", "on_thread"):
        told += [f"{name} 1 opens", f"{name} 1 rolls back ConnectionError", f"{name} 2 opens", f"{name} 2 commits"]
    assert log[:8] == told


async def test_what_is_recorded_is_entered_once_and_never_on_a_replay(database: Path, clock: ManualClock):
    log = Log()

    @rt.step
    async def note() -> None: ...

    @rt.workflow
    async def flow() -> None:
        await note()
        await rt.sleep(60)
        await note()

    async with opened(database, flow, clock=clock, around_step=log.around) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        clock.advance(60)
        await finished(run)
    assert log == ["note 1 opens", "note 1 commits"] * 2


def raising(where: str) -> Callable[[rt.StepInfo], AbstractContextManager[None]]:
    def around(info: rt.StepInfo) -> AbstractContextManager[None]:
        if where == "made" and info.attempt == 1:
            raise OSError("the pool is empty")

        @contextmanager
        def session() -> Iterator[None]:
            if where == "entered" and info.attempt == 1:
                raise OSError("the pool is empty")
            yield
            if where == "left" and info.attempt == 1:
                raise OSError("the pool is empty")

        return session()

    return around


@pytest.mark.parametrize("colour", ["async", "pool", "direct"])
@pytest.mark.parametrize("where", ["made", "entered", "left"])
async def test_an_error_of_the_context_manager_is_the_attempts_and_is_tried_again(
    database: Path, where: str, colour: str
):
    calls: list[int] = []

    @rt.step(retry=rt.Retry(2, first_delay=0))
    async def loop_step() -> str:
        calls.append(rt.this_step().attempt)
        return "done"

    @rt.step(retry=rt.Retry(2, first_delay=0))
    def thread_step() -> str:
        calls.append(rt.this_step().attempt)
        return "done"

    @rt.workflow
    async def flow() -> str:
        return await (loop_step() if colour == "async" else thread_step.aio())

    @rt.workflow
    def direct() -> str:
        return thread_step()

    served = direct if colour == "direct" else flow
    async with opened(database, served, around_step=raising(where), threads=1) as app:
        run = await app.start(served)
        assert await finished(run) == "done"
        assert calls == ([1, 2] if where == "left" else [2])
        _, attempts = await app.service.steps(run.id)
        assert [b"the pool is empty" in attempt.error for attempt in attempts] == [True]
        assert await finished(await app.start(served)) == "done", "the thread serves on"


async def test_what_is_no_context_manager_fails_the_step_with_words(database: Path):
    @rt.step
    async def note() -> None: ...

    @rt.workflow
    async def flow() -> None:
        await note()

    async with opened(database, flow, around_step=lambda info: None) as app:  # type: ignore[arg-type, return-value]
        error = await failure(await app.start(flow))
        assert "context manager" in error.message


async def test_a_context_manager_that_suppresses_the_error_makes_it_a_result_of_none(database: Path):
    @rt.step
    def broken() -> int | None:
        raise ValueError("no")

    @rt.workflow
    async def flow() -> int | None:
        return await broken.aio()

    async with opened(database, flow, around_step=lambda info: suppress(ValueError)) as app:
        assert await finished(await app.start(flow)) is None


async def test_at_its_timeout_an_async_attempt_leaves_its_context_and_a_blocking_one_when_its_thread_returns(
    database: Path, clock: ManualClock
):
    log, gate = Log(), ThreadGate()

    @rt.step(timeout=30)
    async def hangs() -> None:
        await asyncio.Event().wait()

    @rt.step(timeout=30)
    def blocks() -> None:
        gate.pass_through()

    @rt.workflow
    async def flow() -> None:
        for call in (hangs, blocks.aio):
            with suppress(rt.StepFailed):
                await call()

    async with opened(database, flow, clock=clock, around_step=log.around) as app:
        run = await app.start(flow)
        await clock.sleeper(30)
        clock.advance(30)
        await gate.reached()
        await clock.sleeper(30)
        assert log == ["hangs 1 opens", "hangs 1 rolls back CancelledError", "blocks 1 opens"]
        clock.advance(30)
        gate.open()
        await finished(run)
        assert log[3:] == ["blocks 1 commits"]
        assert len(await recorded(app, run)) == 2


async def test_it_runs_on_the_thread_of_its_step_and_may_ask_what_the_step_may(database: Path):
    seen: list[tuple[str, bool, int]] = []
    threads: list[threading.Thread] = []

    @contextmanager
    def around(info: rt.StepInfo) -> Iterator[None]:
        threads.append(threading.current_thread())
        seen.append((rt.this_step().name, info.run_id == rt.this_run().id, rt.state(int)))
        with pytest.raises(rt.WrongPlace, match="inside step note"):
            rt.now()
        yield

    @rt.step
    def note() -> bool:
        return threads[-1] is threading.current_thread()

    @rt.workflow
    async def flow() -> bool:
        return await note.aio()

    @rt.workflow
    def direct() -> bool:
        return note() and threads[-1] is threading.current_thread()

    async with opened(database, flow, direct, around_step=around, lifespan=yielding(7)) as app:
        assert await finished(await app.start(flow))
        assert await finished(await app.start(direct))
    assert seen == [("note", True, 7)] * 2


# ------------------------------------------------------------ rt.state
def yielding(*values: object) -> Any:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[object]:
        yield values if len(values) > 1 else values[0]

    return lifespan


class Pool: ...


class TestPool(Pool):
    __test__ = False


class Mail: ...


ASKED: list[str] = []


def ask() -> None:
    for wanted in (Pool, Mail, int, "Pool"):
        try:
            ASKED.append(type(rt.state(wanted)).__name__)  # type: ignore[arg-type]
        except rt.ConfigurationError as refused:
            ASKED.append(str(refused))


@rt.step
async def ask_on_loop() -> None:
    ask()


@rt.step
def ask_on_thread() -> None:
    ask()


@rt.workflow
async def asking() -> None:
    ask()
    await ask_on_loop()
    await ask_on_thread.aio()


@rt.workflow
def asking_blocking() -> None:
    ask()
    ask_on_loop.sync()
    ask_on_thread()


async def test_state_is_found_by_type_or_base_and_what_is_missing_is_told_in_every_colour(database: Path):
    ASKED.clear()
    async with opened(database, asking, asking_blocking, lifespan=yielding(TestPool(), Mail())) as app:
        for flow in (asking, asking_blocking):
            await finished(await app.start(flow))
    missing = "rt.state: the App's lifespan yields no int; it yields TestPool, Mail"
    assert ["TestPool", "Mail", missing, "rt.state takes the type of what is asked for, not 'Pool'"] * 6 == ASKED


async def test_state_without_a_lifespan_is_told_in_every_colour(database: Path):
    ASKED.clear()
    async with opened(database, asking, asking_blocking) as app:
        for flow in (asking, asking_blocking):
            await finished(await app.start(flow))
    assert {told.partition(";")[0] for told in ASKED if "no int" in told} != set()
    assert all("lifespan" in told or "takes the type" in told for told in ASKED), ASKED
