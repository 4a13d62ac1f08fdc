"""The works: what is run, and which figures it gives. Each is measured in an empty database of its own."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import wal
from benchmarks.process import output_of
from benchmarks.report import percentile
from benchmarks.subjects import Subject, sqlite_file

Figures = dict[str, float]
RATE = "steps/s"
FLOOR = "bare floor"
STEPS_IN_A_RUN = 10
DEFAULT_SLOTS = 100
RECOVERING_RUNS = 200
COUNTED_RUNS = 400


@dataclass(frozen=True, slots=True)
class Case:
    """One work, done by one subject with one setting."""

    work: str
    setting: str
    subject: str
    measure: Callable[[Path], Awaitable[Figures]]


async def steps_of_floor(folder: Path, *, in_flight: int, runs: int, steps: int) -> Figures:
    """Runs of sequential steps by the bare floor."""
    options = ["--in-flight", str(in_flight), "--runs", str(runs), "--steps", str(steps)]
    told = await output_of("benchmarks.programs.floor", str(sqlite_file(folder)), *options)
    return rates(told["steps"], told["seconds"], told["cpu_seconds"]) | {
        "commits a step": told["commits"] / told["steps"]
    }


async def steps_of(subject: Subject, folder: Path, *, in_flight: int, runs: int, steps: int) -> Figures:
    """Runs enqueued before, done by one worker process: from its first step until every run has ended."""
    total = runs * steps
    async with subject.database(folder) as url, subject.client(url, folder) as client:
        await client.ask("enqueue", "seconds", runs=runs, steps=steps, together=True, slowly=False)
        async with subject.worker(url, folder, slots=in_flight, expected_steps=total) as worker:
            await worker.hear("ran")
            finished = await client.ask("finish", "at")
            told = await worker.ask("report", "first_at")
    if told["ran"] != total:
        raise RuntimeError(f"{subject.name} ran {told['ran']} steps where {total} were to be run")
    return rates(total, finished["at"] - told["first_at"], told["cpu_seconds"])


def rates(steps: float, seconds: float, cpu_seconds: float) -> Figures:
    """The figures that every run of steps gives."""
    return {RATE: steps / seconds, "CPU µs a step": cpu_seconds / steps * 1e6}


async def log_of(subject: Subject, folder: Path, *, in_flight: int, runs: int, steps: int) -> Figures:
    """What a step costs in SQLite's log. Untimed, since the log has to be kept for counting."""
    total = runs * steps
    async with subject.database(folder) as url, subject.client(url, folder) as client:
        await client.ask("enqueue", "seconds", runs=runs, steps=steps, together=True, slowly=False)
        with wal.kept(sqlite_file(folder)):
            before = wal.written(sqlite_file(folder))
            async with subject.worker(url, folder, slots=in_flight, expected_steps=total) as worker:
                await worker.hear("ran")
                await client.ask("finish", "at")
                after = wal.written(sqlite_file(folder))
    return {
        "commits a step": (after.commits - before.commits) / total,
        "WAL bytes a step": (after.size_bytes - before.size_bytes) / total,
    }


async def jobs_of(subject: Subject, folder: Path, *, jobs: int) -> Figures:
    """Runs of one step: how fast they are started, one by one and together, and how fast one worker does them."""
    few = max(1, jobs // 5)
    async with subject.database(folder) as url, subject.client(url, folder) as client:
        one_by_one = await client.ask("enqueue", "seconds", runs=few, steps=1, together=False, slowly=False)
        together = await client.ask("enqueue", "seconds", runs=jobs, steps=1, together=True, slowly=False)
        async with subject.worker(url, folder, slots=DEFAULT_SLOTS, expected_steps=few + jobs) as worker:
            await worker.hear("ran")
            finished = await client.ask("finish", "at")
            told = await worker.ask("report", "first_at")
    return {
        "started/s one by one": few / one_by_one["seconds"],
        "started/s together": jobs / together["seconds"],
        "done/s": (few + jobs) / (finished["at"] - told["first_at"]),
        "CPU µs a job": told["cpu_seconds"] / (few + jobs) * 1e6,
    }


async def round_trips_of(subject: Subject, folder: Path, *, count: int) -> Figures:
    """From start to result of a run of one step, idle: in the worker's process, and by a client in another one."""
    figures: Figures = {}
    async with (
        subject.database(folder) as url,
        subject.client(url, folder) as client,
        subject.worker(url, folder, slots=DEFAULT_SLOTS) as worker,
    ):
        for where, program in (("in process", worker), ("by client", client)):
            await program.ask("round_trips", "milliseconds", count=min(5, count))
            told = await program.ask("round_trips", "milliseconds", count=count)
            figures[f"{where} p50 ms"] = percentile(told["milliseconds"], 50)
            figures[f"{where} p99 ms"] = percentile(told["milliseconds"], 99)
    return figures


async def recovery_of(subject: Subject, folder: Path) -> Figures:
    """A worker lost by SIGKILL with 200 runs in flight: until all have ended after a new one is up."""
    total = RECOVERING_RUNS * STEPS_IN_A_RUN
    log = folder / "steps.log"
    async with subject.database(folder) as url, subject.client(url, folder) as client:
        await client.ask("enqueue", "seconds", runs=RECOVERING_RUNS, steps=STEPS_IN_A_RUN, together=True, slowly=True)
        half = total // 2
        async with subject.worker(url, folder, slots=RECOVERING_RUNS, expected_steps=half, log=log) as worker:
            await worker.hear("ran")
            await worker.lose()
        async with subject.worker(url, folder, slots=RECOVERING_RUNS, log=log):
            ready = time.perf_counter()
            finished = await client.ask("finish", "at")
    ran = await asyncio.to_thread(log.read_text)
    return {
        "all ended after s": finished["at"] - ready,
        "steps repeated": len(ran.splitlines()) - len(set(ran.splitlines())),
    }
