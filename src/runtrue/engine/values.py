"""The border between recorded bytes and the author's values: inputs, results, and the records of calls."""

from typing import Any

from runtrue import codec
from runtrue.authoring import AsyncWorkflow
from runtrue.engine.history import BRANCH
from runtrue.errors import CodecError
from runtrue.lifecycle import Status
from runtrue.records import StepRecord
from runtrue.store.protocol import Finish


def decode_input(workflow: AsyncWorkflow[..., Any], body: bytes) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a run. Raises RuntrueError if they do not fit the workflow's parameters."""
    what = f"the input of {workflow.name}"
    return codec.decode_arguments(body, workflow.signature, workflow.hints, what=what)


def finish_with(workflow: AsyncWorkflow[..., Any], result: object) -> Finish:
    """The end of a run whose function returned: failed if the result cannot be recorded."""
    try:
        what = f"the result of {workflow.name}"
        return Finish(Status.COMPLETED, codec.encode(result, workflow.result_type, what=what))
    except CodecError as refused:
        return Finish(Status.FAILED, codec.encode_error(refused))


def value_record(kind: str, ordinal: int, made: object, now: int) -> StepRecord:
    """The record of a drawn value: the time, a UUID, a seed."""
    body = codec.encode(made, what=f"rt.{kind}")
    digest = codec.place_digest(BRANCH, ordinal, body, None)
    return StepRecord(BRANCH, ordinal, kind, kind, 1, body, None, now, now, digest)


def sleep_record(ordinal: int, now: int, wake_at: int) -> StepRecord:
    """The record of a sleep that ends at `wake_at`."""
    digest = codec.place_digest(BRANCH, ordinal, None, None)
    return StepRecord(BRANCH, ordinal, "sleep", "sleep", 1, None, None, now, now, digest, wake_at)
