"""The queue of writers before the database."""

import contextlib
import fcntl
import os
import threading
import weakref
from pathlib import Path

from runtrue.errors import StoreUnusable

TURN_SECONDS = 0.9
"""How long a writer waits for its turn. Half of what its callers have, so that it may still try without."""

_open: "weakref.WeakSet[Turnstile]" = weakref.WeakSet()


class Turnstile:
    """A file lock in front of the database, taken for each transaction by one thread.

    SQLite lets waiting writers poll, and under load some of them never come through. The kernel queues those who wait
    for a file lock, so that many processes share one file evenly. It is for fairness only, SQLite's own lock is the
    guard: who has waited for TURN_SECONDS goes on without, because the one whose turn it is may be frozen, or be a
    program that only copies the lock file.
    """

    def __init__(self, path: Path | None) -> None:
        self._descriptor = -1
        self._held = False
        self._changed = threading.Condition()
        self._standing = False
        """A thread of ours stands in the queue."""
        self._wanted = False
        self._closed = False
        if path is not None:
            try:
                self._descriptor = os.open(f"{path}.turn", os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except OSError as error:
                raise StoreUnusable(f"the lock file {path}.turn cannot be opened: {error.strerror}") from error
            _open.add(self)

    def __enter__(self) -> None:
        with self._changed:
            # Whose turn did not come keeps the place in the queue, and waits no second time.
            if self._descriptor >= 0 and not self._standing:
                self._held = self._take_at_once() or self._queue()

    def __exit__(self, *_: object) -> None:
        if self._held:
            self._held = False
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            if self._descriptor >= 0 and not self._standing:
                os.close(self._descriptor)
            self._descriptor = -1

    def _take_at_once(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _queue(self) -> bool:
        """Stand in the queue. True if the turn has come in time."""
        # Nothing ends a wait for a file lock early, so another thread does the waiting.
        standing = threading.Thread(target=self._stand, args=(self._descriptor,), name="runtrue-turn", daemon=True)
        try:
            standing.start()
        except RuntimeError:  # no thread is to be had
            return False
        self._standing = self._wanted = True
        came = self._changed.wait_for(lambda: not self._standing, TURN_SECONDS)
        self._wanted = False
        return came

    def _stand(self, descriptor: int) -> None:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        with self._changed:
            self._standing = False
            if self._closed:
                os.close(descriptor)
            elif self._wanted:
                self._changed.notify()
            else:
                fcntl.flock(descriptor, fcntl.LOCK_UN)

    def leave_to_parent(self) -> None:
        """In a forked child: let go of the lock, which is the parent's but would outlive it here."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _forked() -> None:
    for turnstile in list(_open):
        turnstile.leave_to_parent()


os.register_at_fork(after_in_child=_forked)
