"""The journal: one group commit for the effects of all runs in a worker.

Runs hand in their effects and await the reply. What has gathered while a batch was being written goes into the next
one; a lone effect is written at once. The reply carries the run's status after the commit, so that looking for a
pause or cancel costs no round trip.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from runtrue.clock import Clock
from runtrue.errors import StoreError
from runtrue.records import Progress
from runtrue.store.protocol import EffectsReply, Recorded, RunEffects, Store

logger = logging.getLogger("runtrue.engine")

BATCHES_IN_FLIGHT = 2
"""While one batch is being written, the replies of the one before are turned into the next effects."""
BATCH_RUNS_MAX = 500
MERGED_MAX = 500
"""So many effects of one run go into a batch; a run of ten thousand branches leaves room for the others."""
RETRY_SECONDS_FIRST = 0.02
RETRY_SECONDS_MAX = 1.0

Entry = tuple[RunEffects, "asyncio.Future[EffectsReply]"]
Futures = list["asyncio.Future[EffectsReply]"]


@dataclass(slots=True)
class _Notes:
    """What a run has told beside its effects: it goes with the next of these, or alone."""

    epoch: int
    progress: Progress | None = None
    published: dict[str, bytes] = field(default_factory=dict[str, bytes])


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
        self._queue: dict[str, list[Entry]] = {}
        self._notes: dict[str, _Notes] = {}
        self._flying: set[str] = set()
        self._flights: set[asyncio.Task[None]] = set()
        self._scheduled = False

    def record(self, effects: RunEffects) -> asyncio.Future[EffectsReply]:
        """Hand in effects of one run; the future holds the reply once they are committed (or refused)."""
        future: asyncio.Future[EffectsReply] = self._loop.create_future()
        entries = self._queue.get(effects.run_id)
        if entries is None:
            self._queue[effects.run_id] = [(effects, future)]
        else:
            entries.append((effects, future))
        if not self._scheduled:
            self._schedule()
        return future

    def note_progress(self, run_id: str, epoch: int, progress: Progress) -> None:
        """Record a progress report with the run's next effect, or alone; a newer report replaces one not yet sent."""
        self._notes_of(run_id, epoch).progress = progress

    def note_published(self, run_id: str, epoch: int, key: str, body: bytes) -> None:
        """Publish a value with the run's next effect, or alone; a newer value replaces one not yet sent."""
        self._notes_of(run_id, epoch).published[key] = body

    def forget_notes(self, run_id: str) -> None:
        """Drop what was not yet sent: the run is not ours any more."""
        self._notes.pop(run_id, None)

    async def settle(self) -> None:
        """Wait until nothing is being written."""
        while self._flights:
            await asyncio.wait(self._flights)

    def _notes_of(self, run_id: str, epoch: int) -> _Notes:
        notes = self._notes.get(run_id)
        if notes is None or notes.epoch != epoch:
            notes = self._notes[run_id] = _Notes(epoch)
        if not self._scheduled:
            self._schedule()
        return notes

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
        if (self._queue or self._notes) and not self._scheduled:
            self._schedule()

    def _take(self) -> list[tuple[RunEffects, Futures]]:
        """The next batch: one entry a run, and none of a run that is being written (its commits must not overtake)."""
        batch: list[tuple[RunEffects, Futures]] = []
        left: dict[str, list[Entry]] = {}
        queue, flying = self._queue, self._flying
        for run_id, entries in queue.items():
            if run_id in flying or len(batch) >= BATCH_RUNS_MAX:
                left[run_id] = entries
                continue
            effects, futures, later = _merge(entries) if len(entries) > 1 else (entries[0][0], [entries[0][1]], [])
            notes = self._notes.pop(run_id, None) if self._notes else None
            if notes is not None and notes.epoch == effects.epoch:
                if effects.end is not None:
                    # An end comes alone, and what was told before it must not be lost.
                    batch.append((_alone(run_id, notes), []))
                    left[run_id] = entries
                    flying.add(run_id)
                    continue
                effects.progress, effects.published = notes.progress, notes.published or None
            if later:
                left[run_id] = later
            flying.add(run_id)
            batch.append((effects, futures))
        self._queue = left
        for run_id in [run_id for run_id in self._notes if run_id not in flying]:
            batch.append((_alone(run_id, self._notes.pop(run_id)), []))
            flying.add(run_id)
        return batch

    async def _fly(self, batch: list[tuple[RunEffects, Futures]]) -> None:
        try:
            replies = await self._write([effects for effects, _ in batch])
        except Exception:  # no workflow must meet a fault of ours as if it were an error of its own
            logger.exception("the journal could not write a batch of %d runs; they are given back", len(batch))
            replies = [EffectsReply(Recorded.FENCED, None) for _ in batch]
        except BaseException as broken:  # whoever awaits a reply relies on being told that none will come
            for effects, futures in batch:
                self._flying.discard(effects.run_id)
                for future in futures:
                    if not future.done():
                        future.set_exception(broken)
            raise
        for (effects, futures), reply in zip(batch, replies, strict=True):
            self._flying.discard(effects.run_id)
            if reply.recorded is Recorded.FENCED:
                self._on_fenced()
            for future in futures:
                if not future.done():
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


def _alone(run_id: str, notes: _Notes) -> RunEffects:
    return RunEffects(run_id, notes.epoch, progress=notes.progress, published=notes.published or None)


def _merge(entries: list[Entry]) -> tuple[RunEffects, Futures, list[Entry]]:
    """The effects of several branches of a run as one, who awaits them, and what must wait for the next batch: an end
    comes alone, and what another claim of the run has left goes by itself.
    """
    first = entries[0][0]
    if first.end is not None:
        return first, [entries[0][1]], entries[1:]
    count = 0
    for effects, _ in entries[:MERGED_MAX]:
        if effects.end is not None or effects.epoch != first.epoch:
            break
        count += 1
    together = [effects for effects, _ in entries[:count]]
    merged = RunEffects(
        first.run_id,
        first.epoch,
        steps=[step for effects in together for step in effects.steps],
        attempts=[attempt for effects in together for attempt in effects.attempts],
        waits=[wait for effects in together for wait in effects.waits],
        children=[child for effects in together for child in effects.children],
        closed_waits=[place for effects in together for place in effects.closed_waits],
        looks=any(effects.looks for effects in together),
    )
    return merged, [future for _, future in entries[:count]], entries[count:]
