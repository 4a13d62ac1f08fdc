"""The commands that only look: `runtrue run list|show|steps|events`, `hold list`, `worker list`."""

from datetime import datetime, timedelta

import click

from runtrue.cli.describe import describe
from runtrue.cli.exits import Exit
from runtrue.cli.groups import hold, run, worker
from runtrue.cli.options import (
    asynchronous,
    connected,
    cursor,
    database_option,
    moment,
    output_option,
    recorded_time,
    run_argument,
    tag,
)
from runtrue.cli.tables import (
    print_events,
    print_holds,
    print_messages,
    print_run,
    print_runs,
    print_steps,
    print_workers,
)
from runtrue.cli.text import local_text, note, say
from runtrue.codec import decode_error
from runtrue.explain import is_alive
from runtrue.jsonform import (
    attempt_body,
    cursor_text,
    dumps,
    event_body,
    hold_body,
    message_body,
    page_body,
    step_body,
    worker_body,
)
from runtrue.lifecycle import Status
from runtrue.records import Event, RunRecord, StepRecord
from runtrue.service import Service

EVENTS_PER_PAGE = 1_000


@run.command("list")
@click.option(
    "--status",
    "statuses",
    type=click.Choice([status.value for status in Status]),
    multiple=True,
    help="Only runs with this status; may be given several times.",
)
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option("--tag", "tags", type=tag, multiple=True, metavar="KEY=VALUE", help="Only runs with all of these tags.")
@click.option("--since", type=moment, help="Only runs made since then: a time, or how long ago, such as 2h.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, show_default=True, help="How many at most.")
@click.option("--cursor", "before", type=cursor, help="Where the page before this one ended.")
@output_option("table", "json", "jsonl", "id")
@database_option
@asynchronous
async def list_runs(
    *,
    statuses: tuple[str, ...],
    workflow: str | None,
    tags: tuple[tuple[str, str], ...],
    since: datetime | timedelta | None,
    limit: int,
    before: tuple[int, str] | None,
    output: str,
) -> int:
    """List runs, newest first."""
    async with connected() as service:
        page = await service.list_runs(
            statuses=[Status(name) for name in statuses],
            workflow=workflow,
            tags=dict(tags),
            since=None if since is None else recorded_time(since, service.clock.now()),
            limit=limit,
            cursor=before,
        )
        if output == "id":
            for found in page.runs:
                say(found.id)
        else:
            described = await describe(service, page.runs, time_text=local_text)
            if output == "json":
                print(dumps(page_body([item.body for item in described], page)))
            elif output == "jsonl":
                for item in described:
                    print(dumps(item.body, indent=None))
            elif described:
                print_runs(described, service.clock.now())
            else:
                note("no runs are like that" if any((statuses, workflow, tags, since, before)) else "no runs yet")
        if page.cursor is not None and output != "json":
            note(f"there are more: add --cursor {cursor_text(page.cursor)}")
    return Exit.DONE


@run.command("show")
@run_argument
@output_option("table", "json")
@database_option
@asynchronous
async def show(*, run_id: str, output: str) -> int:
    """Show all about one run.

    What it is, why it does not move, what it waits for and has published, and what it can be asked.
    """
    async with connected() as service:
        (described,) = await describe(service, [await service.get(run_id)], time_text=local_text, whole=True)
        if output == "json":
            print(dumps(described.body))
        else:
            print_run(described, await _failed_step(service, described.run))
    return Exit.DONE


async def _failed_step(service: Service, run: RunRecord) -> StepRecord | None:
    """The step by which the run failed. The run's own error has only that one's message, not where it was raised."""
    message = decode_error(run.error).message if run.error is not None else ""
    recorded, _ = await service.steps(run.id) if message else ([], [])
    failed = [step for step in recorded if step.error is not None and message.startswith(f"step {step.name} failed")]
    return max(failed, key=lambda step: step.seq, default=None)


@run.command("steps")
@run_argument
@output_option("table", "json", "jsonl")
@database_option
@asynchronous
async def steps(*, run_id: str, output: str) -> int:
    """List the recorded steps of a run.

    The attempts that failed too, in the order of their recording.
    """
    async with connected() as service:
        recorded, failed = await service.steps(run_id)
    if output == "table":
        if recorded or failed:
            print_steps(recorded, failed)
        else:
            note(f"run {run_id} has recorded no step yet")
        return Exit.DONE
    numbered = [(step.seq, step_body(step)) for step in recorded]
    numbered += [(attempt.seq, attempt_body(attempt)) for attempt in failed]
    bodies = [body for _, body in sorted(numbered, key=lambda pair: pair[0])]
    _print_bodies(bodies, output)
    return Exit.DONE


@run.command("events")
@run_argument
@click.option(
    "--after", type=click.IntRange(0, 2**63 - 1), default=0, metavar="SEQ", help="Only events after this one."
)
@output_option("table", "json", "jsonl")
@database_option
@asynchronous
async def events(*, run_id: str, after: int, output: str) -> int:
    """List what happened to a run.

    Events, steps and failed attempts, in the order of the commits. A step within a branch is told with its place.
    """
    async with connected() as service:
        found = await all_events(service, run_id, after)
    if output != "table":
        _print_bodies([event_body(event) for event in found], output)
    elif found:
        print_events(found)
    else:
        note(f"nothing happened to run {run_id} after event {after}")
    return Exit.DONE


async def all_events(service: Service, run_id: str, after: int) -> list[Event]:
    """Every event after `after`, page by page."""
    found: list[Event] = []
    while True:
        page = await service.events(run_id, after=after, limit=EVENTS_PER_PAGE)
        found += page
        if len(page) < EVENTS_PER_PAGE:
            return found
        after = page[-1].seq


@run.command("children")
@run_argument
@output_option("table", "json", "jsonl", "id")
@database_option
@asynchronous
async def children(*, run_id: str, output: str) -> int:
    """List the runs that a run has started as its children.

    Oldest first, each with why it does not move. `runtrue run show` counts them by status.
    """
    async with connected() as service:
        found = await service.children(run_id)
        if output == "id":
            for child in found:
                say(child.id)
            return Exit.DONE
        described = await describe(service, found, time_text=local_text)
        if output != "table":
            _print_bodies([item.body for item in described], output)
        elif described:
            print_runs(described, service.clock.now())
        else:
            note(f"run {run_id} has no children")
    return Exit.DONE


@run.command("messages")
@run_argument
@output_option("table", "json", "jsonl")
@database_option
@asynchronous
async def messages(*, run_id: str, output: str) -> int:
    """List the messages that were sent to a run.

    Oldest first; those that the run has not received yet are kept for it.
    """
    async with connected() as service:
        found = await service.messages(run_id)
    if output != "table":
        _print_bodies([message_body(message) for message in found], output)
    elif found:
        print_messages(found)
    else:
        note(f"no message was sent to run {run_id}")
    return Exit.DONE


@hold.command("list")
@click.option("--run", "run_id", metavar="ID", help="Only the holds of this run.")
@click.option("--all", "closed_too", is_flag=True, help="Closed holds too.")
@output_option("table", "json", "jsonl", "id")
@database_option
@asynchronous
async def list_holds(*, run_id: str | None, closed_too: bool, output: str) -> int:
    """List the open holds.

    `run resume` closes those of an operator, `run answer` those that ask for an answer.
    """
    async with connected() as service:
        if run_id is not None:
            await service.get(run_id, payloads=False)
        found = await service.holds(run_id, open_only=not closed_too)
    if output == "id":
        for item in found:
            say(item.id)
    elif output != "table":
        _print_bodies([hold_body(item) for item in found], output)
    elif found:
        print_holds(found)
    else:
        note("no holds" if closed_too else "no open holds")
    return Exit.DONE


@worker.command("list")
@click.option("--all", "past_too", is_flag=True, help="Those that are lost or stopped too.")
@output_option("table", "json", "jsonl", "id")
@database_option
@asynchronous
async def list_workers(*, past_too: bool, output: str) -> int:
    """List the workers that are alive.

    With what they hold and do.
    """
    async with connected() as service:
        now = service.clock.now()
        found = [worker for worker in await service.workers() if past_too or is_alive(worker, now)]
    if output == "id":
        for item in found:
            say(item.id)
    elif output != "table":
        _print_bodies([worker_body(item) for item in found], output)
    elif found:
        print_workers(found, now)
    else:
        note("no workers" if past_too else "no worker is alive")
    return Exit.DONE


def _print_bodies(bodies: list[dict[str, object]], output: str) -> None:
    if output == "json":
        print(dumps(bodies))
        return
    for body in bodies:
        print(dumps(body, indent=None))
