"""DBOS, measured: a worker with `--slots`, else a client. Runs in an environment of its own.

Async steps and workflows, as with runtrue. The queue is as DBOS makes it: it takes up all that is queued at once and
looks for more every second; the number of slots is not handed on, for a limited queue would wait for its next look
after each batch. It has no call to queue many workflows; "together" are 500 within one transaction.
"""

import asyncio
import functools
import time
from typing import Any

from dbos import DBOS, DBOSClient

from benchmarks.programs import talk

VERSION = "1"
QUEUE = "bench"
UNFINISHED = ["ENQUEUED", "DELAYED", "PENDING"]
TOGETHER = 500


@DBOS.step()
async def nothing(number: int) -> int:
    """The step that does nothing."""
    talk.TALLY.count()
    return number


@DBOS.step()
async def doze(run: int, number: int) -> int:
    """The step that takes a while."""
    talk.TALLY.count(run, number)
    await asyncio.sleep(talk.STEP_SECONDS)
    return number


@DBOS.workflow(name="in_a_row")
async def in_a_row(run: int, steps: int) -> int:
    """Steps that do nothing, one after the other."""
    for number in range(steps):
        await nothing(number)
    return run


@DBOS.workflow(name="in_a_row_slowly")
async def in_a_row_slowly(run: int, steps: int) -> int:
    """The same with steps that take a while."""
    for number in range(steps):
        await doze(run, number)
    return run


def options(workflow: str = "in_a_row") -> Any:
    """How a run of `workflow` is queued."""
    return {"queue_name": QUEUE, "workflow_name": workflow, "app_version": VERSION}


def enqueue_all(client: DBOSClient, asked: dict[str, Any]) -> None:
    """Queue runs one by one, or many in one transaction."""
    chosen = options("in_a_row_slowly" if asked["slowly"] else "in_a_row")
    runs = range(asked["runs"])
    if not asked["together"]:
        for run in runs:
            client.enqueue(chosen, run, asked["steps"])
        return
    for first in runs[::TOGETHER]:
        with client._sys_db.engine.begin() as connection:  # noqa: SLF001 - the engine that its own transactions use
            for run in runs[first : first + TOGETHER]:
                client.enqueue_in_transaction(connection, chosen, run, asked["steps"])


async def enqueue(client: DBOSClient, asked: dict[str, Any]) -> dict[str, Any]:
    """Queue runs; the seconds until the last one was durable."""
    began = time.perf_counter()
    await asyncio.to_thread(enqueue_all, client, asked)
    return {"seconds": time.perf_counter() - began}


async def finish(client: DBOSClient, _: dict[str, Any]) -> dict[str, Any]:
    """Wait until every run has ended."""

    async def some_left() -> bool:
        return bool(client.list_workflows(status=UNFINISHED, limit=1, load_input=False, load_output=False))

    return await talk.until_none_is_left(some_left)


async def round_trips_here(asked: dict[str, Any]) -> dict[str, Any]:
    """In the worker's own process, past the queue."""

    async def round_trip() -> object:
        return await (await DBOS.start_workflow_async(in_a_row, 0, 1)).get_result()

    return await talk.time_round_trips(asked["count"], round_trip)


async def round_trips(client: DBOSClient, asked: dict[str, Any]) -> dict[str, Any]:
    """By a client, through the queue."""

    async def round_trip() -> object:
        handle = await client.enqueue_async(options(), 0, 1)
        return await handle.get_result()

    return await talk.time_round_trips(asked["count"], round_trip)


def launch(database: str) -> None:
    """Make the tables and the queue, and begin to work on it."""
    DBOS(
        config={
            "name": "bench",
            "system_database_url": database,
            "log_level": "ERROR",
            "application_version": VERSION,
            "run_admin_server": False,
        }
    )
    DBOS.launch()
    DBOS.register_queue(QUEUE)


def main() -> None:
    """Serve as a worker or as a client."""
    given = talk.arguments()
    launch(given.database)
    questions: dict[str, talk.Question] = {"report": talk.report, "round_trips": round_trips_here}
    if not given.slots:
        # A client makes neither tables nor queues. It is opened before any worker, so this found nothing to do.
        DBOS.destroy()
        client = DBOSClient(system_database_url=given.database)
        questions = {
            "enqueue": functools.partial(enqueue, client),
            "finish": functools.partial(finish, client),
            "round_trips": functools.partial(round_trips, client),
        }
    asyncio.run(talk.answer_questions(questions))


if __name__ == "__main__":
    main()
