"""Blocking code on threads of its own, and how the event loop drives it."""

import asyncio
import inspect
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Generic, NoReturn, TypeVar

from runtrue.authoring._context import RunInfo, Runtime, blocking_variable, runtime_variable, step_variable
from runtrue.engine.signals import Unwound
from runtrue.errors import RuntrueError, WrongPlace

R = TypeVar("R")

SIGNALS_SWALLOWED_MAX = 1_000
"""Code that swallows the unwinding more often is not given the floor again: it would spin, and slow the loop down."""


class NoThreadError(RuntrueError):
    """The system gives this process no further thread. No fault of the code that was to run on it."""


class Outcome(Generic[R]):
    """What a function has returned or raised, on its way to another thread."""

    __slots__ = ("_error", "_result")

    def __init__(self, result: Any = None, error: BaseException | None = None) -> None:
        self._result = result
        self._error = error

    @classmethod
    def of(cls, function: Callable[[], R]) -> "Outcome[R]":
        """Call the function, and keep what comes."""
        try:
            return cls(function())
        except BaseException as error:  # whoever takes the outcome gets it, SystemExit too
            return cls(error=error)

    def take(self) -> R:
        """Return or raise it here. Once: an error that is kept would keep alive whatever has handled it."""
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
            return self._result
        finally:
            del error


class ThreadCall(Generic[R]):
    """A function that was handed to a thread. It goes on to its end, whether anybody waits for it or not.

    Made and asked on the event loop. `on_ended` is called there once the thread is through with the function.
    """

    __slots__ = ("_ended", "_function", "_loop", "_on_ended", "_outcome")

    def __init__(self, function: Callable[[], R], on_ended: Callable[[], None] | None = None) -> None:
        self._function: Callable[[], R] | None = function
        self._on_ended = on_ended
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._outcome: Outcome[R] | None = None

    @property
    def has_ended(self) -> bool:
        """True once the thread has come back from the function."""
        return self._ended.is_set()

    async def ended(self) -> None:
        """Wait until the thread has come back from the function."""
        await self._ended.wait()

    async def end(self) -> Outcome[R]:
        """Wait for the end of the function: what it has returned or raised. Once.

        A timeout or a cancellation ends this waiting and nothing else: the end can be waited for again then. The
        outcome is not raised here, for StopIteration could not leave a coroutine.
        """
        await self._ended.wait()
        outcome, self._outcome = self._outcome, None
        assert outcome is not None, "the outcome was taken before"
        return outcome

    def carry_out(self) -> None:
        """Call the function, on the thread that it was handed to."""
        function, self._function = self._function, None
        assert function is not None
        self._outcome = Outcome.of(function)
        _tell(self._loop, self._end)

    def _end(self) -> None:
        self._ended.set()
        if self._on_ended is not None:
            self._on_ended()


class WorkflowThread:
    """Runs a `def` workflow, or a blocking item of a group, on a daemon thread of its own.

    `name` is the thread's. `block` and `info` are the BlockingRuntime of the code on the thread, all else belongs to
    the event loop: the task that awaits `run` carries out, by `runtime`, what the thread asks for.
    """

    def __init__(self, runtime: Runtime, name: str) -> None:
        self.left = asyncio.Event()
        """Set once the thread has come back from the function. A `run` that is cancelled does not wait for that."""
        self._runtime = runtime
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._thread_id: int | None = None
        self._heard = asyncio.Event()
        """Set when the thread has said something: its request, or that it has left."""
        self._request: Callable[[Runtime], Any] | None = None
        self._outcome: Outcome[Any] | None = None
        self._for_thread: queue.SimpleQueue[ThreadCall[Any] | Outcome[Any]] = queue.SimpleQueue()
        """What the blocked thread is to do: call functions, and go on with the answer to its request."""
        self._answering = False
        self._in_step = False
        self._unwinding = False
        """Whatever the thread asks for from now on, it gets the signal."""
        self._swallowed = 0

    async def run(self, function: Callable[[], R]) -> R:
        """Call the function on the thread, and carry out what it asks for; return or raise what it does.

        Cancelled while the thread is in its own code, this raises CancelledError at once, since a thread cannot be
        interrupted. The thread meets Unwound at its next request, and `left` tells when it is through.
        Raises NoThreadError.
        """
        context = copy_context()
        _start(threading.Thread(target=context.run, args=(self._work, function), name=self._name, daemon=True))
        try:
            while True:
                await self._heard.wait()
                self._heard.clear()
                request, self._request = self._request, None
                if request is None:
                    break
                self._for_thread.put(await self._answer(request))
        except BaseException:
            # This task leaves. The thread may be asking at this very moment, and nobody else will answer.
            self._unwinding = True
            self._for_thread.put(Outcome(error=Unwound()))
            raise
        outcome, self._outcome = self._outcome, None
        assert outcome is not None
        return outcome.take()

    async def _answer(self, request: Callable[[Runtime], Any]) -> Outcome[Any]:
        self._answering = True
        try:
            result = request(self._runtime)
            return Outcome(await result if inspect.isawaitable(result) else result)
        except KeyboardInterrupt:
            raise  # it ends the loop, and is not meant for the thread
        except BaseException as error:  # the code on the thread gets it, as it would in a coroutine
            self._unwinding = isinstance(error, Unwound)
            return Outcome(error=error)
        finally:
            self._answering = False

    def start(self, function: Callable[[], R]) -> ThreadCall[R]:
        """Have the function called on the thread, while that is blocked in a request: how its direct steps run.

        It sees what the workflow's code has set in its context, and is in the step that the caller is in. The answer
        to the request reaches the thread after its end.
        """
        assert self._answering, "the thread is not blocked"
        step = step_variable.get()

        def as_step() -> R:
            step_token, blocking_token = step_variable.set(step), blocking_variable.set(None)
            self._in_step = True
            try:
                return function()
            finally:
                self._in_step = False
                step_variable.reset(step_token)
                blocking_variable.reset(blocking_token)

        call = ThreadCall(as_step)
        self._for_thread.put(call)
        return call

    def _leave(self) -> None:
        self.left.set()
        self._heard.set()

    # ------------------------------------------------------------ on the thread
    def _work(self, function: Callable[[], Any]) -> None:
        self._thread_id = threading.get_ident()
        blocking_variable.set(self)
        runtime_variable.set(None)
        step_variable.set(None)
        self._outcome = Outcome.of(function)
        self._thread_id = None  # the system will give it to another thread
        _tell(self._loop, self._leave)

    def block(self, call: Callable[[Runtime], Any], /) -> Any:
        """Have `call` carried out on the event loop, and block until then.

        Raises WrongPlace from another thread and from within a step; Unwound, each time, once the run is unwound.
        """
        if threading.get_ident() != self._thread_id:
            raise WrongPlace(
                f"a durable call was made in thread {threading.current_thread().name}; make it in the workflow "
                "function itself, on the thread that runs it: only there its place in the history is certain. For "
                "work side by side there are gather and map"
            )
        if self._in_step:
            raise WrongPlace("a durable call was made inside a step; it belongs in the workflow, between its steps")
        if self._unwinding:
            self._raise_again()
        self._request = call
        if not _tell(self._loop, self._heard.set):
            self._unwinding = True
            raise Unwound
        while isinstance(answer := self._for_thread.get(), ThreadCall):
            answer.carry_out()
        return answer.take()

    def _raise_again(self) -> NoReturn:
        self._swallowed += 1
        while self._swallowed > SIGNALS_SWALLOWED_MAX:
            self._for_thread.get()  # nothing more will come
        raise Unwound

    def info(self) -> RunInfo:
        """The run, as the engine describes it. From any thread."""
        return self._runtime.info()


