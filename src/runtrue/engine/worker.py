"""A worker: claims runs of the workflows it serves, executes them, and keeps its lease.

A worker that lost its lease (it was frozen, or the database was away) drops every run and registers again under a new
id: an id that was once lost never comes back.
"""

import asyncio
import logging
import math
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runtrue.authoring import DefinedWorkflow
from runtrue.clock import MICROSECOND, Clock, wait_for_event
from runtrue.engine.execution import Execution
from runtrue.engine.heartbeat import STALL_SHOWN_AFTER_SECONDS, HeartbeatThread, LeaseTimes
from runtrue.engine.journal import Journal
from runtrue.engine.ports import AroundStep, Outside, StepHooks
from runtrue.engine.threads import StepThreads
from runtrue.errors import ConfigurationError, RuntrueError, StoreError, StoreUnusable
from runtrue.ids import new_worker_id
from runtrue.lifecycle import Status
from runtrue.records import InFlight
from runtrue.store.protocol import Claimed, Heartbeat, NewWorker, OwnedRun, Release, RunEffects, Store

logger = logging.getLogger("runtrue.engine")

POLL_SECONDS = 2.0
"""The longest time between two looks for due runs, should every hint be lost."""
CLAIM_RETRY_SECONDS = 0.5
IN_FLIGHT_AFTER = MICROSECOND // 2
"""A step that has been running for so long is told with the renewal."""
IN_FLIGHT_TOLD_MAX = 1_000
INTERRUPT_GRACE_SECONDS = 2.0
"""How long a drain waits, after its deadline, for interrupted steps to return."""

Registry = Mapping[tuple[str, str], DefinedWorkflow[..., Any]]


