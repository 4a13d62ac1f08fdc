"""What an execution needs of its worker and of the journal, and the errors that it fails runs with."""

import asyncio
from typing import TYPE_CHECKING, Protocol

from runtrue.clock import Clock
from runtrue.errors import RuntrueError
from runtrue.lifecycle import Status
from runtrue.records import Progress
from runtrue.store.protocol import EffectsReply, RunEffects

if TYPE_CHECKING:
    from runtrue.engine.execution import Execution


class Host(Protocol):
    """What an execution needs of its worker."""

    clock: Clock
    copies_results: bool

    def may_execute(self) -> bool:
        """False once the worker's lease may have run out by its own clock."""
        ...

    def count_fenced(self) -> None:
        """A write came too late: the run was not this worker's any more."""
        ...

    def is_ending(self) -> bool:
        """True while the program ends the event loop under the worker."""
        ...

    def ended(self, execution: "Execution", status: Status | None) -> None:
        """The execution is over; `status` is the run's status as committed, None if the run was lost."""
        ...

    def left(self, execution: "Execution") -> None:
        """The code of the execution is through, too; it may have been over before."""
        ...


class Recorder(Protocol):
    """What an execution needs of the journal."""

    def record(self, effects: RunEffects) -> asyncio.Future[EffectsReply]: ...

    def note_progress(self, run_id: str, epoch: int, progress: Progress) -> None: ...

    def forget_progress(self, run_id: str) -> None: ...


class EffectRefusedError(RuntrueError):
    """The database refuses to record what the run did, and always will."""


class HistoryMismatchError(RuntrueError):
    """The code met another call at a recorded place."""
