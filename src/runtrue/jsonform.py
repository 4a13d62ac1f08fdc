"""What the database knows, as JSON: the one form in which programs read runs, steps, events, holds and workers.

Times are ISO 8601 text in UTC with `Z` and microseconds. Recorded values (input, output) are the JSON that was
recorded, whole numbers of any size included. A name that is missing here is not part of the form.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from runtrue.codec import decode, decode_error
from runtrue.records import (
    AttemptRecord,
    Event,
    Hold,
    InFlight,
    Message,
    RunRecord,
    StepRecord,
    Wait,
    WorkerRecord,
)
from runtrue.service import Outcome, Page, actions_for
from runtrue.store.protocol import SchemaStatus

Json = dict[str, object]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def utc_text(at: int) -> str:
    """A recorded time (microseconds since 1970) as ISO 8601 with `Z`; the bare number where no calendar has it."""
    try:
        moment = _EPOCH + timedelta(microseconds=at)
    except OverflowError:  # a delay of ten thousand years is nobody's intention, but must not hide the run
        return str(at)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def dumps(value: object, *, indent: int | None = 2) -> str:
    """JSON text that is safe to show on a terminal: every control character in it is escaped."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    return text.translate(_CONTROLS)


# json.dumps escapes the characters below 32 only; those from 127 to 159 command a terminal as well.
_CONTROLS = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is recorded beside a run: its open waits, the values it has published, the runs it started as children."""

    waits: Sequence[Wait]
    published: Mapping[str, bytes]
    children: Sequence[RunRecord]

    def children_by_status(self) -> dict[str, int]:
        """How many of the children are in each status that occurs."""
        return dict(Counter(child.status.value for child in self.children))


def run_body(
    run: RunRecord,
    *,
    why: str,
    holds: Sequence[Hold],
    in_flight: Sequence[InFlight] = (),
    surroundings: Surroundings | None = None,
) -> Json:
    """One run. `why` tells why it does not move, `holds` are its open ones.

    Lists leave `surroundings` out; then the body tells neither those nor the payloads.
    """
    body: Json = {
        "id": run.id,
        "workflow": run.workflow,
        "version": run.version,
        "status": run.status.value,
        "why": why,
        "available_actions": list(actions_for(run.status, holds)),
        "attempt": run.attempt,
        "priority": run.priority,
        "steps_done": run.steps_done,
        "worker_id": run.worker_id,
        "parent_id": run.parent_id,
        "idempotency_key": run.idempotency_key,
        "tags": dict(run.tags),
        "created_at": utc_text(run.created_at),
        "ready_at": utc_text(run.ready_at),
        "started_at": _time_or_none(run.started_at),
        "finished_at": _time_or_none(run.finished_at),
        "updated_at": utc_text(run.updated_at),
        "deadline_at": _time_or_none(run.deadline_at),
        "request": _request_body(run),
        "holds": [hold_body(hold) for hold in holds],
        "progress": _progress_body(run),
        "in_flight": [in_flight_body(step) for step in in_flight],
    }
    if surroundings is not None:
        body["waits"] = [wait_body(wait) for wait in surroundings.waits]
        body["children"] = surroundings.children_by_status()
        body["published"] = {
            key: payload(value, what=f"what run {run.id} has published as {key}")
            for key, value in surroundings.published.items()
        }
        body["input"] = payload(run.input, what=f"the input of run {run.id}")
        body["output"] = payload(run.output, what=f"the output of run {run.id}")
        body["error"] = error_body(run.error)
    return body


def page_body(runs: Sequence[Json], page: Page) -> Json:
    """A page of runs; `cursor` asks for the next one and is null on the last."""
    return {"runs": list(runs), "cursor": None if page.cursor is None else cursor_text(page.cursor)}


def cursor_text(cursor: tuple[int, str]) -> str:
    """The key of a page's last run as one word."""
    return f"{cursor[0]}:{cursor[1]}"


def parse_cursor(text: str) -> tuple[int, str]:
    """The reverse of `cursor_text`. Raises ValueError for a text that it never wrote."""
    at, separator, run_id = text.partition(":")
    if not separator or not run_id or not at.isdecimal() or len(at) > 18:  # 19 digits may not fit into 64 bits
        raise ValueError(f"{text!a} is no cursor; take the one that the page before it printed")
    return int(at), run_id


def step_body(step: StepRecord) -> Json:
    """The recorded outcome of one durable call."""
    return {
        "type": "step",
        "seq": step.seq,
        "branch": step.branch,
        "ordinal": step.ordinal,
        "name": step.name,
        "kind": step.kind,
        "attempt": step.attempt,
        "started_at": utc_text(step.started_at),
        "finished_at": utc_text(step.finished_at),
        "wake_at": _time_or_none(step.wake_at),
        "output": payload(step.output, what=f"the result of step {step.name}"),
        "error": error_body(step.error),
    }


