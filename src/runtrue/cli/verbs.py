"""`runtrue run start|wait|pause|resume|cancel|terminate|answer|send`: the commands that ask something of a run."""

from collections.abc import Awaitable, Callable

import click

from runtrue.cli.describe import describe
from runtrue.cli.exits import Exit, wait_code
from runtrue.cli.groups import run
from runtrue.cli.options import (
    asynchronous,
    connected,
    database_option,
    microseconds,
    output_option,
    run_argument,
    span,
    tag,
    timeout_option,
)
from runtrue.cli.start import read_inputs, read_value, start_run, unserved_text
from runtrue.cli.tables import print_runs
from runtrue.cli.text import local_text, note, say, to_type
from runtrue.cli.waiting import wait_until
from runtrue.cli.wording import end_text, outcome_text
from runtrue.codec import encode
from runtrue.errors import OutcomeUnknown, StoreBusy
from runtrue.ids import check_id, new_request_id, new_run_id
from runtrue.jsonform import dumps, outcome_body
from runtrue.lifecycle import CLOSED_BY_ANSWER, TERMINAL, Status
from runtrue.records import RunRecord
from runtrue.service import Outcome, Service, StartOptions

PRIORITY_MAX = 2**31 - 1
_ANSWERS = sorted({answer for answers in CLOSED_BY_ANSWER.values() for answer in answers}, reverse=True)
_WAIT_FOR = ("finished", "paused", "waiting", "completed", "failed", "cancelled")


def _request_options(function: Callable[..., int]) -> Callable[..., int]:
    for option in (
        output_option("table", "json"),
        click.option("--request-id", default="", help="The identity of this request: a repeat changes nothing twice."),
        click.option("--reason", default="", help="Why, for whoever looks at the run later."),
        run_argument,
        database_option,
    ):
        function = option(function)
    return function


# ---------------------------------------------------------------- start
@run.command("start")
@click.argument("workflow", metavar="NAME")
@click.option(
    "--input", "inputs", multiple=True, metavar="NAME=TEXT|NAME:=JSON|@FILE|-", help="A parameter, or all of them."
)
@click.option("--id", "run_id", help="The run's id; the same start under the same id starts nothing twice.")
@click.option("--key", "idempotency_key", help="An idempotency key, unique for the workflow.")
@click.option("--delay", type=span, help="Do not start before so long has passed, such as 30s or 2h.")
@click.option(
    "--deadline", type=span, help="Cancel the run if it has not ended so long after it may begin, such as 3h."
)
@click.option(
    "--priority",
    type=click.IntRange(-PRIORITY_MAX, PRIORITY_MAX),
    default=0,
    help="Low numbers go first.  [default: 0]",
)
@click.option("--tag", "tags", type=tag, multiple=True, metavar="KEY=VALUE", help="May be given several times.")
@click.option("--version", help="The workflow's version  [default: the one that the youngest living worker serves]")
@click.option("--wait", is_flag=True, help="Wait until the run has ended.")
@timeout_option
@output_option("table", "json", "id")
@database_option
@asynchronous
async def start(
    *,
    workflow: str,
    inputs: tuple[str, ...],
    run_id: str | None,
    idempotency_key: str | None,
    delay: float | None,
    deadline: float | None,
    priority: int,
    tags: tuple[tuple[str, str], ...],
    version: str | None,
    wait: bool,
    timeout: float | None,
    output: str,
) -> int:
    """Start a run of the workflow NAME.

    Its inputs are the workflow's parameters by name: --input city=Lyon is text, --input n:=10 is JSON, --input
    @order.json and --input - (standard input) hold a JSON object of all parameters.
    """
    _only_with_wait(wait=wait, timeout=timeout)
    if version is not None:
        check_id("the workflow version", version)
    values = read_inputs(inputs)
    async with connected() as service:
        options = StartOptions(
            id=run_id if run_id is not None else new_run_id(service.clock.now()),
            idempotency_key=idempotency_key,
            priority=priority,
            delay=None if delay is None else microseconds(delay),
            deadline=None if deadline is None else microseconds(deadline),
            tags=dict(tags),
        )
        started = await start_run(service, workflow, version, values, options)
        if not started.created:
            note(f"the same start was made before: this is run {started.run_id}, nothing new was started")
        row = await service.get(started.run_id)
        if unserved := unserved_text(row, await service.workers(), service.clock.now()):
            note(unserved)
        if wait:
            if output != "id":
                note(f"started run {started.run_id}, waiting for its end")
            return await _wait(service, started.run_id, "finished", timeout, output)
        if output == "id":
            say(started.run_id)
            return Exit.DONE
        (described,) = await describe(service, [row], time_text=local_text, whole=True)
        if output == "json":
            print(dumps(described.body))
        else:
            print_runs([described], service.clock.now())
            note(f"follow it with: {to_type('run', 'watch', started.run_id)}")
        return Exit.DONE


