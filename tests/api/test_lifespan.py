"""What lives as long as an App is open."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.engine.running import Gate, finished, until

import runtrue as rt
from runtrue.lifecycle import Status
from runtrue.lifespan import find_state


@rt.workflow
async def flow() -> str:
    return "done"


class Pool:
    def __init__(self) -> None:
        self.log: list[str] = []


async def test_it_is_entered_before_the_worker_starts_and_left_after_the_drain(database: Path):
    log: list[str] = []
    gate = Gate()

    @rt.step
    async def work() -> None:
        await gate.pass_through()
        log.append("step")

    @rt.workflow
    async def working() -> None:
        await work()

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[Pool]:
        log.append(f"entered, worker {app.worker_id!r}, {len(await app.runs())} runs")
        yield Pool()
        log.append(f"left, {len(await app.runs())} runs")

    app = rt.App(database, workflows=[working], lifespan=lifespan)
    async with app:
        run = await app.start(working)
        await gate.reached()
        closing = asyncio.create_task(app.close())
        await until(lambda: app.worker_id == "")
        gate.open()
        await closing
    assert log == ["entered, worker '', 0 runs", "step", "left, 1 runs"]
    async with rt.Client(database) as client:
        assert (await (await client.get(run.id)).info()).steps_done == 1


@pytest.mark.parametrize("yielded", [None, "one", ("one", 2)])
async def test_what_it_yields_is_kept_as_one_object_or_as_a_tuple_of_them(database: Path, yielded: Any):
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[Any]:
        yield yielded

    async with rt.App(database, workflows=[flow], lifespan=lifespan) as app:
        assert app._state == (yielded if isinstance(yielded, tuple) else (yielded,))


async def test_it_is_entered_and_left_in_one_task_whoever_opens_and_closes_the_app(database: Path):
    tasks: list[Any] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        tasks.append(asyncio.current_task())
        async with asyncio.timeout(60):  # cannot be left in another task
            yield
        tasks.append(asyncio.current_task())

    app = rt.App(database, workflows=[flow], lifespan=lifespan)
    await asyncio.create_task(app.open())
    await asyncio.create_task(app.close())
    assert len(set(tasks)) == 1


async def test_an_error_while_it_is_entered_is_raised_and_leaves_nothing_open(database: Path):
    broken = True

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        if broken:
            raise ConnectionError("no such host")
        yield

    app = rt.App(database, workflows=[flow], lifespan=lifespan)
    with pytest.raises(ConnectionError, match="no such host"):
        await app.open()
    with pytest.raises(rt.ConfigurationError, match="is not open"):
        await app.runs()
    broken = False
    async with app:
        assert await finished(await app.start(flow)) == "done"


async def test_an_error_while_it_is_left_is_raised_after_the_database_is_closed(database: Path):
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        yield
        raise ConnectionError("cannot say goodbye")

    app = rt.App(database, workflows=[flow], lifespan=lifespan)
    await app.open()
    with pytest.raises(ConnectionError, match="cannot say goodbye"):
        await app.close()
    with pytest.raises(rt.ConfigurationError, match="is not open"):
        await app.runs()
    await app.close()


def test_an_error_while_it_is_left_in_the_background_is_raised_where_the_block_ends(database: Path):
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        yield
        raise ConnectionError("cannot say goodbye")

    app = rt.App(database, workflows=[flow], lifespan=lifespan)
    with pytest.raises(ConnectionError, match="cannot say goodbye"), app as client:
        assert client.start(flow).wait(timeout=20).status is Status.COMPLETED


async def test_it_is_left_when_the_worker_cannot_start(database: Path, monkeypatch: pytest.MonkeyPatch):
    log: list[str] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        log.append("entered")
        yield
        log.append("left")

    async def refuse(worker: object) -> None:
        raise rt.StoreBusy("busy")

    monkeypatch.setattr("runtrue.engine.worker.Worker.start", refuse)
    with pytest.raises(rt.StoreBusy):
        await rt.App(database, workflows=[flow], lifespan=lifespan).open()
    assert log == ["entered", "left"]


async def test_an_opening_that_is_cancelled_does_not_leave_it_half_entered(database: Path):
    log: list[str] = []
    gate = Gate()

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        try:
            await gate.pass_through()
            yield
        finally:
            log.append("left")

    app = rt.App(database, workflows=[flow], lifespan=lifespan)
    opening = asyncio.create_task(app.open())
    await gate.reached()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert log == ["left"]
    with pytest.raises(rt.ConfigurationError, match="is not open"):
        await app.runs()


async def test_a_function_without_its_decorator_is_told_which_one(database: Path):
    async def lifespan() -> AsyncIterator[None]:
        yield

    with pytest.raises(
        rt.ConfigurationError, match=r"must return an async context manager, not a async_generator.*asynccontextmanager"
    ):
        await rt.App(database, workflows=[flow], lifespan=lifespan).open()  # type: ignore[arg-type]


def test_it_lives_in_the_background_thread_of_an_app_that_is_used_without_a_loop(database: Path):
    log: list[str] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        log.append("entered")
        yield
        log.append("left")

    with rt.App(database, workflows=[flow], lifespan=lifespan) as client:
        assert client.start(flow).wait(timeout=20).status is Status.COMPLETED
        assert log == ["entered"]
    assert log == ["entered", "left"]


async def test_settings_of_the_command_line_keep_it(database: Path):
    log: list[str] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        log.append("entered")
        yield

    @contextmanager
    def around(_: rt.StepInfo) -> Iterator[None]:
        yield

    app = rt.App("other.db", workflows=[flow], threads=7, lifespan=lifespan, around_step=around)
    twin = app.with_settings(database=str(database))
    assert (twin._threads, twin._around_step) == (7, around)
    async with twin:
        assert log == ["entered"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"threads": 0}, "threads must be a whole number from 1 to 1,000, not 0"),
        ({"lifespan": 3}, "lifespan= takes a function, not a int"),
        ({"around_step": "x"}, "around_step= takes a function, not a str"),
    ],
    ids=str,
)
def test_what_can_be_none_is_refused_when_the_app_is_made(settings: dict[str, Any], message: str):
    with pytest.raises(rt.ConfigurationError, match=message):
        rt.App(**settings)


class Sub(Pool):
    pass


def test_state_is_found_by_its_very_type_before_a_subclass_and_never_by_chance():
    pool, sub = Pool(), Sub()
    assert find_state((sub, pool, 3), Pool) is pool
    assert find_state((sub, 3), Pool) is sub
    assert find_state((sub, 3), int) == 3
    for yielded, wanted, told in (
        ((), Pool, "the App's lifespan yields no Pool; it yields nothing"),
        ((3, "x"), Pool, "yields no Pool; it yields int, str"),
        ((pool, Pool()), Pool, "yields several Pool; it yields Pool, Pool"),
        ((pool,), "Pool", "takes the type of what is asked for, not 'Pool'"),
    ):
        with pytest.raises(rt.ConfigurationError, match=told):
            find_state(yielded, wanted)  # type: ignore[arg-type]
