"""Keeps a fork of the process out of the middle of SQLite's work.

A fork copies the library's locks as they are, and only the thread that forks. One that another thread holds at that
moment is held in the child for ever, and the child's first call hangs. So a fork waits until no thread is at work.
"""

import os
import threading

FORK_WAITS_SECONDS = 2.0
"""Longer than any wait for the database: then the fork is made all the same."""


class _AtWork:
    """A block in which a thread is inside of the library. Threads do not enter while a fork waits or is made."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._inside = 0
        self._forking = False

    def __enter__(self) -> None:
        with self._changed:
            while self._forking:
                self._changed.wait()
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self._inside -= 1
            if self._forking:
                self._changed.notify_all()

    def before_fork(self) -> None:
        """Let nobody enter, and wait for those who are inside."""
        with self._changed:
            while self._forking:
                self._changed.wait()
            self._forking = True
            self._changed.wait_for(lambda: self._inside == 0, FORK_WAITS_SECONDS)

    def after_in_parent(self) -> None:
        """Let all go on."""
        with self._changed:
            self._forking = False
            self._changed.notify_all()

    def after_in_child(self) -> None:
        """The other threads are not here."""
        self._forget()


at_work = _AtWork()

os.register_at_fork(
    before=at_work.before_fork, after_in_parent=at_work.after_in_parent, after_in_child=at_work.after_in_child
)
