"""`python -m benchmarks`: measure, print a table, and keep it in benchmarks/results as Markdown and JSON."""

import argparse
import asyncio
import functools
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import machine, report, works
from benchmarks.peers import dbos
from benchmarks.process import ROOT
from benchmarks.subjects import RUNTRUE, Subject
from benchmarks.works import FLOOR, STEPS_IN_A_RUN, Case

WORKS = ("steps", "alone", "latency", "jobs", "recovery")
RUNS_BY_IN_FLIGHT = {1: 300, 8: 1_500, 50: 3_000, 200: 3_000}
"""How many runs are done with so many in flight: some seconds of work each."""
RUNS_OF_A_PEER = 200
STEPS_OF_ONE_RUN = 1_000
JOBS = 5_000
JOBS_OF_A_PEER = 500
ROUND_TRIPS = 200


def arguments() -> argparse.Namespace:
    """What was asked for on the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often each measurement is made, taking turns")
    parser.add_argument("--only", choices=WORKS, nargs="+", default=WORKS, metavar="WORK", help=", ".join(WORKS))
    parser.add_argument("--in-flight", type=int, choices=RUNS_BY_IN_FLIGHT, nargs="+", default=[*RUNS_BY_IN_FLIGHT])
    parser.add_argument("--peers", choices=["dbos"], nargs="*", default=[], help="other engines to measure beside it")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="multiplies how much is run; 0.01 only shows that it runs"
    )
    parser.add_argument("--folder", type=Path, help="where the databases are made (default: the temporary folder)")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--page", type=Path, help="a page that ends with figures, for example docs/performance.md")
    return parser.parse_args()


def step_cases(peers: Sequence[Subject], in_flight: Sequence[int], scale: float) -> list[Case]:
    """Runs of ten steps, so many in flight, beside the floor; and what a step costs in the log of SQLite."""
    cases: list[Case] = []
    for slots in in_flight:
        work = {"in_flight": slots, "steps": STEPS_IN_A_RUN}
        runs = scaled(RUNS_BY_IN_FLIGHT[slots], scale)
        name, setting = f"Runs of {STEPS_IN_A_RUN} steps", f"{slots} in flight"
        cases.append(Case(name, setting, FLOOR, functools.partial(works.steps_of_floor, runs=runs, **work)))
        cases.append(Case(name, setting, RUNTRUE.name, functools.partial(works.steps_of, RUNTRUE, runs=runs, **work)))
        counted = functools.partial(works.log_of, RUNTRUE, runs=scaled(works.COUNTED_RUNS, scale), **work)
        cases.append(Case(name, setting, RUNTRUE.name, counted))
    for peer in peers:
        work = {"in_flight": works.DEFAULT_SLOTS, "runs": scaled(RUNS_OF_A_PEER, scale), "steps": STEPS_IN_A_RUN}
        name, setting = f"Runs of {STEPS_IN_A_RUN} steps", "all in flight"
        cases.append(Case(name, setting, peer.name, functools.partial(works.steps_of, peer, **work)))
    return cases


def cases_of(given: argparse.Namespace, subjects: Sequence[Subject]) -> list[Case]:
    """All that was asked for, in the order in which a round does it."""
    scale: float = given.scale
    cases: list[Case] = []
    if "steps" in given.only:
        cases += step_cases(subjects[1:], given.in_flight, scale)
    if "alone" in given.only:
        work = {"runs": 1, "steps": scaled(STEPS_OF_ONE_RUN, scale)}
        name, slots = f"One run of {work['steps']:,} steps, alone", works.DEFAULT_SLOTS
        cases.append(Case(name, "", FLOOR, functools.partial(works.steps_of_floor, in_flight=1, **work)))
        for each in subjects:
            cases.append(Case(name, "", each.name, functools.partial(works.steps_of, each, in_flight=slots, **work)))
    for each in subjects:
        peer = each is not RUNTRUE
        if "latency" in given.only:
            measure = functools.partial(
                works.round_trips_of, each, count=scaled(ROUND_TRIPS // (4 if peer else 1), scale)
            )
            cases.append(Case("From start to result of a run of one step, idle", "", each.name, measure))
        if "jobs" in given.only:
            measure = functools.partial(works.jobs_of, each, jobs=scaled(JOBS_OF_A_PEER if peer else JOBS, scale))
            cases.append(Case("Runs of one step", "", each.name, measure))
        if "recovery" in given.only:
            name = f"Worker lost by kill -9 with {works.RECOVERING_RUNS} runs in flight"
            cases.append(Case(name, "", each.name, functools.partial(works.recovery_of, each)))
    return cases


def scaled(count: int, scale: float) -> int:
    """`scale` times `count`, at least one."""
    return max(1, round(count * scale))


async def measure(cases: Sequence[Case], rounds: int, folder: Path) -> list[report.Row]:
    """Do every case once a round, so that whatever else the machine does meets all of them alike."""
    rows: dict[tuple[str, str, str], report.Row] = {}
    for number in range(1, rounds + 1):
        for case in cases:
            print(f"round {number}/{rounds}: {case.work}, {case.subject} {case.setting}", file=sys.stderr)
            row = rows.setdefault(
                (case.work, case.setting, case.subject), report.Row(case.work, case.setting, case.subject)
            )
            with tempfile.TemporaryDirectory(dir=folder) as place:
                row.add(await case.measure(Path(place)))
    return list(rows.values())


def main() -> None:
    """Measure what was asked for and keep the figures."""
    given = arguments()
    subjects = [RUNTRUE, *(dbos() if "dbos" in given.peers else [])]
    with tempfile.TemporaryDirectory(prefix="runtrue-bench-", dir=given.folder) as folder:
        command = shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]])
        about = machine.about(command, Path(folder))
        rows = asyncio.run(measure(cases_of(given, subjects), given.rounds, Path(folder)))
    about["load after"] = machine.load()
    report.compare(rows, FLOOR)
    name = str(about["date"])[:19].replace(":", "")
    page = report.write(given.results, name, about, rows)
    if given.page:
        report.write_into(given.page, about, rows)
    print(report.as_markdown(rows))
    print(f"Kept in {page} and beside it as JSON.", file=sys.stderr)


if __name__ == "__main__":
    main()
