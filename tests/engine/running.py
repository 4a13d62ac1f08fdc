"""Apps, gates and looks at what was recorded, for tests that run workflows in this process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support import waiting
from tests.support.manual_clock import ManualClock

import runtrue as rt

LONG_LEASE = 50 * 365 * 86_400
"""A lease that outlasts whatever a test does to its manual clock."""
SOON = 10
"""Seconds of the machine's clock after which what a test waits for will not come any more."""


@asynccontextmanager
async def opened(
    database: Path | str, *workflows: Any, clock: ManualClock | None = None, **settings: Any
) -> AsyncIterator[rt.App]:
    """An open App. With a manual clock its lease outlasts all, and a step in flight does not hold up its end."""
    if clock is not None:
        settings = {"lease": LONG_LEASE, "stall_limit": 0, "drain": 0, **settings}
    app = rt.App(database, workflows=workflows, **settings)
    if clock is not None:
        app.clock = clock
    async with app:
        yield app


class Gate:
    """A place in a step or workflow that a test lets code come to, and go on from."""

    def __init__(self) -> None:
        self._reached = asyncio.Event()
        self._open = asyncio.Event()

    async def pass_through(self) -> None:
        self._reached.set()
        await self._open.wait()

    async def reached(self) -> None:
        async with asyncio.timeout(SOON):
            await self._reached.wait()

    def open(self) -> None:
        self._open.set()


async def reaches(run: rt.RunHandle[Any], status: str) -> None:
    """Wait until the run has this status, by the row."""
    async with asyncio.timeout(SOON):
        found = await run.wait(status)
    assert found.status == status, found


async def finished(run: rt.RunHandle[Any]) -> Any:
    """The result, soon."""
    async with asyncio.timeout(SOON):
        return await run.result()


async def failure(run: rt.RunHandle[Any]) -> rt.ErrorInfo:
    """The error of a run that fails, soon."""
    async with asyncio.timeout(SOON):
        ended = await run.wait()
    assert ended.status is rt.Status.FAILED, ended
    assert ended.error is not None
    return ended.error


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until a condition of this process holds."""
    await waiting.until(condition, "the worker in this process had got there", seconds=SOON)


async def recorded(app: rt.App, run: rt.RunHandle[Any]) -> list[tuple[str, int]]:
    """Name and attempt of each recorded call, in order."""
    steps, _ = await app.service.steps(run.id)
    return [(step.name, step.attempt) for step in steps]


async def event_types(run: rt.RunHandle[Any]) -> list[str]:
    """The types of the run's events, in order."""
    return [event.type async for event in run.events()]


async def audit(app: rt.App, run: rt.RunHandle[Any]) -> None:
    """Nothing in the whole database breaks a promise."""
    doctor = await app.service.doctor()
    assert not doctor.findings, doctor.findings


async def until_heard(app: rt.App) -> None:
    """A renewal has brought the cancel to every run of the worker."""
    worker = app._worker
    assert worker is not None
    await until(lambda: all(execution.cancel_requested() for execution in worker._executions.values()))
