"""One claim of one run: the workflow function is called and replayed through what was recorded.

Its strands carry out its branches. While any of them is busy nothing is decided about the run; when all rest, one
decision is taken here, and nowhere else.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn
from weakref import WeakSet

from runtrue import codec
from runtrue.authoring import DefinedWorkflow, runtime_variable
from runtrue.engine.branch import Branch, Settled
from runtrue.engine.calls import Calls
from runtrue.engine.deciding import Decisions
from runtrue.engine.history import History
from runtrue.engine.ports import Host, Recorder
from runtrue.engine.recording import Recording
from runtrue.engine.signals import Unwound
from runtrue.engine.strands import Rest, Strand, Strands
from runtrue.engine.threads import WorkflowThread
from runtrue.engine.values import decode_input, fail_with, finish_with
from runtrue.errors import CancelRun, RuntrueError, WrongPlace
from runtrue.lifecycle import Status
from runtrue.records import Progress
from runtrue.store.protocol import (
    Claimed,
    Finish,
)

logger = logging.getLogger("runtrue.engine")


class Execution(Recording):
    """Executes one claimed run until it ends, parks, is released or is lost."""

    def __init__(
        self, claimed: Claimed, workflow: DefinedWorkflow[..., Any], host: Host, journal: Recorder, seen_beats: int
    ) -> None:
        super().__init__(claimed, host, journal)
        self.clock = host.clock
        self.claimed = claimed
        self.workflow = workflow
        self.history = History(claimed)
        self.seen_beats = seen_beats
        """How many renewals had begun when this run was claimed; an earlier one knows nothing of it."""
        self.may_execute = host.may_execute
        self.draining = False
        """The worker is stopping, and the run is to be given back."""
        self.replaying = not self.history.is_empty
        """Some strand may not have used up its records yet; none goes live before all have."""
        self.strands = Strands(self.clock, Decisions(self).hear_quiet)
        self.root = Branch(self.history.places(""))
        self.tasks: set[asyncio.Task[Any]] = set()
        """The tasks of the items of groups."""
        self.threads: set[WorkflowThread] = set()
        """Threads of blocking code that are not through yet."""
        self.child_calls: WeakSet[Any] = WeakSet()
        """Calls of children, to tell an item of a group that is nothing else."""
        self.closers: list[Callable[[], None]] = []
        """Groups that were decided by what is recorded, and close their other branches when the replay is over."""
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._told_ended = False

    # ------------------------------------------------------------ what the worker tells
    def hear_row(self, status: Status, wakeups: int) -> None:
        """A renewal brought the row. Only requests are taken from it, and facts: a reply may be younger than it is."""
        if status is Status.CANCELLING or (status is Status.PAUSING and self.status is Status.RUNNING):
            self.set_status(status)
        self.hear_wakeups(wakeups)

    def hear_lost(self) -> None:
        """The run is not ours any more (terminated, swept, taken over). Steps in flight are told to stop."""
        self.gone = True
        self._journal.forget_notes(self.run_id)
        self.ask()
        self._interrupt_allowed()
        self.strands.see_whether_quiet()

    def hear_drain(self) -> None:
        """The worker is stopping: give the run back at the next boundary."""
        self.draining = True
        self.ask()
        self.strands.see_whether_quiet()

    def interrupt(self) -> None:
        """The drain's deadline has passed: interrupt the steps in flight; their attempts are not recorded."""
        self.hear_drain()
        for strand in list(self.strands.all):
            if strand.running_step is not None or (strand.in_code and not strand.is_lent):
                strand.interrupt()

    def nudge(self) -> None:
        """The run was settled, and its code clings to a task: interrupt whatever it waits for."""
        for strand in list(self.strands.all):
            strand.take_interrupt()
            strand.interrupt()

    def steps_in_flight(self) -> list[tuple[str, int, int]]:
        """Name, attempt and start of each step that is being executed. From any thread."""
        return [step for strand in list(self.strands.all) if (step := strand.running_step) is not None]

    def strand_of(self, task: "asyncio.Task[Any] | None") -> Strand | None:
        """The strand that a task carries out. From any thread."""
        return self.strands.of(task) if task is not None else None

    def _interrupt_allowed(self) -> None:
        # A step that did not ask to be interrupted finishes first. Code between steps has no effects to protect.
        self.strands.ignores_code = True
        for strand in list(self.strands.all):
            if strand.interruptible or (strand.in_code and not strand.is_lent):
                strand.interrupt()

    def set_status(self, status: Status) -> None:
        self.status = status
        if status is Status.RUNNING:
            self.is_asked = self.is_wanted
            return
        self.ask()
        if status is Status.CANCELLING:
            self._interrupt_allowed()
        self.strands.see_whether_quiet()

    @property
    def is_wanted(self) -> bool:
        return self.gone or self.draining or self.wished is not None or bool(self.history.mismatch)

    def ask(self) -> None:
        """Have every strand stop at its next boundary."""
        self.is_asked = True

    def cancel_requested(self) -> bool:
        """True once a cancel was asked, or the run is not ours any more."""
        return self.gone or self.status is Status.CANCELLING

    # ------------------------------------------------------------ the body of the task
    async def run(self) -> None:
        """Execute the run. Never raises but for the interpreter's own exit."""
        # Here and not where the task is made: an eager task runs before its maker holds it.
        strand = self.root.strand = self.strands.add(self.root, asyncio.current_task())
        try:
            await self._perform(strand)
        except Unwound:
            pass
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as broken:  # the worker relies on an execution never taking it down
            self.fail_itself(broken)
        finally:
            strand.running_step = None
            self.strands.remove(strand)
            self.tell_ended()
            await self._leave()

    def fail_itself(self, broken: BaseException) -> None:
        """The engine is at fault: the run is given back, and nothing more is said of it."""
        if not self.gone:
            logger.error("run %s: the engine itself failed; the run is given back", self.run_id, exc_info=broken)
        self.end_here(lost=True)

    async def _leave(self) -> None:
        """Wait until all code of the run is through."""
        try:
            while self.tasks:
                await asyncio.wait(self.tasks)
            for thread in list(self.threads):
                await thread.left.wait()
        finally:
            self.strands.drop_alarm()
            self.host.left(self)

    def tell_ended(self) -> None:
        """Give the slot back. Once, and as soon as the run is settled: code that clings must not keep it."""
        if not self._told_ended:
            self._told_ended = True
            self._journal.forget_notes(self.run_id)
            self.host.ended(self, None if self.gone else self.status)

    async def _perform(self, strand: Strand) -> NoReturn:
        runtime_variable.set(calls := Calls(self, self.root))
        try:
            strand.in_code = True
            result = await self._call_workflow(calls, strand)
        except (Unwound, KeyboardInterrupt):
            raise
        except asyncio.CancelledError:
            strand.in_code = False
            await self.hear_cancelled_error(strand)
            self._fail_cancelled_call()
        except BaseException as error:  # whatever leaves the workflow, SystemExit too, fails this run and no other
            if isinstance(error, GeneratorExit) and strand.task is not _current_task():
                raise  # the interpreter closes the coroutine: nothing can be awaited any more
            self.wish(self._end_of(error))
        else:
            self.wish(finish_with(self.workflow, result))
        self.strands.take_back(strand)
        strand.in_code = False
        if not self.unwinding:
            await self.strands.rest(strand, Rest.ENDED)
        # Nothing rouses it but the unwinding; code that has swallowed the signal and returned means nothing.
        raise Unwound

    def _end_of(self, error: BaseException) -> Finish:
        if isinstance(error, CancelRun):
            return Finish(Status.CANCELLED, reason=codec.clean_text(error.reason))
        return fail_with(self.workflow, error)

    async def _call_workflow(self, calls: Calls, strand: Strand) -> Any:
        try:
            args, kwargs = decode_input(self.workflow, self.claimed.input)
        except RuntrueError as unfit:
            if not self.history.is_empty:
                # It fitted once: the code has changed since, and a fitting version can take the run on.
                self.history.differ(str(unfit))
            raise
        function = self.workflow.fn
        if self.workflow.is_async:
            result = await function(*args, **kwargs)
        else:
            result = await self.on_thread(calls, strand, lambda: function(*args, **kwargs), self.workflow.name)
        if not self.unwinding:
            calls.require_awaited()
        return result

    async def on_thread(self, calls: Calls, strand: Strand, function: Any, name: str) -> Any:
        """Run blocking code of a branch on a thread of its own; the strand carries out what it asks for."""
        thread = strand.thread = WorkflowThread(calls, f"runtrue-{name}")
        self.threads.add(thread)
        try:
            return await thread.run(function)
        finally:
            if thread.left.is_set():
                self.threads.discard(thread)

    async def hear_cancelled_error(self, strand: Strand) -> None:
        """CancelledError came. Ours (a request, the drain, the run is lost): carry it out. Somebody else's: fail.

        Returns only if nobody cancelled the task: the code raised the error by itself.
        """
        if self.unwinding or strand.branch.closed:
            strand.take_interrupt()
            raise Unwound
        if strand.take_interrupt():
            # An interrupt is sent only with what cannot be withdrawn, so this does not return.
            await self.boundary(strand)
        if strand.task is not None and strand.task.cancelling() > 0:
            await self.fail_cancelled_call(strand)

    async def fail_cancelled_call(self, strand: Strand) -> NoReturn:
        """A call was cancelled by somebody else: the run fails, for a replay would not be."""
        if self.unwinding or strand.branch.closed:
            raise Unwound
        self._fail_cancelled_call()
        await self.stop(strand)

    def _fail_cancelled_call(self) -> None:
        if self.host.is_ending():
            # The program ends its event loop: a crash like any other, and no fault of the workflow's.
            self.end_here(lost=True)
            raise Unwound
        self.wish(
            Finish(
                Status.FAILED,
                codec.encode_error(
                    WrongPlace(
                        "a durable call was cancelled from outside, for example by asyncio.timeout or a TaskGroup; "
                        "give the step or wait a timeout= instead, and use rt.first or rt.gather: they are recorded, "
                        "and the same on every replay"
                    )
                ),
            )
        )

    # ------------------------------------------------------------ boundaries
    async def boundary(self, strand: Strand) -> None:
        """Stop here while something is asked of the run. Returns if it goes on, raises Unwound if not."""
        while True:
            if self.unwinding or strand.branch.closed:
                raise Unwound
            if not (self.is_asked or self.gone) and self.may_execute():
                return
            self.ask()
            await self.strands.rest(strand, Rest.STOPPED)

    async def stop(self, strand: Strand) -> NoReturn:
        """Stop here for good: the run has been told how to end."""
        while True:
            if self.unwinding or strand.branch.closed:
                raise Unwound
            await self.strands.rest(strand, Rest.STOPPED)

    def wish(self, end: Finish) -> None:
        """The code has come to this end; the first one counts. It is carried out once every strand has stopped."""
        if self.wished is None and not self.unwinding:
            self.wished = end
        self.ask()

    async def hold(self, strand: Strand) -> NoReturn:
        """The code does not fit the history: stop, so that the run can be held."""
        self.ask()
        await self.stop(strand)

    async def go_live(self, strand: Strand) -> None:
        """What must be so before a call has an effect: the replay is over, all drawn values are recorded, and every
        request is carried out.
        """
        if strand.branch.settled is not None:
            self.refuse_new_call(strand.branch)
            await self.hold(strand)
        if self.replaying:
            await self.rest_replayed(strand)
        branch: Branch | None = strand.branch
        while branch is not None:
            if branch.unsettled or branch.settling:
                await self.settle(branch)
            branch = branch.parent
        if self.history.mismatch:
            await self.hold(strand)
        if self.is_asked or strand.branch.closed:
            await self.boundary(strand)

    def refuse_new_call(self, branch: Branch) -> None:
        """A call that has no record, though the outcome of its group is recorded: it was never begun, and never will
        be. Raises Unwound where the branch was closed; where its end was the group's the code does not fit.
        """
        if branch.settled is Settled.CLOSED:
            raise Unwound
        self.history.differ(
            f"the code of {self.history.workflow} makes a new call in branch {branch.path}, which is over"
        )

    async def rest_replayed(self, strand: Strand) -> None:
        """The records of this strand are used up: wait until those of all others are."""
        if len(self.strands.all) == 1:
            self.replaying = False
            return
        try:
            await self.strands.rest(strand, Rest.REPLAYED)
        except BaseException as cut:
            await self.hear_rest_cut(strand, cut)
            raise

    async def hear_rest_cut(self, strand: Strand, cut: BaseException) -> None:
        """What a strand rested on has raised. Raises what that means; returns if it means itself."""
        if isinstance(cut, asyncio.CancelledError):
            # An interrupt of ours is sent to code and steps, and may have come a moment too late for them.
            strand.take_interrupt()
            if self.is_asked or self.gone or strand.branch.closed:
                await self.boundary(strand)
            await self.fail_cancelled_call(strand)

    def close_when_replayed(self, close: Callable[[], None]) -> None:
        """Close branches, once every strand has passed what was recorded of it."""
        if self.replaying and not self.unwinding:
            self.closers.append(close)
        else:
            close()

    def close(self, branches: Sequence[Branch], at: int) -> list[tuple[str, int]]:
        """Close branches and all within them, because of what was decided at this time. Returns the places of their
        open waits.
        """
        closed = [within for branch in branches for within in branch.close(at)]
        strands = [strand for branch in closed for strand in branch.strands]
        waits = [place for strand in strands if (place := strand.waits_at) in self.open_waits]
        for strand in strands:
            if strand.rest is Rest.ASLEEP and strand.due_at is not None and strand.due_at <= at:
                self.strands.rouse(strand)
            elif strand.future is not None:
                self.strands.unwind(strand)
            elif strand.interruptible or (strand.in_code and not strand.is_lent):
                strand.interrupt()
        return waits

    def give_floor(self, strand: Strand) -> None:
        """The author's code goes on. In a branch that is over it must not wait for something of its own."""
        strand.in_code = True
        if strand.branch.is_over:
            self._loop.call_soon(self._take_floor, strand)

    def _take_floor(self, strand: Strand) -> None:
        if strand.in_code and not self.unwinding:
            self.close([strand.branch], strand.branch.over_at)

    def is_current(self, strand: Strand) -> bool:
        """True if the caller is the strand's own task."""
        return strand.task is not None and strand.task is _current_task()

    def end_here(self, *, lost: bool) -> None:
        """The execution is over: unwind every strand."""
        if self.unwinding:
            return
        self.unwinding = self.is_asked = True
        self.gone = self.gone or lost
        self.strands.drop_alarm()
        # Now and not when the code is through: code that swallows the signal must not keep the slot.
        self.tell_ended()
        for strand in list(self.strands.all):
            if strand.future is not None:
                self.strands.unwind(strand)
            elif strand.in_code and not strand.is_lent:
                strand.interrupt()

    def report(self, done: float | None, total: float | None, note: str) -> None:
        """Report progress with the next effect. From any thread: a `def` step has one of its own."""
        if self.gone or self.unwinding:
            return
        report = Progress(done, total, codec.clean_text(note, 1_000), self.clock.now())
        self._on_loop(self._journal.note_progress, self.run_id, self.epoch, report)

    def _on_loop(self, call: Callable[..., object], *args: object) -> None:
        # At once where that can be, so that it goes before the end that may follow.
        if threading.get_ident() == self._thread_id:
            call(*args)
        else:
            self._loop.call_soon_threadsafe(call, *args)

    def publish(self, key: str, body: bytes) -> None:
        """Publish a value with the next effect."""
        if not (self.gone or self.unwinding):
            self._journal.note_published(self.run_id, self.epoch, key, body)


def _current_task() -> "asyncio.Task[Any] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
