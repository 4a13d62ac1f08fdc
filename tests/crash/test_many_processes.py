"""Many processes on one file: nobody is told that the database is locked, nothing is lost, the shares are even."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.support.stage import ROOT, Stage
from tests.support.waiting import until

from runtrue.lifecycle import Status


async def test_processes_that_share_a_file_get_even_shares_and_no_errors(stage: Stage):
    await _contend(stage, processes=4, runs=40)


@pytest.mark.prove
async def test_eight_processes_with_two_hundred_runs_each_get_even_shares_and_no_errors(stage: Stage):
    await _contend(stage, processes=8, runs=200)


def _start(stage: Stage, name: str, runs: int, log: Path) -> "subprocess.Popen[bytes]":
    words = ["-m", "tests.support.contender", stage.database, name, str(runs), str(stage.folder)]
    with log.open("wb") as file:
        return subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=file, stderr=file)


async def _contend(stage: Stage, *, processes: int, runs: int) -> None:
    names = [f"p{number}" for number in range(processes)]
    stage.say("hold", "start")
    logs = {name: stage.folder / f"{name}.log" for name in names}
    started: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name in names:
            started[name] = _start(stage, name, runs, logs[name])
        for name in names:
            await until((stage.folder / f"ready-{name}").exists, f"process {name} is ready")
        stage.unsay("hold", "start")
        await until(lambda: all(p.poll() is not None for p in started.values()), "all have ended", seconds=600)
    finally:
        for process in started.values():
            process.kill()
            process.wait()
    for name in names:
        assert (started[name].returncode, logs[name].read_text()) == (0, "")
    done = (stage.folder / "done").read_text().split()
    assert Counter(done) == dict.fromkeys(names, runs)
    store = stage.client.service.store
    assert await store.count_runs() == {Status.COMPLETED: processes * runs}
    assert await store.check() == []
    # When the first one has done all of its runs, nobody is far behind.
    first = next(index for index in range(len(done)) if max(Counter(done[: index + 1]).values()) == runs)
    shares = Counter(done[: first + 1])
    assert min(shares[name] for name in names) >= runs / 2, f"uneven: {shares}"
