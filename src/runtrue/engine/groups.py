"""Groups: several branches side by side, and their recorded outcome."""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runtrue import codec
from runtrue.authoring import runtime_variable
from runtrue.authoring._context import Threaded
from runtrue.engine.branch import Branch, Settled
from runtrue.engine.history import item_path, key_text
from runtrue.engine.signals import Unwound
from runtrue.engine.strands import Rest, Strand
from runtrue.engine.values import outcome_record
from runtrue.errors import CancelRun
from runtrue.lifecycle import Status
from runtrue.records import StepRecord
from runtrue.store.protocol import Finish, RunEffects

if TYPE_CHECKING:
    from runtrue.engine.calls import Calls

Make = Callable[[], Any]
"""Makes what an item awaits, in the item's branch."""


class Group:
    """One gather, map or first. The strand that awaits it joins its items.

    `limit`: how many items are under way at a time. `keys`: names of the branches in place of numbers. With
    `keeps_errors` an error stands among the results.
    """

    def __init__(
        self,
        calls: "Calls",
        strand: Strand,
        ordinal: int,
        kind: str,
        *,
        limit: int | None = None,
        keys: Sequence[str] | None = None,
        keeps_errors: bool = False,
    ) -> None:
        self._calls = calls
        self._execution = calls.execution
        self._strand = strand
        self._ordinal = ordinal
        self._kind = kind
        self._limit = limit
        self._keys = keys
        self._keeps_errors = keeps_errors
        self._makes: Sequence[Make] = ()
        self._branches: list[Branch] = []
        """Those of the items that were begun."""
        self._under_way = 0
        self._results: dict[int, Any] = {}
        self._errors: dict[int, BaseException] = {}
        self._deciding: int | None = None
        """The item whose failure (or, for `first`, whose end) has decided the group."""
        self._recorded: int | None = None
        self._is_recorded = False
        self._decided_at = 0
        self._is_told = False
        """The outcome is recorded, or on its way: what becomes of an item from now on, it records by itself."""
        self._undelivered: dict[int, list[tuple[str, int]]] = {}
        """Waits of the items that have ended, by item: what they gave is in the item's result, if anywhere."""
        self._closed_waits: list[tuple[str, int]] | None = None
        """What was closed when the group was decided; None before."""

    @property
    def has_more(self) -> bool:
        """True while items wait for others to end. In a group that is decided only a replay has some to pass."""
        if len(self._branches) == len(self._makes):
            return False
        return self._deciding is None or self._is_recorded or self._execution.replaying

    async def all(self, recorded: StepRecord | None, makes: Sequence[Make]) -> tuple[Any, ...]:
        """Carry out all items; their results in order, or the error that came first."""
        await self._carry_out(recorded, makes)
        if self._deciding is not None:
            raise self._errors[self._deciding]
        return tuple(self._errors[n] if n in self._errors else self._results[n] for n in range(len(makes)))

    async def first(self, recorded: StepRecord | None, makes: Sequence[Make]) -> tuple[int, Any]:
        """Carry out all items until the first has ended; its number and result, or its error."""
        await self._carry_out(recorded, makes)
        winner = self._deciding
        assert winner is not None
        if winner in self._errors:
            raise self._errors[winner]
        return winner, self._results[winner]

    # ------------------------------------------------------------ from start to outcome
    async def _carry_out(self, recorded: StepRecord | None, makes: Sequence[Make]) -> None:
        execution, strand = self._execution, self._strand
        self._makes = makes
        if recorded is not None:
            self._is_recorded, self._decided_at = True, recorded.started_at
            self._recorded = codec.decode(recorded.output or b"null", int | None, what=f"the outcome of {self._kind}")
        try:
            if strand.branch.closed:
                raise Unwound
            self._begin_more()
            while not self._is_over:
                await self._join()
            if not self._is_recorded:
                if strand.branch.settled is not None:
                    await execution.go_live(strand)
                await self._record()
            elif why := self._difference():
                await self._calls.does_not_fit(strand, self._ordinal, why)
            elif unused := self._take_unused():
                effects = RunEffects(execution.run_id, execution.epoch, closed_waits=unused)
                await execution.record_for(strand, effects, "messages that nobody took")
        finally:
            self._is_told = True
            strand.undelivered += [place for places in self._undelivered.values() for place in places]
            mine = set(self._branches)
            strand.branch.items = [branch for branch in strand.branch.items if branch not in mine]

    def _difference(self) -> str:
        """What the items do otherwise than the recorded outcome says."""
        if self._recorded is not None and self._deciding != self._recorded:
            return f"its branch {self._recorded} has decided rt.{self._kind}, and does not do so any more"
        if self._recorded is None and self._errors and not self._keeps_errors:
            number, error = next(iter(self._errors.items()))
            return f"its branches have all ended well, and branch {number} fails now: {error!r:.200}"
        return ""

    @property
    def _is_over(self) -> bool:
        is_decided_now = self._deciding is not None and not self._is_recorded
        if is_decided_now and self._closed_waits is None:
            return False
        # The code behind `first` does not wait for those that have lost.
        return (is_decided_now and self._kind == "first") or not (self._under_way or self.has_more)

    async def _join(self) -> None:
        execution = self._execution
        try:
            await execution.strands.rest(self._strand, Rest.JOINING)
        except BaseException as cut:
            await execution.hear_rest_cut(self._strand, cut)
            raise

    async def _record(self) -> None:
        """Record the outcome, with all values that the items have drawn and what was closed."""
        execution, path = self._execution, self._calls.branch.path
        steps = [value for branch in self._branches for value in _take_values(branch)]
        body = codec.encode(self._deciding, what="an outcome")
        record = outcome_record(path, self._ordinal, self._kind, self._kind, body, self._calls.time())
        # From when it was decided until the last step in flight had ended.
        steps.append(replace(record, started_at=self._decided_at or record.started_at))
        closed = [*(self._closed_waits or ()), *self._take_unused()]
        self._is_told = True
        effects = RunEffects(execution.run_id, execution.epoch, steps, closed_waits=closed)
        await execution.record_for(self._strand, effects, f"the outcome of rt.{self._kind}")

    def _take_unused(self) -> list[tuple[str, int]]:
        """The waits of the items that were of no use; what others were given goes on to whoever awaits the group."""
        if self._deciding is None:
            return []
        used = {self._deciding: self._undelivered.pop(self._deciding, [])}
        unused, self._undelivered = self._undelivered, used
        return [place for places in unused.values() for place in places]

    # ------------------------------------------------------------ items
    def _begin_more(self) -> None:
        """Begin as many items as may be under way; none of a group that is unwound itself."""
        execution, outer = self._execution, self._strand.branch
        while self.has_more and (self._limit is None or self._under_way < self._limit):
            if execution.unwinding or outer.closed:
                return
            self._begin(len(self._branches))

    def _begin(self, number: int) -> None:
        execution, outer = self._execution, self._strand.branch
        item = f".{number}" if self._keys is None else key_text(self._keys[number])
        path = item_path(self._calls.branch.path, self._ordinal, item)
        branch = Branch(execution.history.places(path), outer, self)
        branch.settled, branch.over_at = outer.settled, outer.over_at
        if self._is_recorded:
            counts = self._recorded is None or self._recorded == number
            branch.settled = Settled.COUNTS if counts else Settled.CLOSED
            branch.over_at = self._decided_at
        elif self._deciding is not None:
            branch.settled, branch.over_at = Settled.CLOSED, self._calls.time()
        self._branches.append(branch)
        outer.items.append(branch)
        if branch.settled is Settled.CLOSED and self._kind == "map" and not execution.history.has_records(path):
            return  # it was not begun before the group was decided
        self._under_way += 1
        calls = type(self._calls)(execution, branch)
        context = copy_context()
        context.run(runtime_variable.set, calls)
        task = asyncio.get_running_loop().create_task(self._carry(number, branch, calls), context=context)
        if branch.strand is None:
            branch.strand = execution.strands.add(branch, task)
        execution.tasks.add(task)
        task.add_done_callback(execution.tasks.discard)

    async def _carry(self, number: int, branch: Branch, calls: "Calls") -> None:
        """The body of an item's task."""
        execution = self._execution
        if branch.strand is None:  # an eager task runs before its maker holds it
            branch.strand = execution.strands.add(branch, asyncio.current_task())
        strand = branch.strand
        try:
            with suppress(Unwound):
                await self._perform(number, branch, calls, strand)
            strand.in_code = False
            if self._is_told and strand.undelivered and not execution.unwinding:
                await execution.record(RunEffects(execution.run_id, execution.epoch, closed_waits=strand.undelivered))
        except Unwound:
            pass
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as broken:  # nobody else awaits this task
            execution.fail_itself(broken)
        finally:
            strand.running_step = None
            strand.in_code = False
            if not self._is_told:
                self._undelivered[number] = strand.undelivered
            self._end()
            execution.strands.take_back(strand)
            execution.strands.remove(strand)

    async def _perform(self, number: int, branch: Branch, calls: "Calls", strand: Strand) -> None:
        execution = self._execution
        try:
            execution.give_floor(strand)
            made = self._makes[number]()
            branch.wakes_alone = self._kind == "first" or made not in execution.child_calls
            if isinstance(made, Threaded):
                result = await execution.on_thread(calls, strand, made.call, f"{execution.run_id}-{branch.path}")
            else:
                result = await made
            if not (execution.unwinding or branch.closed):
                calls.require_awaited()
        except (Unwound, KeyboardInterrupt):
            raise
        except CancelRun as wish:
            strand.in_code = False
            if branch.is_over:
                raise Unwound from None
            execution.wish(Finish(Status.CANCELLED, reason=codec.clean_text(wish.reason)))
            await execution.stop(strand)
        except asyncio.CancelledError as cancelled:
            strand.in_code = False
            await execution.hear_cancelled_error(strand)
            self._errors[number] = cancelled
        except BaseException as error:  # whatever leaves the item, SystemExit too, is its error
            if isinstance(error, GeneratorExit) and not execution.is_current(strand):
                raise
            self._errors[number] = error
        else:
            self._results[number] = result
        if self._deciding is None and self._decides(number) and not (branch.closed or execution.unwinding):
            self._deciding = number

    def _decides(self, number: int) -> bool:
        if self._is_recorded and self._recorded != number:
            return False
        return self._kind == "first" or (number in self._errors and not self._keeps_errors)

    def _end(self) -> None:
        """An item is through: go on with the group."""
        execution = self._execution
        self._under_way -= 1
        if self._deciding is not None and self._closed_waits is None and not self._is_recorded:
            # While others replay, what they have recorded must be passed first: then they are closed where it ends.
            execution.close_when_replayed(self._close)
        self._begin_more()
        self._see_whether_over()

    def _see_whether_over(self) -> None:
        if self._strand.rest is Rest.JOINING and self._is_over:
            self._execution.strands.rouse(self._strand)

    def _close(self) -> None:
        """The group is decided: close the other items."""
        self._closed_waits, self._decided_at = [], self._calls.time()
        if not self._execution.unwinding:
            self._closed_waits = self._execution.close(self._branches, self._decided_at)
        self._see_whether_over()


def _take_values(branch: Branch) -> list[StepRecord]:
    """The values that a branch and those within it have drawn and not recorded."""
    values, branch.unsettled = branch.unsettled, []
    for item in branch.items:
        values += _take_values(item)
    return values


def drop_unbegun(items: Sequence[object]) -> None:
    """Items that no branch has begun, for their group was decided or unwound before: they would complain of that."""
    for item in items:
        if inspect.iscoroutine(item) and inspect.getcoroutinestate(item) == inspect.CORO_CREATED:
            item.close()
