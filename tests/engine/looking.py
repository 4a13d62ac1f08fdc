"""Looks at what a run has recorded and waits for, for tests of what comes to a run from outside."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.engine.running import event_types, reaches, recorded
from tests.support.manual_clock import ManualClock
from tests.support.waiting import until

import runtrue as rt
from runtrue.lifecycle import Status


@asynccontextmanager
async def outside(database: Path, clock: ManualClock) -> AsyncIterator[rt.Client]:
    """A client where no worker is."""
    client = rt.Client(database, actor="anna")
    client.clock = clock
    async with client:
        yield client


async def kept(client: rt.Client, run: rt.RunHandle[Any]) -> list[bytes]:
    """The messages that nobody has received."""
    return [message.body for message in await client.service.messages(run.id) if message.received_at is None]


async def open_waits(client: rt.Client, run: rt.RunHandle[Any]) -> list[str]:
    """What the run waits for: topics, and runs."""
    return [wait.subject for wait in await client.store.waits(run.id) if wait.closed_at is None]


async def until_open(client: rt.Client, run: rt.RunHandle[Any], *subjects: str) -> None:
    """Wait until the run waits for just these."""

    async def look() -> bool:
        return sorted(await open_waits(client, run)) == sorted(subjects)

    await until(look, f"it waits for {subjects}")


async def until_parked_for(client: rt.Client, run: rt.RunHandle[Any], *subjects: str) -> None:
    """Wait until the run waits for just these, out of memory."""
    await until_open(client, run, *subjects)
    await reaches(run, "waiting")


async def until_recorded(client: rt.Client, run: rt.RunHandle[Any], name: str) -> None:
    """Wait until a call of this name is recorded, and the run is out of memory."""

    async def look() -> bool:
        return name in [found for found, _ in await recorded(client, run)]  # type: ignore[arg-type]

    await until(look, f"{name} is recorded")
    await reaches(run, "waiting")


async def until_event(run: rt.RunHandle[Any], type_: str, times: int = 1) -> None:
    """Wait until so many events of this type have happened to the run."""

    async def look() -> bool:
        return (await event_types(run)).count(type_) >= times

    await until(look, f"{times} events {type_}")


async def until_kept(client: rt.Client, run: rt.RunHandle[Any], count: int) -> None:
    """Wait until so many messages are kept for the run."""

    async def look() -> bool:
        return len(await kept(client, run)) == count

    await until(look, f"{count} messages are kept")


async def passing(clock: ManualClock, run: rt.RunHandle[Any], *statuses: Status) -> Status:
    """Let time pass, in half seconds, until the run has one of these statuses (by default: until it has ended)."""
    wanted = statuses or (Status.COMPLETED, Status.FAILED, Status.CANCELLED)

    async def look() -> Status | None:
        clock.advance(0.5)
        status = await run.status()
        return status if status in wanted else None

    found = await until(look, f"the run is one of {', '.join(wanted)}")
    assert found is not None
    return found


class Before:
    """Does something once, just before the store carries out the effects that a test picks."""

    def __init__(self, store: Any, picks: Callable[[Any], bool], act: Callable[[], Any]) -> None:
        self.done = 0
        self._picks, self._act, self._record = picks, act, store.record
        store.record = self.record

    async def record(self, worker_id: str, effects: Any) -> Any:
        if not self.done and any(self._picks(effect) for effect in effects):
            self.done += 1
            await self._act()
        return await self._record(worker_id, effects)
