"""How a measured process talks with the command that started it, and counts the steps that it ran."""

import argparse
import asyncio
import json
import os
import random
import resource
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

STEP_SECONDS = 0.2
"""How long a step of the recovery work takes."""
SPACING_SECONDS = (0.01, 0.05)
"""The idle time between two round trips is random, lest it falls in step with somebody's polling."""

RoundTrip = Callable[[], Awaitable[object]]
Question = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


def cpu_seconds() -> float:
    """The CPU time that this process has used, in its own code and in the kernel."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def say(**fields: object) -> None:
    """Write one JSON line. Whole in one write, as several threads may talk."""
    os.write(sys.stdout.fileno(), json.dumps(fields).encode() + b"\n")


class Tally:
    """Counts the steps of this process and tells when as many have run as were expected."""

    def __init__(self) -> None:
        self.ran = 0
        self.first_at = 0.0
        self.cpu_at_first = 0.0
        self._expected = 0
        self._log: int | None = None
        self._lock = threading.Lock()

    def expect(self, steps: int, log: str) -> None:
        """Tell when `steps` have run; write each of them to the file `log`, if there is one."""
        self._expected = steps
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT) if log else None

    def count(self, run: int = 0, number: int = 0) -> None:
        """A step begins: step `number` of run `run`, where the list is kept."""
        with self._lock:
            self.ran += 1
            if self.ran == 1:
                self.first_at, self.cpu_at_first = time.perf_counter(), cpu_seconds()
            if self._log is not None:
                os.write(self._log, b"%d %d\n" % (run, number))
            if self.ran == self._expected:
                say(ran=self.ran)

    def report(self) -> dict[str, float]:
        """Steps so far, when the first one began, and the CPU seconds since then."""
        return {"ran": self.ran, "first_at": self.first_at, "cpu_seconds": cpu_seconds() - self.cpu_at_first}


TALLY = Tally()


def arguments() -> argparse.Namespace:
    """What every program takes. Sets up the tally."""
    parser = argparse.ArgumentParser()
    parser.add_argument("database")
    parser.add_argument("--slots", type=int, default=0, help="runs at a time; 0 is a client that runs nothing")
    parser.add_argument("--expected-steps", type=int, default=0)
    parser.add_argument("--log", default="")
    given = parser.parse_args()
    TALLY.expect(given.expected_steps, given.log)
    return given


async def answer_questions(questions: dict[str, Question]) -> None:
    """Answer until stdin ends."""
    say(ready=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        asked = json.loads(line)
        say(**await questions[asked["ask"]](asked))


async def report(_: dict[str, Any]) -> dict[str, Any]:
    """The question what this process has run."""
    return TALLY.report()


async def time_round_trips(count: int, round_trip: RoundTrip) -> dict[str, Any]:
    """Make `count` round trips one after the other, idle in between; the milliseconds of each."""
    spacing = random.Random(0)
    milliseconds: list[float] = []
    for _ in range(count):
        await asyncio.sleep(spacing.uniform(*SPACING_SECONDS))
        began = time.perf_counter()
        await round_trip()
        milliseconds.append((time.perf_counter() - began) * 1000)
    return {"milliseconds": milliseconds}


async def until_none_is_left(some_left: Callable[[], Awaitable[bool]]) -> dict[str, Any]:
    """Ask every few milliseconds until no run is unfinished; when that was seen."""
    while await some_left():  # noqa: ASYNC110 - what is waited for happens in another process
        await asyncio.sleep(0.005)
    return {"at": time.perf_counter()}
