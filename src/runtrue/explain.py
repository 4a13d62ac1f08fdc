"""Why a run does not move, in one sentence for people. Pure: it is told everything it looks at."""

import shlex
from collections.abc import Callable, Iterator, Sequence

from runtrue.clock import MICROSECOND
from runtrue.codec import decode_error
from runtrue.jsonform import utc_text
from runtrue.lifecycle import CLOSED_BY_ANSWER, Command, HoldKind, Status
from runtrue.records import AttemptRecord, Hold, InFlight, RunRecord, StepRecord, Wait, WorkerRecord
from runtrue.store.protocol import NEVER

ERROR_LENGTH_MAX = 200
NAMED_MAX = 3
"""So many of several steps or workflows are named, the others are counted."""

GROUPS = frozenset({"gather", "map", "first"})
"""Kinds of calls that open a branch for each of their items; a recorded one has ended, and its branches with it."""

TimeText = Callable[[int], str]


def explain(
    run: RunRecord,
    *,
    now: int,
    holds: Sequence[Hold],
    workers: Sequence[WorkerRecord],
    in_flight: Sequence[InFlight] = (),
    steps: Sequence[StepRecord] | None = None,
    attempts: Sequence[AttemptRecord] = (),
    waits: Sequence[Wait] = (),
    time_text: TimeText = utc_text,
) -> str:
    """Say why the run is not moving, or what it does right now; empty for a completed run.

    `holds` may hold those of other runs, closed ones too. `workers` are all that are known, `in_flight` are the steps
    that are running as far as is known. With `steps`, `attempts` and `waits` (closed ones too) a waiting run is told
    apart by what it waits for. `time_text` writes a point in time.
    """
    match run.status:
        case Status.PENDING:
            return _pending(run, now, workers, time_text)
        case Status.WAITING:
            return _waiting(run, now, workers, steps, attempts, waits, time_text)
        case Status.RUNNING:
            return _doing(run, now, workers, in_flight)
        case Status.PAUSING | Status.CANCELLING:
            return f"{_asked(run, now)}; {_doing(run, now, workers, in_flight)}"
        case Status.PAUSED:
            mine = [hold for hold in holds if hold.run_id == run.id and hold.closed_at is None]
            return "; ".join(_held(hold) for hold in mine) or "held"
        case Status.FAILED:
            return error_text(run.error)
        case Status.CANCELLED:
            return _ended_by(run)
        case Status.COMPLETED:
            return ""


def error_text(error: bytes | None) -> str:
    """A recorded exception on one bounded line: `ValueError: no such order`."""
    if error is None:
        return ""
    info = decode_error(error)
    line = " ".join(f"{info.type}: {info.message}".split())
    return line if len(line) <= ERROR_LENGTH_MAX else line[: ERROR_LENGTH_MAX - 1] + "…"


