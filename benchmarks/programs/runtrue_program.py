"""runtrue, measured: a worker with `--slots`, else a client."""

import asyncio
import functools
import time
from typing import Any

import runtrue as rt
from benchmarks.programs import talk

UNFINISHED = [
    status for status in rt.Status if status not in (rt.Status.COMPLETED, rt.Status.FAILED, rt.Status.CANCELLED)
]


@rt.step
async def nothing(number: int) -> int:
    """The step that does nothing."""
    talk.TALLY.count()
    return number


@rt.step
async def doze(run: int, number: int) -> int:
    """The step that takes a while."""
    talk.TALLY.count(run, number)
    await asyncio.sleep(talk.STEP_SECONDS)
    return number


@rt.workflow
async def in_a_row(run: int, steps: int) -> int:
    """Steps that do nothing, one after the other."""
    for number in range(steps):
        await nothing(number)
    return run


@rt.workflow
async def in_a_row_slowly(run: int, steps: int) -> int:
    """The same with steps that take a while."""
    for number in range(steps):
        await doze(run, number)
    return run


async def enqueue(client: rt.Client, asked: dict[str, Any]) -> dict[str, Any]:
    """Start runs one by one, or many together; the seconds until the last start was durable."""
    workflow = in_a_row_slowly if asked["slowly"] else in_a_row
    runs, steps = range(asked["runs"]), asked["steps"]
    began = time.perf_counter()
    if asked["together"]:
        await client.start_many(workflow, [{"run": run, "steps": steps} for run in runs])
    else:
        for run in runs:
            await client.start(workflow, run, steps)
    return {"seconds": time.perf_counter() - began}


async def finish(client: rt.Client, _: dict[str, Any]) -> dict[str, Any]:
    """Wait until every run has ended."""

    async def some_left() -> bool:
        return bool(await client.runs(status=UNFINISHED, limit=1))

    return await talk.until_none_is_left(some_left)


async def round_trips(client: rt.Client, asked: dict[str, Any]) -> dict[str, Any]:
    """From start to result of runs of one step."""

    async def round_trip() -> object:
        return await (await client.start(in_a_row, 0, 1)).result()

    return await talk.time_round_trips(asked["count"], round_trip)


async def main() -> None:
    """Serve as a worker or as a client."""
    given = talk.arguments()
    workflows = [in_a_row, in_a_row_slowly]
    worker = rt.App(given.database, workflows=workflows, slots=given.slots) if given.slots else None
    async with worker or rt.Client(given.database) as opened:
        await talk.answer_questions(
            {
                "enqueue": functools.partial(enqueue, opened),
                "finish": functools.partial(finish, opened),
                "round_trips": functools.partial(round_trips, opened),
                "report": talk.report,
            }
        )


if __name__ == "__main__":
    asyncio.run(main())
