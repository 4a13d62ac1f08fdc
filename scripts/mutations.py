"""Take the guards of the engine away, one at a time, and show which tests go red.

The files in scripts/mutations/ are tables of guards: where each stands, what breaks without it, and the tests that must
notice. Each is removed from a copy of the project in which those tests are then run. A guard whose removal turns no
test red has survived: either it is not needed, or a test is missing. The tables also name the few guards that stand
behind another one, so that removing them alone changes nothing, and say why.

    scripts/mutations.py                        all of them
    scripts/mutations.py --only fence           those whose name holds this text
    scripts/mutations.py --report docs/proof.md

Leaves with 1 if a guard survives, if its text is not found, or if a test is red before anything is removed.
"""

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, parse

from runtrue.clock import SystemClock
from runtrue.jsonform import utc_text

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("src", "tests", "examples", "pyproject.toml")

TEST_SECONDS_MAX = 30
"""Without its guard a test may wait for ever; then it is red."""
RED_TESTS_MAX = 3
"""So many red tests are proof enough."""


@dataclass(frozen=True)
class Guard:
    """A guard, and what to put in its place. `old` occurs in `file` once, or within its one `statement` of SQL.

    `breaks` says what goes wrong without it; `tests` are the tests of which at least one must go red.
    """

    name: str
    breaks: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    statement: str = ""


class NotApplicable(Exception):
    """The text of a guard is not where its table says."""


# ---------------------------------------------------------------- the tables
def read_guards(root: Path = ROOT) -> list[Guard]:
    """All guards of all tables. An entry with several `statements` is one guard in each of them."""
    return [guard for entry in _entries(root, "guard") for guard in _guards_of(**entry)]


def _entries(root: Path, kind: str) -> list[dict[str, Any]]:
    tables = sorted((root / "scripts" / "mutations").glob("*.toml"))
    return [entry for table in tables for entry in tomllib.loads(table.read_text(encoding="utf-8")).get(kind, [])]


def _guards_of(statements: Sequence[str] = (), old: str = "", new: str = "", **entry: Any) -> Iterator[Guard]:
    tests = tuple(entry.pop("tests"))
    if not statements:
        yield Guard(old=old, new=new, tests=tests, **entry)
    for statement in statements:
        named = {**entry, "name": f"{entry['name']}: {statement}"}
        here = old.replace("STATEMENT", statement)
        yield Guard(old=here, new=new, tests=tests, statement=statement, **named)


def without(guard: Guard, text: str) -> str:
    """The text of the guard's file without the guard. A statement without `old` goes as a whole.

    Raises NotApplicable unless the guard stands there exactly once.
    """
    begin, end = 0, len(text)
    if guard.statement:
        found = re.search(rf"^-- name: {guard.statement}$.*?(?=^-- name: |\Z)", text, re.MULTILINE | re.DOTALL)
        if found is None:
            raise NotApplicable(f"{guard.name}: {guard.file} has no statement {guard.statement}")
        begin, end = found.span()
    part = text[begin:end]
    old = guard.old or part
    if part.count(old) != 1:
        raise NotApplicable(f"{guard.name}: its text occurs {part.count(old)} times in {guard.file}, not once")
    return text[:begin] + part.replace(old, guard.new) + text[end:]


