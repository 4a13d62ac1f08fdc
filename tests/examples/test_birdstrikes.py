"""The example on its real table, from the command line and from a program."""

import gzip
import hashlib
import json
import re
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from examples.etl import birdstrikes as example

import runtrue as rt

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "examples" / "etl" / "birdstrikes.py"
GOOD_ROWS = 9_925
REJECTED = {
    "a repair was paid, yet no damage reported": 27,
    "the same report as an earlier row": 24,
    "unknown damage code": 15,
    "in flight at 0 knots": 8,
    "taxiing at more than 60 knots": 1,
}


def ask(warehouse: Path, question: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(warehouse)) as connection:
        return connection.execute(question).fetchall()


def table(path: Path, *lines: str) -> str:
    header = example.unpack(example.SOURCE).decode().splitlines()[0]
    path.write_bytes(gzip.compress("\n".join([header, *lines]).encode()))
    return str(path)


def line(damage: str = "None", state: str = "Ohio", repair: str = "0", day: str = "1999-01-01") -> str:
    return f"AIRPORT,B-737,{damage},{day},AIRLINE,{state},Climb,Small,Rock pigeon,Day,0,{repair},{repair},120"


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> rt.App:
    monkeypatch.chdir(tmp_path)
    return rt.App(tmp_path / "runs.db", workflows=[example.birdstrikes])


def test_the_table_is_the_one_that_its_page_describes():
    page = (PROGRAM.parent / "DATA.md").read_text()
    named = re.search(r"`([0-9a-f]{64})`", page)
    assert named
    assert hashlib.sha256(example.unpack(example.SOURCE)).hexdigest() == named[1]
    assert len(example.parse(example.unpack(example.SOURCE))) == 10_000


def test_every_rejected_row_of_the_table_has_its_reason():
    rows = example.parse(example.unpack(example.SOURCE))
    assert Counter(reason for _, _, reason in example.checked_rows(rows) if reason) == REJECTED


async def test_all_good_rows_are_loaded_and_reported(app: rt.App, tmp_path: Path):
    async with app:
        run = await app.start(example.birdstrikes, settle_seconds=0)
        report = await run.result(timeout=60)
    assert report.rejected == REJECTED
    assert report.rows_stored == GOOD_ROWS == report.rows_read - sum(REJECTED.values())
    assert report.loads == report.load_executions == 29
    warehouse = tmp_path / "birdstrikes.db"
    assert ask(warehouse, "SELECT count(*), sum(cost_dollars) FROM strikes") == [(GOOD_ROWS, report.cost_dollars)]
    assert dict(ask(warehouse, "SELECT reason, count(*) FROM rejects GROUP BY reason")) == REJECTED


async def test_the_rates_service_is_asked_again_until_it_answers(app: rt.App, tmp_path: Path):
    async with app:
        run = await app.start(example.birdstrikes, source=table(tmp_path / "one.csv.gz", line()), settle_seconds=0)
        await run.result(timeout=60)
        steps, attempts = await app.service.steps(run.id)
    assert [(attempt.name, attempt.attempt) for attempt in attempts] == [
        ("euros_for_a_dollar", 1),
        ("euros_for_a_dollar", 2),
    ]
    assert [step.attempt for step in steps if step.name == "euros_for_a_dollar"] == [3]


async def test_a_second_run_over_the_same_warehouse_doubles_no_row(app: rt.App, tmp_path: Path):
    source = table(tmp_path / "two.csv.gz", line(), line(state="Texas"), line(state="Texas", day="1999-01-02"))
    async with app:
        for _ in range(2):
            run = await app.start(example.birdstrikes, source=source, settle_seconds=0)
            report = await run.result(timeout=60)
            assert (report.rows_stored, report.loads) == (3, 2)
    assert ask(tmp_path / "birdstrikes.db", "SELECT count(*) FROM strikes") == [(3,)]


def test_a_load_that_is_written_again_is_counted_and_doubles_no_row(tmp_path: Path):
    warehouse = str(tmp_path / "warehouse.db")
    number, row = example.parse(example.unpack(example.SOURCE))[0]
    for _ in range(2):
        example.store_strikes(warehouse, [example.transform(number, row, 0.92)], "key-1", "run-1", "Louisiana")
    assert example.stored(warehouse, "run-1")[0] == 1
    assert example.load_executions(warehouse, "run-1") == {"Louisiana": 2}


async def test_a_table_with_too_many_bad_rows_ends_cancelled_and_loads_nothing(app: rt.App, tmp_path: Path):
    source = table(tmp_path / "bad.csv.gz", line(), line(damage="C"), line(repair="12"), line(day="31.1.99"))
    async with app:
        run = await app.start(example.birdstrikes, source=source)
        with pytest.raises(rt.RunCancelled, match="only 1 of 4 rows are good"):
            await run.result(timeout=60)
    assert ask(tmp_path / "birdstrikes.db", "SELECT count(*) FROM strikes") == [(0,)]
    assert len(ask(tmp_path / "birdstrikes.db", "SELECT * FROM rejects")) == 3


async def test_a_table_that_changes_under_a_run_fails_the_run(app: rt.App, tmp_path: Path):
    source = table(tmp_path / "changing.csv.gz", line(), line(state="Texas"))
    extract = await example.read(source)
    table(tmp_path / "changing.csv.gz", line())
    with pytest.raises(example.SourceChanged, match="start a new run"):
        await example.load(extract, "Ohio", 0.92, str(tmp_path / "birdstrikes.db"), 0)
    async with app:
        run = await app.start(example.birdstrikes, source=str(tmp_path / "none.csv.gz"))
        with pytest.raises(rt.RunFailed, match="FileNotFoundError"):
            await run.result(timeout=60)


# ---------------------------------------------------------------- as a person would run it
def runtrue(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "runtrue", *words]
    return subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=60)


@pytest.fixture
def development_worker(tmp_path: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "runtrue", "dev", str(PROGRAM)]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        yield
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def test_it_runs_by_dev_and_run_start(development_worker: None, tmp_path: Path):
    assert runtrue("db", "migrate", folder=tmp_path).returncode == 0  # the worker may not have made it yet
    started = runtrue(
        "run", "start", "birdstrikes", "--input", "settle_seconds:=0", "--input", "warehouse=here.db", "-o", "json",
        folder=tmp_path,
    )  # fmt: skip
    assert started.returncode == 0, started.stderr
    run_id = json.loads(started.stdout)["id"]
    waited = runtrue("run", "wait", run_id, "--for", "finished", "--timeout", "60", folder=tmp_path)
    assert waited.returncode == 0, waited.stdout + waited.stderr
    shown = json.loads(runtrue("run", "show", run_id, "-o", "json", folder=tmp_path).stdout)
    assert (shown["status"], shown["output"]["rows_stored"]) == ("completed", GOOD_ROWS)
    assert shown["progress"]["done"] == shown["progress"]["total"] == 29
    assert ask(tmp_path / "here.db", "SELECT count(*) FROM strikes") == [(GOOD_ROWS,)]


def test_it_runs_as_a_program(tmp_path: Path):
    command = [sys.executable, str(PROGRAM)]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    assert "9925 of 10000 rows stored" in done.stdout
