"""The lifecycle of a run, as a table. Pure data and pure functions; imports nothing of ours.

Everything that must agree on what a run may do is made from this module: the guards in the SQL files, the
triggers of the database, `available_actions`, the answers of the verbs, and the diagram in the documentation.
A status is assigned nowhere else than here and in the store.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """What a run is now. `pausing` and `cancelling` say what was asked; `paused` and `cancelled` say what is."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    PAUSING = "pausing"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Command(StrEnum):
    """What a person or a program may ask of a run. `answer` answers an open hold, `send` sends it a message."""

    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    TERMINATE = "terminate"
    ANSWER = "answer"
    SEND = "send"


class Answer(StrEnum):
    """How a command was met: `done` is so now, `requested` happens at the next boundary, `refused` changed nothing."""

    DONE = "done"
    REQUESTED = "requested"
    REFUSED = "refused"


class HoldKind(StrEnum):
    """Why a run is held. All of these hold the whole run, not one branch of it."""

    OPERATOR = "operator"
    CODE_MISMATCH = "code_mismatch"
    KEEPS_LOSING_ITS_WORKER = "keeps_losing_its_worker"


TERMINAL: frozenset[Status] = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})
OWNED: frozenset[Status] = frozenset({Status.RUNNING, Status.PAUSING, Status.CANCELLING})
"""The statuses in which a worker owns the run."""
CLAIMABLE: frozenset[Status] = frozenset({Status.PENDING, Status.WAITING})

CLOSED_BY_RESUME: frozenset[HoldKind] = frozenset({HoldKind.OPERATOR, HoldKind.CODE_MISMATCH})
CLOSED_BY_ANSWER: Mapping[HoldKind, tuple[str, ...]] = {HoldKind.KEEPS_LOSING_ITS_WORKER: ("retry", "fail")}
"""The holds that only an answer closes, with the answers they take."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the table: how `command` is met in a status.

    `to` is the status it leads to, None where the status stays. `changes` is False where the command finds its
    wish fulfilled already. `note` is the sentence that a refused caller reads.
    """

    answer: Answer
    to: Status | None = None
    changes: bool = True
    note: str = ""


def _done(to: Status | None, note: str = "") -> Cell:
    return Cell(Answer.DONE, to, True, note)


def _requested(to: Status | None, note: str = "") -> Cell:
    return Cell(Answer.REQUESTED, to, True, note)


def _already(answer: Answer, note: str = "") -> Cell:
    return Cell(answer, None, False, note)


def _refused(note: str) -> Cell:
    return Cell(Answer.REFUSED, None, False, note)


_S = Status
_TOO_LATE = "too late: the run is {status}, and a finished run never changes"
_NOT_PAUSED = "the run is {status}, not paused"
_NO_HOLD = "the run is {status} and has no open hold"
_KEPT = "kept until the run asks for a message of this topic"


def _row(*cells: Cell) -> Mapping[Status, Cell]:
    """A row of the table, its cells in the order of Status."""
    return dict(zip(Status, cells, strict=True))


TABLE: Mapping[Command, Mapping[Status, Cell]] = {
    Command.PAUSE: _row(
        _done(_S.PAUSED),
        _requested(_S.PAUSING),
        _done(_S.PAUSED),
        _already(Answer.REQUESTED, "a pause is requested already"),
        _done(None, "adds the operator's hold; nothing changes where there is one"),
        _refused("the run is being cancelled and cannot be paused any more"),
        _refused(_TOO_LATE),
        _refused(_TOO_LATE),
        _refused(_TOO_LATE),
    ),
    Command.RESUME: _row(
        _refused(_NOT_PAUSED),
        _refused(_NOT_PAUSED),
        _refused(_NOT_PAUSED),
        _done(_S.RUNNING, "withdraws the pause request"),
        _done(_S.PENDING, "stays paused while a hold is open that resume does not close"),
        _refused("the run is being cancelled and cannot be resumed any more"),
        _refused(_TOO_LATE),
        _refused(_TOO_LATE),
        _refused(_TOO_LATE),
    ),
    Command.CANCEL: _row(
        _done(_S.CANCELLED),
        _requested(_S.CANCELLING),
        _done(_S.CANCELLED),
        _requested(_S.CANCELLING),
        _done(_S.CANCELLED),
        _already(Answer.REQUESTED, "a cancel is requested already"),
        _refused(_TOO_LATE),
        _refused(_TOO_LATE),
        _already(Answer.DONE, "the run is cancelled already"),
    ),
    Command.TERMINATE: _row(
        _done(_S.CANCELLED),
        _done(_S.CANCELLED),
        _done(_S.CANCELLED),
        _done(_S.CANCELLED),
        _done(_S.CANCELLED),
        _done(_S.CANCELLED),
        _refused(_TOO_LATE),
        _refused(_TOO_LATE),
        _already(Answer.DONE, "the run is cancelled already"),
    ),
    Command.ANSWER: _row(
        _refused(_NO_HOLD),
        _refused(_NO_HOLD),
        _refused(_NO_HOLD),
        _refused(_NO_HOLD),
        _done(_S.PENDING, "`retry`; stays paused while another hold is open; `fail` leads to failed"),
        _refused("the run is being cancelled; its holds are closed with it"),
        _refused(_TOO_LATE),
        _refused(_TOO_LATE),
        _refused(_TOO_LATE),
    ),
    Command.SEND: _row(
        _done(None, _KEPT),
        _done(None, _KEPT),
        _done(_S.PENDING, "wakes the run if it waits for this topic; kept until it asks otherwise"),
        _done(None, _KEPT),
        _done(None, "kept; the run takes it after the resume"),
        _refused("the run is being cancelled and takes no more messages"),
        _refused(_TOO_LATE),
        _refused(_TOO_LATE),
        _refused(_TOO_LATE),
    ),
}


