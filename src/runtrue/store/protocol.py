"""What a store must do: aggregate operations, batch-shaped. A call goes in, one reply comes out.

Every operation is one transaction. No cursor crosses this border, none holds a transaction over user code, and none
reads before it writes to decide a status: every change of status is one guarded statement whose row count is checked.
The replies carry what the caller must know next, so that nobody has to ask twice.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from runtrue.lifecycle import Answer, Command, HoldKind, Status
from runtrue.records import (
    AttemptRecord,
    CommandRecord,
    Event,
    Hold,
    InFlight,
    Message,
    Pause,
    Progress,
    Request,
    RunRecord,
    StepRecord,
    Wait,
    WorkerRecord,
)

NEVER = 253_402_300_799_999_999
"""The last microsecond of the year 9999: `ready_at` of a run that no time wakes, only a fact."""

LOSSES_BEFORE_HOLD = 5
"""So many lost workers without a newly recorded step park the run under a hold."""


# ---------------------------------------------------------------- starting
@dataclass(frozen=True, slots=True)
class ParentLink:
    """The place in a parent run that starts a child. `cancels`: a parent that is cancelled, or a branch of it that is
    closed while it waits for the child, has the child cancelled too.
    """

    run_id: str
    branch: str
    ordinal: int
    cancels: bool


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to be born `pending`. `ready_at` may lie in the future, `deadline_at` must. `input` is encoded."""

    id: str
    workflow: str
    version: str
    input: bytes
    ready_at: int
    priority: int = 0
    idempotency_key: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    actor: str = ""
    deadline_at: int | None = None
    parent: ParentLink | None = None


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


# ---------------------------------------------------------------- the journal
@dataclass(frozen=True, slots=True)
class ParkRequested:
    """Stop because a pause was asked. Legal from `pausing` only."""


@dataclass(frozen=True, slots=True)
class ParkBlocked:
    """Nothing can go on before `ready_at`. Legal only while the run's wake counter is still `wakeups`.

    `by_any_child`: the end of any child that is waited for lets something go on. Otherwise only the end of the last one
    does, or that of one which has not completed.
    """

    wakeups: int
    ready_at: int
    by_any_child: bool = True


@dataclass(frozen=True, slots=True)
class ParkHeld:
    """The engine opens a hold of `kind`; `code_digest` is that of the code which does not fit."""

    kind: HoldKind
    reason: str
    code_digest: str = ""


@dataclass(frozen=True, slots=True)
class Release:
    """Give the run back: running to pending, pausing to paused, cancelling to cancelled."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The end. `target` is completed, failed or cancelled; a `cancelling` run ends cancelled whatever it is.

    `payload` is the encoded output (completed) or ErrorInfo (failed); it is kept only if the run ends as `target`.
    `reason` is that of a cancel from inside (CancelRun).
    """

    target: Status
    payload: bytes | None = None
    reason: str = ""


End = ParkRequested | ParkBlocked | ParkHeld | Release | Finish


@dataclass(slots=True)
class OpenWait:
    """Open a wait and look whether it is met already.

    One that is registered at its place before keeps its first deadline. `gives_up` is the encoded error to record if
    the wait is not met now; None leaves it open.
    """

    wait: Wait
    gives_up: bytes | None = None


@dataclass(slots=True)
class ChildStart:
    """Start a child. Exactly one of the others: `wait` to wait for its end, `record` (kind `start_child`) to go on.

    If the child's id or key is taken by a run of another workflow or input, a step with the encoded Conflict is recorded
    at the place instead. If it is taken by the same start, that run is the child; `wait.subject` and the output of
    `record` (its id, encoded) are set by the store.
    """

    run: NewRun
    wait: Wait | None = None
    record: StepRecord | None = None


@dataclass(slots=True)
class RunEffects:
    """What one run wants recorded, under the epoch it was claimed with. At most one of these per run in a batch.

    `published` replaces values by key. `closed_waits` are places whose open waits are moot. With `looks` all open waits
    of the run are looked at. `end` comes alone: it is sent only when the run has no other unacknowledged effect.
    `met` is for the store alone: what a look of these effects has met, for a repeat of them to be told the same.
    """

    run_id: str
    epoch: int
    steps: Sequence[StepRecord] = ()
    attempts: Sequence[AttemptRecord] = ()
    progress: Progress | None = None
    end: End | None = None
    waits: Sequence[OpenWait] = ()
    children: Sequence[ChildStart] = ()
    published: Mapping[str, bytes] | None = None
    closed_waits: Sequence[tuple[str, int]] = ()
    looks: bool = False
    met: Sequence[tuple[str, int]] = ()


class Recorded(StrEnum):
    """What became of the effects of one run.

    `ok`: they are committed. `fenced`: the run is not the worker's any more, nothing was written. `refused`: still
    the worker's, but the end does not fit the row as it is now. `condemned`: the database refuses an effect for a
    reason of its own and always will; nothing of this run's effects was written.
    """

    OK = "ok"
    FENCED = "fenced"
    REFUSED = "refused"
    CONDEMNED = "condemned"


@dataclass(slots=True)
class EffectsReply:
    """The reply for one run: what became of its effects, and the row's status and wake counter after the commit.

    `existing` holds the steps that were recorded before at the places of this batch: the worker uses those results,
    never its own. It also holds the steps that the store recorded itself: waits that are met or have given up, started
    children, children that could not be started. `error` tells why an effect is condemned.
    """

    recorded: Recorded
    status: Status | None
    wakeups: int = 0
    existing: Sequence[StepRecord] = ()
    error: str = ""


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
