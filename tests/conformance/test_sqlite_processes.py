"""Eight real processes on one file."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from tests.conformance import sharer
from tests.conformance.hands import execute
from tests.support.manual_clock import ManualClock

from runtrue.lifecycle import Status
from runtrue.store import open_store

PROCESSES = 8


async def share(path: Path, runs_each: int) -> list[dict[str, float]]:
    """Let the processes share the file; what each of them saw. An error in one of them fails the test with its text."""
    total = PROCESSES * runs_each
    arguments = [str(Path(sharer.__file__)), f"sqlite:///{path}"]
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, *arguments, str(number), str(runs_each), str(total), **pipes
        )
        for number in range(PROCESSES)
    ]
    try:
        outputs = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert [error.decode() for _, error in outputs] == [""] * PROCESSES
    return [json.loads(output) for output, _ in outputs]


async def check_all_is_there(path: Path, runs: int) -> None:
    store = await open_store(f"sqlite:///{path}", clock=ManualClock())
    assert await store.count_runs() == {Status.COMPLETED: runs}
    assert await store.check() == []
    await store.close()
    assert execute(path, "SELECT count(*), sum(epoch) FROM runtrue_runs") == [(runs, runs)], "each was claimed once"
    assert execute(path, "SELECT count(*) FROM runtrue_steps") == [(runs * sharer.STEPS,)]
    assert execute(path, "PRAGMA integrity_check") == [("ok",)]


async def test_eight_processes_share_one_new_file_and_nobody_is_told_that_it_is_locked(path: Path):
    seen = await share(path, 10)
    assert sum(each["executed"] for each in seen) == PROCESSES * 10
    await check_all_is_there(path, PROCESSES * 10)


@pytest.mark.prove
@pytest.mark.timeout(600)
async def test_eight_processes_with_two_hundred_runs_each_have_even_shares(path: Path):
    seen = await share(path, 200)
    await check_all_is_there(path, PROCESSES * 200)
    print(json.dumps(seen))  # noqa: T201
    assert min(each["executed"] for each in seen) >= 100, seen
