"""What a worker wants recorded of its runs, and the reply. Part of the contract of a store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from runtrue.lifecycle import HoldKind, Status
from runtrue.records import AttemptRecord, Progress, StepRecord, Wait


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

    If the child's id or key is taken by a run of another workflow or input, a step with the encoded Conflict is
    recorded at the place instead. If it is taken by the same start, that run is the child; `wait.subject` and the
    output of `record` (its id, encoded) are set by the store.
    """

    run: NewRun
    wait: Wait | None = None
    record: StepRecord | None = None


@dataclass(slots=True)
class RunEffects:
    """What one run wants recorded, under the epoch it was claimed with. At most one of these per run in a batch.

    `published` replaces values by key. `closed_waits` are places whose waits are moot: one that is open is closed; one
    that a message has met gives it back, which raises the wake counter as if it had just been sent, while the step that
    was recorded there stays. With `looks` all open waits of the run are looked at. `end` comes alone: it is sent only
    when the run has no other unacknowledged effect. `met` is for the store alone: what a look of these effects has met,
    for a repeat of them to be told the same.
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
