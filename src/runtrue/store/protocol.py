"""What a store must do: aggregate operations, batch-shaped. A call goes in, one reply comes out.

Every operation is one transaction. No cursor crosses this border, none holds a transaction over user code, and none
reads before it writes to decide a status: every change of status is one guarded statement whose row count is checked.
The replies carry what the caller must know next, so that nobody has to ask twice. What a worker records is described in
`effects`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from runtrue.lifecycle import Answer, Command, Status
from runtrue.records import (
    AttemptRecord,
    CommandRecord,
    Event,
    Hold,
    InFlight,
    Message,
    Pause,
    Request,
    RunRecord,
    StepRecord,
    Wait,
    WorkerRecord,
)
from runtrue.store.effects import (
    ChildStart,
    EffectsReply,
    End,
    Finish,
    NewRun,
    OpenWait,
    ParentLink,
    ParkBlocked,
    ParkHeld,
    ParkRequested,
    Recorded,
    Release,
    RunEffects,
)

__all__ = [
    "LOSSES_BEFORE_HOLD",
    "NEVER",
    "ChildStart",
    "Claimed",
    "CommandReply",
    "CommandRequest",
    "EffectsReply",
    "End",
    "Finding",
    "Finish",
    "Heartbeat",
    "NewRun",
    "NewWorker",
    "OpenWait",
    "OwnedRun",
    "ParentLink",
    "ParkBlocked",
    "ParkHeld",
    "ParkRequested",
    "Recorded",
    "Release",
    "RunEffects",
    "RunFilter",
    "SchemaStatus",
    "Started",
    "Store",
    "Swept",
]

NEVER = 253_402_300_799_999_999
"""The last microsecond of the year 9999: `ready_at` of a run that no time wakes, only a fact."""

LOSSES_BEFORE_HOLD = 5
"""So many lost workers without a newly recorded step park the run under a hold."""


# ---------------------------------------------------------------- starting
@dataclass(frozen=True, slots=True)
class Started:
    """`created` is False where the same start had been made before. `conflict` tells what differs, else it is empty."""

    run_id: str
    created: bool
    status: Status
    conflict: str = ""


# ---------------------------------------------------------------- commands
@dataclass(frozen=True, slots=True)
class CommandRequest:
    """One verb for one run. The store does nothing at all once its clock is past `not_after`.

    `pause_id` (resume): only if this is still the active pause. `hold_id` and `value` (answer): which hold, how.
    `value` and `body` (send): the topic and the encoded message.
    """

    run_id: str
    verb: Command
    request_id: str
    not_after: int
    actor: str = ""
    reason: str = ""
    pause_id: str | None = None
    hold_id: str | None = None
    value: str = ""
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class CommandReply:
    """How a command was met; stored in the same transaction, and returned again to a repeat of the same request id.

    `found` is False where there is no such run. `changed` is False where the wish was fulfilled already.
    `status` is the run's status after the command. `open_holds` are those still open. `still_held` is True where a
    resume or answer closed a hold and another one keeps the run paused. `repeated` marks a stored reply.
    `refusal` is the sentence for a refused caller. `request_conflict` marks a request id used before for another wish.
    """

    found: bool
    answer: Answer = Answer.REFUSED
    changed: bool = False
    status: Status = Status.PENDING
    request: Request | None = None
    open_holds: Sequence[Hold] = ()
    still_held: bool = False
    pause_id: str | None = None
    repeated: bool = False
    refusal: str = ""
    request_conflict: bool = False
    worker_id: str | None = None


# ---------------------------------------------------------------- workers
@dataclass(frozen=True, slots=True)
class NewWorker:
    """A worker that registers. Its id was never used before. `lease` in microseconds.

    `code_digests`: the digest of the code of each (workflow, version) that it serves. A `code_mismatch` hold of a run
    of these is closed if none of the run's holds was ever opened by that very code.
    """

    id: str
    host: str
    pid: int
    slots: int
    serves: Sequence[str]
    lease: int
    code_digests: Sequence[tuple[str, str, str]] = ()


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a worker tells with each renewal. `loop_seen_at`: when its event loop was last seen turning."""

    worker_id: str
    lease: int
    loop_seen_at: int
    in_flight: Sequence[InFlight] = ()
    stalled_in: str = ""
    fenced_writes: int = 0


@dataclass(frozen=True, slots=True)
class OwnedRun:
    """A run that a worker owns by the row, as the renewal brings it back."""

    run_id: str
    epoch: int
    status: Status
    wakeups: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """A claimed run with all that is needed to execute it, read after the claim in the same transaction.

    Open waits that could be met by then are met: their results are among `steps`. `waits` are those still open, and
    `wakeups` is the counter that all of this was read at.
    """

    run_id: str
    workflow: str
    version: str
    epoch: int
    status: Status
    wakeups: int
    attempt: int
    input: bytes
    tags: Mapping[str, str]
    created_at: int
    steps: Sequence[StepRecord]
    attempts: Sequence[AttemptRecord]
    waits: Sequence[Wait] = ()
    parent_id: str | None = None


