"""Waiting in tests: for a condition, never for a span. The only place where a test looks again and again."""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from runtrue.clock import SystemClock

T = TypeVar("T")

CLOCK = SystemClock()
SECOND = 1_000_000
LOOK_APART_SECONDS = 0.005
PATIENCE_SECONDS = 45.0
"""Ends the wait of a test that would fail anyway; long, because the machine may be busy with other things."""


async def until(
    condition: Callable[[], T | Awaitable[T]], what: str | Callable[[], str], *, seconds: float = PATIENCE_SECONDS
) -> T:
    """Look until `condition` gives something true, and return it. After `seconds` the test fails with `what`."""
    deadline = CLOCK.steady() + seconds
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found  # type: ignore[return-value]
        if CLOCK.steady() > deadline:
            raise AssertionError(f"waited {seconds:g} s in vain until {what if isinstance(what, str) else what()}")
        await CLOCK.sleep(LOOK_APART_SECONDS)


async def moment(steady: float) -> None:
    """Return at this moment of the steady clock: for faults that strike at a drawn time."""
    await CLOCK.sleep(steady - CLOCK.steady())


async def turning_until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until it is so: for what must come within a microsecond, less than a sleep can promise."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0)


async def gone(path: Path) -> None:
    """Return once there is no such file: how a step waits for the test."""
    while path.exists():  # noqa: ASYNC240  # a glance at a local folder
        await CLOCK.sleep(LOOK_APART_SECONDS)


def block_until_gone(path: Path) -> None:
    """The same, and this thread does nothing else meanwhile, nor does an event loop that runs in it."""
    never = threading.Event()
    while path.exists():
        CLOCK.wait_in_thread(never, LOOK_APART_SECONDS)
