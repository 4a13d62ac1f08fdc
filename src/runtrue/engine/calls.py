"""What the code of a branch may call: each durable call gets its place when made, and is carried out when awaited."""

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from runtrue import codec
from runtrue.authoring import RunInfo, Step, Workflow
from runtrue.authoring._context import Threaded
from runtrue.clock import MICROSECOND
from runtrue.engine import children, waits
from runtrue.engine.attempts import NOTHING, StepCall
from runtrue.engine.branch import Branch
from runtrue.engine.groups import Group, drop_unbegun
from runtrue.engine.history import described
from runtrue.engine.ports import HistoryMismatchError
from runtrue.engine.signals import Unwound
from runtrue.engine.strands import Strand
from runtrue.engine.values import patched_record, value_record
from runtrue.errors import CodecError, ConfigurationError, StepFailed, WrongPlace
from runtrue.ids import check_id
from runtrue.records import StepRecord

if TYPE_CHECKING:
    from runtrue.engine.execution import Execution

T = TypeVar("T")

SIGNALS_SWALLOWED_MAX = 3
"""Code that swallows the unwinding more often is not given the floor again."""


class Calls:
    """The Runtime protocol, for one branch of one execution."""

    def __init__(self, execution: "Execution", branch: Branch) -> None:
        self.execution = execution
        self.branch = branch
        self._places = branch.places
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        claimed = execution.claimed
        self._infos = tuple(
            RunInfo(
                claimed.run_id,
                claimed.workflow,
                claimed.version,
                claimed.attempt,
                claimed.tags,
                replaying=replaying,
                parent=claimed.parent_id,
            )
            for replaying in (False, True)
        )

    # ------------------------------------------------------------ the Runtime protocol
    @property
    def is_replaying(self) -> bool:
        """True while the branch passes through what was recorded of it."""
        return self._places.is_replaying or self.branch.settled is not None

    def info(self) -> RunInfo:
        """The run, for rt.this_run()."""
        return self._infos[self.is_replaying]

    def time(self) -> int:
        """The engine's time."""
        return self.execution.clock.now()

    def state(self, type: type[Any], /) -> Any:  # noqa: A002  the word of the public API
        """What the App's lifespan has yielded of this type."""
        return self.execution.host.state(type)

    def progress(self, done: float | None, total: float | None, note: str, /) -> None:
        """Report progress; a replay's reports are old and dropped."""
        if not self.is_replaying:
            self.execution.report(done, total, note)

    def publish(self, key: str, body: bytes, /) -> None:
        """Publish a value; a replay has published it before."""
        self._check_place("rt.publish")
        if not self.is_replaying:
            self.execution.publish(key, body)

    def value(self, kind: str, make: Callable[[], object], /) -> Any:
        """The recorded value of this place, or a new one that is recorded before the next effect starts."""
        recorded, ordinal = self._arrive(f"rt.{kind}", kind, kind)
        if recorded is None and self.branch.settled is not None:
            self.execution.refuse_new_call(self.branch)
        if self.execution.history.mismatch:
            # A plain function cannot wait until the hold is written; it is, when this has left the code.
            raise HistoryMismatchError(self.execution.history.mismatch)
        if recorded is not None:
            return codec.decode(recorded.output or b"null", what=f"the recorded {kind}")
        made = make()
        self.branch.unsettled.append(value_record(self.branch.path, ordinal, kind, made, self.time()))
        return made

    def patched(self, change: str, /) -> bool:
        """Whether this branch takes the new path. What was begun before the change was there keeps to the old one."""
        self._check_place("rt.patched")
        check_id("rt.patched: the change", change)
        history, path = self.execution.history, self.branch.path
        answer = history.was_patched(path, change)
        if answer is None:
            answer = not self.is_replaying
            history.patch(path, change, answer=answer)
            if answer:
                self.branch.unsettled.append(patched_record(path, change, self.time()))
        return answer

    def sleep(self, seconds: float, /) -> Coroutine[None, None, None]:
        """Sleep for a span that begins when it is recorded."""
        return self._sleep("rt.sleep", lambda now: now + round(seconds * MICROSECOND))

    def sleep_until(self, at: int, /) -> Coroutine[None, None, None]:
        """Sleep until a point in time."""
        return self._sleep("rt.sleep_until", lambda now: at)  # noqa: ARG005  the other kind needs it

    def _sleep(self, call: str, wake_at: Callable[[int], int]) -> Coroutine[None, None, None]:
        return self._make(call, "sleep", "sleep", lambda s, r, n: waits.sleep(self, s, r, n, wake_at))

    def receive(self, topic: str, type: Any, timeout_seconds: float | None, /) -> Coroutine[None, None, Any]:  # noqa: A002
        """Take the oldest message of the topic, or wait for one."""
        label = f"rt.receive of {topic}"
        return self._make(
            label, "receive", topic, lambda s, r, n: waits.receive(self, s, r, n, topic, type, timeout_seconds)
        )

    def send(self, run_id: str, topic: str, body: bytes, /) -> Coroutine[None, None, None]:
        """Send a message to a run."""
        return self._make(
            f"rt.send to {run_id}", "send", "send", lambda s, r, n: waits.send(self, s, r, n, run_id, topic, body)
        )

    def call_child(
        self, workflow: Workflow[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], /
    ) -> Coroutine[None, None, Any]:
        """Start a child run and wait for its result."""
        call = self._make(
            f"child run of {workflow.name}",
            "child",
            workflow.name,
            lambda s, r, n: children.call(self, s, r, n, workflow, args, kwargs),
        )
        self.execution.child_calls.add(call)
        return call

    def start_child(
        self, workflow: Workflow[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], /
    ) -> Coroutine[None, None, str]:
        """Start a child run and go on."""
        return self._make(
            f"child run of {workflow.name}",
            "start_child",
            workflow.name,
            lambda s, r, n: children.start(self, s, r, n, workflow, args, kwargs),
        )

    def wait_for_child(self, run_id: str, workflow: Workflow[..., Any] | str, /) -> Coroutine[None, None, Any]:
        """Wait for the end of a run that was started before."""
        name = workflow if isinstance(workflow, str) else workflow.name
        return self._make(
            f"the result of {run_id}",
            "child",
            name,
            lambda s, r, n: children.wait_for(self, s, r, n, run_id, workflow),
        )

    def gather(self, items: Sequence[Awaitable[Any] | Threaded], /) -> Coroutine[None, None, tuple[Any, ...]]:
        """Carry out all items side by side."""
        makes = [lambda item=item: item for item in items]
        return self._make(
            "rt.gather", "gather", "gather", lambda s, r, n: Group(self, s, n, "gather").all(r, makes), items
        )

    def first(self, items: Sequence[Awaitable[Any] | Threaded], /) -> Coroutine[None, None, tuple[int, Any]]:
        """Carry out all items until the first has ended."""
        makes = [lambda item=item: item for item in items]
        return self._make(
            "rt.first", "first", "first", lambda s, r, n: Group(self, s, n, "first").first(r, makes), items
        )

    def map(
        self,
        make: Callable[[Any], Awaitable[Any] | Threaded],
        items: Sequence[Any],
        limit: int | None,
        keys: Sequence[str] | None,
        return_exceptions: bool,
        /,
    ) -> Coroutine[None, None, list[Any]]:
        """Carry out `make(item)` for all items, `limit` at a time."""
        makes = [lambda item=item: make(item) for item in items]

        async def carry_out(strand: Strand, recorded: StepRecord | None, ordinal: int) -> list[Any]:
            group = Group(self, strand, ordinal, "map", limit=limit, keys=keys, keeps_errors=return_exceptions)
            return list(await group.all(recorded, makes))

        return self._make("rt.map", "map", "map", carry_out)

    def call_step(
        self, step: Step[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], /
    ) -> Coroutine[None, None, Any]:
        """Carry out a step, or return its record."""
        if self._clings:
            return self._keep_waiting()
        recorded, ordinal = self._arrive(step.label, "step", step.name)
        self.branch.open_calls[ordinal] = ("step", step.name)
        return self._step(step, recorded, ordinal, args, kwargs)

    def require_awaited(self) -> None:
        """The code has returned: raise WrongPlace if it never awaited a call that it made."""
        if self.branch.open_calls:
            ordinal, (kind, name) = next(iter(self.branch.open_calls.items()))
            workflow = self.execution.claimed.workflow
            raise WrongPlace(
                f"{described(kind, name)} was called by {workflow} (call {ordinal + 1}) and never awaited, "
                "so it did not happen; write `await` before the call"
            )

    # ------------------------------------------------------------ places
    def _make(
        self,
        call: str,
        kind: str,
        name: str,
        carry_out: Callable[[Strand, StepRecord | None, int], Coroutine[Any, Any, T]],
        items: Sequence[object] = (),
    ) -> Coroutine[None, None, T]:
        """Give the call its place now; `carry_out` gets the strand that awaits it, the record, and the ordinal.

        `items` are what it was given to await.
        """
        if self._clings:
            return self._keep_waiting()
        recorded, ordinal = self._arrive(call, kind, name)
        self.branch.open_calls[ordinal] = (kind, name)
        return self._carry(call, recorded, ordinal, carry_out, items)

    async def _carry(
        self,
        call: str,
        recorded: StepRecord | None,
        ordinal: int,
        carry_out: Callable[[Strand, StepRecord | None, int], Coroutine[Any, Any, T]],
        items: Sequence[object],
    ) -> T:
        try:
            strand = self._enter(ordinal, call)
            try:
                if self.execution.history.mismatch:
                    await self.execution.hold(strand)
                return await carry_out(strand, recorded, ordinal)
            finally:
                self._exit(strand)
        finally:
            drop_unbegun(items)

    def _check_place(self, call: str) -> None:
        """Raise WrongPlace unless the caller is the branch's own task, or Unwound if the branch is unwound."""
        strand = self.branch.strand
        here = threading.get_ident() == self._thread_id
        if strand is None or not here or asyncio.current_task(self._loop) is not strand.task:
            where = "in another asyncio task (create_task, TaskGroup)" if here else "in another thread"
            raise WrongPlace(
                f"{call} was called {where}; call it in the workflow function itself, only there its place in the "
                "history is certain. What is to run side by side goes into rt.gather, rt.map or rt.first"
            )
        if self.execution.unwinding or (self.branch.closed and not self._places.is_replaying):
            self.branch.swallowed += 1
            raise Unwound

    def _arrive(self, call: str, kind: str, name: str) -> tuple[StepRecord | None, int]:
        self._check_place(call)
        return self._places.arrive(kind, name)

    def _enter(self, ordinal: int, call: str) -> Strand:
        """The call is awaited. Returns the strand that carries it out: of whichever task that awaits it."""
        execution, branch = self.execution, self.branch
        if threading.get_ident() != self._thread_id:
            raise WrongPlace(f"{call} was awaited in another thread; await it where it was called")
        if execution.unwinding:
            branch.swallowed += 1
            raise Unwound
        task = asyncio.current_task(self._loop)
        strand = branch.strand
        if strand is None or strand.task is not task:
            strand = execution.strands.of(task)
            if strand is None:
                strand = execution.strands.add(branch, task)
                branch.errands += 1
                if branch.strand is not None:
                    execution.strands.lend(branch.strand)
        elif strand.is_lent:
            execution.strands.take_back(strand)
        branch.open_calls.pop(ordinal, None)
        strand.in_code = False
        return strand

    def _exit(self, strand: Strand) -> None:
        """The code has the floor again."""
        branch, strands = self.branch, self.execution.strands
        own = strand.branch.strand
        if strand is own:
            if isinstance(sys.exception(), Unwound):
                strand.in_code = True
            else:
                self.execution.give_floor(strand)
            if strand.branch.errands:
                strands.lend(strand)
            return
        # A call that a task of somebody else has carried out: its branch may go on with the result.
        branch.errands -= 1
        if own is not None:
            if branch.closed:
                own.undelivered += strand.undelivered
            strands.take_back(own)
            if branch.errands:
                strands.lend_again(own)
        strands.remove(strand)
        if self.execution.unwinding or branch.closed:
            # In place of the signal: asyncio complains of a task that ends with an error which nobody looks at.
            raise asyncio.CancelledError

    @property
    def _clings(self) -> bool:
        return self.branch.swallowed >= SIGNALS_SWALLOWED_MAX

    async def _keep_waiting(self) -> NoReturn:
        """For code that swallows the unwinding in a loop: it would hold the event loop for ever."""
        strand = self.branch.strand
        try:
            await self._loop.create_future()
        except asyncio.CancelledError:
            if strand is not None:
                strand.take_interrupt()
        raise Unwound

    # ------------------------------------------------------------ carrying out a step
    async def _step(
        self,
        step: Step[..., Any],
        recorded: StepRecord | None,
        ordinal: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        strand = self._enter(ordinal, step.label)
        try:
            execution = self.execution
            if execution.history.mismatch:
                await execution.hold(strand)
            result: object = NOTHING
            if recorded is not None or self._places.last_failure(ordinal) is not None:
                strand.make_use()
            if recorded is None:
                if execution.replaying or execution.is_asked or self.branch.unsettled or strand.branch.path:
                    await execution.go_live(strand)
                result, recorded = await StepCall(self, strand, step, ordinal, args, kwargs).carry_out()
            if recorded.error is not None:
                rebuilt = codec.rebuild_error(recorded.error, step.settings.raises) if step.settings.raises else None
                if rebuilt is not None:
                    raise rebuilt
                raise StepFailed(step.name, codec.decode_error(recorded.error), recorded.attempt)
            if result is NOTHING:
                result = await self.read(strand, recorded, step.result_label, step)
            return result
        finally:
            self._exit(strand)

    async def read(self, strand: Strand, recorded: StepRecord, what: str, step: Step[..., Any]) -> Any:
        """The recorded result as the code wants it. Code that cannot read it any more does not fit the history."""
        try:
            return codec.decode(recorded.output or b"null", step.result_type, what=what)
        except (CodecError, ConfigurationError) as unfit:
            await self.does_not_fit(strand, recorded.ordinal, unfit)

    async def does_not_fit(self, strand: Strand, ordinal: int, why: object) -> NoReturn:
        """The code cannot make use of what is recorded at this place."""
        workflow, branch = self.execution.claimed.workflow, self.branch.path
        where = f" of branch {branch}" if branch else ""
        self.execution.history.differ(f"call {ordinal + 1}{where} of {workflow}: {why}")
        await self.execution.hold(strand)
