"""`python -m benchmarks.waiting`: what runs that wait cost the worker that is there for them.

Many runs are brought to a long sleep, or to wait for a message. Then a new worker process takes over, and is looked at
beside one that has no runs at all: its memory, threads, time of the processor, and statements while nothing happens.
"""

import argparse
import asyncio
import os
import sqlite3
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import runtrue as rt
from benchmarks.process import Program
from benchmarks.programs.talk import cpu_seconds, say
from runtrue.clock import SystemClock
from runtrue.lifecycle import Status

CLOCK = SystemClock()
DAY_SECONDS = 86_400.0
KINDS = ("none", "sleeping", "receiving")
LOOK_APART_SECONDS = 0.2


@rt.workflow
async def sleeping() -> None:
    """Sleeps for longer than anybody looks."""
    await rt.sleep(DAY_SECONDS)


@rt.workflow
async def receiving() -> str:
    """Waits for a message that never comes."""
    return await rt.receive("note", str)


WORKFLOWS = {"sleeping": sleeping, "receiving": receiving}


# ---------------------------------------------------------------- the database
async def prepare(database: Path, kind: str, runs: int) -> None:
    """Bring so many runs to wait, and leave."""
    async with rt.App(database, workflows=[*WORKFLOWS.values()], slots=200) as app:
        if kind != "none":
            await app.start_many(WORKFLOWS[kind], [{}] * runs)
            while (await app.store.count_runs()).get(Status.WAITING, 0) < runs:
                await CLOCK.sleep(LOOK_APART_SECONDS)


# ---------------------------------------------------------------- the worker
async def work(database: Path, seconds: float) -> None:
    """Be a worker with nothing to do for so long, and tell what that took."""
    statements = count_statements()
    async with rt.App(database, workflows=[*WORKFLOWS.values()]):
        say(ready=True)
        await CLOCK.sleep(min(seconds, 3.0))  # until what a start costs is over
        processor, counted = cpu_seconds(), statements.total()
        await CLOCK.sleep(seconds)
        say(
            memory_bytes=memory_bytes(),
            threads=threading.active_count(),
            processor_percent=round(100 * (cpu_seconds() - processor) / seconds, 2),
            statements_per_second=round((statements.total() - counted) / seconds, 1),
        )


def count_statements() -> Counter[str]:
    """Count what connections that are opened from now on are asked, by its first word."""
    counted: Counter[str] = Counter()
    connect = sqlite3.connect

    def counting(*args: Any, **settings: Any) -> sqlite3.Connection:
        connection = connect(*args, **settings)
        connection.set_trace_callback(lambda statement: counted.update([statement.split(None, 1)[0]]))
        return connection

    sqlite3.connect = counting  # type: ignore[assignment]
    return counted


def memory_bytes() -> int:
    """What of the process is in memory, without what it shares with its files."""
    pages = Path("/proc/self/statm").read_text().split()
    return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE")


# ---------------------------------------------------------------- the measurement
async def measure(kind: str, runs: int, seconds: float, folder: Path) -> dict[str, Any]:
    """What a worker costs that has so many waiting runs in its database."""
    database = folder / f"{kind}.db"
    await prepare(database, kind, runs)
    command = [sys.executable, "-m", "benchmarks.waiting", "--worker", str(database), "--seconds", str(seconds)]
    async with Program(command, folder / "worker.log") as worker:
        return await worker.hear("memory_bytes")


async def main() -> None:
    """Measure and print; or, with --worker, be the worker that is measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.waiting", description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=20.0, help="for how long each worker is looked at")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker is not None:
        await work(given.worker, given.seconds)
        return
    print(f"{given.runs:,} runs; a worker with none, with sleeping ones, with ones that wait for a message")
    base = 0
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            found = await measure(kind, given.runs, given.seconds, Path(folder))
            base = base or found["memory_bytes"]
            each = (found["memory_bytes"] - base) / given.runs
            print(
                f"{kind:>10}: {found['memory_bytes'] / 2**20:.1f} MiB ({each:.0f} bytes a run), "
                f"{found['threads']} threads, {found['processor_percent']} % of a processor, "
                f"{found['statements_per_second']} statements a second"
            )


if __name__ == "__main__":
    asyncio.run(main())
