"""Apps with blocking code, lifespans and a context around each step; messages and errors through a real worker."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from tests.engine.running import finished, opened, reaches

import runtrue as rt
import runtrue.sync as rts
from runtrue.lifecycle import Status


class CardDeclined(Exception):
    pass


class Ledger:
    def __init__(self) -> None:
        self.lines: list[str] = []


class Mail:
    pass


confirmed = rt.Topic("confirmed", str)


@rts.step
def note(line: str) -> str:
    rts.state(Ledger).lines.append(line)
    return line


@rts.workflow
def onboard(name: str) -> str:
    first, second = rts.gather(lambda: note(f"mail {name}"), lambda: note(f"score {name}"))
    token = rts.receive(confirmed, timeout=3_600)
    return f"{first}, {second}, {token}"


@rt.workflow(raises=(CardDeclined,))
async def pay() -> None:
    raise CardDeclined("no money")


@asynccontextmanager
async def both() -> AsyncIterator[tuple[Ledger, Mail]]:
    yield Ledger(), Mail()


def test_blocking_workflows_run_in_the_background_of_a_program_without_a_loop(database: Path):
    before = set(threading.enumerate())
    with rt.App(database, workflows=[onboard], lifespan=both, threads=2) as client:
        run = client.start(onboard, "ana")
        run.wait("waiting", timeout=20)
        run.send(confirmed, "t-1", key="t-1")
        run.send(confirmed, "t-1", key="t-1")
        assert run.result(timeout=20) == "mail ana, score ana, t-1"
    assert set(threading.enumerate()) <= before


async def test_what_the_lifespan_yields_is_found_by_its_type_in_workflows_and_steps(database: Path):
    @rt.step
    async def in_step() -> str:
        return type(rt.state(Mail)).__name__

    @rt.workflow
    async def looks() -> list[str]:
        return [type(rt.state(Ledger)).__name__, await in_step()]

    async with opened(database, looks, lifespan=both) as app:
        assert await finished(await app.start(looks)) == ["Ledger", "Mail"]


async def test_a_context_is_entered_around_each_attempt_where_the_step_runs(database: Path):
    seen: list[tuple[str, int, bool]] = []

    @contextmanager
    def around(info: rt.StepInfo) -> Iterator[None]:
        seen.append((info.name, info.attempt, threading.current_thread() is threading.main_thread()))
        yield
        seen.append((f"{info.name} done", info.attempt, threading.current_thread() is threading.main_thread()))

    @rt.step(retry=rt.Retry(2, first_delay=0))
    async def on_loop() -> None:
        if rt.this_step().attempt == 1:
            raise ConnectionError

    @rt.step
    def on_thread() -> None: ...

    @rt.workflow
    async def flow() -> None:
        await on_loop()
        await on_thread.aio()

    async with opened(database, flow, around_step=around) as app:
        await finished(await app.start(flow))
    assert seen == [
        ("on_loop", 1, True),
        ("on_loop", 2, True),
        ("on_loop done", 2, True),
        ("on_thread", 1, False),
        ("on_thread done", 1, False),
    ]


async def test_the_cause_of_a_failure_is_the_error_that_the_workflow_declares(database: Path):
    async with opened(database, pay) as app:
        with pytest.raises(rt.RunFailed, match="CardDeclined: no money") as failed:
            await finished(await app.start(pay))
        assert isinstance(failed.value.__cause__, CardDeclined)
        assert failed.value.__cause__.args == ("no money",)


async def test_what_a_run_publishes_is_read_while_it_goes_on(database: Path):
    @rt.workflow
    async def publishes() -> None:
        for stage in ("begun", "waiting"):
            rt.publish("stage", stage)
        await rt.receive(confirmed)

    async with opened(database, publishes) as app:
        run = await app.start(publishes)
        await reaches(run, "waiting")
        assert await run.published("stage") == "waiting"
        await run.send(confirmed, "go")
        await finished(run)
        assert await run.published("stage") == "waiting"


async def test_a_run_whose_deadline_passes_is_cancelled_with_that_as_its_reason(database: Path):
    @rt.workflow
    async def waits() -> None:
        await rt.receive(confirmed)

    async with opened(database, waits, lease=1) as app:
        run = await app.start(waits.options(deadline=0.3))
        with pytest.raises(rt.RunCancelled, match="its deadline has passed"):
            await finished(run)
        assert (await run.info()).status is Status.CANCELLED


def test_a_program_that_serves_forever_ends_with_an_error_when_its_database_is_lost(tmp_path: Path):
    program = tmp_path / "forever.py"
    program.write_text(
        """
import asyncio, pathlib
from contextlib import asynccontextmanager
import runtrue as rt

@rt.workflow
async def flow() -> None: ...

@asynccontextmanager
async def lifespan():
    async def lose():
        # Once the registration is committed: what is lost in the middle of it is told as unknown.
        while not await app.service.workers():
            await asyncio.sleep(0.01)
        for file in pathlib.Path(".").glob("runs.db*"):
            file.unlink()
    losing = asyncio.create_task(lose())
    yield
    await losing
    print("left")

app = rt.App("runs.db", workflows=[flow], lifespan=lifespan)
app.run_forever()
"""
    )
    done = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (1, "left\n"), done.stderr
    assert done.stderr.splitlines()[-1].startswith("runtrue.errors.StoreUnusable: ")


async def test_an_app_can_be_served_again_after_a_drain_was_asked_before_it_began(database: Path):
    app = rt.App(database, workflows=[pay])
    app.request_drain()
    async with asyncio.timeout(20):
        await app.serve()
    async with app:
        assert app.worker_id
