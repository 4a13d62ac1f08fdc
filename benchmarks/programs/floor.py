"""The bare floor: what durable steps cost at least, with asyncio, one writer thread and SQLite.

So many coroutines, each a run of sequential steps; a step is one fenced UPDATE of its run, whose reply is the run's
status, and one INSERT of its result, committed with `synchronous=FULL` before the next step begins. What many runs
hand in meanwhile is committed together. There is no replay, no codec, no claim, no lease, no event and no second
process: an engine is measured by how much of this it keeps.
"""

import argparse
import asyncio
import json
import queue
import re
import sqlite3
import sys
import threading
import time
from pathlib import Path

from benchmarks.programs.talk import cpu_seconds

WORKER_ID = "w-0123456789ab"
EPOCH = 1
STATEMENTS: dict[str, str] = dict(
    re.findall(
        r"^-- name: (\w+)\n(.*?)(?=^-- name:|\Z)",
        Path(__file__).with_suffix(".sql").read_text(),
        re.MULTILINE | re.DOTALL,
    )
)

Step = tuple[str, int, str, bytes, int]
"""A result on its way: run, ordinal, name, output, and when it finished in microseconds."""


def open_database(path: Path, runs: list[str]) -> sqlite3.Connection:
    """Make the tables at `path` and a running run for each id."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    # As runtrue sets it: a checkpoint costs the same pages, but fewer of them twice.
    connection.execute("PRAGMA wal_autocheckpoint=4000")
    connection.executescript(STATEMENTS["schema"])
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(STATEMENTS["start_run"], [(run, WORKER_ID) for run in runs])
    connection.execute("COMMIT")
    return connection


class Journal:
    """Group commit: while the writer thread commits one batch, the next one gathers."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._gathering: list[tuple[Step, asyncio.Future[str]]] = []
        self._batches: queue.SimpleQueue[list[tuple[Step, asyncio.Future[str]]] | None] = queue.SimpleQueue()
        self.commits = 0
        self._writing = False
        self._planned = False
        self._thread = threading.Thread(target=self._write_batches)
        self._thread.start()

    def record(self, step: Step) -> "asyncio.Future[str]":
        """Hand in a step; the future brings the status of its run once the step is committed."""
        committed: asyncio.Future[str] = self._loop.create_future()
        self._gathering.append((step, committed))
        self._plan()
        return committed

    def close(self) -> None:
        self._batches.put(None)
        self._thread.join()

    def _plan(self) -> None:
        # By way of call_soon the other coroutines that are ready add their steps first.
        if not self._planned and not self._writing:
            self._planned = True
            self._loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        self._planned = False
        self._writing = True
        batch, self._gathering = self._gathering, []
        self._batches.put(batch)

    def _write_batches(self) -> None:
        while (batch := self._batches.get()) is not None:
            statuses = self._write([step for step, _ in batch])
            self._loop.call_soon_threadsafe(self._answer, batch, statuses)

    def _write(self, steps: list[Step]) -> list[str]:
        execute, fence = self._connection.execute, STATEMENTS["fence"]
        execute("BEGIN IMMEDIATE")
        owned = [execute(fence, (step[0], EPOCH, WORKER_ID)).fetchone() for step in steps]
        rows = [(*step, seq) for step, (_, seq) in zip(steps, owned, strict=True)]
        self._connection.executemany(STATEMENTS["record_step"], rows)
        execute("COMMIT")
        self.commits += 1
        return [status for status, _ in owned]

    def _answer(self, batch: list[tuple[Step, "asyncio.Future[str]"]], statuses: list[str]) -> None:
        self._writing = False
        for (_, committed), status in zip(batch, statuses, strict=True):
            committed.set_result(status)
        if self._gathering:
            self._plan()


async def measure(path: Path, *, in_flight: int, runs: int, steps: int) -> dict[str, float]:
    """Run `runs` × `steps` steps, `in_flight` runs at a time; the wall and CPU seconds that it took."""
    names = [f"{number:032x}" for number in range(runs)]
    connection = open_database(path, names)
    journal = Journal(connection)
    waiting = iter(names)

    async def slot() -> None:
        for run in waiting:
            for ordinal in range(steps):
                await journal.record((run, ordinal, "nothing", b"%d" % ordinal, time.time_ns() // 1000))

    began, cpu_before = time.perf_counter(), cpu_seconds()
    await asyncio.gather(*(slot() for _ in range(in_flight)))
    seconds, cpu = time.perf_counter() - began, cpu_seconds() - cpu_before
    journal.close()
    connection.close()
    return {"steps": runs * steps, "seconds": seconds, "cpu_seconds": cpu, "commits": journal.commits}


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.programs.floor", description=__doc__)
    parser.add_argument("path", type=Path, help="the SQLite file to make")
    parser.add_argument("--in-flight", type=int, default=50)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=10)
    given = parser.parse_args()
    figures = asyncio.run(measure(given.path, in_flight=given.in_flight, runs=given.runs, steps=given.steps))
    json.dump(figures, sys.stdout)


if __name__ == "__main__":
    main()
