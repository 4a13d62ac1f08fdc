"""A clock that tests move by hand."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

BREATH_SECONDS = 0.05
"""So short a sleep is a breath between two polls: it passes by the machine's clock, and what polls goes on."""

MICROSECOND = 1_000_000
BEGINNING = 1_767_225_600 * MICROSECOND
"""The first of January 2026, where every manual clock begins."""


class ManualClock:
    """Time stands still until `advance`. Deadlines are fixed when a sleep is asked for, so none can slip by."""

    def __init__(self) -> None:
        self._passed = 0
        self._alarms: dict[object, tuple[int, Callable[[], None]]] = {}
        self._set = asyncio.Event()
        self._thread_woke: dict[int, int] = {}

    def now(self) -> int:
        return BEGINNING + self._passed

    def steady(self) -> float:
        return 1_000 + self._passed / MICROSECOND

    def advance(self, seconds: float) -> None:
        """Move time, and wake whoever sleeps no longer than that. Call it on the event loop."""
        self._passed += round(seconds * MICROSECOND)
        due = sorted((entry for entry in self._alarms.items() if entry[1][0] <= self._passed), key=lambda e: e[1][0])
        for key, (_, ring) in due:
            self._alarms.pop(key, None)
            ring()

    async def sleeper(self, seconds: float) -> None:
        """Return once somebody sleeps, or has a timeout, until just `seconds` from now."""
        while not any(at == self._passed + round(seconds * MICROSECOND) for at, _ in self._alarms.values()):
            self._set.clear()
            await self._set.wait()

    # ------------------------------------------------------------ what the engine asks
    def sleep(self, seconds: float) -> Coroutine[None, None, None]:
        deadline = self._passed + round(seconds * MICROSECOND)
        return self._sleep_until(deadline, seconds)

    async def _sleep_until(self, deadline: int, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = loop.create_future()
        if seconds <= BREATH_SECONDS:
            timer = loop.call_later(seconds, _settle, future)
            try:
                await future
            finally:
                timer.cancel()
        elif deadline > self._passed:
            self._alarm(future, deadline, lambda: _settle(future))
            try:
                await future
            finally:
                self._alarms.pop(future, None)

    @asynccontextmanager
    async def timeout(self, seconds: float) -> AsyncIterator[asyncio.Timeout]:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(None) as limit:
            self._alarm(limit, self._passed + round(seconds * MICROSECOND), lambda: limit.reschedule(loop.time()))
            try:
                yield limit
            finally:
                self._alarms.pop(limit, None)

    def wait_in_thread(self, event: threading.Event, seconds: float) -> bool:
        # What a thread does takes no time by this clock: its wait begins when its last one ended, or a move of the
        # clock that comes while it is at work would be lost on it.
        me = threading.get_ident()
        deadline = self._thread_woke.get(me, self._passed) + round(seconds * MICROSECOND)
        while self._passed < deadline:
            if event.wait(0.005):
                return True
        self._thread_woke[me] = self._passed
        return event.is_set()

    def _alarm(self, key: object, at: int, ring: Callable[[], None]) -> None:
        self._alarms[key] = (at, ring)
        self._set.set()


def _settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
