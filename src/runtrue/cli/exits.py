"""The exit codes, and how an error becomes one."""

from enum import IntEnum

from runtrue.errors import (
    CodecError,
    ConfigurationError,
    Conflict,
    NotFound,
    Refused,
    ResultTimeout,
    RunCancelled,
    RunFailed,
    RuntrueError,
)
from runtrue.lifecycle import Status


class Exit(IntEnum):
    """What the exit code of a command says. A request that is recorded (and carried out later) is DONE."""

    DONE = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    """Refused, too late, taken by something else, or the run met another end than `--wait` asked for."""
    RUN_FAILED = 5
    RUN_CANCELLED = 6
    TIMED_OUT = 7
    WAITS_FOR_PERSON = 8
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    """The reader of the output went away, as `head` does; what a shell reports for any command that meets this."""


_CODES: tuple[tuple[type[RuntrueError], Exit], ...] = (
    (ConfigurationError, Exit.USAGE),
    (CodecError, Exit.USAGE),
    (NotFound, Exit.NOT_FOUND),
    (Conflict, Exit.CONFLICT),
    (Refused, Exit.CONFLICT),
    (RunFailed, Exit.RUN_FAILED),
    (RunCancelled, Exit.RUN_CANCELLED),
    (ResultTimeout, Exit.TIMED_OUT),
)


def wait_code(status: Status, wanted: str = "finished") -> Exit:
    """The exit code of a wait for `wanted` that ended at `status`."""
    if status.value == wanted or (wanted == "finished" and status is Status.COMPLETED):
        return Exit.DONE
    ends = {Status.FAILED: Exit.RUN_FAILED, Status.CANCELLED: Exit.RUN_CANCELLED, Status.COMPLETED: Exit.CONFLICT}
    return Exit.WAITS_FOR_PERSON if status is Status.PAUSED else ends.get(status, Exit.TIMED_OUT)


def exit_code_of(error: RuntrueError) -> Exit:
    """The exit code for an error that left a command."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.ERROR)
