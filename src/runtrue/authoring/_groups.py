"""Several things at once: gather, map, first. Each item is a branch of the run, and the outcome is recorded."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Literal, Protocol, TypeVar, cast, overload

from runtrue.authoring._context import current_runtime
from runtrue.authoring._declared import label_of
from runtrue.errors import ConfigurationError
from runtrue.ids import check_id

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Aio(Protocol[T_contra, R_co]):
    """A step or workflow that one argument is enough to call."""

    def aio(self, arg: T_contra, /) -> Coroutine[None, None, R_co]: ...


@overload
def gather(a: Awaitable[A], /) -> Coroutine[None, None, tuple[A]]: ...
@overload
def gather(a: Awaitable[A], b: Awaitable[B], /) -> Coroutine[None, None, tuple[A, B]]: ...
@overload
def gather(a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], /) -> Coroutine[None, None, tuple[A, B, C]]: ...
@overload
def gather(
    a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], d: Awaitable[D], /
) -> Coroutine[None, None, tuple[A, B, C, D]]: ...
@overload
def gather(
    a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], d: Awaitable[D], e: Awaitable[E], /
) -> Coroutine[None, None, tuple[A, B, C, D, E]]: ...
@overload
def gather(
    a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], d: Awaitable[D], e: Awaitable[E], f: Awaitable[F], /
) -> Coroutine[None, None, tuple[A, B, C, D, E, F]]: ...
@overload
def gather(*calls: Awaitable[T]) -> Coroutine[None, None, tuple[T, ...]]: ...
def gather(*calls: Awaitable[Any]) -> Coroutine[None, None, tuple[Any, ...]]:
    """Carry out all calls at the same time, each in a branch of its own, and return their results in order.

    A call is that of a step, a sleep, a child, or of any `async def` function that makes such calls. If one fails,
    the steps in flight finish and are recorded, nothing new begins, and its error is raised; which one it was is
    recorded.
    """
    runtime = current_runtime("rt.gather")
    return runtime.gather(_awaitable("rt.gather", calls))


@overload
def first(
    a: Awaitable[A], b: Awaitable[B], /
) -> Coroutine[None, None, tuple[Literal[0], A] | tuple[Literal[1], B]]: ...
@overload
def first(
    a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], /
) -> Coroutine[None, None, tuple[Literal[0], A] | tuple[Literal[1], B] | tuple[Literal[2], C]]: ...
@overload
def first(*calls: Awaitable[T]) -> Coroutine[None, None, tuple[int, T]]: ...
def first(*calls: Awaitable[Any]) -> Coroutine[None, None, tuple[int, Any]]:
    """Carry out all calls at the same time until the first has ended: its number from 0 and its result, or its error.

    Which one it was is recorded, so that every replay goes the same way. The others are closed: their waits are moot,
    a step in flight finishes and is recorded.
    """
    runtime = current_runtime("rt.first")
    require_some(calls)
    return runtime.first(_awaitable("rt.first", calls))


@overload
def map(  # noqa: A001  the word that users know
    fn: Aio[T, R] | Callable[[T], Awaitable[R]],
    items: Iterable[T],
    /,
    *,
    limit: int | None = None,
    key: Callable[[T], str] | None = None,
    return_exceptions: Literal[False] = False,
) -> Coroutine[None, None, list[R]]: ...
@overload
def map(  # noqa: A001  the word that users know
    fn: Aio[T, R] | Callable[[T], Awaitable[R]],
    items: Iterable[T],
    /,
    *,
    limit: int | None = None,
    key: Callable[[T], str] | None = None,
    return_exceptions: Literal[True],
) -> Coroutine[None, None, list[R | Exception]]: ...
def map(  # noqa: A001  the word that users know
    fn: Any,
    items: Iterable[Any],
    /,
    *,
    limit: int | None = None,
    key: Callable[[Any], str] | None = None,
    return_exceptions: bool = False,
) -> Coroutine[None, None, list[Any]]:
    """Call `fn` with each item, each in a branch of its own, and return the results in the order of the items.

    `fn`: a step or workflow of either colour, or an `async def` function. `limit`: how many at a time. `key`: a text
    for each item that names its branch in the history; without it the item's number does, so that other items, or
    another order, would not fit what was recorded. An error ends it as in `gather`; with `return_exceptions` it
    stands in the list, in the place of the result.
    """
    runtime = current_runtime("rt.map")
    if not (callable(fn) or hasattr(fn, "aio")):
        raise ConfigurationError(f"rt.map: its first argument must be a step or a function, not {type(fn).__name__}")
    call = cast("Callable[[Any], Any]", getattr(fn, "aio", fn))

    def make(item: Any) -> Awaitable[Any]:
        made = call(item)
        if not inspect.isawaitable(made):
            raise ConfigurationError(
                f"rt.map: {label_of(fn)} gave {type(made).__name__}, nothing to await; "
                "hand over a step or an `async def` function"
            )
        return made

    listed, keys = checked_items(items, limit, key)
    return runtime.map(make, listed, limit, keys, return_exceptions)


def checked_items(
    items: object, limit: object, key: Callable[[Any], str] | None
) -> tuple[Sequence[Any], Sequence[str] | None]:
    """What `map` was given, as a list, with the keys. Raises ConfigurationError, for a key given twice too."""
    if limit is not None and (type(limit) is not int or limit < 1):
        raise ConfigurationError(f"rt.map: limit must be a whole number from 1 (or None), not {limit!r}")
    if not isinstance(items, Iterable):
        raise ConfigurationError(f"rt.map: the items must be something to iterate over, not {type(items).__name__}")
    listed = list(cast("Iterable[Any]", items))
    if key is None:
        return listed, None
    numbers: dict[str, int] = {}
    for number, item in enumerate(listed, 1):
        text = check_id(f"rt.map: the key of item {number}", key(item))
        if text in numbers:
            raise ConfigurationError(
                f"rt.map: items {numbers[text]} and {number} have the same key {text!r}; a key names one item"
            )
        numbers[text] = number
    return listed, list(numbers)


def require_some(calls: Sequence[object]) -> None:
    """Refuse a `first` of nothing: it would never end."""
    if not calls:
        raise ConfigurationError("rt.first: there is nothing to wait for; give it one call at least")


def _awaitable(call: str, items: Sequence[Any]) -> Sequence[Awaitable[Any]]:
    numbers: dict[int, int] = {}
    for number, item in enumerate(items, 1):
        if isinstance(item, asyncio.Future):
            raise ConfigurationError(
                f"{call}: item {number} is an asyncio {type(cast('object', item)).__name__}; hand over the calls "
                f"themselves, as in {call}(a(1), b(2)): only they have a place in the history"
            )
        if not inspect.isawaitable(item):
            raise ConfigurationError(
                f"{call}: item {number} is of type {type(item).__name__}, nothing to await; "
                + (f"write {call}(*calls)" if isinstance(item, (list, tuple)) else "hand over calls, without `await`")
            )
        if id(item) in numbers:
            raise ConfigurationError(
                f"{call}: items {numbers[id(item)]} and {number} are one and the same call; make a call for each"
            )
        numbers[id(item)] = number
    return items
