"""Durable calls belong to the workflow's own task: only there their order, and so their places, are certain."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from runtrue.errors import WrongPlace


class OwnTask:
    """Knows the task that executes the workflow, and refuses calls from every other task and thread."""

    __slots__ = ("_loop", "_thread_id", "task")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.task: asyncio.Task[Any] | None = None
        self._loop = loop
        self._thread_id = threading.get_ident()

    @property
    def is_current(self) -> bool:
        """True if the caller is the workflow's own task."""
        return threading.get_ident() == self._thread_id and asyncio.current_task(self._loop) is self.task

    def check(self, call: str) -> None:
        """Raise WrongPlace, with the right place, unless the caller is the workflow's own task."""
        here = threading.get_ident() == self._thread_id
        if here and asyncio.current_task(self._loop) is self.task:
            return
        where = "in another asyncio task (create_task, gather, TaskGroup)" if here else "in another thread"
        raise WrongPlace(
            f"{call} was called {where}; call and await it in the workflow function itself: only there its "
            "place in the history is certain"
        )

    def on_loop(self, call: Callable[..., object], *args: object) -> None:
        """Call at once if this is the loop's thread, else have the loop call it soon."""
        if threading.get_ident() == self._thread_id:
            call(*args)
        else:
            self._loop.call_soon_threadsafe(call, *args)
