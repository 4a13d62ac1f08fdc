"""The border between recorded bytes and the author's values: inputs, results, and the records of calls."""

from typing import Any

from runtrue import codec
from runtrue.authoring import DefinedWorkflow
from runtrue.engine.history import PATCHED
from runtrue.errors import CodecError
from runtrue.lifecycle import Status
from runtrue.records import StepRecord
from runtrue.store.protocol import Finish


def decode_input(workflow: DefinedWorkflow[..., Any], body: bytes) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a run. Raises RuntrueError if they do not fit the workflow's parameters."""
    what = f"the input of {workflow.name}"
    return codec.decode_arguments(body, workflow.signature, workflow.hints, what=what)


def finish_with(workflow: DefinedWorkflow[..., Any], result: object) -> Finish:
    """The end of a run whose function returned: failed if the result cannot be recorded."""
    try:
        what = f"the result of {workflow.name}"
        return Finish(Status.COMPLETED, codec.encode(result, workflow.result_type, what=what))
    except CodecError as refused:
        return Finish(Status.FAILED, codec.encode_error(refused))


def fail_with(workflow: DefinedWorkflow[..., Any], error: BaseException) -> Finish:
    """The end of a run that an error has left. One that the workflow declares can be made again for its parent."""
    if isinstance(error, workflow.raises):
        return Finish(Status.FAILED, codec.encode_business_error(error, workflow.raises))
    return Finish(Status.FAILED, codec.encode_error(error))


def value_record(branch: str, ordinal: int, kind: str, made: object, now: int) -> StepRecord:
    """The record of a drawn value: the time, a UUID, a seed."""
    return outcome_record(branch, ordinal, kind, kind, codec.encode(made, what=f"rt.{kind}"), now)


def patched_record(branch: str, change: str, now: int) -> StepRecord:
    """The record of `patched`, at a place beside the numbered ones."""
    return outcome_record(f"{branch}{PATCHED}{change}", 0, change, "patched", b"true", now)


def outcome_record(branch: str, ordinal: int, name: str, kind: str, body: bytes, now: int) -> StepRecord:
    """The record of a call that took no time."""
    digest = codec.place_digest(branch, ordinal, body, None)
    return StepRecord(branch, ordinal, name, kind, 1, body, None, now, now, digest)


def sleep_record(branch: str, ordinal: int, now: int, wake_at: int) -> StepRecord:
    """The record of a sleep that ends at `wake_at`."""
    digest = codec.place_digest(branch, ordinal, None, None)
    return StepRecord(branch, ordinal, "sleep", "sleep", 1, None, None, now, now, digest, wake_at)
