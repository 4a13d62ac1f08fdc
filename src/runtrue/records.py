"""What the database knows, as plain frozen values. Times are microseconds since 1970, UTC."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from runtrue.lifecycle import HoldKind, Status


@dataclass(frozen=True, slots=True)
class Request:
    """The open request on a run: who asked for the pause or cancel, when and why."""

    verb: str
    by: str
    at: int
    reason: str


@dataclass(frozen=True, slots=True)
class Progress:
    """What the author last reported with set_progress."""

    done: float | None
    total: float | None
    note: str
    at: int


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run as its row tells it, with its payloads where they were asked for.

    `attempt` is 1 plus the number of workers that were lost while they had the run. `ready_at` is when a pending
    or waiting run may be claimed. `request` is the last pause or cancel that was asked, also after it was met;
    None before, and again after a resume. `output` and `error` are encoded (see codec). `parent_id` is the run that
    started this one as its child; `children_left` counts the children that a branch of this run waits for.
    `deadline_at` is when the run is cancelled if it has not ended by then.
    """

    id: str
    workflow: str
    version: str
    status: Status
    priority: int
    ready_at: int
    epoch: int
    worker_id: str | None
    wakeups: int
    open_run_holds: int
    event_seq: int
    steps_done: int
    losses: int
    attempt: int
    idempotency_key: str | None
    request: Request | None
    created_at: int
    started_at: int | None
    finished_at: int | None
    updated_at: int
    parent_id: str | None = None
    children_left: int = 0
    deadline_at: int | None = None
    progress: Progress | None = None
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    input: bytes | None = None
    output: bytes | None = None
    error: bytes | None = None


@dataclass(slots=True)
class StepRecord:
    """The recorded outcome of one durable call. Treat as frozen; it is plain because one is made per step.

    `branch` and `ordinal` are the call's place. Exactly one of `output` and `error` is set, or neither (a sleep).
    `kind` is `step`, `sleep`, `receive`, `child`, `start_child`, `send`, `now`, `uuid4`, `random`, `patched`, or that
    of a group: `gather`, `map`, `first`. `wake_at` is a sleep's end. `digest` is eight bytes over place and result,
    signed. `seq` is given by the store: the order of commits within the run. `attempt` is 0 for a child that was
    not started, or is not there: `error` is then no error of a run.
    """

    branch: str
    ordinal: int
    name: str
    kind: str
    attempt: int
    output: bytes | None
    error: bytes | None
    started_at: int
    finished_at: int
    digest: int
    wake_at: int | None = None
    seq: int = 0


@dataclass(slots=True)
class AttemptRecord:
    """A failed attempt of a step that will be tried again at `next_at`."""

    branch: str
    ordinal: int
    name: str
    attempt: int
    error: bytes
    started_at: int
    failed_at: int
    next_at: int
    seq: int = 0


@dataclass(slots=True)
class Wait:
    """A wait of one branch for something that comes from outside. Open while `closed_at` is None.

    `kind` is `receive` (`subject` is the topic) or `child` (`subject` is the id of the run waited for). `name` is
    recorded with the result: the topic, or the child's workflow. `deadline_at` is when the wait gives up. `outcome` is
    how it was closed: met, expired, or moot (the branch was closed, or the run has ended).
    """

    branch: str
    ordinal: int
    kind: str
    name: str
    subject: str
    opened_at: int
    deadline_at: int | None = None
    closed_at: int | None = None
    outcome: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """A message that was sent to a run. `seq` is its place among the run's events.

    `received_at` is None until it is taken.
    """

    run_id: str
    seq: int
    topic: str
    body: bytes
    sent_by: str
    sent_at: int
    received_at: int | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """A reason not to go on. Open while `closed_at` is None.

    `outcome` is how it was closed: resumed, retry, fail, moot. `code_digest` is that of the code that did not fit.
    """

    id: str
    run_id: str
    kind: HoldKind
    opened_at: int
    opened_by: str
    reason: str
    closed_at: int | None = None
    closed_by: str | None = None
    outcome: str | None = None
    code_digest: str = ""


@dataclass(frozen=True, slots=True)
class Pause:
    """A period in which a run was paused, with the manifest of its resumption snapshot.

    Active while `ended_at` is None.
    """

    id: str
    run_id: str
    paused_at: int
    ended_at: int | None
    snapshot_schema: int
    epoch: int
    wakeups: int
    steps_done: int
    digest: int


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a run. `seq` counts within the run, without gaps, over steps and events together.

    `type` is one of created, claimed, waiting, woken, pause_requested, paused, resumed, cancel_requested, cancelled,
    completed, failed, released, worker_lost, hold_opened, hold_closed, message, step, attempt_failed. `data` is small
    and ready for JSON.
    """

    run_id: str
    seq: int
    at: int
    type: str
    data: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class InFlight:
    """A step that a worker has been executing for a while, as its last heartbeat told."""

    run_id: str
    step: str
    attempt: int
    since: int


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A worker process. `status` is alive, lost (its lease ran out) or stopped (it said goodbye)."""

    id: str
    host: str
    pid: int
    status: str
    started_at: int
    heartbeat_at: int
    lease_until: int
    loop_seen_at: int
    slots: int
    serves: Sequence[str]
    in_flight: Sequence[InFlight]
    stalled_in: str
    runs_held: int
    fenced_writes: int


@dataclass(frozen=True, slots=True)
class CommandRecord:
    """A command as it was given and met; refused ones too."""

    run_id: str
    request_id: str
    verb: str
    actor: str
    reason: str
    at: int
    answer: str
    status: Status
