"""The benchmarks run and tell of what they measured. How fast it was is no matter of a test."""

import json
import sqlite3
import subprocess
import sys

import pytest
from benchmarks import report, wal
from benchmarks.process import ROOT, Program
from benchmarks.subjects import Subject, sqlite_database
from benchmarks.works import steps_of

TINY = ["--rounds", "1", "--scale", "0.004", "--in-flight", "8"]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict, str]:
    """What a tiny run printed, and its two files."""
    results = tmp_path_factory.mktemp("results")
    command = [sys.executable, "-m", "benchmarks", *TINY, "--only", "steps", "alone", "latency", "jobs"]
    done = subprocess.run([*command, "--results", str(results)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (kept,), (page,) = results.glob("*.json"), results.glob("*.md")
    return done.stdout, json.loads(kept.read_text()), page.read_text()


def figures(kept: dict, work: str, subject: str) -> dict[str, list[float]]:
    (row,) = [row for row in kept["measured"] if row["work"].startswith(work) and row["subject"] == subject]
    return {name: figure["rounds"] for name, figure in row["figures"].items()}


def test_each_work_gives_its_figures_once_a_round(measured):
    _, kept, _ = measured
    floor, ours = figures(kept, "Runs of 10 steps", "bare floor"), figures(kept, "Runs of 10 steps", "runtrue")
    assert floor.keys() == {"steps/s", "CPU µs a step", "commits a step"}
    assert ours.keys() == floor.keys() | {"WAL bytes a step", "÷ floor"}
    assert "÷ floor" in figures(kept, "One run of", "runtrue")
    assert figures(kept, "From start", "runtrue").keys() == {
        f"{where} {percent} ms" for where in ("in process", "by client") for percent in ("p50", "p99")
    }
    assert "done/s" in figures(kept, "Runs of one step", "runtrue")
    for row in kept["measured"]:
        for figure in row["figures"].values():
            assert len(figure["rounds"]) == 1
            assert min(figure["rounds"]) > 0


def test_the_share_of_the_floor_is_taken_round_by_round():
    floor, ours, other = (report.Row("steps", "8 in flight", subject) for subject in ("floor", "ours", "other"))
    for least, rate in ((1000, 500), (400, 300)):
        floor.add({"steps/s": least})
        ours.add({"steps/s": rate})
    report.compare([floor, ours, other], "floor")
    assert ours.figures["÷ floor"] == [0.5, 0.75]
    assert "÷ floor" not in floor.figures | other.figures
    assert "0.625 (0.5–0.75)" in report.as_markdown([floor, ours])


def test_the_page_tells_machine_versions_command_and_date_beside_the_table(measured):
    printed, kept, page = measured
    assert {"date", "command", "commit", "machine", "versions", "file system"} <= kept.keys()
    assert "--scale 0.004" in kept["command"]
    assert printed.strip() in page
    assert str(kept["machine"]) in page


def test_the_log_tells_how_many_transactions_were_written_to_it(tmp_path):
    database = tmp_path / "file.db"
    writer = sqlite3.connect(database, isolation_level=None)
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute("CREATE TABLE numbers (number INTEGER)")
    with wal.kept(database):
        before = wal.written(database)
        for number in range(1200):  # enough for the log to be begun anew, were it not kept
            writer.execute("INSERT INTO numbers VALUES (?)", (number,))
        after = wal.written(database)
    writer.close()
    assert after.commits - before.commits == 1200
    assert after.size_bytes - before.size_bytes >= 1200 * 4096


async def test_a_process_that_fails_is_an_error_with_what_it_last_said(tmp_path):
    broken = Subject("broken", sys.executable, "benchmarks.programs.nowhere", sqlite_database)
    with pytest.raises(RuntimeError, match=r"No module named benchmarks.programs.nowhere"):
        await steps_of(broken, tmp_path, in_flight=1, runs=1, steps=1)


async def test_a_process_that_is_lost_does_not_come_back(tmp_path):
    async with Program(
        [sys.executable, "-c", "print('{\"ready\": true}', flush=True); input()"], tmp_path / "log"
    ) as one:
        await one.lose()
        with pytest.raises(RuntimeError, match="went or fell silent"):
            await one.hear("anything")


def test_figures_replace_what_a_page_has_after_its_mark(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"# Kept\n\n{report.MARK}\nold\n")
    row = report.Row("steps", "", "floor")
    row.add({"steps/s": 1000})
    report.write_into(page, {"date": "today"}, [row])
    text = page.read_text()
    assert text.startswith(f"# Kept\n\n{report.MARK}\n\n- date: today\n")
    assert "| floor |   1,000 |" in text
    assert "old" not in text
    page.write_text("# No mark\n")
    with pytest.raises(ValueError, match="has no line"):
        report.write_into(page, {}, [row])
    assert report.MARK in (ROOT / "docs" / "performance.md").read_text()


def test_a_percentile_is_one_of_the_values():
    assert report.percentile([30, 10, 20], 50) == 20
    assert report.percentile(list(range(1, 201)), 99) == 198
    assert report.percentile([7], 99) == 7


@pytest.mark.skipif(sys.platform != "linux", reason="it reads the memory of a process from /proc")
def test_what_waiting_runs_cost_is_told_beside_a_worker_that_has_none():
    command = [sys.executable, "-m", "benchmarks.waiting", "--runs", "5", "--seconds", "0.2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = [line.partition(":")[0].strip() for line in done.stdout.splitlines()[1:]]
    assert told == ["none", "sleeping", "receiving"]
