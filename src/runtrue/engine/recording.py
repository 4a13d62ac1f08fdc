"""What an execution records, and what the replies tell it of its run."""

import asyncio
from abc import ABC, abstractmethod
from typing import NoReturn

from runtrue import codec
from runtrue.engine.branch import Branch
from runtrue.engine.ports import EffectRefusedError, Host, Recorder
from runtrue.engine.signals import Unwound
from runtrue.engine.strands import Strand, Strands
from runtrue.lifecycle import Status
from runtrue.records import AttemptRecord, StepRecord
from runtrue.store.protocol import Claimed, EffectsReply, Finish, Recorded, RunEffects


class Recording(ABC):
    """The side of an execution that talks to the journal."""

    def __init__(self, claimed: Claimed, host: Host, journal: Recorder) -> None:
        self.run_id = claimed.run_id
        self.epoch = claimed.epoch
        self.status: Status = claimed.status
        self.host = host
        self.gone = False
        """The run is not ours any more: nothing may be started, nothing will be recorded."""
        self.is_asked = False
        """Something is to be carried out at the next boundary, or the end of this execution is on its way."""
        self.unwinding = False
        """The run was settled: whatever its code still does means nothing."""
        self.wished: Finish | None = None
        """How the code wants the run to end."""
        self.wakeups = claimed.wakeups
        """The counter of facts that all open waits were last looked at with."""
        self.open_waits: dict[tuple[str, int], Strand] = {}
        """Who waits for a message or a child, by the place of the wait."""
        self._journal = journal
        self._looking: asyncio.Task[None] | None = None

    strands: Strands
    root: Branch

    @abstractmethod
    def set_status(self, status: Status) -> None:
        """A reply has brought the row's status."""

    @abstractmethod
    def ask(self) -> None:
        """Have every strand stop at its next boundary."""

    @abstractmethod
    async def boundary(self, strand: Strand) -> None:
        """Stop here while something is asked of the run."""

    @abstractmethod
    async def stop(self, strand: Strand) -> NoReturn:
        """Stop here for good."""
        raise NotImplementedError

    @abstractmethod
    async def fail_cancelled_call(self, strand: Strand) -> NoReturn:
        """A call was cancelled by somebody else."""
        raise NotImplementedError

    @abstractmethod
    def fail_itself(self, broken: BaseException) -> None:
        """The engine is at fault."""

    # ------------------------------------------------------------ effects
    async def record(self, effects: RunEffects) -> EffectsReply:
        """Hand effects to the journal; the reply's status is the run's newest. Raises Unwound if the run is lost."""
        if self.gone:
            self.host.count_fenced()
            self._lose()
        reply = await self._journal.record(effects)
        if reply.recorded is Recorded.FENCED or reply.status is None:
            self._lose()
        if reply.status is not self.status:
            self.set_status(reply.status)
        if reply.wakeups != self.wakeups:
            self.hear_wakeups(reply.wakeups)
        return reply

    def _lose(self) -> NoReturn:
        self.gone = True
        self.ask()
        self.strands.ignores_code = True
        raise Unwound

    async def record_for(self, strand: Strand, effects: RunEffects, what: str, *, stops: bool = True) -> EffectsReply:
        """Record what a strand has done, and stop at the boundary that the reply is (unless the caller does)."""
        try:
            reply = await self.record(effects)
        except asyncio.CancelledError:
            # Never ours: the worker interrupts steps and code, not the journal. The effect is on its way all the
            # same, and the end that follows is written after it.
            await self.fail_cancelled_call(strand)
        if reply.recorded is Recorded.CONDEMNED:
            self.condemn(what, reply.error)
            await self.stop(strand)
        # A branch that was closed meanwhile is given the result all the same, as every replay will give it.
        if stops and self.is_asked and (self.unwinding or not strand.branch.closed):
            await self.boundary(strand)
        return reply

    def condemn(self, what: str, why: str) -> None:
        """The database refuses an effect and always will: the run is to fail, whatever its code makes of that."""
        error = EffectRefusedError(codec.clean_text(f"the database refused {what}: {why}"))
        self.wished = Finish(Status.FAILED, codec.encode_error(error))
        self.ask()

    async def record_step(self, strand: Strand, record: StepRecord) -> StepRecord:
        """Record the outcome of a call and look at the boundary. Returns what is recorded: the first writer's."""
        what = f"the result of {record.kind} {record.name}"
        reply = await self.record_for(strand, RunEffects(self.run_id, self.epoch, [record]), what)
        return at_place(reply, record.branch, record.ordinal) or record if reply.existing else record

    async def record_attempt(self, strand: Strand, record: AttemptRecord) -> None:
        """Record that an attempt failed."""
        effects = RunEffects(self.run_id, self.epoch, attempts=[record])
        await self.record_for(strand, effects, f"a failed attempt of step {record.name}")

    async def settle(self, branch: Branch) -> None:
        """Record the values that a branch has drawn, before anything that depends on them is started."""
        if branch.settling is not None:
            await branch.settling.wait()
        values, branch.unsettled = branch.unsettled, []
        if not values:
            return
        branch.settling = asyncio.Event()
        try:
            reply = await self.record(RunEffects(self.run_id, self.epoch, values))
            if reply.recorded is Recorded.CONDEMNED:
                self.condemn("a recorded value", reply.error)
        finally:
            branch.settling.set()
            branch.settling = None

    async def settle_all(self) -> bool:
        """Record the values that are left. True if there were any: the reply may have brought a request."""
        found = False
        branches = [self.root]
        while branches:
            branch = branches.pop()
            branches += branch.items
            if branch.unsettled:
                found = True
                await self.settle(branch)
        return found

    # ------------------------------------------------------------ facts from outside
    def hear_wakeups(self, wakeups: int) -> None:
        """The counter of facts has risen. It is believed only together with the facts themselves."""
        if wakeups <= self.wakeups or self.unwinding:
            return
        if not self.open_waits:
            # Whatever is waited for from now on is looked at when its wait is opened.
            self.wakeups = wakeups
        elif self._looking is None and not self.gone:
            self.strands.keep_busy()
            self._looking = asyncio.create_task(self._look_on(), name=f"runtrue-look-{self.run_id}")

    async def _look_on(self) -> None:
        try:
            await self.look()
        except Unwound:
            pass
        except Exception as broken:  # nobody else awaits this task
            self.fail_itself(broken)
        finally:
            self._looking = None
            self.strands.let_rest()

    async def look(self) -> None:
        """Look whether what is waited for is there, and rouse who waits for it."""
        reply = await self.record(RunEffects(self.run_id, self.epoch, looks=True))
        self.wakeups = max(self.wakeups, reply.wakeups)
        for step in reply.existing:
            strand = self.open_waits.pop((step.branch, step.ordinal), None)
            if strand is not None:
                self.strands.rouse(strand, step)


def at_place(reply: EffectsReply, branch: str, ordinal: int) -> StepRecord | None:
    """The step of the reply that stands at this place."""
    return next((step for step in reply.existing if step.branch == branch and step.ordinal == ordinal), None)
