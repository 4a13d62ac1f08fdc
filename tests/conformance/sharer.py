"""One of many processes on one file: starts runs, claims whatever is there, executes it, until all are finished.

Arguments: URL, its number, how many runs it starts, how many there are in all. Begins when a line comes in on stdin, so
that all begin, and open the new file, at once. Prints what it saw as one line of JSON.
"""

import asyncio
import json
import sys

from runtrue.clock import SystemClock
from runtrue.lifecycle import Status
from runtrue.records import StepRecord
from runtrue.store import Store, open_store
from runtrue.store.protocol import Finish, NewRun, NewWorker, Recorded, RunEffects

CLOCK = SystemClock()
SERVES = (("flow", "1"),)
LEASE = 3_600 * 1_000_000
STEPS = 5
CLAIM_LIMIT = 5


async def main(url: str, number: int, own: int, total: int) -> dict[str, object]:
    store = await open_store(url, clock=CLOCK)
    worker_id = f"w{number}"
    await store.register_worker(NewWorker(worker_id, "host", number, CLAIM_LIMIT, [], LEASE))
    for index in range(own):
        await store.start([NewRun(f"r{number}-{index:04}", "flow", "1", b"{}", 0)])
    executed, waits = 0, [0.0]
    while (await store.count_runs()).get(Status.COMPLETED, 0) < total:
        executed += await execute_some(store, worker_id, waits)
    await store.retire_worker(worker_id)
    await store.close()
    return {"executed": executed, "longest_wait_seconds": round(max(waits), 3)}


async def execute_some(store: Store, worker_id: str, waits: list[float]) -> int:
    claimed = await store.claim(worker_id, SERVES, CLAIM_LIMIT)
    for ordinal in range(1, STEPS + 1):
        step = StepRecord("", ordinal, "work", "step", 1, b"1", None, 1, 1, digest=ordinal)
        effects = [RunEffects(one.run_id, one.epoch, steps=[step]) for one in claimed]
        began = CLOCK.steady()
        replies = await store.record(worker_id, effects)
        waits.append(CLOCK.steady() - began)
        assert {reply.recorded for reply in replies} <= {Recorded.OK}
    ends = [RunEffects(one.run_id, one.epoch, end=Finish(Status.COMPLETED, b"1")) for one in claimed]
    await store.record(worker_id, ends)
    return len(claimed)


if __name__ == "__main__":
    sys.stdin.readline()
    print(json.dumps(asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:5])))))  # noqa: T201