# ---------------------------------------------------------------- sweeping and watching
@dataclass(frozen=True, slots=True)
class Swept:
    """One round of the sweeper. `more` is True where the round was full and another should follow at once.

    `runs_cancelled`: by their deadline, or with their parent.
    """

    workers_lost: Sequence[str]
    runs_released: int
    runs_held: int
    more: bool
    runs_cancelled: int = 0


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs to list; empty fields do not filter. `tags` must all match. `since`: created at or after."""

    statuses: Sequence[Status] = ()
    workflow: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    since: int | None = None


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """`version` is 0 where nothing was migrated yet. `latest` is what this code brings."""

    version: int
    latest: int
    location: str
    database: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken promise that `doctor` found: which promise, which run, what is wrong."""

    promise: str
    run_id: str
    problem: str


class Store(Protocol):
    """A database that holds runs. Opened within a running event loop and used from it, but for `renew`."""

    async def close(self) -> None:
        """Finish what was handed in, then close. Idempotent."""
        ...

    # -- schema
    async def migrate(self) -> SchemaStatus:
        """Bring the schema to the latest version. Safe when several processes do it at once."""
        ...

    async def schema_status(self) -> SchemaStatus: ...

    # -- runs from outside
    async def start(self, runs: Sequence[NewRun]) -> list[Started]:
        """Insert runs, each with its input and a `created` event; idempotent by id and by (workflow, key)."""
        ...

    async def get(self, run_id: str, *, payloads: bool = True) -> RunRecord | None: ...

    async def statuses(self, run_ids: Sequence[str]) -> dict[str, tuple[Status, int]]:
        """Status and event sequence of each run that exists."""
        ...

    async def list_runs(self, where: RunFilter, limit: int, before: tuple[int, str] | None = None) -> list[RunRecord]:
        """Newest first, by (created_at, id); `before` is the key of the last row of the page before. No payloads."""
        ...

    async def count_runs(self) -> dict[Status, int]: ...

    async def steps(self, run_id: str) -> tuple[list[StepRecord], list[AttemptRecord]]:
        """The recorded steps and the failed attempts, by place."""
        ...

    async def events(self, run_id: str, after: int = 0, limit: int = 1000) -> list[Event]:
        """Events, steps and failed attempts with a sequence over `after`, merged in the order of commits."""
        ...

    async def holds(self, run_id: str | None = None, *, open_only: bool = False) -> list[Hold]: ...

    async def pauses(self, run_id: str) -> list[Pause]: ...

    async def commands(self, run_id: str) -> list[CommandRecord]: ...

    async def waits(self, run_id: str) -> list[Wait]:
        """The waits of a run by place, closed ones too."""
        ...

    async def messages(self, run_id: str) -> list[Message]:
        """The messages that were sent to a run, oldest first, received ones too."""
        ...

    async def published(self, run_id: str) -> dict[str, bytes]:
        """The encoded values that a run has published, by key."""
        ...

    async def children(self, run_id: str) -> list[RunRecord]:
        """The runs that this run has started as its children, oldest first. No payloads."""
        ...

    async def command(self, request: CommandRequest) -> CommandReply:
        """Carry out one verb. Raises StoreBusy if the database was busy until the deadline: nothing was changed."""
        ...

    # -- workers
    async def register_worker(self, worker: NewWorker) -> None: ...

    def renew(self, beat: Heartbeat) -> list[OwnedRun] | None:
        """Renew the lease of an `alive` worker and bring back the runs that it owns; None if it is refused.

        Called from the worker's heartbeat thread, blocking: a busy event loop must not cost the lease.
        """
        ...

    async def retire_worker(self, worker_id: str) -> None:
        """The worker says goodbye: it is `stopped`, what it still owns may be swept at once."""
        ...

    async def workers(self) -> list[WorkerRecord]: ...

    async def claim(self, worker_id: str, serves: Sequence[tuple[str, str]], limit: int) -> list[Claimed]:
        """Claim up to `limit` due runs of the (workflow, version) pairs: by priority, then ready_at, then id.

        Nothing is claimed for a worker whose row is not `alive`.
        """
        ...

    async def next_ready_at(self, serves: Sequence[tuple[str, str]]) -> int | None:
        """When the next pending or waiting run of these becomes due; in the past if one is due already."""
        ...

    async def record(self, worker_id: str, effects: Sequence[RunEffects]) -> list[EffectsReply]:
        """Record the effects of many runs in one transaction; one reply for each, in order.

        A refused effect costs its own run only. Raises StoreBusy or OutcomeUnknown for the whole batch: the same
        batch may be sent again under the same epochs and gives the same result.
        """
        ...

    async def sweep(self, limit: int = 500) -> Swept:
        """Mark workers lost whose lease has run out (one-way), then put right up to `limit` runs without an owner.

        Then cancel up to `limit` runs whose deadline has passed, or whose parent was cancelled or waits no longer.
        """
        ...

    # -- upkeep
    async def check(self) -> list[Finding]:
        """Look for broken promises. Empty on a healthy database."""
        ...

    async def tidy(self) -> None:
        """Upkeep that may be skipped: shorten the write-ahead log."""
        ...

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` on the event loop soon after the database changed, by whomever. Returns the unsubscriber.

        A hint, never the truth: several changes may come as one call, and a call may come for nothing.
        """
        ...
