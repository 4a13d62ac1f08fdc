"""A store whose operations fail as a test wants them to. What is not told to fail goes to a real database."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from runtrue.clock import SystemClock
from runtrue.store import open_store
from runtrue.store.protocol import Claimed, EffectsReply, Heartbeat, OwnedRun, RunEffects, Store, Swept

Fault = Callable[[], None]
"""Raises what the caller is to see, or returns."""


class FaultyStore:
    """Each fault is called for every operation of its name; `after` faults once the database has done its part."""

    def __init__(self) -> None:
        self.before: dict[str, Fault] = {}
        self.after: dict[str, Fault] = {}
        self.change_replies: Callable[[Sequence[RunEffects], list[EffectsReply]], None] = lambda batch, replies: None
        self.batches: list[list[RunEffects]] = []
        self.flying: list[str] = []
        self.inner: Store | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def claim(self, worker_id: str, serves: Sequence[tuple[str, str]], limit: int) -> list[Claimed]:
        assert self.inner is not None
        self._meet("claim", self.before)
        claimed = await self.inner.claim(worker_id, serves, limit)
        self._meet("claim", self.after)
        return claimed

    async def record(self, worker_id: str, effects: Sequence[RunEffects]) -> list[EffectsReply]:
        assert self.inner is not None
        self.batches.append(list(effects))
        run_ids = [effect.run_id for effect in effects]
        assert not set(run_ids) & set(self.flying), "effects of one run in two batches at a time"
        self.flying += run_ids
        try:
            self._meet("record", self.before)
            replies = await self.inner.record(worker_id, effects)
            self._meet("record", self.after)
        finally:
            for run_id in run_ids:
                self.flying.remove(run_id)
        self.change_replies(effects, replies)
        return replies

    def renew(self, beat: Heartbeat) -> list[OwnedRun] | None:
        assert self.inner is not None
        self._meet("renew", self.before)
        owned = self.inner.renew(beat)
        self._meet("renew", self.after)
        return owned

    async def sweep(self, limit: int = 500) -> Swept:
        assert self.inner is not None
        self._meet("sweep", self.before)
        return await self.inner.sweep(limit)

    def _meet(self, name: str, faults: dict[str, Fault]) -> None:
        if name in faults:
            faults[name]()


def for_times(times: int, error: Exception) -> Fault:
    """A fault that strikes so many times."""
    left = [times]

    def strike() -> None:
        if left[0]:
            left[0] -= 1
            raise error

    return strike


def every_other(error: Exception) -> Fault:
    """A fault that strikes the first time and then every second time: whatever is repeated comes through."""
    struck = [False]

    def strike() -> None:
        struck[0] = not struck[0]
        if struck[0]:
            raise error

    return strike


def always(error: Exception) -> Fault:
    """A fault that strikes until it is taken away."""

    def strike() -> None:
        raise error

    return strike


def install(monkeypatch: pytest.MonkeyPatch) -> FaultyStore:
    """The next database that is opened fails as the returned store says; those opened later are whole."""
    faulty = FaultyStore()

    async def opening(*args: Any, **settings: Any) -> Any:
        store = await open_store(*args, **settings)
        if faulty.inner is not None:
            return store
        faulty.inner = store
        return faulty

    monkeypatch.setattr("runtrue.client.open_store", opening)
    return faulty


class SweepingThread:
    """Sweeps a database in a thread with a loop of its own, as another process would, until it has seen enough."""

    def __init__(self, database: object, enough: Callable[[Swept, float], bool]) -> None:
        self.ended = threading.Event()
        self._url = f"sqlite:///{database}"
        self._enough = enough
        self._thread = threading.Thread(target=lambda: asyncio.run(self._sweep()), name="another-sweeper")

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    async def _sweep(self) -> None:
        clock = SystemClock()
        begun = clock.steady()
        store = await open_store(self._url, clock=clock)
        try:
            while not self._enough(await store.sweep(), clock.steady() - begun):
                await clock.sleep(0.05)
        finally:
            self.ended.set()
            await store.close()
