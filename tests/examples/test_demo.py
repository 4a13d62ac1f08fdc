"""The demo, with its real worker processes, at a quick pace."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import runtrue as rt
from runtrue import demo
from runtrue.demo.etl.birdstrikes import birdstrikes

QUICK = demo.Pace(load_seconds=0.15, lease_seconds=1.0, paused_seconds=0.3, settle_seconds=0.1)
PATIENCE_SECONDS = 60
MAKEFILE = Path(__file__).parents[2] / "Makefile"


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def interrupted_demo(database: Path, said: str, ending: signal.Signals) -> tuple[int, str]:
    """Start the demo as a process and send it the signal once it has said that. Its exit code and what it told."""
    words = [sys.executable, "-m", "runtrue", "demo", "--database", str(database)]
    told: list[str] = []
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            if said in line and said not in "".join(told):
                process.send_signal(ending)
            told.append(line)
        return process.wait(PATIENCE_SECONDS), "".join(told)


def test_everything_that_the_demo_tells_comes_true(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    database = tmp_path / demo.DATABASE
    assert demo.run(str(database), pace=QUICK) == 0
    told = capsys.readouterr().out
    account = told.split("What is true now")[1]
    assert account.count("  true  ") == 11
    assert "FALSE" not in told
    assert "9,925 rows stored = 10,000 read - 75 rejected" in account
    facts = [line for line in told.splitlines() if re.match(r"\d\d:\d\d:\d\d|  true  ", line)]
    assert [line for line in facts if len(line) > 100] == []
    again = re.search(r"true   executed twice: (load [\w ]+), in both attempts;", account)
    assert again
    assert "run A is completed; its attempt is 2, for its first worker was lost" in account
    assert re.search(rf"recorded: {again[1]}, \d", told), "the step's own attempt is not taken for the run's"
    for said in ("kill -9", "the row says pausing", "the row says paused", "the row says cancelling"):
        assert said in told
    pids = [int(pid) for pid in re.findall(r"is alive, pid (\d+)", told)]
    assert len(pids) == 2
    assert not any(is_alive(pid) for pid in pids)
    assert database.exists()
    subprocess.run(["make", "-f", MAKEFILE, "clean"], cwd=tmp_path, check=True, capture_output=True)
    assert list(tmp_path.iterdir()) == [], "make clean leaves nothing of the demo behind"


async def test_a_run_that_an_earlier_demo_left_is_terminated_and_others_are_not(tmp_path: Path):
    database = tmp_path / "demo.db"
    async with rt.Client(database) as client:
        left = await client.start(birdstrikes.options(tags={"demo": "yes"}))
        other = await client.start(birdstrikes.options(delay=3600))
    exit_code, told = interrupted_demo(database, "start run A", signal.SIGTERM)
    assert exit_code == 130, told
    async with rt.Client(database) as client:
        assert await (await client.get(left.id)).status() == "cancelled"
        assert await (await client.get(other.id)).status() == "pending"


async def test_an_interrupted_demo_leaves_neither_workers_nor_open_runs(tmp_path: Path):
    database = tmp_path / "demo.db"
    exit_code, told = interrupted_demo(database, "recorded: load Arizona", signal.SIGINT)
    assert exit_code == 130, told
    pids = [int(pid) for pid in re.findall(r"is alive, pid (\d+)", told)]
    assert len(pids) == 2
    assert not any(is_alive(pid) for pid in pids)
    async with rt.Client(database) as client:
        runs = await client.runs()
    assert [run.status for run in runs] == ["cancelled"]


def test_a_database_that_is_no_file_is_refused():
    with pytest.raises(rt.ConfigurationError, match="give it a file"):
        demo.run("sqlite://")


def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    letter = tmp_path / "letter.txt"
    letter.write_text("Dear reader, " * 1_000)
    assert demo.run(str(letter), pace=QUICK) == 1
    assert letter.read_text() == "Dear reader, " * 1_000
    assert "The demo did not come true" in capsys.readouterr().out
