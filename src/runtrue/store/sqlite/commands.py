"""The verbs: pause, resume, cancel, terminate, answer, send. Each is one guarded statement and what follows from it."""

import dataclasses
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from runtrue import codec
from runtrue.errors import RuntrueError, StoreBusy
from runtrue.lifecycle import (
    CLOSED_BY_ANSWER,
    CLOSED_BY_RESUME,
    TABLE,
    Answer,
    Command,
    HoldKind,
    Status,
    cell,
    refusal,
)
from runtrue.records import Hold, Request
from runtrue.store.protocol import CommandReply, CommandRequest
from runtrue.store.sqlite import cancelling, facts, waits
from runtrue.store.statements import load_statements

SQL = load_statements(Path(__file__).with_name("commands.sql"))

Connection = sqlite3.Connection


def carry_out(connection: Connection, request: CommandRequest, now: int) -> CommandReply:
    """Carry out one verb and store how it was met beside its effect; a repeat of the request id is told the same.

    Raises StoreBusy once `not_after` has passed: nothing was changed.
    """
    if now > request.not_after:
        raise StoreBusy(f"{request.verb} of run {request.run_id} came too late to be carried out; nothing was changed")
    key = _key(request)
    stored = connection.execute(SQL["stored_reply"], key).fetchone()
    if stored is not None:
        return _repeat(connection, request, *stored)
    reply = _VERBS[request.verb](connection, request, now)
    if reply.found:
        outcome = {"now": now, "answer": reply.answer, "status": reply.status}
        wish = {"verb": request.verb, "pause_id": request.pause_id, "hold_id": request.hold_id, "value": request.value}
        given = {**wish, "actor": request.actor, "reason": request.reason}
        text = msgspec.json.encode(reply).decode()
        connection.execute(SQL["store_reply"], {**key, **given, **outcome, "reply": text})
    return reply


def _repeat(
    connection: Connection,
    request: CommandRequest,
    verb: str,
    pause_id: str | None,
    hold_id: str | None,
    value: str,
    reply: str,
) -> CommandReply:
    """The stored reply to the same wish; who wishes for it, and the reason, may differ."""
    wish = (request.verb, request.pause_id, request.hold_id, request.value)
    if (verb, pause_id, hold_id, value) != wish or _is_of_another_body(connection, request):
        before = verb if verb != request.verb else f"{verb} with other arguments"
        text = f"request id {request.request_id} was used before for {before}; use a new id for {request.verb}"
        return dataclasses.replace(_refused(connection, request, text), request_conflict=True)
    stored = msgspec.json.decode(reply, type=CommandReply)
    return dataclasses.replace(stored, repeated=True, open_holds=tuple(stored.open_holds))


def _is_of_another_body(connection: Connection, request: CommandRequest) -> bool:
    """True where the message that was sent under this request id is another one. A refused one was not kept."""
    row = connection.execute(SQL["message_sent"], _key(request)).fetchone()
    return row is not None and row[0] != request.body


def _key(request: CommandRequest) -> dict[str, object]:
    return {"run_id": request.run_id, "request_id": request.request_id}


# ---------------------------------------------------------------- the verbs
def _pause(connection: Connection, request: CommandRequest, now: int) -> CommandReply:
    run_id, actor, reason = request.run_id, request.actor, request.reason
    row = connection.execute(SQL["pause"], _given(request, now)).fetchone()
    if row is None:
        return _pause_paused(connection, request, now)
    status, seq = Status(row[0]), row[1]
    hold = facts.open_hold(connection, run_id, seq - 1, HoldKind.OPERATOR, now, actor=actor, reason=reason)
    data: dict[str, object] = {"by": actor, "reason": reason, "cause": "command"}
    if status is Status.PAUSED:
        data["pause_id"] = facts.open_pause(connection, run_id, now)
    type_ = "paused" if status is Status.PAUSED else "pause_requested"
    facts.add_events(connection, [hold, facts.event(run_id, seq, now, type_, data)])
    return _reply(connection, request, _answer_of(Command.PAUSE, status), changed=True)


def _pause_paused(connection: Connection, request: CommandRequest, now: int) -> CommandReply:
    """A run that something else holds gets the operator's hold as well; one that has it already keeps it."""
    row = connection.execute(SQL["pause_paused"], _given(request, now)).fetchone()
    if row is None:
        return _unchanged(connection, request)
    hold = facts.open_hold(
        connection, request.run_id, row[1], HoldKind.OPERATOR, now, actor=request.actor, reason=request.reason
    )
    facts.add_events(connection, [hold])
    return _reply(connection, request, Answer.DONE, changed=True)


