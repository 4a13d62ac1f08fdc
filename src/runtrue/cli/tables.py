"""Runs, steps, events, holds and workers as tables and lists for people."""

from collections.abc import Sequence

from runtrue.cli.describe import Described
from runtrue.cli.text import local_text, local_time_of_day, print_pairs, print_table, to_type
from runtrue.cli.wording import event_text, place_text
from runtrue.codec import decode_error
from runtrue.explain import error_text, is_alive, span_text
from runtrue.jsonform import dumps, payload
from runtrue.lifecycle import CLOSED_BY_ANSWER, Command
from runtrue.records import AttemptRecord, Event, Hold, Message, Progress, Request, StepRecord, Wait, WorkerRecord
from runtrue.service import actions_for

VALUE_LENGTH_MAX = 60
LINES_MAX = 20
"""So many waits and published values of a run are shown."""


def print_runs(described: Sequence[Described], now: int) -> None:
    """The table of runs."""
    columns = ("id", "workflow", "status", "why", "attempt", "started", "age")
    rows = [
        (
            item.run.id,
            f"{item.run.workflow}@{item.run.version}",
            item.run.status.value,
            item.why,
            str(item.run.attempt),
            _time(item.run.started_at),
            span_text(now - item.run.created_at),
        )
        for item in described
    ]
    print_table(columns, rows, status_column="status", expendable=("started", "attempt", "age"))


def print_run(described: Described, failed_step: StepRecord | None) -> None:
    """All about one run, one line a fact; what does not apply is left out. `failed_step` is the one it failed by."""
    run, body = described.run, described.body
    asked = run.request
    print_pairs(
        (
            ("id", run.id),
            ("workflow", f"{run.workflow}@{run.version}"),
            ("status", run.status.value),
            ("why", described.why),
            ("progress", progress_text(run.progress)),
            ("calls recorded", str(run.steps_done)),
            ("attempt", f"{run.attempt}; each before it ended with a lost worker" if run.attempt > 1 else "1"),
            ("worker", run.worker_id or ""),
            ("parent", run.parent_id or ""),
            ("request", _request_text(asked) if asked else ""),
            ("priority", str(run.priority) if run.priority else ""),
            ("key", run.idempotency_key or ""),
            ("tags", ", ".join(f"{key}={value}" for key, value in run.tags.items())),
            ("created", local_text(run.created_at)),
            ("started", _time(run.started_at)),
            ("finished", _time(run.finished_at)),
            ("deadline", _time(run.deadline_at)),
            ("waits for", _waits_text(described)),
            ("children", _children_text(described)),
            ("published", _published_text(described)),
            ("input", dumps(body["input"], indent=None)),
            ("output", dumps(body["output"], indent=None) if run.output is not None else ""),
            ("error", _error_lines(run.error)),
            ("of the step", _error_lines(failed_step.error) if failed_step is not None else ""),
            ("you can", "\n".join(_commands(described))),
        )
    )


def print_steps(steps: Sequence[StepRecord], attempts: Sequence[AttemptRecord]) -> None:
    """The durable calls of a run and the attempts that failed, in the order in which they were recorded."""
    rows = [
        (
            step.seq,
            place_text(step.branch, step.ordinal),
            step.name,
            step.kind,
            str(step.attempt),
            "failed" if step.error is not None else "completed",
            local_text(step.started_at),
            span_text(step.finished_at - step.started_at),
            error_text(step.error) if step.error is not None else _shortened(_result_text(step)),
        )
        for step in steps
    ]
    rows += [
        (
            attempt.seq,
            place_text(attempt.branch, attempt.ordinal),
            attempt.name,
            "step",
            str(attempt.attempt),
            "failed",
            local_text(attempt.started_at),
            span_text(attempt.failed_at - attempt.started_at),
            f"{error_text(attempt.error)}; tried again at {local_text(attempt.next_at)}",
        )
        for attempt in attempts
    ]
    columns = ("call", "name", "kind", "attempt", "outcome", "started", "took", "result")
    print_table(columns, [row[1:] for row in sorted(rows)], status_column="outcome")


def event_line(event: Event) -> str:
    """An event on one line, for lines that follow each other."""
    return f"{local_time_of_day(event.at)}  {event.seq:>4}  {event_text(event)}"


def print_events(events: Sequence[Event]) -> None:
    """The table of events."""
    rows = [(str(event.seq), local_text(event.at), event_text(event)) for event in events]
    print_table(("seq", "at", "event"), rows)


def print_messages(messages: Sequence[Message]) -> None:
    """The table of messages."""
    rows = [
        (
            str(message.seq),
            message.topic,
            local_text(message.sent_at),
            message.sent_by,
            _time(message.received_at),
            _shortened(dumps(payload(message.body, what=f"message {message.seq}"), indent=None)),
        )
        for message in messages
    ]
    print_table(("seq", "topic", "sent", "by", "received", "message"), rows, expendable=("by",))


