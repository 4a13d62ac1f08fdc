"""The only home of time and waiting. Everything else is handed a Clock."""

import asyncio
import sys
import threading
import time
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

MICROSECOND = 1_000_000
"""Microseconds in a second: recorded times are integers of microseconds since 1970, UTC."""


class Clock(Protocol):
    """Time as the engine sees it. Tests bring one that they move by hand."""

    def now(self) -> int:
        """Wall time: microseconds since 1970, UTC. The time of the database's facts."""
        ...

    def steady(self) -> float:
        """Seconds of a clock that nobody sets and that also runs while the machine is suspended."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`; at once for zero or less."""
        ...

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[asyncio.Timeout]:
        """A block that is cancelled after `seconds` and then raises TimeoutError; `expired()` tells whose it was."""
        ...

    def wait_in_thread(self, event: threading.Event, seconds: float) -> bool:
        """Block the calling thread until `event` is set or `seconds` have passed. True if it is set."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> int:
        return time.time_ns() // 1_000

    def steady(self) -> float:
        return time.clock_gettime(_STEADY)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[asyncio.Timeout]:
        return asyncio.timeout(seconds)

    def wait_in_thread(self, event: threading.Event, seconds: float) -> bool:
        return event.wait(seconds)


# time.monotonic stands still while a machine is suspended, and a worker that wakes up would believe in a lease
# that another worker has long taken over. Linux counts suspended time in BOOTTIME, macOS in MONOTONIC_RAW.
_STEADY: int = time.CLOCK_MONOTONIC_RAW if sys.platform == "darwin" else time.CLOCK_BOOTTIME


async def wait_for_event(clock: Clock, event: asyncio.Event, seconds: float | None) -> bool:
    """Wait until `event` is set or `seconds` have passed (None: for ever). True if the event is set."""
    if event.is_set() or seconds is None:
        await event.wait()
        return True
    sleeper: asyncio.Future[Any] = asyncio.ensure_future(clock.sleep(seconds))
    waiter: asyncio.Future[Any] = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((waiter, sleeper), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiter.cancel()
        sleeper.cancel()
    return event.is_set()
