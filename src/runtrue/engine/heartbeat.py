"""The heartbeat: a thread that renews the worker's lease, so that a busy event loop does not cost it.

Each renewal brings back the runs that the worker owns by the rows, with their status: requests reach a long step this
way, a run that is not the worker's any more is dropped, and one that it owns without knowing is given back.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from runtrue.clock import Clock
from runtrue.errors import RuntrueError, StoreUnusable
from runtrue.store.protocol import Heartbeat, OwnedRun, Store

logger = logging.getLogger("runtrue.engine")

STALL_SHOWN_AFTER_SECONDS = 10.0
RETRY_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """The times of a lease, in seconds.

    `margin`: so long before the end of the lease the worker stops executing by its own clock.
    """

    lease: float
    margin: float
    renew_busy: float
    renew_idle: float

    @classmethod
    def of(cls, lease_seconds: float) -> "LeaseTimes":
        """The times that go with a lease: renewal every second while runs are held, else every third of the lease."""
        third = lease_seconds / 3
        return cls(lease_seconds, min(3.0, lease_seconds / 5), min(1.0, third), third)


class HeartbeatThread:
    """Renews one worker's lease until it is told to stop, the lease is refused, or the loop stalls for too long.

    `make_beat` collects what is told (called in this thread). `on_owned` and `on_lost` are called in this thread too
    and must hand over to the loop. `ask_loop` has something called on the loop. `on_stalled` is called once, if the
    loop has not turned for `stall_limit_seconds`; then no further renewal is sent.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        times: LeaseTimes,
        *,
        make_beat: Callable[[float], Heartbeat],
        is_busy: Callable[[], bool],
        on_owned: "Callable[[HeartbeatThread, list[OwnedRun], int], None]",
        on_lost: Callable[[], None],
        on_stalled: Callable[[float], None],
        on_unusable: Callable[[StoreUnusable], None],
        ask_loop: Callable[[Callable[[], None]], None],
        stall_limit_seconds: float,
    ) -> None:
        self.fence_at = clock.steady() + times.lease - times.margin
        """From this moment of the steady clock on, the worker must not execute."""
        self.beats_begun = 0
        self._asked_loop_at: float | None = None
        """When the loop was asked to show that it turns, while it has not answered."""
        self._store = store
        self._clock = clock
        self._times = times
        self._make_beat = make_beat
        self._is_busy = is_busy
        self._on_owned = on_owned
        self._on_lost = on_lost
        self._on_stalled = on_stalled
        self._on_unusable = on_unusable
        self._ask_loop = ask_loop
        self._stall_limit_seconds = stall_limit_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name="runtrue-heartbeat", daemon=True)

    def start(self, registered_at: float) -> None:
        """Begin. `registered_at`: the steady time before the registration was sent; the first lease counts from it."""
        self.fence_at = registered_at + self._times.lease - self._times.margin
        self._thread.start()

    def stop(self) -> None:
        """Send no further renewal. Does not wait for one under way."""
        self._stop.set()

    def join(self, seconds: float) -> None:
        """Wait until the thread has ended, at most `seconds`; at once if it never began."""
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def _stalled_seconds(self) -> float:
        """For how long the loop has owed an answer. A suspended machine owes none: it answered before."""
        asked_at = self._asked_loop_at
        if asked_at is not None:
            return self._clock.steady() - asked_at
        self._asked_loop_at = self._clock.steady()
        self._ask_loop(self._loop_answers)
        return 0.0

    def _loop_answers(self) -> None:
        self._asked_loop_at = None

    def _beat_on(self) -> None:
        delay = 0.0
        while not self._clock.wait_in_thread(self._stop, delay):
            stalled = self._stalled_seconds()
            if 0 < self._stall_limit_seconds <= stalled:
                self._on_stalled(stalled)
                return
            # Measured from before the renewal is sent: the database grants the lease later than that, never earlier.
            sent_at = self._clock.steady()
            self.beats_begun += 1
            beat_number = self.beats_begun
            try:
                owned = self._store.renew(self._make_beat(stalled))
            except StoreUnusable as lost:
                # No later renewal can be better: the file is gone, or another one stands in its place.
                self._on_unusable(lost)
                self._on_lost()
                return
            except RuntrueError as trouble:
                logger.warning("the worker's lease could not be renewed: %s", trouble)
                delay = RETRY_SECONDS
                continue
            except Exception:  # a worker whose heartbeat has died looks alive and never works again
                logger.exception("the worker's lease could not be renewed")
                delay = RETRY_SECONDS
                continue
            if owned is None:
                self._on_lost()
                return
            self.fence_at = sent_at + self._times.lease - self._times.margin
            self._on_owned(self, owned, beat_number)
            if not self._rest(sent_at + self._times.renew_idle):
                return
            delay = 0.0

    def _rest(self, until: float) -> bool:
        """Wait until the next renewal is due, `until` at the latest. False if the thread was told to stop.

        It looks up every `renew_busy` seconds: a worker that has just got its first run must hear of requests as
        soon as any other does.
        """
        while not self._clock.wait_in_thread(self._stop, self._times.renew_busy):
            if self._is_busy() or self._clock.steady() >= until:
                return True
        return False
