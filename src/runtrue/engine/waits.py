"""Waiting for a time and for a message; and sending one."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from runtrue import codec
from runtrue.clock import MICROSECOND
from runtrue.engine.branch import Settled
from runtrue.engine.recording import at_place
from runtrue.engine.signals import Unwound
from runtrue.engine.strands import Rest, Strand
from runtrue.engine.values import sleep_record
from runtrue.errors import CodecError, Conflict, NotFound, Refused, RuntrueError, StepFailed, StoreError, WaitTimeout
from runtrue.ids import fit_id
from runtrue.records import StepRecord, Wait
from runtrue.store.protocol import OpenWait, RunEffects

if TYPE_CHECKING:
    from runtrue.engine.calls import Calls

SLEEP_IN_MEMORY_SECONDS = 1.0
"""A shorter sleep stays in memory; a longer one leaves it."""
SEND_RETRY_SECONDS = 0.5


async def sleep(
    calls: "Calls", strand: Strand, recorded: StepRecord | None, ordinal: int, wake_at: Callable[[int], int]
) -> None:
    """Sleep until the recorded time."""
    execution = calls.execution
    if recorded is None:
        await execution.go_live(strand)
        now = calls.time()
        record = sleep_record(calls.branch.path, ordinal, now, wake_at(now))
        recorded = await execution.record_step(strand, record)
    # It is over, whatever the clock says now, if the branch has records that it can only have made after it, or if the
    # recorded outcome of a group counts on it.
    branch, at = strand.branch, recorded.wake_at or 0
    is_over = branch is calls.branch and branch.places.is_replaying
    if branch.settled is Settled.CLOSED and at > branch.over_at and not is_over:
        raise Unwound  # it was closed asleep
    if branch.settled is None and not is_over:
        await wait_until(calls, strand, at, SLEEP_IN_MEMORY_SECONDS)


async def wait_until(calls: "Calls", strand: Strand, at: int, patience_seconds: float) -> None:
    """Wait for a point in time, at a boundary all the while. A wait over `patience_seconds` may leave memory."""
    execution = calls.execution
    while calls.time() < at:
        if strand.branch.closed or (execution.is_asked and not execution.replaying):
            await execution.boundary(strand)
            continue
        try:
            await execution.strands.rest(strand, Rest.ASLEEP, at, patience_seconds)
        except BaseException as cut:
            await execution.hear_rest_cut(strand, cut)
            raise
    if strand.branch.closed:
        if at > strand.branch.over_at:
            raise Unwound
    elif execution.is_asked and not execution.replaying:
        await execution.boundary(strand)


async def receive(
    calls: "Calls",
    strand: Strand,
    recorded: StepRecord | None,
    ordinal: int,
    topic: str,
    type: Any,  # noqa: A002  the word of the public API
    timeout_seconds: float | None,
) -> Any:
    """Take the oldest message of the topic, or wait for one."""
    if recorded is None:
        execution = calls.execution
        wait = execution.history.wait_at(calls.branch.path, ordinal)
        known = wait is not None
        if wait is None:
            await execution.go_live(strand)
            now = calls.time()
            deadline_at = None if timeout_seconds is None else now + round(timeout_seconds * MICROSECOND)
            wait = Wait(calls.branch.path, ordinal, "receive", topic, topic, now, deadline_at)
        recorded = await fact(calls, strand, wait, known=known)
    strand.undelivered.append((calls.branch.path, ordinal))
    if recorded.error is not None:
        raise WaitTimeout(codec.decode_error(recorded.error).message)
    try:
        return codec.decode(recorded.output or b"null", type, what=f"the message on topic {topic}")
    except CodecError as unfit:
        raise unfit_message(topic, unfit) from None


def unfit_message(topic: str, unfit: CodecError) -> RuntrueError:
    """A message was sent that is not of the type that the code receives: an error of the code's own to handle."""
    unfit.add_note(f"received on topic {topic}; who sent it and when: `runtrue run messages`")
    return unfit


