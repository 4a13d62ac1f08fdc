"""The rules of this repository that no tool knows, checked on the syntax tree and on the text.

Each check is a function from a file to what is wrong in it, and is tried on planted faults first: a check that finds
nothing may be blind.
"""

import ast
import io
import os
import re
import subprocess
import sys
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("src", "tests", "scripts", "examples", "benchmarks")
TEXTS = (".md", ".toml", ".sql", ".py")
LEFT_OUT = {".git", ".venv", ".bench", "__pycache__", "build", "dist", "node_modules"}

Fault = tuple[int, str]
Check = Callable[["Source"], Iterator[Fault]]


@dataclass(frozen=True)
class Source:
    """A file of the project. `name` is its path from the root."""

    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        tree = ast.parse(self.text)
        for node in ast.walk(tree):
            for child in ast.iter_child_nodes(node):
                child.parent = node  # pyright: ignore[reportAttributeAccessIssue]
        return tree

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def comments(self) -> set[int]:
        """The lines that hold a comment."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return {token.start[0] for token in tokens if token.type == tokenize.COMMENT}

    @cached_property
    def imported(self) -> dict[str, str]:
        """What each imported name stands for: {"sleep": "asyncio.sleep"}."""
        names: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                names |= {
                    (a.asname or a.name.split(".")[0]): (a.name if a.asname else a.name.split(".")[0])
                    for a in node.names
                }
            elif isinstance(node, ast.ImportFrom) and node.module:
                names |= {(a.asname or a.name): f"{node.module}.{a.name}" for a in node.names}
        return names

    def meaning(self, node: ast.AST) -> str:
        """The dotted name that an expression stands for, through the imports; empty for anything else."""
        if isinstance(node, ast.Name):
            return self.imported.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            base = self.meaning(node.value)
            return f"{base}.{node.attr}" if base else ""
        return ""

    def within(self, *places: str) -> bool:
        return self.name.startswith(places)


@cache
def project() -> tuple[Source, ...]:
    sources: list[Source] = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = sorted(set(folders) - LEFT_OUT)
        paths = [Path(folder, file) for file in sorted(files) if file.endswith(TEXTS) or file in {"Makefile", "run"}]
        sources += [Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in paths]
    return tuple(sources)


def programs() -> list[Source]:
    return [source for source in project() if source.name.endswith(".py") and source.within(*PROGRAMS)]


def texts() -> list[Source]:
    # This file names what it forbids.
    return [source for source in project() if source.name != "tests/unit/test_tidy.py"]


def up(node: ast.AST) -> ast.AST | None:
    return getattr(node, "parent", None)


# ---------------------------------------------------------------- SQL
STATEMENT = re.compile(
    r"\s*(SELECT\s.*\bFROM\b|SELECT\s+\w+\(|INSERT\s+(OR\s+\w+\s+)?INTO\b|UPDATE\s+\S+\s+SET\b|DELETE\s+FROM\b|WITH\s+\w+.*\bAS\b"
    r"|(CREATE|DROP|ALTER)\s+((UNIQUE|TEMP|TEMPORARY)\s+)?(TABLE|INDEX|VIEW)\b)",
    re.IGNORECASE | re.DOTALL,
)
CONTROL = re.compile(
    r"\s*((CREATE|DROP)\s+TRIGGER\b|PRAGMA\s+\w|BEGIN\b|COMMIT\b|ROLLBACK\b|SAVEPOINT\s|RELEASE\s|ATTACH\s|VACUUM\b)"
)


def sql_outside_the_store(source: Source) -> Iterator[Fault]:
    """SQL stands in the .sql files of the store. Its Python may manage transactions and triggers; nobody else may."""
    if not source.within("src/"):
        return
    forbidden = [STATEMENT] if source.within("src/runtrue/store/") else [STATEMENT, CONTROL]
    for node in source.nodes:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or isinstance(up(node), ast.Expr):
            continue  # docstrings are for people
        if any(pattern.match(node.value) for pattern in forbidden):
            yield node.lineno, "SQL belongs into a .sql file of the store"


# ---------------------------------------------------------------- statuses
READING_CALLS = {"Finish", "RunFilter", "frozenset", "set", "tuple", "available_actions", "cell", "refusal"}


def statuses_made_outside_the_table(source: Source) -> Iterator[Fault]:
    """A status comes out of the database. Others compare it, and name one only as the target of a Finish."""
    if not source.within("src/") or source.within("src/runtrue/lifecycle.py", "src/runtrue/store/"):
        return
    for node in source.nodes:
        if (
            isinstance(node, ast.Attribute)
            and source.meaning(node.value).endswith("lifecycle.Status")
            and not _reads(node)
        ):
            yield node.lineno, f"Status.{node.attr} is used as a new value"


def _reads(node: ast.AST) -> bool:
    """Whether a status constant is only compared, looked up or handed to something that reads it."""
    child, parent = node, up(node)
    while isinstance(parent, ast.Tuple | ast.List | ast.Set | ast.Starred | ast.IfExp | ast.BinOp | ast.BoolOp):
        child, parent = parent, up(parent)
    match parent:
        case ast.Compare() | ast.MatchValue():
            return True
        case ast.Subscript():
            return parent.slice is child
        case ast.Dict():
            return child in parent.keys
        case ast.comprehension():
            return parent.iter is child
        case ast.Call(func=ast.Name(id=name)):
            return name in READING_CALLS
        case ast.Attribute():
            return parent.attr in {"value", "name"}
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name.isupper() and isinstance(child, ast.Tuple | ast.Set)
        case _:
            return False


# ---------------------------------------------------------------- time and chance
CLOCKS = re.compile(
    r"(datetime\.(datetime|date)\.(now|utcnow|today)"
    r"|time\.(time|time_ns|monotonic|monotonic_ns|perf_counter|perf_counter_ns|clock_gettime|clock_gettime_ns|sleep)"
    r"|asyncio\.(sleep|timeout|timeout_at|wait_for)"
    r"|uuid\.uuid\d|random\.(?!Random$)\w+|secrets\.\w+|os\.urandom)$"
)
SLEEPS = {"time.sleep", "asyncio.sleep"}


def time_or_chance_outside_its_modules(source: Source) -> Iterator[Fault]:
    """Time, waiting and randomness are passed in, so that a test can move them."""
    if not source.within("src/") or source.within("src/runtrue/clock.py", "src/runtrue/ids.py"):
        return
    for node in source.nodes:
        if isinstance(node, ast.Attribute | ast.Name) and CLOCKS.match(source.meaning(node)):
            yield node.lineno, f"{source.meaning(node)} belongs into clock.py or ids.py"


def sleeping_in_tests(source: Source) -> Iterator[Fault]:
    """A test waits for a signal or a condition; a sleep is too long on one machine and too short on another."""
    if not source.within("tests/"):
        return
    for node in source.nodes:
        match node:
            case ast.Call(args=[ast.Constant(value=0)]):
                continue  # lets others run, and takes no time
            case ast.Call(func=called) if source.meaning(called) in SLEEPS:
                yield node.lineno, "a test that sleeps"
            case _:
                pass


# ---------------------------------------------------------------- size, names, words
FILE_LINES_MAX = 450
FUNCTION_LINES_MAX = 70
OTHER_WORDS = {"abort", "aborted", "aborting", "kill", "killed", "killing", "canceled", "canceling", "halt", "suspend"}


def files_and_functions_too_long(source: Source) -> Iterator[Fault]:
    """A file is read in one sitting, a function on one screen."""
    lines = source.text.count("\n")
    if lines > FILE_LINES_MAX and source.within("src/"):
        yield 1, f"{lines} lines, at most {FILE_LINES_MAX}"
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
            length = node.end_lineno - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                yield node.lineno, f"{node.name} has {length} lines, at most {FUNCTION_LINES_MAX}"


def other_words_for_cancel_and_pause(source: Source) -> Iterator[Fault]:
    """One word for an idea: a run is cancelled, terminated, paused, resumed. (The demo does kill its processes.)"""
    if not source.within("src/") or source.within("src/runtrue/demo/"):
        return
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.arg):
            names = [node.arg]
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names = [node.id if isinstance(node, ast.Name) else node.attr]
        else:
            continue
        for name in names:
            words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_")
            if not name.startswith("_") and OTHER_WORDS & set(words):
                yield node.lineno, f"{name}: say cancel, terminate, pause or resume"


def broad_excepts_without_a_reason(source: Source) -> Iterator[Fault]:
    """Whoever catches everything, and does not raise it on, says beside it who relies on that."""
    for node in source.nodes:
        if not isinstance(node, ast.ExceptHandler):
            continue
        caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        broad = any(kind is None or source.meaning(kind) in {"Exception", "BaseException"} for kind in caught)
        if (
            broad
            and not isinstance(node.body[-1], ast.Raise)
            and not {node.lineno - 1, node.lineno, node.lineno + 1} & source.comments
        ):
            yield node.lineno, "a broad except without its reason"


def unsafe_calls(source: Source) -> Iterator[Fault]:
    """Recorded data is never turned into code."""
    if not source.within("src/"):
        return
    for node in source.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from ((node.lineno, m) for m in modules if m.split(".")[0] in {"pickle", "marshal", "shelve", "dill"})
        elif isinstance(node, ast.Call) and source.meaning(node.func) in {"eval", "exec"}:
            yield node.lineno, source.meaning(node.func)


def skipped_tests(source: Source) -> Iterator[Fault]:
    """A test that does not run proves nothing; a skipif for what a platform lacks says so itself."""
    if not source.within("tests/"):
        return
    for node in source.nodes:
        if re.match(r"pytest\.(mark\.)?(skip|xfail|importorskip)$", source.meaning(node)):
            yield getattr(node, "lineno", 0), source.meaning(node)


# ---------------------------------------------------------------- text
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
ELSEWHERE = re.compile(
    r"\b[Rr]ules? \d+\b|\b(RULES|DESIGN|STYLE)\.md\b|\b[Ss]ection \d+\b|(?<![\w.])/work/|(?<!\w)/?shared/|\.library\b"
)
ONE_L = re.compile(r"\bcancel(ed|ing)\b", re.IGNORECASE)


def unfinished_work(source: Source) -> Iterator[Fault]:
    """What is not done is not written down as if somebody would."""
    yield from _lines(source, UNFINISHED)


def words_that_mean_nothing_in_a_clone(source: Source) -> Iterator[Fault]:
    """A clone stands alone: no page, number or path of another place."""
    yield from _lines(source, ELSEWHERE)


def cancelled_with_one_l(source: Source) -> Iterator[Fault]:
    """`cancelled`, as the status is written."""
    yield from _lines(source, ONE_L)


def _lines(source: Source, pattern: re.Pattern[str]) -> Iterator[Fault]:
    for number, line in enumerate(source.text.splitlines(), 1):
        if match := pattern.search(line):
            yield number, match.group()


# ---------------------------------------------------------------- the tests
TREE_CHECKS: list[Check] = [
    sql_outside_the_store,
    statuses_made_outside_the_table,
    time_or_chance_outside_its_modules,
    sleeping_in_tests,
    files_and_functions_too_long,
    other_words_for_cancel_and_pause,
    broad_excepts_without_a_reason,
    unsafe_calls,
    skipped_tests,
]
TEXT_CHECKS: list[Check] = [unfinished_work, words_that_mean_nothing_in_a_clone, cancelled_with_one_l]

ENGINE, STORE, TEST = "src/runtrue/engine/x.py", "src/runtrue/store/x.py", "tests/x.py"
S = "from runtrue.lifecycle import Status\n"
PLANTED: list[tuple[Check, str, str, bool]] = [
    (sql_outside_the_store, ENGINE, "q = 'SELECT id FROM runs'", True),
    (sql_outside_the_store, ENGINE, "q = f'update {table} set x = 1'", False),
    (sql_outside_the_store, ENGINE, "q = 'UPDATE runs SET x = 1'", True),
    (sql_outside_the_store, ENGINE, "q = '''\n  insert or replace into runs values (1)'''", True),
    (sql_outside_the_store, ENGINE, "c.execute('PRAGMA synchronous = OFF')", True),
    (sql_outside_the_store, STORE, "c.execute('BEGIN IMMEDIATE')", False),
    (sql_outside_the_store, STORE, "c.execute(f'DROP TRIGGER {name}')", False),
    (sql_outside_the_store, ENGINE, "c.execute(f'DROP TRIGGER {name}')", True),
    (sql_outside_the_store, STORE, "c.execute('DELETE FROM runs')", True),
    (sql_outside_the_store, ENGINE, "'''Select what to do from the list.'''", False),
    (sql_outside_the_store, ENGINE, "say = 'Update the schema, then begin again'", False),
    (statuses_made_outside_the_table, ENGINE, S + "run.status = Status.PAUSED", True),
    (statuses_made_outside_the_table, ENGINE, S + "x = Run(status=Status.PAUSED)", True),
    (statuses_made_outside_the_table, ENGINE, S + "def f(): return Status.PAUSED", True),
    (statuses_made_outside_the_table, ENGINE, S + "status = Status.PAUSED if a else Status.PENDING", True),
    (statuses_made_outside_the_table, ENGINE, "from runtrue import lifecycle\nx = lifecycle.Status.PAUSED", True),
    (statuses_made_outside_the_table, ENGINE, S + "if run.status in (Status.PAUSED, Status.PENDING): pass", False),
    (statuses_made_outside_the_table, ENGINE, S + "match s:\n  case Status.PAUSED: pass", False),
    (statuses_made_outside_the_table, ENGINE, S + "Finish(Status.FAILED if error else Status.COMPLETED)", False),
    (statuses_made_outside_the_table, ENGINE, S + "n = counts[Status.PENDING]", False),
    (statuses_made_outside_the_table, ENGINE, S + "COLOURS = {Status.PAUSED: 'yellow'}", False),
    (statuses_made_outside_the_table, STORE, S + "run.status = Status.PAUSED", False),
    (time_or_chance_outside_its_modules, ENGINE, "import time\ntime.time()", True),
    (time_or_chance_outside_its_modules, ENGINE, "from time import monotonic as m\nm()", True),
    (time_or_chance_outside_its_modules, ENGINE, "from datetime import datetime\ndatetime.now()", True),
    (time_or_chance_outside_its_modules, ENGINE, "import asyncio\nf = asyncio.sleep", True),
    (time_or_chance_outside_its_modules, ENGINE, "import random\nrandom.random()", True),
    (time_or_chance_outside_its_modules, ENGINE, "import random\nrandom.Random(recorded_seed)", False),
    (time_or_chance_outside_its_modules, ENGINE, "from uuid import uuid4\nuuid4()", True),
    (time_or_chance_outside_its_modules, ENGINE, "import os\nos.urandom(4)", True),
    (time_or_chance_outside_its_modules, ENGINE, "await clock.sleep(1); rt.random(); self.time.time()", False),
    (time_or_chance_outside_its_modules, "src/runtrue/clock.py", "import time\ntime.time()", False),
    (sleeping_in_tests, TEST, "import asyncio\nasyncio.sleep(0.1)", True),
    (sleeping_in_tests, TEST, "import time\ntime.sleep(n)", True),
    (sleeping_in_tests, TEST, "import asyncio\nasyncio.sleep(0)", False),
    (files_and_functions_too_long, ENGINE, "x = 1\n" * 451, True),
    (files_and_functions_too_long, ENGINE, "x = 1\n" * 450, False),
    (files_and_functions_too_long, TEST, "def f():\n" + "    x = 1\n" * 70, True),
    (files_and_functions_too_long, TEST, "def f():\n" + "    x = 1\n" * 69, False),
    (other_words_for_cancel_and_pause, ENGINE, "def kill_run(): pass", True),
    (other_words_for_cancel_and_pause, ENGINE, "class RunAborted: pass", True),
    (other_words_for_cancel_and_pause, ENGINE, "def f(canceled): pass", True),
    (other_words_for_cancel_and_pause, ENGINE, "os.kill(pid, 9); skill = 1", False),
    (broad_excepts_without_a_reason, ENGINE, "try: pass\nexcept Exception: pass", True),
    (broad_excepts_without_a_reason, ENGINE, "try: pass\nexcept (OSError, BaseException): pass", True),
    (broad_excepts_without_a_reason, ENGINE, "try: pass\nexcept: pass", True),
    (
        broad_excepts_without_a_reason,
        ENGINE,
        "try: pass\nexcept Exception: pass  # observers may raise anything",
        False,
    ),
    (broad_excepts_without_a_reason, ENGINE, "try: pass\nexcept Exception as e: raise Refused('no') from e", False),
    (broad_excepts_without_a_reason, ENGINE, "try: pass\nexcept OSError: pass", False),
    (unsafe_calls, ENGINE, "import pickle", True),
    (unsafe_calls, ENGINE, "from marshal import loads", True),
    (unsafe_calls, ENGINE, "eval(text)", True),
    (unsafe_calls, ENGINE, "re.compile(text); self.eval(text)", False),
    (skipped_tests, TEST, "import pytest\n@pytest.mark.skip\ndef test_x(): pass", True),
    (skipped_tests, TEST, "import pytest\npytest.importorskip('x')", True),
    (skipped_tests, TEST, "import pytest\n@pytest.mark.prove\ndef test_x(): pass", False),
    (unfinished_work, ENGINE, "# TODO: later", True),
    (unfinished_work, ENGINE, "# the to-do list", False),
    (words_that_mean_nothing_in_a_clone, ENGINE, "# see rule 7", True),
    (words_that_mean_nothing_in_a_clone, ENGINE, "# as in DESIGN.md", True),
    (words_that_mean_nothing_in_a_clone, ENGINE, "path = '/work/main'", True),
    (words_that_mean_nothing_in_a_clone, ENGINE, "# ../shared/api", True),
    (words_that_mean_nothing_in_a_clone, ENGINE, "# docs/rules.md; 7 rules; network/shared memory", False),
    (cancelled_with_one_l, ENGINE, "# the run is canceled", True),
    (cancelled_with_one_l, ENGINE, "# the run is cancelled", False),
]


@pytest.mark.parametrize(("check", "name", "text", "faulty"), PLANTED)
def test_a_planted_fault_is_found_and_what_only_looks_like_one_is_not(check: Check, name: str, text: str, faulty: bool):
    assert bool(list(check(Source(name, text)))) is faulty


@pytest.mark.parametrize("check", [*TREE_CHECKS, *TEXT_CHECKS], ids=lambda check: check.__name__)
def test_the_project_has_none_of(check: Check):
    sources = programs() if check in TREE_CHECKS else texts()
    faults = [f"{source.name}:{line}: {what}" for source in sources for line, what in check(source)]
    assert not faults, f"{check.__doc__}\n" + "\n".join(faults)


def test_the_checks_do_look_at_the_project():
    assert {"src/runtrue/lifecycle.py", "tests/conftest.py"} <= {source.name for source in programs()}
    assert {"pyproject.toml", "Makefile", ".ci/run", "docs/lifecycle.md"} <= {source.name for source in texts()}


def test_the_places_that_the_rules_page_names_exist():
    page = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
    package = ROOT / "src" / "runtrue"
    code = "".join(source.text for source in project() if source.within("src/runtrue/"))
    named = [
        name for where in re.findall(r"\*Where:\*(.*?)\n\n", page, re.DOTALL) for name in re.findall("`(.+?)`", where)
    ]
    assert len(named) > 40
    paths = {name for name in named if re.search(r"/|\.py$", name)}
    assert not [path for path in paths if not (package / path).exists()]
    words = set(named) - paths - {".sql"}
    assert not [word for word in words if not re.search(rf"\b{word}\b", code)]


def test_importing_runtrue_does_not_load_what_only_some_need():
    heavy = {"asyncpg", "click", "fastapi", "jinja2", "opentelemetry", "pydantic", "rich", "starlette", "uvicorn"}
    program = "import sys, runtrue; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert "runtrue.lifecycle" in done.stdout.split()
    assert not heavy & set(done.stdout.split())
