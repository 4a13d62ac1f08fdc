"""A gate for code that blocks a thread, and which threads there are."""

import threading

from tests.support import waiting

SOON_SECONDS = 10


class ThreadGate:
    """A place in blocking code that a test lets it come to, and go on from. `passed`: how often it was come to."""

    def __init__(self) -> None:
        self.passed = 0
        self._lock = threading.Lock()
        self._open = threading.Event()

    def pass_through(self) -> None:
        with self._lock:
            self.passed += 1
        assert self._open.wait(SOON_SECONDS)

    async def reached(self, times: int = 1) -> None:
        await waiting.until(lambda: self.passed >= times, "the code has come to the gate", seconds=SOON_SECONDS)

    def open(self) -> None:
        self._open.set()


def our_threads() -> set[threading.Thread]:
    """The living threads that runtrue has started."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("runtrue-")}