def _cancel(connection: Connection, request: CommandRequest, now: int) -> CommandReply:
    run_id, actor, reason, verb = request.run_id, request.actor, request.reason, request.verb
    status = cancelling.cancel(connection, run_id, now, actor=actor, reason=reason, cause=verb, verb=verb)
    if status is None:
        return _unchanged(connection, request)
    return _reply(connection, request, _answer_of(verb, status), changed=True)


def _resume(connection: Connection, request: CommandRequest, now: int) -> CommandReply:
    status = _status(connection, request.run_id)
    if status is None or status.value not in _names(Command.RESUME):
        return _unchanged(connection, request)
    problem = _why_not_resume(connection, request, status)
    if problem:
        return _refused(connection, request, problem)
    run_id, actor = request.run_id, request.actor
    closing = sum(hold.kind in CLOSED_BY_RESUME for hold in facts.open_holds(connection, run_id))
    given = {"run_id": run_id, "now": now, "closing": closing}
    _, seq, still_open = connection.execute(SQL["resume"], given).fetchone()
    closed = facts.close_holds(connection, run_id, now, actor=actor, outcome="resumed", kinds=CLOSED_BY_RESUME)
    return _after_closing(connection, request, now, closed, seq=seq, still_open=still_open, outcome="resumed")


def _answer(connection: Connection, request: CommandRequest, now: int) -> CommandReply:
    if _status(connection, request.run_id) is not Status.PAUSED:
        return _unchanged(connection, request)
    hold, problem = _hold_to_answer(connection, request)
    if hold is None:
        return _refused(connection, request, problem)
    if request.value == "fail":
        return _fail(connection, request, now, hold)
    changed = connection.execute(SQL["answer_retry"], {"run_id": request.run_id, "now": now}).fetchone()
    closed = _close_answered(connection, request, now, hold)
    return _after_closing(
        connection, request, now, closed, seq=changed[1], still_open=changed[2], outcome=request.value
    )


def _fail(connection: Connection, request: CommandRequest, now: int, hold: Hold) -> CommandReply:
    run_id, actor = request.run_id, request.actor
    (seq,) = connection.execute(SQL["answer_fail"], {"run_id": run_id, "now": now}).fetchone()
    closed = _close_answered(connection, request, now, hold)
    by = f" by {actor}" if actor else ""
    because = f": {request.reason}" if request.reason else ""
    error = codec.encode_error(RuntrueError(f"the hold {hold.kind} was answered with fail{by}{because}"))
    connection.execute(SQL["add_error"], {"run_id": run_id, "body": error})
    said: dict[str, object] = {"by": actor, "reason": request.reason, "cause": "answer"}
    cancelling.close_all(connection, run_id, now, seq, "failed", said, answered=closed)
    waits.settle(connection, [run_id], now)
    return _reply(connection, request, Answer.DONE, changed=True)


def _send(connection: Connection, request: CommandRequest, now: int) -> CommandReply:
    run_id, topic = request.run_id, request.value
    given = _given(request, now) | {"topic": topic, "request_id": request.request_id, "body": request.body}
    woken = connection.execute(SQL["send_and_wake"], given).fetchone()
    row = woken or connection.execute(SQL["send"], given).fetchone()
    if row is None:
        return _unchanged(connection, request)
    seq = row[0] - 1 if woken else row[0]
    connection.execute(SQL["add_message"], given | {"seq": seq})
    told: dict[str, object] = {"topic": topic, "by": request.actor, "request_id": request.request_id}
    events = [facts.event(run_id, seq, now, "message", told)]
    if woken:
        events.append(facts.event(run_id, seq + 1, now, "woken", {"cause": "message", "topic": topic}))
    facts.add_events(connection, events)
    return _reply(connection, request, Answer.DONE, changed=True)


def _close_answered(connection: Connection, request: CommandRequest, now: int, hold: Hold) -> list[tuple[str, str]]:
    given = {"hold_id": hold.id, "run_id": request.run_id, "now": now, "actor": request.actor, "outcome": request.value}
    return connection.execute(facts.SQL["close_hold"], given).fetchall()


_VERBS: Mapping[Command, Callable[[Connection, CommandRequest, int], CommandReply]] = {
    Command.PAUSE: _pause,
    Command.RESUME: _resume,
    Command.CANCEL: _cancel,
    Command.TERMINATE: _cancel,
    Command.ANSWER: _answer,
    Command.SEND: _send,
}


