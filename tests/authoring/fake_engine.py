"""A stand-in for the engine: it notes what authors' calls ask of it and answers what a test has put down."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from runtrue.authoring import RunInfo, StepInfo, blocking_variable, runtime_variable, step_variable

INFO = RunInfo("run-1", "flow", "1", 1, {"team": "red"}, parent="run-0")


class FakeRuntime:
    """Notes each call when it is made, not when it is awaited, as an engine fixes its place."""

    def __init__(self, **answers: Any) -> None:
        self.made: list[tuple[Any, ...]] = []
        self.answers = answers

    def _note(self, word: str, *args: Any) -> Any:
        self.made.append((word, *args))
        answer = self.answers.get(word)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _later(self, word: str, *args: Any) -> Any:
        self.made.append((word, *args))
        answer = self.answers.get(word)

        async def carry_out() -> Any:
            if isinstance(answer, BaseException):
                raise answer
            return answer

        return carry_out()

    def call_step(self, step, args, kwargs, /):
        return self._later("call_step", step, args, kwargs)

    def sleep(self, seconds, /):
        return self._later("sleep", seconds)

    def sleep_until(self, at, /):
        return self._later("sleep_until", at)

    def value(self, kind, make, /):
        self.made.append(("value", kind))
        return make()

    def patched(self, change, /):
        return self._note("patched", change)

    def receive(self, topic, type, timeout_seconds, /):  # noqa: A002
        return self._later("receive", topic, type, timeout_seconds)

    def send(self, run_id, topic, body, /):
        return self._later("send", run_id, topic, body)

    def call_child(self, workflow, args, kwargs, /):
        return self._later("call_child", workflow, args, kwargs)

    def start_child(self, workflow, args, kwargs, /):
        return self._later("start_child", workflow, args, kwargs)

    def wait_for_child(self, run_id, workflow, /):
        return self._later("wait_for_child", run_id, workflow)

    def gather(self, items, /):
        return self._later("gather", list(items))

    def first(self, items, /):
        return self._later("first", list(items))

    def map(self, make, items, limit, keys, return_exceptions, /):
        return self._later("map", make, items, limit, keys, return_exceptions)

    def publish(self, key, body, /):
        self._note("publish", key, body)

    def state(self, type, /):  # noqa: A002
        return self._note("state", type)

    def time(self):
        return 1_000_000

    def info(self):
        return INFO

    def progress(self, done, total, note, /):
        self._note("progress", done, total, note)


class FakeBlocking:
    """Carries the calls of a `def` workflow out at once; nothing of the fake engine ever waits."""

    def __init__(self, runtime: FakeRuntime) -> None:
        self.runtime = runtime

    def block(self, call: Callable[[Any], Any], /) -> Any:
        given = call(self.runtime)
        if not inspect.iscoroutine(given):
            return given
        try:
            given.send(None)
        except StopIteration as end:
            return end.value
        raise AssertionError("the fake engine never waits")

    def info(self) -> RunInfo:
        return INFO


@contextmanager
def _set(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@contextmanager
def in_async_workflow(**answers: Any) -> Iterator[FakeRuntime]:
    """As the code of an `async def` workflow sees it."""
    runtime = FakeRuntime(**answers)
    with _set(runtime_variable, runtime):
        yield runtime


@contextmanager
def in_def_workflow(**answers: Any) -> Iterator[FakeRuntime]:
    """As the code of a `def` workflow sees it."""
    runtime = FakeRuntime(**answers)
    with _set(blocking_variable, FakeBlocking(runtime)):
        yield runtime


@contextmanager
def in_branch_of(runtime: FakeRuntime) -> Iterator[None]:
    """As the engine sees it when it makes the item of a group."""
    with _set(runtime_variable, runtime):
        yield


@contextmanager
def in_step(state_of: Callable[[type[Any]], Any] | None = None) -> Iterator[StepInfo]:
    """As the function of a step sees it while a run executes it."""
    info = StepInfo(INFO, "work", 1, "run-1/0", lambda: False, lambda *_: None, state_of)
    with _set(step_variable, info):
        yield info