# ---------------------------------------------------------------- wait
@run.command("wait")
@run_argument
@click.option(
    "--for", "wanted", type=click.Choice(_WAIT_FOR), default="finished", show_default=True, help="What to wait for."
)
@timeout_option
@output_option("table", "json", "id")
@database_option
@asynchronous
async def wait(*, run_id: str, wanted: str, timeout: float | None, output: str) -> int:
    """Wait for the end of a run.

    Or until it has the status that --for names.

    Exit codes: 0 it is as asked; 5 it failed; 6 it was cancelled; 4 it ended in another way than asked; 7 the time is
    up; 8 it is paused and goes on only when a person says so.
    """
    async with connected() as service:
        return await _wait(service, run_id, wanted, timeout, output)


async def _wait(service: Service, run_id: str, wanted: str, timeout: float | None, output: str) -> int:
    # A paused run goes on only when somebody says so. A script that waited on would hang on a question nobody sees.
    run = await wait_until(
        service,
        run_id,
        lambda status: status.value == wanted or status is Status.PAUSED,
        timeout_seconds=timeout,
    )
    (described,) = await describe(service, [run], time_text=local_text, whole=run.status in TERMINAL)
    if output == "json":
        print(dumps(described.body))
    elif output == "id":
        say(run.id)
    else:
        say(end_text(run))
    code = wait_code(run.status, wanted)
    why = f" ({described.why})" if described.why else ""
    if code is Exit.TIMED_OUT:
        note(f"the time is up: run {run_id} is {run.status.value}{why}; it goes on, only the wait has ended")
    elif code is Exit.WAITS_FOR_PERSON:
        note(f"run {run_id} waits for a person{why}")
    elif code is Exit.CONFLICT:
        note(f"run {run_id} is {run.status.value}, it will never be {wanted}")
    return code


# ---------------------------------------------------------------- the verbs
@run.command("pause")
@_request_options
@click.option("--wait", is_flag=True, help="Wait until the run is paused.")
@timeout_option
@asynchronous
async def pause(*, run_id: str, reason: str, request_id: str, wait: bool, timeout: float | None, output: str) -> int:
    """Pause a run.

    At once where no worker has it, else at its next step boundary.
    """
    _only_with_wait(wait=wait, timeout=timeout)
    async with connected() as service:
        outcome = await _ask(
            run_id,
            "pause",
            request_id,
            lambda identity: service.pause(run_id, reason=reason, request_id=identity),
        )
        return await _report_or_wait(service, outcome, "paused", wait=wait, timeout=timeout, output=output)


@run.command("cancel")
@_request_options
@click.option("--wait", is_flag=True, help="Wait until the run is cancelled.")
@timeout_option
@asynchronous
async def cancel(*, run_id: str, reason: str, request_id: str, wait: bool, timeout: float | None, output: str) -> int:
    """Cancel a run.

    At once where no worker has it, else at its next step boundary: the step in flight finishes.
    """
    _only_with_wait(wait=wait, timeout=timeout)
    async with connected() as service:
        outcome = await _ask(
            run_id,
            "cancel",
            request_id,
            lambda identity: service.cancel(run_id, reason=reason, request_id=identity),
        )
        return await _report_or_wait(service, outcome, "cancelled", wait=wait, timeout=timeout, output=output)


@run.command("resume")
@_request_options
@click.option("--pause", "pause_id", help="Resume only if this is still the active pause.")
@asynchronous
async def resume(*, run_id: str, reason: str, request_id: str, pause_id: str | None, output: str) -> int:
    """Let a paused run go on.

    A pause that is only requested so far is withdrawn.
    """
    async with connected() as service:
        outcome = await _ask(
            run_id,
            "resume",
            request_id,
            lambda identity: service.resume(run_id, reason=reason, request_id=identity, pause_id=pause_id),
        )
        return _report(service, outcome, output)


@run.command("terminate")
@_request_options
@asynchronous
async def terminate(*, run_id: str, reason: str, request_id: str, output: str) -> int:
    """End a run as cancelled now.

    Also in the middle of a step; whatever its worker still sends is discarded.
    """
    async with connected() as service:
        outcome = await _ask(
            run_id,
            "terminate",
            request_id,
            lambda identity: service.terminate(run_id, reason=reason, request_id=identity),
        )
        return _report(service, outcome, output)