# ---------------------------------------------------------------- what may be refused beyond the table
def _why_not_resume(connection: Connection, request: CommandRequest, status: Status) -> str:
    """Why this resume is refused though the table allows it; empty if it is not. Nothing has been changed yet."""
    active = facts.active_pause(connection, request.run_id)
    if request.pause_id is not None and (active is None or active[0] != request.pause_id):
        return f"pause {request.pause_id} is not the active pause of run {request.run_id}; nothing was changed"
    holds = facts.open_holds(connection, request.run_id)
    if not any(hold.kind in CLOSED_BY_RESUME for hold in holds):
        held = ", ".join(f"{hold.kind} ({hold.id})" for hold in holds)
        return f"the run is held by {held}, which only an answer closes"
    if status is Status.PAUSED and active is not None:
        return facts.why_snapshot_unfit(connection, request.run_id)
    return ""


def _hold_to_answer(connection: Connection, request: CommandRequest) -> tuple[Hold | None, str]:
    """The open hold that is meant, or why there is none."""
    open_holds = facts.open_holds(connection, request.run_id)
    holds = [hold for hold in open_holds if request.hold_id is None or hold.id == request.hold_id]
    if not holds:
        return None, f"run {request.run_id} has no open hold {request.hold_id}"
    answerable = [hold for hold in holds if hold.kind in CLOSED_BY_ANSWER]
    if not answerable:
        held = ", ".join(f"{hold.kind} ({hold.id})" for hold in holds)
        return None, f"the run is held by {held}, which takes no answer; resume the run"
    if len(answerable) > 1:
        return None, f"several holds take an answer; name one of {', '.join(hold.id for hold in answerable)}"
    hold = answerable[0]
    allowed = CLOSED_BY_ANSWER[hold.kind]
    if request.value not in allowed:
        return None, f"hold {hold.id} ({hold.kind}) takes {' or '.join(allowed)}, not {request.value!r}"
    return hold, ""


# ---------------------------------------------------------------- what follows from a change
def _after_closing(
    connection: Connection,
    request: CommandRequest,
    now: int,
    closed: list[tuple[str, str]],
    *,
    seq: int,
    still_open: int,
    outcome: str,
) -> CommandReply:
    """Record the closed holds, and the end of the pause if none is left open."""
    run_id, actor = request.run_id, request.actor
    first = seq - len(closed) + (1 if still_open else 0)
    events = facts.closed_events(run_id, first, now, closed, actor=actor, outcome=outcome)
    if not still_open:
        facts.end_pause(connection, run_id, now)
        data: dict[str, object] = {"by": actor, "reason": request.reason, "cause": outcome}
        events.append(facts.event(run_id, seq, now, "resumed", data))
    facts.add_events(connection, events)
    return _reply(connection, request, Answer.DONE, changed=True, still_held=still_open > 0)


# ---------------------------------------------------------------- replies
def _given(request: CommandRequest, now: int) -> dict[str, object]:
    return {"run_id": request.run_id, "actor": request.actor, "reason": request.reason, "now": now}


def _names(command: Command) -> frozenset[str]:
    return frozenset(status.value for status in Status if TABLE[command][status].answer is not Answer.REFUSED)


def _answer_of(command: Command, reached: Status) -> Answer:
    """How the table calls it when `command` has led to `reached`."""
    return next(found.answer for found in TABLE[command].values() if found.to is reached)


def _status(connection: Connection, run_id: str) -> Status | None:
    row = connection.execute(SQL["run"], {"run_id": run_id}).fetchone()
    return None if row is None else Status(row[0])


def _unchanged(connection: Connection, request: CommandRequest) -> CommandReply:
    """The guarded statement found no row: the run is not there, has what was asked already, or refuses it."""
    status = _status(connection, request.run_id)
    if status is None:
        return CommandReply(found=False)
    return _reply(connection, request, cell(request.verb, status).answer, refused=refusal(request.verb, status))


def _refused(connection: Connection, request: CommandRequest, why: str) -> CommandReply:
    return _reply(connection, request, Answer.REFUSED, refused=why)


def _reply(
    connection: Connection,
    request: CommandRequest,
    answer: Answer,
    *,
    changed: bool = False,
    still_held: bool = False,
    refused: str = "",
) -> CommandReply:
    """The reply, with the run as its row is now."""
    row = connection.execute(SQL["run"], {"run_id": request.run_id}).fetchone()
    status, worker_id, verb, by, at, reason = row
    active = facts.active_pause(connection, request.run_id)
    return CommandReply(
        found=True,
        answer=answer,
        changed=changed,
        status=Status(status),
        request=None if verb is None else Request(verb, by, at, reason),
        open_holds=tuple(facts.open_holds(connection, request.run_id)),
        still_held=still_held,
        pause_id=None if active is None else active[0],
        refusal=refused,
        worker_id=worker_id,
    )
