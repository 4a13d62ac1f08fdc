"""The journal: one group commit for the effects of all runs in a worker.

Runs hand in their effects and await the reply. What has gathered while a batch was being written goes into the next
one; a lone effect is written at once. The reply carries the run's status after the commit, so that looking for a
pause or cancel costs no round trip.
"""

import asyncio
import logging
from collections.abc import Callable

from runtrue.clock import Clock
from runtrue.errors import StoreError
from runtrue.records import Progress
from runtrue.store.protocol import EffectsReply, Recorded, RunEffects, Store

logger = logging.getLogger("runtrue.engine")

BATCHES_IN_FLIGHT = 2
"""While one batch is being written, the replies of the one before are turned into the next effects."""
BATCH_RUNS_MAX = 500
RETRY_SECONDS_FIRST = 0.02
RETRY_SECONDS_MAX = 1.0


class Journal:
    """Gathers effects and writes them in batches under one worker id.

    `may_write` turns False when the worker's lease may have run out by its own clock: from then on nothing is sent,
    and what waits is answered as fenced. `on_fenced` hears of each write that came too late.
    """

    def __init__(
        self, store: Store, clock: Clock, worker_id: str, may_write: Callable[[], bool], on_fenced: Callable[[], None]
    ) -> None:
        self.worker_id = worker_id
        self._on_fenced = on_fenced
        self._store = store
        self._clock = clock
        self._may_write = may_write
        self._loop = asyncio.get_running_loop()
        self._queue: list[tuple[RunEffects, asyncio.Future[EffectsReply]]] = []
        self._progress: dict[str, tuple[int, Progress]] = {}
        self._flying: set[str] = set()
        self._flights: set[asyncio.Task[None]] = set()
        self._scheduled = False

    def record(self, effects: RunEffects) -> asyncio.Future[EffectsReply]:
        """Hand in effects of one run; the future holds the reply once they are committed (or refused)."""
        future: asyncio.Future[EffectsReply] = self._loop.create_future()
        self._queue.append((effects, future))
        if not self._scheduled:
            self._schedule()
        return future

    def note_progress(self, run_id: str, epoch: int, progress: Progress) -> None:
        """Record a progress report with the run's next effect, or alone; a newer report replaces one not yet sent."""
        self._progress[run_id] = (epoch, progress)
        if not self._scheduled:
            self._schedule()

    def forget_progress(self, run_id: str) -> None:
        """Drop a report not yet sent: the run is not ours any more."""
        self._progress.pop(run_id, None)

    async def settle(self) -> None:
        """Wait until nothing is being written."""
        while self._flights:
            await asyncio.wait(self._flights)

    def _schedule(self) -> None:
        # In the next turn of the loop: every run that is ready in this turn joins the batch.
        if len(self._flights) < BATCHES_IN_FLIGHT:
            self._scheduled = True
            self._loop.call_soon(self._launch)

    def _launch(self) -> None:
        self._scheduled = False
        batch = self._take()
        if batch:
            flight = self._loop.create_task(self._fly(batch))
            self._flights.add(flight)
            flight.add_done_callback(self._landed)

    def _landed(self, flight: asyncio.Task[None]) -> None:
        self._flights.discard(flight)
        if (self._queue or self._progress) and not self._scheduled:
            self._schedule()

    def _take(self) -> list[tuple[RunEffects, asyncio.Future[EffectsReply] | None]]:
        """The next batch: one entry a run, and none of a run that is being written (its commits must not overtake)."""
        batch: list[tuple[RunEffects, asyncio.Future[EffectsReply] | None]] = []
        left: list[tuple[RunEffects, asyncio.Future[EffectsReply]]] = []
        flying = self._flying
        taken: set[str] = set()
        for entry in self._queue:
            run_id = entry[0].run_id
            if run_id in flying or run_id in taken or len(batch) >= BATCH_RUNS_MAX:
                left.append(entry)
                continue
            taken.add(run_id)
            noted = self._progress.pop(run_id, None) if self._progress else None
            if noted is not None and noted[0] == entry[0].epoch:
                if entry[0].end is not None:
                    # An end comes alone, and what was reported before it must not be lost.
                    batch.append((RunEffects(run_id, noted[0], progress=noted[1]), None))
                    left.append(entry)
                    continue
                entry[0].progress = noted[1]
            batch.append(entry)
        self._queue = left
        for run_id in [run_id for run_id in self._progress if run_id not in flying and run_id not in taken]:
            epoch, progress = self._progress.pop(run_id)
            taken.add(run_id)
            batch.append((RunEffects(run_id, epoch, progress=progress), None))
        flying |= taken
        return batch

    async def _fly(self, batch: list[tuple[RunEffects, asyncio.Future[EffectsReply] | None]]) -> None:
        try:
            replies = await self._write([effects for effects, _ in batch])
        except Exception:  # no workflow must meet a fault of ours as if it were an error of its own
            logger.exception("the journal could not write a batch of %d runs; they are given back", len(batch))
            replies = [EffectsReply(Recorded.FENCED, None) for _ in batch]
        except BaseException as broken:  # whoever awaits a reply relies on being told that none will come
            for effects, future in batch:
                self._flying.discard(effects.run_id)
                if future is not None and not future.done():
                    future.set_exception(broken)
            raise
        for (effects, future), reply in zip(batch, replies, strict=True):
            self._flying.discard(effects.run_id)
            if reply.recorded is Recorded.FENCED:
                self._on_fenced()
            if future is not None and not future.done():
                future.set_result(reply)

    async def _write(self, batch: list[RunEffects]) -> list[EffectsReply]:
        """Send the batch until the database takes it; a batch that came through twice changes nothing twice."""
        delay = RETRY_SECONDS_FIRST
        while self._may_write():
            try:
                return await self._store.record(self.worker_id, batch)
            except StoreError as trouble:
                logger.warning("the journal repeats a batch of %d runs: %s", len(batch), trouble)
                await self._clock.sleep(delay)
                delay = min(RETRY_SECONDS_MAX, delay * 2)
        return [EffectsReply(Recorded.FENCED, None) for _ in batch]
