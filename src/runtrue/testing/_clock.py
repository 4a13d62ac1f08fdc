"""A clock that stands still until a test moves it."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from types import CoroutineType
from typing import Any

from runtrue.clock import MICROSECOND, SystemClock

BEGINNING = 1_767_225_600 * MICROSECOND
"""The first of January 2026, where every manual clock begins."""
BREATH_SECONDS = 0.05
"""So short a sleep is a breath between two polls: it passes by the machine's clock, and what polls goes on."""
GLANCE_SECONDS = 0.005
"""How soon a waiting thread sees that the clock was moved."""
POLLS = frozenset({"runtrue-worker", "runtrue-claims", "runtrue-sweeper", "runtrue-watcher"})
"""The tasks that look again and again whether there is something to do. They are woken when the clock has moved over
their time, but it is nothing that somebody waits for: two days hold a hundred thousand looks of the sweeper."""

MACHINE = SystemClock()
"""The machine's own clock, for the only thing that a test clock cannot tell: that something takes too long for real."""


class ManualClock:
    """Time stands still until it is moved. Deadlines are fixed when a sleep is asked for, so none can slip by."""

    def __init__(self, beginning: int = BEGINNING) -> None:
        self._beginning = beginning
        self._passed = 0
        self._alarms: dict[object, tuple[int, Callable[[], None], bool]] = {}
        """By who waits: when, what wakes them, and whether they only poll."""
        self._set = asyncio.Event()
        self._nudges = 0
        self._is_free = False
        self._thread_woke: dict[int, tuple[int, int]] = {}
        """By thread: how far time and nudges had come when its last wait ended."""

    def now(self) -> int:
        """Wall time, in microseconds."""
        return self._beginning + self._passed

    def steady(self) -> float:
        """Seconds that go with `now`."""
        return 1_000 + self._passed / MICROSECOND

    # ------------------------------------------------------------ moving it
    def advance(self, seconds: float) -> None:
        """Move time, and wake whoever sleeps no longer than that, in order. Call it on the event loop."""
        self.move_to(self.now() + round(seconds * MICROSECOND))

    def move_to(self, at: int) -> None:
        """Move time to this moment, not back. Whoever is woken sees it, also if their time came before."""
        self._passed = max(self._passed, at - self._beginning)
        due = sorted((entry for entry in self._alarms.items() if entry[1][0] <= self._passed), key=lambda e: e[1][0])
        for key, (_, ring, _) in due:
            self._alarms.pop(key, None)
            ring()

    def next_alarm(self) -> int | None:
        """When the next sleep or timeout ends that somebody waits for; None if nobody does."""
        waited_for = [at for at, _, polls in self._alarms.values() if not polls]
        return self._beginning + min(waited_for) if waited_for else None

    def nudge_threads(self) -> None:
        """Let whoever waits in a thread look up, as if their time had come."""
        self._nudges += 1

    def run_freely(self) -> None:
        """Wake whoever sleeps; from now on a sleep takes as long as by the machine's clock. `now` stands still."""
        self._is_free = True
        alarms, self._alarms = self._alarms, {}
        for _, ring, _ in alarms.values():
            ring()

    def hold_still(self) -> None:
        """Undo `run_freely`."""
        self._is_free = False

    async def sleeper(self, seconds: float) -> None:
        """Return once somebody sleeps, or has a timeout, until just `seconds` from now."""
        while not any(at == self._passed + round(seconds * MICROSECOND) for at, _, _ in self._alarms.values()):
            self._set.clear()
            await self._set.wait()

    # ------------------------------------------------------------ what the engine asks
    def sleep(self, seconds: float) -> "CoroutineType[Any, Any, None]":
        """Return after `seconds`. They begin with the call, not when it is awaited."""
        task = asyncio.current_task()
        polls = task is not None and task.get_name() in POLLS
        return self._sleep_until(self._passed + round(seconds * MICROSECOND), seconds, polls)

    async def _sleep_until(self, deadline: int, seconds: float, polls: bool) -> None:
        loop = asyncio.get_running_loop()
        if seconds <= 0:
            await MACHINE.sleep(0)
            return
        future: asyncio.Future[None] = loop.create_future()
        if seconds <= BREATH_SECONDS or self._is_free:
            timer = loop.call_later(seconds, _settle, future)
            try:
                await future
            finally:
                timer.cancel()
        elif deadline > self._passed:
            self._alarm(future, deadline, lambda: _settle(future), polls)
            try:
                await future
            finally:
                self._alarms.pop(future, None)

    @asynccontextmanager
    async def timeout(self, seconds: float) -> AsyncGenerator[asyncio.Timeout, None]:
        """A block that is cancelled after `seconds` and then raises TimeoutError."""
        loop = asyncio.get_running_loop()
        async with asyncio.Timeout(None) as limit:
            deadline = self._passed + round(seconds * MICROSECOND)
            self._alarm(limit, deadline, lambda: limit.reschedule(loop.time()), polls=False)
            try:
                yield limit
            finally:
                self._alarms.pop(limit, None)

    def wait_in_thread(self, event: threading.Event, seconds: float) -> bool:
        """Block the calling thread until `event` is set, or the clock was moved over `seconds`."""
        # What a thread does takes no time by this clock: its wait begins when its last one ended, or a move of the
        # clock, or a nudge, that comes while it is at work would be lost on it.
        me = threading.get_ident()
        passed, nudges = self._thread_woke.get(me, (self._passed, self._nudges))
        deadline = passed + round(seconds * MICROSECOND)
        while self._passed < deadline and self._nudges == nudges:
            if event.wait(GLANCE_SECONDS):
                return True
        self._thread_woke[me] = (self._passed, self._nudges)
        return event.is_set()

    def _alarm(self, key: object, at: int, ring: Callable[[], None], polls: bool) -> None:
        self._alarms[key] = (at, ring, polls)
        self._set.set()


def _settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