class Worker:
    """Executes runs in this event loop. `start`, then `drain`.

    `threads`: how many `def` steps of the pool run at once. `state`: gives what `rt.state` asks for. `on_unusable` is
    called once, if the database is lost for good.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        registry: Registry,
        *,
        slots: int,
        lease_seconds: float,
        stall_limit_seconds: float,
        outside: Outside,
        threads: int = 32,
        state: Callable[[type[Any]], Any] | None = None,
        around_step: AroundStep | None = None,
        hooks: StepHooks | None = None,
        copies_results: bool = False,
        on_ended: Callable[[str, Status], None],
        on_stalled: Callable[[str], None],
        on_unusable: Callable[[StoreUnusable], None] = lambda _: None,
    ) -> None:
        self.clock = clock
        self.copies_results = copies_results
        self.outside = outside
        self.threads = StepThreads(threads)
        self.around_step = around_step
        self.hooks = hooks
        self.parks_at_once = hooks is not None
        self.id = ""
        self.fenced_writes = 0
        """Writes that came too late, under this id and those before it. A step may end long after its run was lost."""
        self._store = store
        self._registry = registry
        self._serves: Sequence[tuple[str, str]] = tuple(registry)
        self._slots = slots
        self._times = LeaseTimes.of(lease_seconds)
        self._stall_limit_seconds = stall_limit_seconds
        self._on_ended = on_ended
        self._on_stalled = on_stalled
        self._on_unusable = on_unusable
        self._state = state
        self._executions: dict[tuple[str, int], Execution] = {}
        self._inside: set[Execution] = set()
        """Executions whose code is not through yet; after the unwinding some of it may cling."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._all_ended = asyncio.Event()
        self._all_ended.set()
        self._all_left = asyncio.Event()
        self._all_left.set()
        self._lost = asyncio.Event()
        self._gave_up = False
        """The heartbeat gave the lease up because this loop stood still."""
        self._loop = asyncio.get_running_loop()
        self._unknown: frozenset[tuple[str, int]] = frozenset()
        self._claiming = False
        self._draining = False
        self._journal: Journal | None = None
        self._heartbeat: HeartbeatThread | None = None
        self._main: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] = lambda: None

    # ------------------------------------------------------------ life
    async def start(self) -> None:
        """Register and begin to claim. Raises what the store raises if the worker cannot be registered."""
        await self._register()
        self._unsubscribe = self._store.subscribe(self._wake.set)
        self._main = asyncio.create_task(self._live(), name="runtrue-worker")

    async def drain(self, deadline_seconds: float) -> None:
        """Claim no more; give runs back at their next boundary; after the deadline interrupt steps in flight.

        A run whose step does not even let itself be interrupted stays owned, and is swept once the worker is gone.
        """
        self._draining = True
        self._wake.set()
        for execution in list(self._executions.values()):
            execution.hear_drain()
        if not await wait_for_event(self.clock, self._all_ended, deadline_seconds):
            for execution in list(self._executions.values()):
                execution.interrupt()
            await wait_for_event(self.clock, self._all_ended, INTERRUPT_GRACE_SECONDS)
        # The runs are settled; what is left of their code may come to its end.
        await wait_for_event(self.clock, self._all_left, min(deadline_seconds, INTERRUPT_GRACE_SECONDS))
        await self._leave()

    def wake(self) -> None:
        """Look for due runs now."""
        self._wake.set()

    @property
    def running(self) -> int:
        """How many runs are being executed."""
        return len(self._executions)

    @property
    def is_idle(self) -> bool:
        """True while no run is executed here, and none is being claimed."""
        return not self._executions and not self._claiming

    def vanish(self) -> None:
        """Start and send nothing any more, as if the process had ended here. For tests, which then `reappear`."""
        if self._heartbeat is not None:
            self._heartbeat.stop()
            self._heartbeat.fence_at = -math.inf
        self._gave_up = True
        for execution in list(self._executions.values()):
            execution.hear_lost()
            execution.interrupt()

    def reappear(self) -> None:
        """Register again under a new id, as another process would."""
        self._lost.set()

    async def _leave(self) -> None:
        self._unsubscribe()
        if self._main is not None:
            self._main.cancel()
            await asyncio.gather(self._main, return_exceptions=True)
        if self._journal is not None:
            await self._journal.settle()
        if self._heartbeat is not None:
            self._heartbeat.stop()
            await asyncio.to_thread(self._heartbeat.join, self._times.lease)
        for task in self._tasks:
            task.cancel()
        self.threads.close()
        try:
            await self._store.retire_worker(self.id)
        except StoreError as trouble:
            logger.warning("worker %s could not say goodbye, its lease will run out: %s", self.id, trouble)

    async def _register(self) -> None:
        registered_at = self.clock.steady()
        self.id = new_worker_id()
        self._lost = asyncio.Event()
        self._gave_up = False
        self._unknown = frozenset()
        await self._store.register_worker(
            NewWorker(
                id=self.id,
                host=platform.node(),
                pid=os.getpid(),
                slots=self._slots,
                serves=[f"{name}@{version}" for name, version in self._serves],
                lease=round(self._times.lease * MICROSECOND),
                code_digests=[(name, version, each.code_digest) for (name, version), each in self._registry.items()],
            )
        )
        lost = self._lost
        self._heartbeat = heartbeat = HeartbeatThread(
            self._store,
            self.clock,
            self._times,
            make_beat=self._make_beat,
            is_busy=lambda: bool(self._executions),
            on_owned=self._pass_owned,
            on_lost=lambda: _hand_over(self._loop, lost.set),
            on_stalled=self._hear_stalled,
            on_unusable=self._hear_unusable,
            ask_loop=lambda answer: _hand_over(self._loop, answer),
            stall_limit_seconds=self._stall_limit_seconds,
        )
        self._journal = Journal(
            self._store, self.clock, self.id, lambda: self.clock.steady() < heartbeat.fence_at, self.count_fenced
        )
        heartbeat.start(registered_at)

    async def _live(self) -> None:
        """Claim until the lease is lost, then drop everything and register again; for ever."""
        while True:
            claims = asyncio.create_task(self._claim_on(), name="runtrue-claims")
            lost = asyncio.create_task(self._lost.wait())
            try:
                await asyncio.wait((claims, lost), return_when=asyncio.FIRST_COMPLETED)
            finally:
                claims.cancel()
                lost.cancel()
                await asyncio.gather(claims, lost, return_exceptions=True)
            if self._draining:
                return
            logger.warning("worker %s lost its lease; it drops %d runs and registers again", self.id, self.running)
            self._drop_all()
            while True:
                try:
                    await self._register()
                    break
                except StoreUnusable as lost:
                    logger.error("the worker ends: %s", lost)
                    self._on_unusable(lost)
                    return
                except StoreError as trouble:
                    logger.warning("the worker cannot register: %s", trouble)
                except Exception:  # a worker that gives up here looks open and never works again
                    logger.exception("the worker cannot register")
                await self.clock.sleep(CLAIM_RETRY_SECONDS)

    def _drop_all(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()
        for execution in list(self._executions.values()):
            execution.hear_lost()

    # ------------------------------------------------------------ claiming
    async def _claim_on(self) -> None:
        backlog = False
        while not self._draining:
            self._wake.clear()
            free = self._slots - len(self._executions)
            pause_seconds = POLL_SECONDS
            try:
                if free > 0 and self.may_execute():
                    # After a claim that filled every slot more is probably due: the look is saved.
                    due_in = 0.0 if backlog else await self._due_in_seconds()
                    if due_in <= 0 and not self._draining:
                        claimed = await self._claim(free)
                        guessed, backlog = backlog, claimed == free
                        if claimed or guessed:
                            continue
                        due_in = CLAIM_RETRY_SECONDS
                    pause_seconds = min(POLL_SECONDS, due_in)
            except StoreError as trouble:
                logger.warning("worker %s could not claim: %s", self.id, trouble)
                pause_seconds = CLAIM_RETRY_SECONDS
            except Exception:  # a fault of ours in one claim must not cost the runs in flight their worker
                logger.exception("worker %s could not claim", self.id)
                pause_seconds = CLAIM_RETRY_SECONDS
            await wait_for_event(self.clock, self._wake, pause_seconds)

    async def _due_in_seconds(self) -> float:
        ready_at = await self._store.next_ready_at(self._serves)
        return POLL_SECONDS if ready_at is None else (ready_at - self.clock.now()) / MICROSECOND

    async def _claim(self, limit: int) -> int:
        journal, heartbeat = self._journal, self._heartbeat
        assert journal is not None
        assert heartbeat is not None
        self._claiming = True
        # A drain waits for the reply: what it brings must be given back.
        self._all_ended.clear()
        try:
            claimed = await self._store.claim(self.id, self._serves, limit)
            for run in claimed:
                self._execute(run, journal, heartbeat.beats_begun)
        finally:
            self._claiming = False
            self._see_whether_all_ended()
        return len(claimed)

    def _execute(self, claimed: Claimed, journal: Journal, seen_beats: int) -> None:
        workflow = self._registry[claimed.workflow, claimed.version]
        execution = Execution(claimed, workflow, self, journal, seen_beats)
        self._executions[claimed.run_id, claimed.epoch] = execution
        self._all_left.clear()
        self._inside.add(execution)
        if self._draining:
            execution.hear_drain()
        task = asyncio.create_task(execution.run(), name=f"runtrue-run-{claimed.run_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ------------------------------------------------------------ what executions ask (the Host protocol)
    def state(self, type: type[Any], /) -> Any:  # noqa: A002  the word of the public API
        """What the App's lifespan has yielded of this type."""
        if self._state is None:
            raise ConfigurationError(f"rt.state: there is no {type.__name__}, the App has no lifespan")
        return self._state(type)

    def version_of(self, workflow: str) -> str | None:
        """The version of a workflow that this worker serves; the one registered last if there are several."""
        return next((version for name, version in reversed(self._serves) if name == workflow), None)

    def may_execute(self) -> bool:
        """False once the lease may have run out by the worker's own clock, or a renewal was refused."""
        heartbeat = self._heartbeat
        return heartbeat is not None and not self._gave_up and self.clock.steady() < heartbeat.fence_at

    def count_fenced(self) -> None:
        """A write came too late; the next renewal tells it."""
        self.fenced_writes += 1

    def ended(self, execution: Execution, status: Status | None) -> None:
        """An execution is over; its slot is free."""
        self._executions.pop((execution.run_id, execution.epoch), None)
        self._see_whether_all_ended()
        self._wake.set()
        if status is not None:
            self._on_ended(execution.run_id, status)

    def left(self, execution: Execution) -> None:
        """The code of an execution is through."""
        self._inside.discard(execution)
        if not self._inside:
            self._all_left.set()

    def is_ending(self) -> bool:
        """True while the program cancels every task of the loop, ours too, to end it."""
        main = self._main
        return main is not None and (main.done() or main.cancelling() > 0)

    def _see_whether_all_ended(self) -> None:
        if not self._executions and not self._claiming:
            self._all_ended.set()

    # ------------------------------------------------------------ the heartbeat
    def _make_beat(self, stalled_seconds: float) -> Heartbeat:
        """What the renewal tells. Called in the heartbeat thread."""
        now = self.clock.now()
        in_flight: list[InFlight] = []
        for execution in list(self._executions.values()):
            for name, attempt, since in execution.steps_in_flight():
                if now - since >= IN_FLIGHT_AFTER and len(in_flight) < IN_FLIGHT_TOLD_MAX:
                    in_flight.append(InFlight(execution.run_id, name, attempt, since))
        stalled_in = self._stalled_where() if stalled_seconds >= STALL_SHOWN_AFTER_SECONDS else ""
        return Heartbeat(
            worker_id=self.id,
            lease=round(self._times.lease * MICROSECOND),
            loop_seen_at=now - round(stalled_seconds * MICROSECOND),
            in_flight=in_flight,
            stalled_in=stalled_in,
            fenced_writes=self.fenced_writes,
        )

    def _stalled_where(self) -> str:
        """Which step holds up the loop, read from another thread: the task that the loop is in the middle of."""
        task = asyncio.current_task(self._loop)
        for execution in list(self._executions.values()):
            strand = execution.strand_of(task)
            if strand is not None:
                step = strand.running_step
                where = f"step {step[0]}" if step is not None else "the workflow's own code"
                return f"{where} of run {execution.run_id}"
        return "code that is no step"

    def _hear_stalled(self, seconds: float) -> None:
        """The loop has been dead for so long that the lease is given up. Called in the heartbeat thread."""
        where = self._stalled_where()
        logger.error("worker %s: the event loop has stood still for %.0f s in %s", self.id, seconds, where)
        self._gave_up = True
        _hand_over(self._loop, self._lost.set)
        self._on_stalled(where)

    def _hear_unusable(self, trouble: StoreUnusable) -> None:
        """The database is lost for good. Called in the heartbeat thread."""
        logger.error("worker %s: %s", self.id, trouble)
        _hand_over(self._loop, self._on_unusable, trouble)

    def _pass_owned(self, heartbeat: HeartbeatThread, owned: list[OwnedRun], beat: int) -> None:
        _hand_over(self._loop, self._hear_owned, heartbeat, owned, beat)

    def _hear_owned(self, heartbeat: HeartbeatThread, owned: list[OwnedRun], beat: int) -> None:
        """Compare what the rows say this worker owns with what it executes."""
        if heartbeat is not self._heartbeat:
            return
        rows = {(run.run_id, run.epoch): run for run in owned}
        for key, execution in list(self._executions.items()):
            row = rows.get(key)
            if row is not None:
                execution.hear_row(row.status, row.wakeups)
            elif execution.seen_beats < beat:
                execution.hear_lost()
        for execution in [execution for execution in self._inside if execution.unwinding]:
            execution.nudge()
        if self._claiming:
            # The reply of a claim may be on its way: what it brings is not unknown.
            return
        unknown = frozenset(key for key in rows if key not in self._executions)
        for run_id, epoch in unknown & self._unknown:
            self._give_back(run_id, epoch)
        self._unknown = unknown

    def _give_back(self, run_id: str, epoch: int) -> None:
        """Release a run that two renewals found with us though we do not execute it (a lost reply of a claim)."""
        if self._journal is None:
            return
        logger.warning("worker %s owns run %s without executing it; it is given back", self.id, run_id)
        reply = self._journal.record(RunEffects(run_id, epoch, end=Release()))
        reply.add_done_callback(_report_failure)


def _hand_over(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *args: object) -> None:
    """Call on the loop; nothing if the loop is closed, then nobody is there to hear."""
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:
        logger.debug("the event loop is closed")


def _report_failure(reply: "asyncio.Future[Any]") -> None:
    if not reply.cancelled() and isinstance(reply.exception(), RuntrueError):
        logger.warning("a run could not be given back: %s", reply.exception())