def span_text(microseconds: int) -> str:
    """A length of time for people: `0.25 s`, `12 s`, `5 min`, `3 h 20 min`, `4 d 6 h`."""
    seconds = max(0, microseconds) / MICROSECOND
    if seconds < 10:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, hours, days = int(seconds // 60), int(seconds // 3_600), int(seconds // 86_400)
    if minutes < 120:
        return f"{minutes} min"
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{days} d {hours % 24} h"


def until_text(at: int, now: int) -> str:
    """How long until `at`, for people: `in 3 s`, `in 2 h 5 min`, `now`."""
    seconds = max(0, (at - now + MICROSECOND - 1) // MICROSECOND)
    if seconds == 0:
        return "now"
    if seconds < 120:
        return f"in {seconds} s"
    minutes, hours, days = seconds // 60, seconds // 3_600, seconds // 86_400
    if minutes < 120:
        return f"in {minutes} min"
    return f"in {hours} h {minutes % 60} min" if hours < 48 else f"in {days} d {hours % 24} h"


def step_text(step: InFlight, now: int) -> str:
    """A step that is still running: `step charge (attempt 2, 12 s)`."""
    return f"step {step.step} (attempt {step.attempt}, {span_text(now - step.since)})"


def steps_text(steps: Sequence[InFlight], now: int) -> str:
    """The steps that are still running: the first few of them named, the others counted."""
    return _listed([step_text(step, now) for step in steps])


def is_alive(worker: WorkerRecord, now: int) -> bool:
    """Whether the worker's lease still holds. A row may say `alive` until a sweep finds that it ran out."""
    return worker.status == "alive" and worker.lease_until >= now


def _pending(run: RunRecord, now: int, workers: Sequence[WorkerRecord], time_text: TimeText) -> str:
    if run.ready_at > now:
        when = f"{time_text(run.ready_at)} ({until_text(run.ready_at, now)})"
        if run.losses:
            return f"lost its worker {_times(run.losses)}, may be claimed again at {when}"
        return f"delayed until {when}"
    return _unclaimed(run, now, workers)


def _unclaimed(run: RunRecord, now: int, workers: Sequence[WorkerRecord]) -> str:
    """Why a run that is due has not been taken."""
    wanted = f"{run.workflow}@{run.version}"
    living = [worker for worker in workers if is_alive(worker, now)]
    serving = [worker for worker in living if wanted in worker.serves]
    if serving:
        slots, taken = sum(worker.slots for worker in serving), sum(worker.runs_held for worker in serving)
        return "not taken yet" if taken < slots else f"waits for a free worker (all {slots} slots are taken)"
    if not living:
        return f"no worker serves {wanted}: none is alive"
    others = sorted({name for worker in living for name in worker.serves if name.rpartition("@")[0] == run.workflow})
    return f"no worker serves {wanted}" + (f", only {', '.join(others)}" if others else "")


def _waiting(
    run: RunRecord,
    now: int,
    workers: Sequence[WorkerRecord],
    steps: Sequence[StepRecord] | None,
    attempts: Sequence[AttemptRecord],
    waits: Sequence[Wait],
    time_text: TimeText,
) -> str:
    if run.ready_at <= now:
        return f"due since {time_text(run.ready_at)}; {_unclaimed(run, now, workers)}"

    def at(time: int) -> str:
        return f"{time_text(time)} ({until_text(time, now)})"

    awaited = sorted(_awaited(run, now, steps or (), attempts, waits, at))
    if awaited:
        others = len(awaited) - 1
        more = "" if not others else ", and 1 other wait" if others == 1 else f", and {others} other waits"
        return awaited[0][1] + more
    if run.ready_at >= NEVER:
        return "waits for a message or a child"
    return f"sleeps until {at(run.ready_at)}" if steps is not None else f"wakes at {at(run.ready_at)}"


def _awaited(
    run: RunRecord,
    now: int,
    steps: Sequence[StepRecord],
    attempts: Sequence[AttemptRecord],
    waits: Sequence[Wait],
    at: TimeText,
) -> Iterator[tuple[int, str]]:
    """What the branches of a run wait for, in words, each with the time that ends the wait at the latest."""
    ended = tuple(f"{step.branch}/{step.ordinal}".lstrip("/") for step in steps if step.kind in GROUPS)
    inside = tuple(f"{group}{mark}" for group in ended for mark in ".:")
    finished = {(step.branch, step.ordinal) for step in steps}
    for step in steps:
        if step.kind == "sleep" and (step.wake_at or 0) > now and not step.branch.startswith(inside):
            yield step.wake_at or 0, f"sleeps until {at(step.wake_at or 0)}"
    last = {(attempt.branch, attempt.ordinal): attempt for attempt in sorted(attempts, key=lambda each: each.attempt)}
    for place, attempt in last.items():
        if place not in finished and not attempt.branch.startswith(inside):
            failed = f"step {attempt.name} failed {_times(attempt.attempt)} ({error_text(attempt.error)})"
            yield attempt.next_at, f"{failed}, tries again at {at(attempt.next_at)}"
    still_open = [wait for wait in waits if wait.closed_at is None]
    for wait in still_open:
        if wait.kind == "receive":
            until = f" until {at(wait.deadline_at)}" if wait.deadline_at is not None else ""
            yield wait.deadline_at or NEVER, f"waits for a message on {wait.subject}{until}"
    children = [wait for wait in still_open if wait.kind == "child"]
    if children:
        yield NEVER, _children_text(children, run.children_left)


def _children_text(waits: Sequence[Wait], left: int) -> str:
    """The children that a run waits for; those that have ended meanwhile are told too where others have not."""
    if len(waits) == 1:
        return f"waits for its child {waits[0].subject} ({waits[0].name})"
    names = _listed(sorted({wait.name for wait in waits}))
    count = f"{left} of {len(waits)}" if 0 < left < len(waits) else str(len(waits))
    return f"waits for {count} children ({names})"


def _doing(run: RunRecord, now: int, workers: Sequence[WorkerRecord], in_flight: Sequence[InFlight]) -> str:
    """What an owned run does right now, as its worker told last."""
    owner = _owner(run, workers)
    if owner is None or not is_alive(owner, now):
        heard = f", last heard of {span_text(now - owner.heartbeat_at)} ago" if owner is not None else ""
        return f"its worker {run.worker_id} is gone{heard}; any other worker puts the run right"
    if owner.stalled_in:
        return f"worker {owner.id} is stalled in {owner.stalled_in}"
    if in_flight:
        return f"{'still ' if run.status is not Status.RUNNING else ''}running {steps_text(in_flight, now)}"
    return f"on worker {owner.id} ({owner.host}, pid {owner.pid})"


def _asked(run: RunRecord, now: int) -> str:
    verb = "pause" if run.status is Status.PAUSING else "cancel"
    if run.request is None:
        return f"{verb} requested"
    ago = span_text(now - run.request.at)
    return f"{verb} requested by {run.request.by} {ago} ago{_because(run.request.reason)}"


def _held(hold: Hold) -> str:
    because = _because(hold.reason)
    if hold.kind is HoldKind.OPERATOR:
        return f"paused by {hold.opened_by}{because}; `resume` lets it go on"
    if hold.kind is HoldKind.CODE_MISMATCH:
        # A resume alone meets the same code again. A worker that starts tells whether the function itself is another.
        remedy = 'put fitting code back, or name the step as the history has it, as in `@rt.step(name="first")`'
        resume = f"`runtrue run resume {shlex.quote(hold.run_id)}` unless the workflow itself is changed"
        return f"the code does not fit its history{because}; {remedy}; restart the worker, and {resume}"
    answers = "|".join(CLOSED_BY_ANSWER[hold.kind])
    return f"keeps losing its worker{because}; `answer {hold.id} {answers}` decides"


def _ended_by(run: RunRecord) -> str:
    if run.request is None or run.request.verb == "pause":
        return ""
    ended = "terminated" if run.request.verb == Command.TERMINATE else "cancelled"
    return f"{ended} by {run.request.by}" + (f": {run.request.reason}" if run.request.reason else "")


def _owner(run: RunRecord, workers: Sequence[WorkerRecord]) -> WorkerRecord | None:
    return next((worker for worker in workers if worker.id == run.worker_id), None)


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - NAMED_MAX
    return ", ".join(texts[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _because(reason: str) -> str:
    return f" ({reason})" if reason else ""


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