@run.command("answer")
@run_argument
@click.argument("hold_id", metavar="HOLD")
@click.argument("value", type=click.Choice(_ANSWERS))
@click.option("--reason", default="", help="Why, for whoever looks at the run later.")
@click.option("--request-id", default="", help="The identity of this request: a repeat changes nothing twice.")
@output_option("table", "json")
@database_option
@asynchronous
async def answer(*, run_id: str, hold_id: str, value: str, reason: str, request_id: str, output: str) -> int:
    """Answer an open hold of a run.

    `runtrue hold list` shows which there are.
    """
    async with connected() as service:
        outcome = await _ask(
            run_id,
            "answer",
            request_id,
            lambda identity: service.answer(run_id, hold_id, value, reason=reason, request_id=identity),
        )
        return _report(service, outcome, output)


@run.command("send")
@run_argument
@click.argument("topic")
@click.argument("value", required=False, metavar="[VALUE|:=JSON|@FILE|-]")
@click.option("--key", default="", help="Names the message: sending it again under its key changes nothing.")
@output_option("table", "json")
@database_option
@asynchronous
async def send(*, run_id: str, topic: str, value: str | None, key: str, output: str) -> int:
    """Send a message to a run.

    It is kept until the run receives it, also while the run is paused.

    VALUE is text; :=10 or :='{"by": "ana"}' is JSON; @note.json and - (standard input) hold JSON; without a VALUE the
    message is null. A message is checked against its topic's type when the run receives it; one that does not fit fails
    a run that does not catch the error.

    \b
    runtrue run send order-42 courier arrived
    runtrue run send order-42 courier :='{"parcel": 7}' --key scan-881
    """  # noqa: D301  the backspace is how click is told to leave the lines as they are
    body = encode(read_value(value), what=f"the message on {topic}")
    async with connected() as service:
        outcome = await _ask(
            run_id,
            "send",
            key,
            lambda identity: service.send(run_id, topic, body, request_id=identity),
            option="--key",
        )
        return _report(service, outcome, output)


async def _ask(
    run_id: str,
    verb: str,
    request_id: str,
    carry: Callable[[str], Awaitable[Outcome]],
    *,
    option: str = "--request-id",
) -> Outcome:
    """Send a command under a request id that is known here, so that a lost answer can be asked for again."""
    identity = request_id or new_request_id()
    try:
        return await carry(identity)
    except StoreBusy as error:
        raise StoreBusy(f"{verb} of run {run_id}: {error}; ask again when the database is less busy") from error
    except OutcomeUnknown as error:
        raise OutcomeUnknown(
            f"whether the {verb} of run {run_id} was recorded is not known ({error}); "
            f"repeat the command with {option} {identity}, that changes nothing twice",
            identity,
        ) from error


def _report(service: Service, outcome: Outcome, output: str) -> int:
    if output == "json":
        print(dumps(outcome_body(outcome)))
    else:
        say(outcome_text(outcome, service.clock.now()))
    return Exit.DONE


async def _report_or_wait(
    service: Service, outcome: Outcome, wanted: str, *, wait: bool, timeout: float | None, output: str
) -> int:
    """Report the outcome; with `wait` a request that is only recorded so far is followed to its end."""
    if outcome.done or not wait:
        return _report(service, outcome, output)
    note(outcome_text(outcome, service.clock.now()))
    run = await wait_until(
        service,
        outcome.run_id,
        lambda status: status not in (Status.PAUSING, Status.CANCELLING),
        timeout_seconds=timeout,
    )
    return await _report_end(service, run, wanted, output)


async def _report_end(service: Service, run: RunRecord, wanted: str, output: str) -> int:
    (described,) = await describe(service, [run], time_text=local_text, whole=run.status in TERMINAL)
    if output == "json":
        print(dumps(described.body))
    else:
        say(end_text(run))
    if run.status.value == wanted:
        return Exit.DONE
    if run.status in (Status.PAUSING, Status.CANCELLING):
        note(f"the time is up: {described.why}; the request stands, only the wait has ended")
        return Exit.TIMED_OUT
    note(f"run {run.id} is {run.status.value}, not {wanted} as asked")
    return Exit.CONFLICT


def _only_with_wait(*, wait: bool, timeout: float | None) -> None:
    if timeout is not None and not wait:
        raise click.UsageError("--timeout bounds a wait; add --wait")