async def fact(
    calls: "Calls", strand: Strand, wait: Wait, *, known: bool, opening: RunEffects | None = None
) -> StepRecord:
    """Wait until what comes from outside is recorded at the place of `wait`, or its deadline has passed.

    `known`: it was registered before this claim, which has looked whether it is met. `opening` registers it, together
    with what it waits for.
    """
    execution, registered = calls.execution, known
    try:
        while True:
            if execution.replaying or strand.branch.settled is not None:
                # Registered before, and looked at by the claim: what it leads to is live.
                await execution.go_live(strand)
            is_late = wait.deadline_at is not None and wait.deadline_at <= calls.time()
            if not registered or is_late:
                effects = opening if opening is not None and not registered else _open(calls, wait, is_late=is_late)
                reply = await execution.record_for(strand, effects, f"a wait for {wait.subject}", stops=False)
                if (found := at_place(reply, wait.branch, wait.ordinal)) is not None:
                    return found
                registered = True
            if execution.is_asked or strand.branch.closed:
                await execution.boundary(strand)
            elif (met := await _rest(calls, strand, wait)) is not None:
                return met
    except Unwound:
        if registered:
            # It is open. If it is the branch that was closed, the wait is closed by whoever has closed it.
            strand.undelivered.append((wait.branch, wait.ordinal))
        raise


async def _rest(calls: "Calls", strand: Strand, wait: Wait) -> StepRecord | None:
    """Rest until a look has met the wait; what is recorded then. None at the deadline of the wait."""
    execution, place = calls.execution, (wait.branch, wait.ordinal)
    execution.open_waits[place] = strand
    strand.waits_at = place
    strand.waits_for_child = wait.kind == "child"
    try:
        return await execution.strands.rest(strand, Rest.BLOCKED, wait.deadline_at, SLEEP_IN_MEMORY_SECONDS)
    except BaseException as cut:
        await execution.hear_rest_cut(strand, cut)
        raise
    finally:
        execution.open_waits.pop(place, None)
        strand.waits_at = None
        strand.waits_for_child = False


def _open(calls: "Calls", wait: Wait, *, is_late: bool) -> RunEffects:
    gives_up = None
    if is_late:
        span = ((wait.deadline_at or 0) - wait.opened_at) / MICROSECOND
        gives_up = codec.encode_error(WaitTimeout(f"no message on topic {wait.subject} came within {span:g} s"))
    execution = calls.execution
    return RunEffects(execution.run_id, execution.epoch, waits=[OpenWait(wait, gives_up)])


async def send(
    calls: "Calls", strand: Strand, recorded: StepRecord | None, ordinal: int, run_id: str, topic: str, body: bytes
) -> None:
    """Send a message to a run, once: its request id is the place of this call."""
    refusals = (NotFound, Conflict)
    if recorded is None:
        execution = calls.execution
        await execution.go_live(strand)
        strand.make_use()
        started_at, request_id = calls.time(), fit_id(f"{execution.run_id}/{calls.branch.path}/{ordinal}")
        error: bytes | None = None
        while True:
            try:
                await execution.host.outside.send(
                    run_id, topic, body, request_id=request_id, actor=f"run {execution.run_id}"
                )
            except (*refusals, Refused) as refused:
                error = codec.encode_business_error(refused, refusals)
            except StoreError:
                # Nothing is known of it, or nothing was changed: the same request once more is right in both cases.
                await wait_until(calls, strand, calls.time() + round(SEND_RETRY_SECONDS * MICROSECOND), 2.0)
                continue
            break
        output = None if error is not None else b"null"
        path, now = calls.branch.path, calls.time()
        digest = codec.place_digest(path, ordinal, output, error)
        record = StepRecord(path, ordinal, "send", "send", 1, output, error, started_at, now, digest)
        recorded = await execution.record_step(strand, record)
    else:
        strand.make_use()
    if recorded.error is not None:
        rebuilt = codec.rebuild_error(recorded.error, refusals)
        raise rebuilt or StepFailed("rt.send", codec.decode_error(recorded.error), recorded.attempt)
