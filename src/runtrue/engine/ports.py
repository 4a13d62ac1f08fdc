"""What an execution needs of its worker and of the journal, and the errors that it fails runs with."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from runtrue.authoring import Step, StepInfo
from runtrue.clock import Clock
from runtrue.engine.threads import StepThreads
from runtrue.errors import RuntrueError
from runtrue.lifecycle import Status
from runtrue.records import Progress
from runtrue.store.protocol import EffectsReply, RunEffects

if TYPE_CHECKING:
    from runtrue.engine.execution import Execution


class Outside(Protocol):
    """What a run may ask of the rest of the database, beside what is its own."""

    async def send(self, run_id: str, topic: str, body: bytes, *, request_id: str, actor: str) -> object:
        """Send a message to a run; a repeat of the request id changes nothing. Raises NotFound, Refused, Conflict."""
        ...

    async def served_version(self, workflow: str) -> str:
        """The version that a start by name takes."""
        ...


class StepHooks(Protocol):
    """Looks in on every attempt of every step, and may put another function in its place."""

    def function_of(self, step: Step[..., Any]) -> Callable[..., Any]:
        """What is called in place of the step's function; that function itself where nothing is."""
        ...

    async def before(self, info: StepInfo, step: Step[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An attempt is about to begin."""
        ...

    async def after_effect(self, info: StepInfo, step: Step[..., Any]) -> None:
        """The function has come back; nothing is recorded yet."""
        ...

    async def after_commit(self, run_id: str, step: Step[..., Any]) -> None:
        """The outcome is committed; the workflow has not gone on."""
        ...


AroundStep = Callable[[StepInfo], AbstractContextManager[None]]
"""Makes the context manager that each attempt of each step runs in, on the thread that it runs on."""


class Host(Protocol):
    """What an execution needs of its worker."""

    clock: Clock
    copies_results: bool
    parks_at_once: bool
    """Every wait leaves memory, however short it is: tests replay each one, and move time in one place."""
    threads: StepThreads
    outside: Outside
    hooks: StepHooks | None
    around_step: AroundStep | None

    def may_execute(self) -> bool:
        """False once the worker's lease may have run out by its own clock."""
        ...

    def state(self, type: type[Any], /) -> Any:  # noqa: A002  the word of the public API
        """What the App's lifespan has yielded of this type. Raises ConfigurationError."""
        ...

    def version_of(self, workflow: str) -> str | None:
        """The newest version of a workflow that this worker serves; None if it serves none."""
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

    def note_published(self, run_id: str, epoch: int, key: str, body: bytes) -> None: ...

    def forget_notes(self, run_id: str) -> None: ...


class EffectRefusedError(RuntrueError):
    """The database refuses to record what the run did, and always will."""


class HistoryMismatchError(RuntrueError):
    """The code met another call at a recorded place."""