# ---------------------------------------------------------------- the copy
class Copy:
    """A copy of the project in which guards are removed."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder = folder
        for name in COPIED:
            here = root / name
            if here.is_dir():
                leave = shutil.ignore_patterns("__pycache__")
                shutil.copytree(here, folder / name, symlinks=True, ignore=leave)
            elif here.exists():
                shutil.copy(here, folder / name)

    def red_without(self, guard: Guard) -> list[str]:
        """The names of the tests that go red without the guard."""
        path = self.folder / guard.file
        whole = path.read_text(encoding="utf-8")
        mutant = without(guard, whole)
        try:
            self._write(path, mutant)
            return self.red(guard.tests)
        finally:
            self._write(path, whole)

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text, encoding="utf-8")
        # Python tells an outdated cache by size and by whole seconds, in which more than one change may come.
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)

    def red(self, tests: Iterable[str]) -> list[str]:
        """Run these tests; the names of the red ones. Raises NotApplicable where they could not even begin."""
        result = self.folder / "result.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={result}"]
        limits = [f"--timeout={TEST_SECONDS_MAX}", f"--maxfail={RED_TESTS_MAX}"]
        here = os.pathsep.join((str(self.folder / "src"), str(self.folder)))
        done = subprocess.run(
            [*command, *limits, *sorted(set(tests))],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": here},
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        if done.returncode not in (0, 1):
            raise NotApplicable(f"the tests could not be run:\n{done.stdout[-3_000:]}{done.stderr[-1_000:]}")
        cases = parse(result).iter("testcase")  # noqa: S314  pytest has just written it
        return list(dict.fromkeys(case.get("name", "").partition("[")[0] for case in cases if _is_red(case)))


def _is_red(case: Element) -> bool:
    """True for a test that failed, also in looking back at its end. One that could not be set up proves nothing."""
    errors = [error.get("message", "") for error in case.iter("error")]
    if any("on setup" in error for error in errors):
        raise NotApplicable(f"{case.get('name')} could not be set up: {errors}")
    return bool(errors) or case.find("failure") is not None


# ---------------------------------------------------------------- the command
def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Remove the guards that were asked for, one at a time; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="TEXT", default="", help="only guards whose name holds this text")
    parser.add_argument("--list", action="store_true", help="name the guards and remove none")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write what was found as a page")
    given = parser.parse_args(arguments)
    guards = [guard for guard in read_guards(root) if given.only in guard.name]
    if not guards:
        parser.error(f"no guard has {given.only!r} in its name; --list names them all")
    if given.list:
        print("\n".join(f"{guard.name}  ({guard.file})" for guard in guards))
        return 0
    with tempfile.TemporaryDirectory(prefix="runtrue-mutations-") as folder:
        copy = Copy(root, Path(folder))
        if red := copy.red(test for guard in guards for test in guard.tests):
            print(f"red before anything is removed: {', '.join(red)}")
            return 1
        found = [(guard, _try(copy, guard)) for guard in guards]
    survived = [guard.name for guard, red in found if not red]
    if given.report is not None:
        given.report.write_text(_page(found, _entries(root, "equivalent")), encoding="utf-8")
    print(f"{len(found) - len(survived)} of {len(found)} guards are watched")
    if survived:
        print(f"survived: {'; '.join(survived)}")
    return 1 if survived else 0


def _try(copy: Copy, guard: Guard) -> list[str]:
    try:
        red = copy.red_without(guard)
    except NotApplicable as why:
        print(f"  {guard.name}: {why}", flush=True)
        return []
    print(f"  {guard.name}: {', '.join(red) or 'SURVIVED'}", flush=True)
    return red


def _page(rows: Sequence[tuple[Guard, list[str]]], equivalent: Iterable[dict[str, Any]]) -> str:
    today = utc_text(SystemClock().now())[:10]
    lines = [
        "# Which test watches which guard",
        "",
        f"Written by `scripts/mutations.py --report docs/proof.md` on {today}. {len(rows)} guards were taken away, one",
        "at a time, and the tests named for each were run. What the guards are for: [rules.md](rules.md).",
    ]
    for file in dict.fromkeys(guard.file for guard, _ in rows):
        lines += ["", f"## {file}", "", "| guard taken away | what breaks | tests that went red |", "|---|---|---|"]
        lines += [
            f"| {guard.name} | {guard.breaks} | {', '.join(f'`{name}`' for name in red) or '**none**'} |"
            for guard, red in rows
            if guard.file == file
        ]
    lines += ["", "## Guards behind guards", "", "Removing one of these alone changes nothing.", ""]
    lines += ["| guard | file | why |", "|---|---|---|"]
    lines += [f"| {entry['name']} | {entry['file']} | {entry['why']} |" for entry in equivalent]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
