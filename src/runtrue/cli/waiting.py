"""Waiting for a run. The row is the truth and is read again at least once a second; a signal only shortens the wait."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from runtrue.cli.describe import describe
from runtrue.cli.text import local_text, note
from runtrue.clock import wait_for_event
from runtrue.lifecycle import TERMINAL, Status
from runtrue.records import RunRecord
from runtrue.service import Service

POLL_SECONDS = 1.0
LOOK_APART_SECONDS = 0.02
"""The shortest time between two looks, however often the database changes."""

_MOVING = re.compile(r"\d+(\.\d+)? (s|min|h|d)\b")
"""The lengths of time in a reason: they change with every look though nothing else does."""


async def rows(
    service: Service, run_id: str, *, timeout_seconds: float | None = None
) -> AsyncGenerator[RunRecord, None]:
    """Yield the run's row now and after each change, at least once a second, until `timeout_seconds` have passed.

    Yields once at least, and once more after the time is up. Close it (`aclosing`) when done. Raises NotFound.
    """
    clock = service.clock
    ends = None if timeout_seconds is None else clock.steady() + timeout_seconds
    changed = asyncio.Event()
    unsubscribe = service.store.subscribe(changed.set)
    try:
        while True:
            changed.clear()  # before the read: a change during it must not be missed
            left = POLL_SECONDS if ends is None else min(POLL_SECONDS, ends - clock.steady())
            yield await service.get(run_id, payloads=False)
            if left <= 0:
                return
            await clock.sleep(LOOK_APART_SECONDS)
            await wait_for_event(clock, changed, left)
    finally:
        unsubscribe()


async def wait_until(
    service: Service, run_id: str, reached: Callable[[Status], bool], *, timeout_seconds: float | None
) -> RunRecord:
    """Wait until the run's status is one that `reached` takes, the run has ended, or the time is up; tell that row.

    The row of a run that has ended comes with its payloads. A reason not to be there yet that lasts for a second is
    told on stderr, once.
    """
    reasons = Reasons(service)
    async with aclosing(rows(service, run_id, timeout_seconds=timeout_seconds)) as changes:
        run = await anext(changes)
        while not reached(run.status) and run.status not in TERMINAL:
            await reasons.look(run)
            following = await anext(changes, None)
            if following is None:
                break
            run = following
    # Only a finished run is read again: the status of any other may have changed since the caller's wish was met.
    return await service.get(run_id) if run.status in TERMINAL else run


class Reasons:
    """Tells whoever waits why the run is where it is, when the reason is still the same after a second."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._look_at = 0.0
        self._seen = ""
        self._told = ""

    async def look(self, run: RunRecord) -> None:
        """Look at the reason, at most once a second, and tell it where it lasts and was not told before."""
        if self._service.clock.steady() < self._look_at:
            return
        (described,) = await describe(self._service, [run], time_text=local_text)
        reason = f"{run.status.value}: {described.why}"
        seen, self._seen = self._seen, _MOVING.sub("", reason)
        self._look_at = self._service.clock.steady() + POLL_SECONDS
        if self._seen == seen != self._told:
            note(reason)
            self._told = seen
