"""A program that ends its event loop under the worker is a crash: nothing is lost, and no run fails for it."""

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
from tests.engine.running import Gate, finished, opened, reaches, recorded
from tests.support.manual_clock import ManualClock
from tests.support.waiting import until

import runtrue as rt
from runtrue import Status

PROGRAM = """
import asyncio, sys
from pathlib import Path
import runtrue as rt

folder = Path(sys.argv[1])

@rt.step
async def long(name: str) -> str:
    (folder / name).touch()
    await asyncio.Event().wait()
    return name

@rt.workflow
async def flow(name: str) -> str:
    return await long(name)

@rt.workflow
async def sleeper() -> None:
    await rt.sleep(0.9)
    await asyncio.Event().wait()

async def main() -> None:
    app = rt.App(folder / "runs.db", workflows=[flow, sleeper], lease=1)
    await app.open()
    for name in ("one", "two", "three"):
        await app.start(flow.options(id=name), name)
    await app.start(sleeper.options(id="four"))
    while not all((folder / name).exists() for name in ("one", "two", "three")):
        await app.changed(0.05)
    {end}

asyncio.run(main())
"""

ENDS = {
    "an error of the program": "raise RuntimeError('the program breaks')",
    "the end of main without close": "return",
    "an interrupt of the program": "__import__('signal').raise_signal(2); await asyncio.Event().wait()",
}


@pytest.mark.parametrize("end", ENDS.values(), ids=list(ENDS))
def test_the_end_of_the_loop_fails_no_run_in_flight(tmp_path: Path, end: str):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("{end}", end))
    subprocess.run([sys.executable, program, tmp_path], timeout=60, capture_output=True, check=False)

    async def look() -> dict[str, Status]:
        async with rt.Client(tmp_path / "runs.db") as client:
            return {run.id: run.status for run in await client.runs()}

    found = asyncio.run(look())
    assert set(found) == {"one", "two", "three", "four"}
    assert set(found.values()) <= {Status.RUNNING, Status.PENDING, Status.WAITING}, found


def test_a_step_that_raises_keyboard_interrupt_does_not_fail_its_neighbours(tmp_path: Path):
    program = tmp_path / "program.py"
    program.write_text(
        PROGRAM.replace("{end}", "await app.start(breaker.options(id='five')); await asyncio.Event().wait()")
        .replace(
            "async def main()",
            "@rt.step\nasync def broken() -> None:\n    raise KeyboardInterrupt\n\n"
            "@rt.workflow\nasync def breaker() -> None:\n    await broken()\n\nasync def main()",
        )
        .replace("[flow, sleeper]", "[flow, sleeper, breaker]")
    )
    subprocess.run([sys.executable, program, tmp_path], timeout=60, capture_output=True, check=False)

    async def look() -> set[Status]:
        async with rt.Client(tmp_path / "runs.db") as client:
            return {run.status for run in await client.runs()}

    assert asyncio.run(look()) <= {Status.RUNNING, Status.PENDING, Status.WAITING}


async def test_generator_exit_raised_by_a_step_is_the_outcome_of_its_attempt(database: Path):
    @rt.step
    async def odd() -> None:
        raise GeneratorExit

    @rt.workflow
    async def flow() -> None:
        await odd()

    async with opened(database, flow) as app:
        with pytest.raises(rt.RunFailed, match="GeneratorExit"):
            await finished(await app.start(flow))


async def test_code_that_swallows_everything_in_a_loop_holds_neither_slot_nor_loop(database: Path, clock: ManualClock):
    gate = Gate()
    rounds: list[int] = []
    through: list[bool] = []

    @rt.step
    async def poll() -> int:
        await gate.pass_through()
        return 0

    @rt.workflow
    async def endless() -> None:
        while not through:
            rounds.append(1)
            with contextlib.suppress(BaseException):
                await poll()

    @rt.workflow
    async def other() -> str:
        return "other"

    async with opened(database, endless, other, clock=clock, slots=1) as app:
        run = await app.start(endless)
        await gate.reached()
        await run.pause()
        gate.open()
        await reaches(run, "paused")
        assert await finished(await app.start(other)) == "other", "the slot is free and the loop turns"
        assert len(rounds) < 20
        assert await recorded(app, run) == [("poll", 1)]
        through.append(True)


async def test_a_worker_that_cannot_register_again_for_any_reason_tries_on(
    database: Path, monkeypatch: pytest.MonkeyPatch
):
    @rt.workflow
    async def flow() -> str:
        return "done"

    async with opened(database, flow) as app:
        worker = app._worker
        assert worker is not None
        tries: list[int] = []
        register = worker._register

        async def broken() -> None:
            tries.append(1)
            if len(tries) < 3:
                raise RuntimeError("can't start new thread")
            await register()

        monkeypatch.setattr(worker, "_register", broken)
        before = worker.id
        worker._lost.set()
        await until(lambda: worker.id != before, "the worker has registered again")
        assert len(tries) == 3
        assert await finished(await app.start(flow)) == "done"


async def test_an_execution_that_begins_before_its_maker_holds_the_task_knows_its_own_task(database: Path):
    """As with eager tasks, which newer Pythons offer."""

    @rt.step
    async def one() -> int:
        return 1

    @rt.workflow
    async def flow() -> int:
        return await one()

    loop = asyncio.get_running_loop()
    if hasattr(asyncio, "eager_task_factory"):
        loop.set_task_factory(asyncio.eager_task_factory)  # pyright: ignore[reportAttributeAccessIssue]
    try:
        async with opened(database, flow) as app:
            assert await finished(await app.start(flow)) == 1
    finally:
        loop.set_task_factory(None)


async def test_two_opens_at_once_open_once(database: Path):
    app = rt.App(database)
    outcomes = await asyncio.gather(app.open(), app.open(), return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["App", "ConfigurationError"]
    await app.close()
