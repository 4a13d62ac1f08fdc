"""What lives as long as an App is open: the context manager that its `lifespan=` gives."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar, cast

from runtrue.errors import ConfigurationError

T = TypeVar("T")


def find_state(yielded: Sequence[object], wanted: type[T]) -> T:
    """What a lifespan has yielded of this very type, else of a subclass. Raises ConfigurationError unless it is one."""
    if not isinstance(wanted, type):  # pyright: ignore[reportUnnecessaryIsInstance]  authors write anything
        raise ConfigurationError(f"rt.state takes the type of what is asked for, not {wanted!r}")
    found = [value for value in yielded if type(value) is wanted] or [
        value for value in yielded if isinstance(value, wanted)
    ]
    if len(found) == 1:
        return found[0]
    kinds = ", ".join(type(value).__name__ for value in yielded) or "nothing"
    count = "several" if found else "no"
    raise ConfigurationError(f"rt.state: the App's lifespan yields {count} {wanted.__name__}; it yields {kinds}")


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