def print_holds(holds: Sequence[Hold]) -> None:
    """The table of holds."""
    columns = ("id", "run", "kind", "opened", "by", "reason", "closed")
    rows = [
        (
            hold.id,
            hold.run_id,
            hold.kind.value,
            local_text(hold.opened_at),
            hold.opened_by,
            hold.reason,
            f"{hold.outcome} by {hold.closed_by} at {local_text(hold.closed_at)}" if hold.closed_at is not None else "",
        )
        for hold in holds
    ]
    print_table(columns, rows, expendable=("by", "opened"))


def print_workers(workers: Sequence[WorkerRecord], now: int) -> None:
    """The table of workers."""
    columns = ("id", "host", "pid", "status", "runs", "serves", "heartbeat", "notes")
    rows = [
        (
            worker.id,
            worker.host,
            str(worker.pid),
            worker.status,
            f"{worker.runs_held} of {worker.slots}",
            ", ".join(worker.serves),
            f"{span_text(now - worker.heartbeat_at)} ago",
            _worker_notes(worker, now),
        )
        for worker in workers
    ]
    print_table(columns, rows, status_column="status", expendable=("host", "pid"))


def progress_text(progress: Progress | None) -> str:
    """What the author last reported: `12 of 40 (30 %), loading`."""
    if progress is None:
        return ""
    parts: list[str] = []
    if progress.done is not None and progress.total:
        parts.append(f"{progress.done:g} of {progress.total:g} ({100 * progress.done / progress.total:.0f} %)")
    elif progress.done is not None:
        parts.append(f"{progress.done:g}")
    if progress.note:
        parts.append(progress.note)
    return ", ".join(parts)


def _worker_notes(worker: WorkerRecord, now: int) -> str:
    notes = [f"stalled in {worker.stalled_in}"] if worker.stalled_in else []
    if worker.status == "alive" and not is_alive(worker, now):
        notes.append(f"its lease ran out {span_text(now - worker.lease_until)} ago")
    notes += [
        f"at its last heartbeat in step {step.step} of run {step.run_id} "
        f"for {span_text(worker.heartbeat_at - step.since)}"
        for step in worker.in_flight
    ]
    if worker.fenced_writes:
        notes.append(f"{worker.fenced_writes} fenced writes")
    return "; ".join(notes)


def _waits_text(described: Described) -> str:
    """One line for each open wait, the longest first."""
    waits = sorted(described.surroundings.waits, key=lambda wait: wait.opened_at) if described.surroundings else []
    return "\n".join(_lines_of([_wait_text(wait) for wait in waits]))


def _wait_text(wait: Wait) -> str:
    what = f"a message on {wait.subject}" if wait.kind == "receive" else f"child {wait.subject} ({wait.name})"
    until = f" until {local_text(wait.deadline_at)}" if wait.deadline_at is not None else ""
    where = f" at {place_text(wait.branch, wait.ordinal)}" if wait.branch else ""
    return f"{what}{until}{where}"


def _children_text(described: Described) -> str:
    beside = described.surroundings
    counted = beside.children_by_status() if beside is not None else {}
    told = ", ".join(f"{count} {status}" for status, count in counted.items())
    return f"{told}; see `{to_type('run', 'children', described.run.id)}`" if told else ""


def _published_text(described: Described) -> str:
    beside = described.surroundings
    values = [] if beside is None else [(key, payload(body, what=key)) for key, body in beside.published.items()]
    return "\n".join(_lines_of([f"{key} = {_shortened(dumps(value, indent=None))}" for key, value in values]))


def _lines_of(lines: list[str]) -> list[str]:
    more = len(lines) - LINES_MAX
    return [*lines[:LINES_MAX], f"and {more} more; `-o json` has them all"] if more > 0 else lines


def _request_text(asked: Request) -> str:
    because = f": {asked.reason}" if asked.reason else ""
    return f"{asked.verb} by {asked.by} at {local_text(asked.at)}{because}"


def _commands(described: Described) -> list[str]:
    run = described.run
    commands: list[str] = []
    for action in actions_for(run.status, described.holds):
        if action == Command.ANSWER.value:
            commands += [
                to_type("run", action, run.id, hold.id, answer)
                for hold in described.holds
                for answer in CLOSED_BY_ANSWER.get(hold.kind, ())
            ]
        elif action == Command.SEND.value:
            waits = described.surroundings.waits if described.surroundings is not None else ()
            topics = sorted({wait.subject for wait in waits if wait.kind == "receive"})
            commands += [to_type("run", action, run.id, topic, "VALUE") for topic in topics]
        else:
            commands.append(to_type("run", action, run.id))
    return commands


def _result_text(step: StepRecord) -> str:
    if step.wake_at is not None:
        return f"until {local_text(step.wake_at)}"
    return dumps(payload(step.output, what=f"the result of step {step.name}"), indent=None)


def _shortened(text: str) -> str:
    return text if len(text) <= VALUE_LENGTH_MAX else text[: VALUE_LENGTH_MAX - 1] + "…"


def _error_lines(error: bytes | None) -> str:
    if error is None:
        return ""
    info = decode_error(error)
    return "\n".join(part for part in (f"{info.type}: {info.message}", info.traceback) if part)


def _time(at: int | None) -> str:
    return "" if at is None else local_text(at)