class Turn:
    """A place in the queue for a thread of the pool, and then the right to start one function there.

    It is either taken by `start`, and ends with the function, or ended by `give_up`; a turn that nobody ends costs the
    pool a thread.
    """

    __slots__ = ("_pool", "has_come", "hear", "is_over")

    def __init__(self, pool: "StepThreads", hear: Callable[[], None]) -> None:
        self.has_come = False
        self.is_over = False
        """A function was started, or the turn was given up."""
        self.hear = hear
        self._pool = pool

    def start(self, function: Callable[[], R]) -> ThreadCall[R]:
        """Call the function on a thread, with a copy of the current context. Raises NoThreadError."""
        assert self.has_come, "the turn has not come"
        assert not self.is_over, "a turn is for one function"
        call = self._pool.start(function)
        self.is_over = True
        return call

    def give_up(self) -> None:
        """Leave the queue, or let the next one have the thread. Nothing if a function was started."""
        if not self.is_over:
            self.is_over = True
            if self.has_come:
                self._pool.pass_on()


class StepThreads:
    """The pool for `def` steps that do not run on the thread of their workflow. Belongs to the event loop.

    `count` is how many run at once; threads are started when they are needed. They are daemon threads, so that a step
    that never returns does not keep the process from leaving.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        """How many more may run; none while anybody queues."""
        self._queue: deque[Turn] = deque()
        """Who waits for a turn, in order. Those that were given up stay until they are met."""
        self._calls: queue.SimpleQueue[ThreadCall[Any] | None] = queue.SimpleQueue()
        self._started = 0
        self._idle = 0
        self._closed = False

    def queue_up(self, hear: Callable[[], None]) -> Turn:
        """Queue for a thread: a turn that has come, or one that will, and `hear` is called then.

        A function begins at once when it is started, so that what must be looked at last can be looked at with the
        turn in hand.
        """
        turn = Turn(self, hear)
        if self._free:
            self._free -= 1
            turn.has_come = True
        else:
            self._queue.append(turn)
        return turn

    def pass_on(self) -> None:
        """A turn has ended: it is the next one's."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.is_over:
                turn.has_come = True
                turn.hear()
                return
        self._free += 1

    def close(self) -> None:
        """Let the threads end, those in a function after it. Nothing can be started any more."""
        self._closed = True
        for _ in range(self._started):
            self._calls.put(None)

    def start(self, function: Callable[[], R]) -> ThreadCall[R]:
        """Call the function on a thread, for a turn that has come."""
        assert not self._closed, "the pool is closed"
        context = copy_context()
        call = ThreadCall(lambda: context.run(function), self._rest)
        if self._idle:
            self._idle -= 1
        else:
            _start(threading.Thread(target=self._work, name=f"runtrue-step-{self._started}", daemon=True))
            self._started += 1
        self._calls.put(call)
        return call

    def _rest(self) -> None:
        self._idle += 1
        self.pass_on()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call.carry_out()
            del call  # else its result would live until the next one comes


def _tell(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> bool:
    """Have the loop call this soon, from another thread. False if the loop is closed: nobody listens any more."""
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        return False
    return True


def _start(thread: threading.Thread) -> None:
    try:
        thread.start()
    except RuntimeError as refused:
        raise NoThreadError(
            f"thread {thread.name} could not be started ({refused}); allow this process more threads (ulimit -u, the "
            "pids limit of a container), or give its worker fewer slots="
        ) from refused
