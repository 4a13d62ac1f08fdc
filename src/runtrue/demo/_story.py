"""What happens in the demo, in order."""

import shlex
import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from runtrue.client import Client
from runtrue.clock import MICROSECOND, SystemClock
from runtrue.demo import _account
from runtrue.demo._crew import Crew
from runtrue.demo._screen import Screen
from runtrue.demo._stage import Stage, Untrue
from runtrue.demo.etl import birdstrikes as example
from runtrue.errors import RuntrueError
from runtrue.lifecycle import TERMINAL, Status

MODULE = "runtrue.demo.etl.birdstrikes"
TAGS = {"demo": "yes"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Pace:
    """How long things take, in seconds, and during which of the 29 loads they happen.

    The loads of the run that is cancelled are slow, so that its worker has time to tell which step it is in.
    """

    load_seconds: float = 0.3
    slow_load_seconds: float = 2.0
    lease_seconds: float = 3.0
    paused_seconds: float = 1.5
    settle_seconds: float = 2.0
    kill_at: int = 7
    pause_at: int = 16
    cancel_at: int = 2


async def tell(database: Path, pace: Pace, screen: Screen, crew: Crew) -> bool:
    """Play the demo over `database` with the workers of `crew`, and say whether all of it came true."""
    clock = SystemClock()
    began = clock.steady()
    warehouse = database.with_name(f"{database.stem}-warehouse.db")
    screen.note(f"database   {database}")
    screen.note(f"warehouse  {warehouse}")
    screen.note(f"workflow   {_near(Path(example.SOURCE).parent / 'birdstrikes.py')}")
    try:
        async with Client(f"sqlite:///{database}") as client:
            stage = Stage(client.service, clock, screen, warehouse)
            async with _nothing_left_running(stage):
                await _hire_two(stage, crew)
                first = await _start(client, stage, "run A", pace.load_seconds, pace)
                lost = await _kill_its_worker(stage, crew, first, pace)
                await _pause_and_resume(stage, first, pace)
                await _finish(stage, first)
                second = await _start(client, stage, "run B", pace.slow_load_seconds, pace)
                await _cancel(stage, second, pace)
            true = await _account.check(stage, first, lost, second)
    except (Untrue, RuntrueError, OSError) as broken:
        screen.no_progress()
        screen.note("\n".join(["", "The workers wrote last:", *crew.last_words()]))
        screen.note(f"\nThe demo did not come true: {broken}")
        return False
    screen.note(f"\n{clock.steady() - began:.0f} seconds. " + _what_next(database, first, second))
    return true


async def _hire_two(stage: Stage, crew: Crew) -> None:
    stage.screen.chapter("Two worker processes and one run")
    await _put_away_earlier_demos(stage)
    hired = {crew.hire(), crew.hire()}
    patient_until = stage.clock.steady() + 20
    while True:
        workers = [worker for worker in await stage.service.workers() if worker.status == "alive"]
        ours = [worker for worker in workers if worker.pid in hired]
        if len(ours) == len(hired):
            break
        if stage.clock.steady() > patient_until or len(crew.alive()) < len(hired):
            raise Untrue("two workers were to register in the database")
        await stage.clock.sleep(0.02)
    for worker in ours:
        stage.screen.fact(worker.started_at, "worker", f"{worker.id} is alive, pid {worker.pid}")


async def _put_away_earlier_demos(stage: Stage) -> None:
    """Runs of a demo that was itself killed would be carried on by our workers, in the middle of the story."""
    unfinished = [status for status in Status if status not in TERMINAL]
    page = await stage.service.list_runs(statuses=unfinished, workflow=example.birdstrikes.name, tags=TAGS)
    for run in page.runs:
        await stage.service.terminate(run.id, reason="left over from an earlier demo")
        stage.screen.note(f"terminated {run.id}: left {run.status.value} by an earlier demo")


async def _start(client: Client, stage: Stage, name: str, load_seconds: float, pace: Pace) -> str:
    local = (_EPOCH + timedelta(microseconds=stage.clock.now())).astimezone()
    run_id = f"demo-{local:%Y%m%d-%H%M%S}-{name[-1].lower()}"
    stage.deed(f"start {name}, {run_id}")
    await client.start(
        example.birdstrikes.options(id=run_id, tags=TAGS),
        warehouse=str(stage.warehouse),
        pace_seconds=load_seconds,
        settle_seconds=pace.settle_seconds,
    )
    stage.names[run_id] = name
    return run_id


async def _kill_its_worker(stage: Stage, crew: Crew, run_id: str, pace: Pace) -> _account.Lost:
    step = await stage.until_within_a_load(run_id, pace.kill_at)
    stage.screen.chapter(f"kill -9 within step {step}: its rows are written, its result is not recorded")
    run = await stage.service.get(run_id)
    owner = await stage.owner(run)
    if owner.pid not in crew.alive():
        raise Untrue(f"worker {owner.id} (pid {owner.pid}) has {run_id} and is none of this demo's; end it, try again")
    crew.kill(owner.pid)
    at = stage.deed(f"kill -9 {owner.pid}, which is worker {owner.id}")
    run = await stage.show_row(run_id)
    owner = await stage.owner(run)
    left_seconds = (owner.lease_until - at) / MICROSECOND
    told = f"{owner.id} is dead and still {owner.status} by its row: its lease has {left_seconds:.1f} s left"
    stage.screen.fact(stage.clock.now(), "worker", told)
    # The worker is dead, so what it has written and not recorded stays so until the next one does it again.
    unrecorded = await stage.unrecorded_loads(run_id)
    await stage.until(run_id, lambda now: now.worker_id not in (None, owner.id), "another worker has it")
    claimed = await stage.event(run_id, "claimed", after=run.event_seq)
    return _account.Lost(unrecorded, at, claimed.at)


async def _pause_and_resume(stage: Stage, run_id: str, pace: Pace) -> None:
    step = await stage.until_within_a_load(run_id, pace.pause_at)
    stage.screen.chapter(f"pause within step {step}")
    stage.deed("pause run A")
    outcome = await stage.service.pause(run_id, reason="to show it")
    await stage.show_answer(outcome)
    await stage.show_row(run_id)
    await stage.until(run_id, lambda run: run.status is Status.PAUSED, "it is paused")
    before = await stage.show_row(run_id)
    await stage.clock.sleep(pace.paused_seconds)
    after = await stage.show_row(run_id)
    if after.event_seq != before.event_seq:
        raise Untrue(f"run {run_id} recorded something while it was paused")
    stage.deed("resume run A")
    outcome = await stage.service.resume(run_id, reason="the demo has shown it")
    await stage.show_answer(outcome)


async def _finish(stage: Stage, run_id: str) -> None:
    run = await stage.until(run_id, lambda run: run.status in TERMINAL, "it ends")
    stage.screen.no_progress()
    if run.status is not Status.COMPLETED:
        await stage.show_row(run_id)
        raise Untrue(f"run {run_id} was to complete and is {run.status.value}")


async def _cancel(stage: Stage, run_id: str, pace: Pace) -> None:
    step = await stage.until_within_a_load(run_id, pace.cancel_at)
    async for run in stage.looks(run_id, f"its worker tells that it is in {step}"):
        told = await stage.service.in_flight(run)
        if any(running.step == step for running in told):
            break
    stage.screen.chapter(f"cancel within step {step}")
    stage.deed("cancel run B")
    outcome = await stage.service.cancel(run_id, reason="to show it")
    await stage.show_answer(outcome)
    await stage.show_row(run_id)
    await stage.until(run_id, lambda run: run.status is Status.CANCELLED, "it is cancelled")
    await stage.show_row(run_id)
    stage.screen.no_progress()


@asynccontextmanager
async def _nothing_left_running(stage: Stage) -> AsyncGenerator[None, None]:
    """However the demo ends, its runs do not wait in the database for the next worker that comes by."""
    try:
        yield
    finally:
        for run_id in stage.names:
            if (await stage.service.get(run_id, payloads=False)).status not in TERMINAL:
                await stage.service.terminate(run_id, reason="the demo was interrupted")


def _near(path: Path) -> str:
    """The path as one would type it here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _what_next(database: Path, first: str, second: str) -> str:
    command = Path(sys.executable).with_name("runtrue")
    on_path = shutil.which("runtrue")
    runtrue = "runtrue" if on_path and Path(on_path).samefile(command) else _near(command)
    url = shlex.quote(f"sqlite:///{_near(database)}")
    lines = ["run list", f"run show {first}", f"run events {second}", "doctor"]
    return "\n".join(["Look at what it left:", *(f"  {runtrue} {line} --database {url}" for line in lines)])
