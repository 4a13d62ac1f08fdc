"""What a command says about its outcome. Nothing here says more than the committed row did."""

from collections.abc import Mapping, Sequence

from runtrue.cli.text import local_text, to_type
from runtrue.explain import error_text, explain, span_text, steps_text
from runtrue.jsonform import dumps, payload
from runtrue.lifecycle import CLOSED_BY_ANSWER, Command, HoldKind, Status
from runtrue.records import Event, Hold, RunRecord
from runtrue.service import Outcome


def outcome_text(outcome: Outcome, now: int) -> str:
    """How a command was met: what is so now, or what is requested and what still goes on until then."""
    text = _requested(outcome, now) if not outcome.done else _done(outcome, now)
    if outcome.repeated:
        return f"request {outcome.request_id} was met before, with this answer: {text}"
    return text


def _requested(outcome: Outcome, now: int) -> str:
    already = "" if outcome.changed else " already"
    doing = f"running {steps_text(outcome.in_flight, now)}" if outcome.in_flight else "with its worker"
    then = "it pauses" if outcome.command is Command.PAUSE else "it is cancelled"
    return (
        f"{outcome.command.value} requested{already}: run {outcome.run_id} is still {doing}; "
        f"{then} at the next step boundary"
    )


def _done(outcome: Outcome, now: int) -> str:
    run = f"run {outcome.run_id}"
    match outcome.command:
        case Command.PAUSE if outcome.changed:
            return f"paused: {run} stays where it is until `{to_type('run', 'resume', outcome.run_id)}`"
        case Command.PAUSE:
            return f"paused already: {run} is held by an operator; nothing was changed"
        case Command.RESUME if outcome.still_held_by:
            return f"your hold is closed, but {run} stays {outcome.status.value}: {held_text(outcome.still_held_by)}"
        case Command.RESUME if outcome.status is Status.RUNNING:
            return f"the pause request is withdrawn: {run} is running"
        case Command.RESUME:
            return f"resumed: {run} is {outcome.status.value} and goes on when a worker takes it"
        case Command.CANCEL | Command.TERMINATE if not outcome.changed:
            return f"cancelled already: {run} is cancelled; nothing was changed"
        case Command.CANCEL:
            return f"cancelled: {run} is cancelled"
        case Command.TERMINATE if outcome.in_flight:
            one, doing = len(outcome.in_flight) == 1, steps_text(outcome.in_flight, now)
            ending = "was running and may still run to its end, its result is discarded"
            endings = "were running and may still run to their ends, their results are discarded"
            return f"terminated: {run} is cancelled; {doing} {ending if one else endings}"
        case Command.TERMINATE:
            return f"terminated: {run} is cancelled; whatever its worker still sends is discarded"
        case Command.ANSWER if outcome.still_held_by:
            return f"answered, but {run} stays {outcome.status.value}: {held_text(outcome.still_held_by)}"
        case Command.ANSWER if outcome.status is Status.FAILED:
            return f"answered: {run} is failed"
        case Command.ANSWER:
            return f"answered: {run} is {outcome.status.value} and goes on when a worker takes it"
        case Command.SEND:
            return f"sent: {run} has the message; the run is {outcome.status.value}"


def held_text(holds: tuple[Hold, ...]) -> str:
    """Which holds keep a run paused, and the commands that close them."""
    parts: list[str] = []
    for hold in holds:
        answers = CLOSED_BY_ANSWER.get(hold.kind)
        verb = ("answer", hold.run_id, hold.id, answers[0]) if answers else ("resume", hold.run_id)
        other = f" (or {', '.join(answers[1:])})" if answers else ""
        parts.append(f"hold {hold.id} ({hold.kind.value}) is open; `{to_type('run', *verb)}`{other} closes it")
    return "; ".join(parts)


