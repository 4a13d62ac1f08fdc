"""Waiting for a run to reach a status. The row is the truth; every hint only shortens the wait."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from runtrue.clock import Clock, wait_for_event
from runtrue.errors import ConfigurationError, NotFound, RuntrueError, StoreError, StoreUnusable
from runtrue.lifecycle import TERMINAL, Status
from runtrue.store.protocol import Store

logger = logging.getLogger("runtrue.watcher")

POLL_SECONDS = 1.0
"""The longest time between two looks, should every hint be lost."""
LOOK_APART_SECONDS = 0.005
"""The shortest time between two looks, however many hints come."""
RUNS_PER_LOOK = 500


class RunWatcher:
    """Lets any number of callers wait for runs with one look at the database for all of them."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._waiting: dict[str, list[tuple[frozenset[Status], asyncio.Future[Status]]]] = {}
        self._hint = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] | None = None

    async def wait(self, run_id: str, wanted: frozenset[Status]) -> Status:
        """Return the run's status once it is among `wanted` or terminal. Raises NotFound, StoreUnusable."""
        found = await self._store.statuses([run_id])
        if run_id not in found:
            raise NotFound(f"there is no run {run_id!a}; `runtrue run list` shows the runs there are")
        wanted |= TERMINAL
        if found[run_id][0] in wanted:
            return found[run_id][0]
        future: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        entry = (wanted, future)
        self._waiting.setdefault(run_id, []).append(entry)
        self._watch()
        # It may have got there between the look above and this line.
        self._hint.set()
        try:
            return await future
        finally:
            entries = self._waiting.get(run_id)
            if entries and entry in entries:
                entries.remove(entry)
                if not entries:
                    del self._waiting[run_id]

    def tell(self, run_id: str, status: Status) -> None:
        """A worker of this process learnt from a committed reply what the run's status is."""
        entries = self._waiting.get(run_id)
        if entries:
            for wanted, future in entries:
                if status in wanted and not future.done():
                    future.set_result(status)

    async def close(self) -> None:
        """Stop watching. Waits that are still open raise ConfigurationError: nobody cancelled them."""
        if self._unsubscribe is not None:
            self._unsubscribe()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._give_up(lambda run_id: ConfigurationError(f"closed while it waited for run {run_id}; the run goes on"))

    def _give_up(self, why: Callable[[str], RuntrueError]) -> None:
        for run_id, entries in self._waiting.items():
            for _, future in entries:
                if not future.done():
                    future.set_exception(why(run_id))

    def _watch(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look_on(), name="runtrue-watcher")

    async def _look_on(self) -> None:
        self._unsubscribe = self._store.subscribe(self._hint.set)
        try:
            while self._waiting:
                self._hint.clear()
                begun = self._clock.steady()
                try:
                    await self._look(list(self._waiting))
                except StoreUnusable as trouble:
                    text = str(trouble)
                    self._give_up(lambda _, text=text: StoreUnusable(text))
                except StoreError:
                    pass  # made up for by the next look; the callers have their own timeouts
                except Exception:  # the callers would wait for ever if nobody looked on for them
                    logger.exception("runs that are waited for could not be looked at; the next look may do")
                # Many waiting runs make a look dear: it may take a quarter of the time, not more.
                await self._clock.sleep(max(LOOK_APART_SECONDS, 3 * (self._clock.steady() - begun)))
                await wait_for_event(self._clock, self._hint, POLL_SECONDS)
        finally:
            self._unsubscribe()
            self._unsubscribe = None

    async def _look(self, run_ids: Sequence[str]) -> None:
        for start in range(0, len(run_ids), RUNS_PER_LOOK):
            asked = run_ids[start : start + RUNS_PER_LOOK]
            found = await self._store.statuses(asked)
            for run_id in asked:
                if run_id in found:
                    self.tell(run_id, found[run_id][0])
