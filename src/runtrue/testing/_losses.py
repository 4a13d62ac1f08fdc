"""Simulated losses of the worker: as if its process had been killed, and another one had begun."""

import asyncio
from collections.abc import Awaitable, Callable

from runtrue.clock import Clock
from runtrue.engine.worker import Worker
from runtrue.store import Store
from runtrue.store.protocol import Heartbeat
from runtrue.testing._clock import MACHINE

LOOK_APART_SECONDS = 0.001


class Losses:
    """One loss at a time, and the recovery that follows. `on_held` is called when runs were put under a hold by it."""

    def __init__(self, clock: Clock, on_held: Callable[[], Awaitable[None]]) -> None:
        self.count = 0
        """How many there were."""
        self.is_worker_gone = False
        """True from a loss until the next worker begins: whatever is still executing is lost."""
        self._clock = clock
        self._on_held = on_held
        self._recovery: asyncio.Task[None] | None = None

    @property
    def is_under_way(self) -> bool:
        """True until the worker after the loss has begun. Raises what the recovery failed with."""
        if self._recovery is None:
            return False
        if not self._recovery.done():
            return True
        recovery, self._recovery = self._recovery, None
        recovery.result()
        return False

    def begin(self, store: Store, worker: Worker) -> None:
        """Lose the worker at once. Nothing happens if it is lost already, and no other one has begun."""
        if not self.is_under_way:
            self.count += 1
            self.is_worker_gone = True
            worker.vanish()
            self._recovery = asyncio.create_task(self._recover(store, worker, worker.id), name="runtrue-loss")

    async def recovered(self) -> None:
        """Wait until the worker after the loss has begun. Raises what the recovery failed with."""
        while self.is_under_way:
            await MACHINE.sleep(LOOK_APART_SECONDS)

    async def end(self) -> None:
        """Leave a recovery under way where it is."""
        if self._recovery is not None:
            self._recovery.cancel()
            await asyncio.gather(self._recovery, return_exceptions=True)
            self._recovery = None
            self.is_worker_gone = False

    async def _recover(self, store: Store, worker: Worker, worker_id: str) -> None:
        """Let the lease run out while the clock stands still, sweep, and let the worker begin under a new id."""
        over = Heartbeat(worker_id, lease=-1, loop_seen_at=self._clock.now())
        # A last renewal of its own may have been on its way: again until the row says that it is lost.
        held = 0
        while await asyncio.to_thread(store.renew, over) is not None:
            held += await _sweep(store)
        if held:
            await self._on_held()
        self.is_worker_gone = False
        worker.reappear()
        while worker.id == worker_id:
            await MACHINE.sleep(LOOK_APART_SECONDS)


async def _sweep(store: Store) -> int:
    """Sweep until nothing is left; how many runs were put under a hold."""
    held = 0
    while True:
        swept = await store.sweep()
        held += swept.runs_held
        if not swept.more:
            return held
