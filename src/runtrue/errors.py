"""Every exception of runtrue, one tree:

RuntrueError
├── ConfigurationError      a setting or a registration is wrong; nothing was started
├── WrongPlace              a call that belongs inside (or outside) a workflow or step
├── CodecError
│   ├── NotEncodable        a value cannot be recorded; the message holds its path
│   ├── NotDecodable        recorded bytes do not fit the annotated type
│   └── PayloadTooLarge     a value is over the cap
├── NotFound                no run (worker, hold) of that id
├── Conflict                the id, key or request id is taken by something else
├── Refused                 the command does not fit the run's status; nothing was changed
├── StoreError
│   ├── StoreBusy           the database was busy; nothing was changed
│   ├── OutcomeUnknown      the answer was lost; ask again with the same request id
│   └── StoreUnusable       the database cannot be used: version, schema, file system
├── StepFailed              a step failed for good, raised in the workflow
├── RunFailed               result() of a failed run
├── RunCancelled            result() of a cancelled run
├── WaitTimeout             a receive in a workflow gave up
└── ResultTimeout           result() or wait() gave up; the run goes on

CancelRun (BaseException)   raised by an author: the run ends cancelled
"""

from dataclasses import dataclass

from runtrue.lifecycle import Status


class RuntrueError(Exception):
    """The base of every error that runtrue raises."""


class ConfigurationError(RuntrueError):
    """A setting or a registration is wrong. Nothing was started or changed."""


class WrongPlace(RuntrueError):
    """A call was made where it cannot work. The message names the right place."""


class CodecError(RuntrueError):
    """A value and its recorded form do not meet."""


class NotEncodable(CodecError):
    """A value cannot be recorded. The message names the path to it, such as `$.items[3].price`."""


class NotDecodable(CodecError):
    """Recorded bytes do not fit the type that the code asks for."""


class PayloadTooLarge(CodecError):
    """An encoded value is larger than the cap."""


class NotFound(RuntrueError):
    """Nothing has that id."""


class Conflict(RuntrueError):
    """An id, idempotency key or request id is taken by something that differs. Nothing was changed."""


class Refused(RuntrueError):
    """A command does not fit the run's present status. Nothing was changed.

    `status` is what the run was when the command arrived, `available_actions` what it allows.
    """

    def __init__(self, message: str, status: Status, available_actions: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.available_actions = available_actions


class StoreError(RuntrueError):
    """The database did not do what was asked."""


class StoreBusy(StoreError):
    """The database was busy until the deadline and said so: nothing was changed and nothing will be later."""


class OutcomeUnknown(StoreError):
    """The answer was lost on the way. Ask again with the same `request_id`: a repeat changes nothing twice."""

    def __init__(self, message: str, request_id: str = "") -> None:
        super().__init__(message)
        self.request_id = request_id


class StoreUnusable(StoreError):
    """The database cannot be used as it is. The message says what to do."""


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """A recorded exception: type name, message and bounded traceback, always plain text."""

    type: str
    message: str
    traceback: str = ""


class StepFailed(RuntrueError):
    """A step failed for good: retries are used up, or its error is not retried. The same live and on replay."""

    def __init__(self, step: str, error: ErrorInfo, attempts: int) -> None:
        times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        super().__init__(f"step {step} failed after {times}: {error.type}: {error.message}")
        self.step = step
        self.error = error
        self.attempts = attempts


class RunFailed(RuntrueError):
    """The run has failed. `error` is what left the workflow."""

    def __init__(self, run_id: str, error: ErrorInfo) -> None:
        super().__init__(f"run {run_id} failed: {error.type}: {error.message}")
        self.run_id = run_id
        self.error = error


class RunCancelled(RuntrueError):
    """The run was cancelled. `reason` is what the canceller wrote."""

    def __init__(self, run_id: str, reason: str = "") -> None:
        super().__init__(f"run {run_id} was cancelled" + (f": {reason}" if reason else ""))
        self.run_id = run_id
        self.reason = reason


class WaitTimeout(RuntrueError, TimeoutError):
    """What a workflow waited for did not come within its timeout. The same live and on replay."""


class ResultTimeout(RuntrueError, TimeoutError):
    """The wait ended before the run did. The run goes on; `status` is what it was when the wait gave up."""

    def __init__(self, run_id: str, status: Status) -> None:
        super().__init__(f"run {run_id} is still {status.value}; it goes on, only the wait has ended")
        self.run_id = run_id
        self.status = status


class CancelRun(BaseException):
    """Raise it in a workflow or step: the run ends `cancelled` with this reason.

    It is no Exception, so that `except Exception` cannot swallow it.
    """

    def __init__(self, reason: str = "", /) -> None:
        super().__init__(reason)
        self.reason = reason