def end_text(run: RunRecord) -> str:
    """The fact about a run that has ended, or that stands still, with its result."""
    took = f" after {span_text(run.finished_at - run.created_at)}" if run.finished_at is not None else ""
    match run.status:
        case Status.COMPLETED:
            result = dumps(payload(run.output, what=f"the output of run {run.id}"), indent=None)
            return f"completed: run {run.id}{took}, with the result {result}"
        case Status.FAILED:
            return f"failed: run {run.id}{took}: {error_text(run.error)}"
        case Status.CANCELLED:
            why = explain(run, now=0, holds=(), workers=()).removeprefix("cancelled ")
            return f"cancelled: run {run.id}{took}" + (f", {why}" if why else "")
        case _:
            return f"{run.status.value}: run {run.id}"


def stopped_text(run: RunRecord, holds: Sequence[Hold]) -> str:
    """What a worker's terminal says of a run that failed, or that its code cannot carry on; empty for any other."""
    match run.status:
        case Status.FAILED:
            what = f"failed: {error_text(run.error)}"
        case Status.PAUSED if any(hold.kind is HoldKind.CODE_MISMATCH for hold in holds):
            what = f"is held: {explain(run, now=0, holds=holds, workers=())}"
        case _:
            return ""
    return f"run {run.id} {what}; see `{to_type('run', 'show', run.id)}`"


def event_text(event: Event) -> str:
    """An event in a few words: what happened, to what, by whom and why."""
    told = {name: value for name, value in event.data.items() if value not in (None, "", False)}
    words = event.type.replace("_", " ")
    match event.type:
        case "step" | "attempt_failed":
            return _call_text(event)
        case "woken":
            by = f"the end of child {told.get('child')}" if "child" in told else f"a message on {told.get('topic')}"
            return f"woken by {by}"
        case "message":
            return f"message on {told.get('topic')} from {told.get('by')} ({told.get('request_id')})"
        case _:
            details = [f"{_LABELS.get(name, name)} {_value_text(name, value)}".strip() for name, value in told.items()]
            return f"{words}: {', '.join(details)}" if details else words


_LABELS = {"worker": "on", "ready_at": "until", "cause": "because", "hold_id": "", "pause_id": "pause"}

_CALLS: Mapping[str, str] = {
    "step": "step {name} {outcome}",
    "receive": "receive {name} {outcome}",
    "child": "child {name} {outcome}",
    "start_child": "start of child {name} {outcome}",
    "send": "send to {name} {outcome}",
    "patched": "patched {name}",
    "gather": "gather {outcome}",
    "map": "map {outcome}",
    "first": "first {outcome}",
}
"""How a recorded call is told, by its kind; the other kinds stand for themselves: now, random, sleep, uuid4."""


def place_text(branch: str, ordinal: object) -> str:
    """Where in its run a call was made: its number, within a branch after the branch's path, as in `3.1/0`.

    `patched` has no number; its place is the branch with the change, as in `3.1#new-tax`.
    """
    if "#" in branch:
        return branch
    return f"{branch}/{ordinal}" if branch else str(ordinal)


def _call_text(event: Event) -> str:
    """A recorded call, or a failed attempt of a step: what became of it, where, and how long it took."""
    data = event.data
    kind, number, branch = str(data.get("kind", "step")), data.get("attempt", 1), str(data.get("branch", ""))
    tried = event.type == "attempt_failed"
    outcome = "failed" if tried or data.get("failed") else "completed"
    parts = [f"at {place_text(branch, data.get('ordinal'))}"] if branch and not branch.startswith("#") else []
    if number != 1 or tried:
        parts.append(f"attempt {number}")
    since = data.get("started_at")
    if kind in _TAKES_TIME and isinstance(since, int):
        parts.append(span_text(event.at - since))
    for key, label in (("wake_at", "until"), ("next_at", "again at")):
        if isinstance(at := data.get(key), int):
            parts.append(f"{label} {local_text(at)}")
    details = f" ({', '.join(parts)})" if parts else ""
    return _CALLS.get(kind, kind).format(name=data.get("name", ""), outcome=outcome) + details


_TAKES_TIME = frozenset({"step", "receive", "child", "gather", "map", "first"})


def _value_text(name: str, value: object) -> str:
    if name.endswith("_at") and isinstance(value, int):
        return local_text(value)
    return value.replace("_", " ") if name == "cause" and isinstance(value, str) else str(value)
