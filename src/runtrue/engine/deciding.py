"""What becomes of a run when all of its strands rest: the one place that ends an execution."""

import asyncio
from typing import TYPE_CHECKING

from runtrue import codec
from runtrue.clock import MICROSECOND
from runtrue.engine.signals import Unwound
from runtrue.engine.strands import Rest
from runtrue.lifecycle import HoldKind, Status
from runtrue.store.protocol import (
    NEVER,
    End,
    Finish,
    ParkBlocked,
    ParkHeld,
    ParkRequested,
    Recorded,
    Release,
    RunEffects,
)

if TYPE_CHECKING:
    from runtrue.engine.execution import Execution


class Decisions:
    """Decides about one execution, one decision at a time, and only while it is quiet."""

    def __init__(self, execution: "Execution") -> None:
        self._execution = execution
        self._task: asyncio.Task[None] | None = None

    def hear_quiet(self) -> None:
        execution = self._execution
        if self._task is None and not execution.unwinding and execution.strands.is_quiet:
            self._task = asyncio.create_task(self._decide(), name=f"runtrue-decision-{execution.run_id}")

    async def _decide(self) -> None:
        """All strands rest: decide what becomes of the run, once more if the decision was overtaken."""
        execution = self._execution
        try:
            while execution.strands.is_quiet and not execution.unwinding:
                end = self._next_end()
                if end is None:
                    break
                execution.is_asked, execution.strands.may_ring = True, False
                if not await execution.settle_all():
                    await self._carry_out(end)
                execution.strands.may_ring = True
                execution.is_asked = execution.is_wanted or execution.status is not Status.RUNNING
                if not execution.unwinding:
                    execution.strands.ring()
        except Unwound:
            execution.end_here(lost=True)
        except BaseException as broken:  # nobody else awaits this task
            execution.fail_itself(broken)
            if isinstance(broken, (KeyboardInterrupt, SystemExit, asyncio.CancelledError)):
                raise
        finally:
            self._task = None
            if not execution.unwinding:
                # Who came to rest when nobody was busy has set no alarm, and somebody may be busy again.
                execution.strands.set_alarm()

    def _next_end(self) -> End | None:
        """How this execution is to end now. None if it goes on: then strands were roused, or wait for a short time."""
        execution = self._execution
        if execution.gone or not execution.may_execute():
            execution.end_here(lost=True)
            return None
        if execution.wished is not None:
            if execution.wished.target is not Status.CANCELLED and execution.status is not Status.CANCELLING:
                execution.history.arrive_at_end()
                if execution.history.mismatch:
                    return self._held()
            return execution.wished
        if execution.status is Status.CANCELLING:
            return Finish(Status.CANCELLED)
        if execution.history.mismatch:
            return self._held()
        if execution.status is Status.PAUSING:
            return ParkRequested()
        if execution.draining:
            return Release()
        execution.is_asked = False
        stopped = execution.strands.resting(Rest.STOPPED)
        for strand in stopped:
            execution.strands.rouse(strand)
        return None if stopped or self._end_replay() else self._park()

    def _held(self) -> ParkHeld:
        execution = self._execution
        reason = codec.clean_text(execution.history.mismatch)
        return ParkHeld(HoldKind.CODE_MISMATCH, reason, execution.workflow.code_digest)

    def _end_replay(self) -> bool:
        """True if something was roused: every strand has used up its records."""
        execution = self._execution
        if not execution.replaying:
            return False
        # Groups that are decided by what is recorded come to their outcome before anybody goes live.
        closers, execution.closers = execution.closers, []
        for close in closers:
            close()
        if closers:
            return True
        execution.replaying = False
        waiting = execution.strands.resting(Rest.REPLAYED)
        for strand in waiting:
            execution.strands.rouse(strand)
        return bool(waiting)

    def _park(self) -> ParkBlocked | None:
        """Park, unless the run goes on in memory after a short while."""
        execution = self._execution
        if execution.strands.resting(Rest.QUEUED):
            return None
        ready_at = NEVER
        if (first := execution.strands.next_due()) is not None and first.due_at is not None:
            ready_at = first.due_at
            now = execution.clock.now()
            for strand in execution.strands.resting(Rest.ASLEEP, Rest.BLOCKED):
                patience_seconds = 0.0 if execution.host.parks_at_once else strand.patience_seconds
                if strand.due_at is not None and strand.due_at - now < patience_seconds * MICROSECOND:
                    execution.strands.set_alarm()
                    return None
        return ParkBlocked(execution.wakeups, ready_at, self._by_any_child())

    def _by_any_child(self) -> bool:
        """False if nothing goes on before the last child that is waited for has ended: they are one group's."""
        execution = self._execution
        groups: set[int] = set()
        for strand in execution.open_waits.values():
            if strand.waits_for_child:
                group = strand.branch.group
                if group is None or strand.branch.wakes_alone or group.has_more:
                    return True
                groups.add(id(group))
        return len(groups) > 1

    async def _carry_out(self, end: End) -> None:
        """Record the end. Returns if the row does not fit it any more."""
        execution = self._execution
        reply = await execution.record(RunEffects(execution.run_id, execution.epoch, end=end))
        if reply.recorded is Recorded.CONDEMNED:
            await self._fail_condemned("the result", reply.error)
        elif reply.recorded is Recorded.OK:
            execution.end_here(lost=False)

    async def _fail_condemned(self, what: str, why: str) -> None:
        """Fail the run with safe text, which is not tried again if it is refused."""
        execution = self._execution
        execution.condemn(what, why)
        assert execution.wished is not None
        reply = await execution.record(RunEffects(execution.run_id, execution.epoch, end=execution.wished))
        execution.end_here(lost=reply.recorded is not Recorded.OK)
