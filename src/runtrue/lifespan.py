"""What lives as long as an App is open: the context manager that its `lifespan=` gives."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

from runtrue.errors import ConfigurationError


class Lifespan:
    """Enters the context manager and leaves it, both in one task, whatever tasks open and close the App.

    Task groups and timeouts within it need that; a test's fixture, say, is set up in one task and ended in another.
    """

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        self._make = make
        self._leave = asyncio.Event()
        self._entered: asyncio.Future[tuple[object, ...]] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    async def enter(self) -> tuple[object, ...]:
        """Enter; the objects that were yielded, one or a tuple of them. Raises what entering raises."""
        self._task = asyncio.create_task(self._stay(), name="runtrue-lifespan")
        try:
            await asyncio.wait((self._task, self._entered), return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            raise
        if not self._entered.done():
            await self._task  # it raises why it was not entered
        return self._entered.result()

    async def leave(self) -> None:
        """Leave. Raises what leaving raises. Idempotent."""
        task, self._task = self._task, None
        if task is not None and self._entered.done():
            self._leave.set()
            await task

    async def _stay(self) -> None:
        manager = self._make()
        if not hasattr(manager, "__aexit__"):  # a generator, because the decorator was forgotten
            raise ConfigurationError(
                f"App: lifespan= must return an async context manager, not a {type(manager).__name__}; "
                "write the function with yield, under @contextlib.asynccontextmanager"
            )
        async with manager as yielded:
            self._entered.set_result(cast("tuple[object, ...]", yielded) if type(yielded) is tuple else (yielded,))
            await self._leave.wait()
