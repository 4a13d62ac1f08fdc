"""The sweeper: puts right what dead workers left, and keeps the database tidy. Any number may run at once."""

import asyncio
import logging
from collections.abc import Callable

from runtrue.clock import Clock
from runtrue.errors import StoreError
from runtrue.ids import jitter
from runtrue.store.protocol import Store, Swept

logger = logging.getLogger("runtrue.engine")

SWEEP_SECONDS = 2.0
ROUNDS_BETWEEN_TIDYING = 30


class Sweeper:
    """Sweeps every two seconds, spread by half either way so that many sweepers do not meet."""

    def __init__(
        self, store: Store, clock: Clock, *, sweep_seconds: float = SWEEP_SECONDS, on_swept: Callable[[], None]
    ) -> None:
        self._store = store
        self._clock = clock
        self._sweep_seconds = sweep_seconds
        self._on_swept = on_swept
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to sweep."""
        self._task = asyncio.create_task(self._sweep_on(), name="runtrue-sweeper")

    async def stop(self) -> None:
        """Stop at once; a sweep under way is a transaction that commits or does not."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def sweep(self) -> Swept:
        """Sweep until nothing is left to put right. Returns the sum of the rounds."""
        lost: list[str] = []
        released = held = 0
        while True:
            swept = await self._store.sweep()
            lost.extend(swept.workers_lost)
            released += swept.runs_released
            held += swept.runs_held
            if not swept.more:
                return Swept(lost, released, held, more=False)

    async def _sweep_on(self) -> None:
        rounds = 0
        while True:
            await self._clock.sleep(self._sweep_seconds * jitter())
            rounds += 1
            try:
                swept = await self.sweep()
                if rounds % ROUNDS_BETWEEN_TIDYING == 0:
                    await self._store.tidy()
            except StoreError as trouble:
                logger.warning("the sweeper will try again: %s", trouble)
                continue
            # What keeps runs from being zombies must outlive whatever breaks in one round.
            except Exception:
                logger.exception("a sweep failed; the sweeper goes on")
                continue
            if swept.workers_lost or swept.runs_released or swept.runs_held:
                logger.info(
                    "swept: %d workers lost, %d runs put right, %d held",
                    len(swept.workers_lost),
                    swept.runs_released,
                    swept.runs_held,
                )
                self._on_swept()