@dataclass(frozen=True, slots=True)
class Move:
    """A change that the engine makes. `targets` maps each status it may leave to where that status leads."""

    name: str
    targets: Mapping[Status, tuple[Status, ...]]
    meaning: str


MOVES: Mapping[str, Move] = {
    move.name: move
    for move in (
        Move("claim", {_S.PENDING: (_S.RUNNING,), _S.WAITING: (_S.RUNNING,)}, "a worker takes the run when it is due"),
        Move("park_requested", {_S.PAUSING: (_S.PAUSED,)}, "the worker stops at a boundary because a pause was asked"),
        Move(
            "park_blocked",
            {_S.RUNNING: (_S.WAITING, _S.PAUSED), _S.PAUSING: (_S.PAUSED,)},
            "nothing can go on before a timer; paused where a hold is open",
        ),
        Move(
            "park_held",
            {_S.RUNNING: (_S.PAUSED,), _S.PAUSING: (_S.PAUSED,)},
            "the engine or the sweeper opened a hold on the run",
        ),
        Move(
            "release",
            {_S.RUNNING: (_S.PENDING,), _S.PAUSING: (_S.PAUSED,), _S.CANCELLING: (_S.CANCELLED,)},
            "the worker drains, or was lost",
        ),
        Move(
            "finish_completed",
            {_S.RUNNING: (_S.COMPLETED,), _S.PAUSING: (_S.COMPLETED,), _S.CANCELLING: (_S.CANCELLED,)},
            "the function returned; an acknowledged cancel still ends cancelled",
        ),
        Move(
            "finish_failed",
            {_S.RUNNING: (_S.FAILED,), _S.PAUSING: (_S.FAILED,), _S.CANCELLING: (_S.CANCELLED,)},
            "an exception left the function",
        ),
        Move(
            "finish_cancelled",
            {_S.RUNNING: (_S.CANCELLED,), _S.PAUSING: (_S.CANCELLED,), _S.CANCELLING: (_S.CANCELLED,)},
            "the function raised CancelRun, or a cancel was carried out at a boundary",
        ),
        Move("wake", {_S.WAITING: (_S.PENDING,)}, "what the run waits for is there: a child has ended"),
        Move("code_fits", {_S.PAUSED: (_S.PENDING,)}, "a worker brings other code for a run whose code did not fit"),
        Move("answer_fail", {_S.PAUSED: (_S.FAILED,)}, "a person answered a hold with `fail`"),
    )
}


def cell(command: Command, status: Status) -> Cell:
    """How `command` is met by a run in `status`."""
    return TABLE[command][status]


def refusal(command: Command, status: Status) -> str:
    """The sentence for a refused caller; empty where the command is not refused."""
    found = TABLE[command][status]
    return found.note.format(status=status.value) if found.answer is Answer.REFUSED else ""


def available_actions(status: Status) -> tuple[Command, ...]:
    """The commands that would change something in this status. `answer` needs an open hold that takes one."""
    return tuple(command for command in Command if TABLE[command][status].changes)


def targets(name: str) -> dict[Status, tuple[Status, ...]]:
    """Where the command or engine move `name` may lead, by the status it leaves. Raises ValueError for another name."""
    if name in MOVES:
        return dict(MOVES[name].targets)
    row = TABLE[Command(name)]
    return {status: (found.to,) for status, found in row.items() if found.to is not None}


def sources(name: str) -> tuple[Status, ...]:
    """The statuses that the command or engine move `name` may leave, in table order."""
    leaving = targets(name)
    return tuple(status for status in Status if status in leaving)


def legal_moves() -> frozenset[tuple[Status, Status]]:
    """Every change of status that any command or engine move can make. The triggers refuse all others."""
    names = [*(command.value for command in Command), *MOVES]
    return frozenset(
        (leaving, to) for name in names for leaving, reached in targets(name).items() for to in reached if to != leaving
    )