def attempt_body(attempt: AttemptRecord) -> Json:
    """A failed attempt of a step, with the time of the next one."""
    return {
        "type": "attempt_failed",
        "seq": attempt.seq,
        "branch": attempt.branch,
        "ordinal": attempt.ordinal,
        "name": attempt.name,
        "attempt": attempt.attempt,
        "started_at": utc_text(attempt.started_at),
        "failed_at": utc_text(attempt.failed_at),
        "next_at": utc_text(attempt.next_at),
        "error": error_body(attempt.error),
    }


def event_body(event: Event) -> Json:
    """Something that happened to a run."""
    return {
        "run_id": event.run_id,
        "seq": event.seq,
        "at": utc_text(event.at),
        "type": event.type,
        "data": {name: _readable(name, value) for name, value in event.data.items()},
    }


def wait_body(wait: Wait) -> Json:
    """What one branch of a run waits for: a message (`subject` is the topic) or a child (its id)."""
    return {
        "branch": wait.branch,
        "ordinal": wait.ordinal,
        "kind": wait.kind,
        "name": wait.name,
        "subject": wait.subject,
        "opened_at": utc_text(wait.opened_at),
        "deadline_at": _time_or_none(wait.deadline_at),
    }


def message_body(message: Message) -> Json:
    """A message that was sent to a run. `received_at` is null until the run has taken it."""
    return {
        "run_id": message.run_id,
        "seq": message.seq,
        "topic": message.topic,
        "body": payload(message.body, what=f"message {message.seq} of run {message.run_id}"),
        "sent_by": message.sent_by,
        "sent_at": utc_text(message.sent_at),
        "received_at": _time_or_none(message.received_at),
    }


def hold_body(hold: Hold) -> Json:
    """A reason not to go on."""
    return {
        "id": hold.id,
        "run_id": hold.run_id,
        "kind": hold.kind.value,
        "opened_at": utc_text(hold.opened_at),
        "opened_by": hold.opened_by,
        "reason": hold.reason,
        "closed_at": _time_or_none(hold.closed_at),
        "closed_by": hold.closed_by,
        "outcome": hold.outcome,
    }


def in_flight_body(step: InFlight) -> Json:
    """A step that a worker last reported as still running."""
    return {"run_id": step.run_id, "step": step.step, "attempt": step.attempt, "since": utc_text(step.since)}


def worker_body(worker: WorkerRecord) -> Json:
    """A worker process, as its last heartbeat told."""
    return {
        "id": worker.id,
        "host": worker.host,
        "pid": worker.pid,
        "status": worker.status,
        "started_at": utc_text(worker.started_at),
        "heartbeat_at": utc_text(worker.heartbeat_at),
        "lease_until": utc_text(worker.lease_until),
        "loop_seen_at": utc_text(worker.loop_seen_at),
        "slots": worker.slots,
        "runs_held": worker.runs_held,
        "serves": list(worker.serves),
        "in_flight": [in_flight_body(step) for step in worker.in_flight],
        "stalled_in": worker.stalled_in or None,
        "fenced_writes": worker.fenced_writes,
    }


def outcome_body(outcome: Outcome) -> Json:
    """How a command was met. `done` is false where it is recorded and carried out at the next step boundary."""
    return {
        "id": outcome.run_id,
        "command": outcome.command.value,
        "status": outcome.status.value,
        "done": outcome.done,
        "changed": outcome.changed,
        "repeated": outcome.repeated,
        "request_id": outcome.request_id,
        "available_actions": list(outcome.available_actions),
        "holds": [hold_body(hold) for hold in outcome.holds],
        "still_held_by": [hold_body(hold) for hold in outcome.still_held_by],
        "in_flight": [in_flight_body(step) for step in outcome.in_flight],
    }


def schema_body(status: SchemaStatus) -> Json:
    """Where the database is and which schema it has."""
    return {
        "database": status.database,
        "location": status.location,
        "version": status.version,
        "latest": status.latest,
    }


def payload(body: bytes | None, *, what: str) -> object:
    """Recorded bytes as the JSON value that they hold; null where nothing is recorded."""
    return None if body is None else decode(body, what=what)


def error_body(body: bytes | None) -> Mapping[str, str] | None:
    """A recorded exception as its type, message and traceback."""
    if body is None:
        return None
    error = decode_error(body)
    return {"type": error.type, "message": error.message, "traceback": error.traceback}


def _time_or_none(at: int | None) -> str | None:
    return None if at is None else utc_text(at)


def _readable(name: str, value: object) -> object:
    """Times within an event's data are times of the JSON form too."""
    return utc_text(value) if name.endswith("_at") and isinstance(value, int) else value


def _request_body(run: RunRecord) -> Json | None:
    if run.request is None:
        return None
    asked = run.request
    return {"verb": asked.verb, "by": asked.by, "at": utc_text(asked.at), "reason": asked.reason}


def _progress_body(run: RunRecord) -> Json | None:
    if run.progress is None:
        return None
    told = run.progress
    return {"done": told.done, "total": told.total, "note": told.note, "at": utc_text(told.at)}
