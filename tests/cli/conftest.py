"""The command line in this process (cheap) and as the real command."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.cli.making import make, with_store

from runtrue.cli import main
from runtrue.lifecycle import Status

COMMAND = [sys.executable, "-m", "runtrue"]


@dataclass(frozen=True)
class Result:
    """What a command left: its exit code, and what it wrote where."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Runtrue = Callable[..., Result]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def database(here: Path) -> Path:
    """The default database of the working folder, made and empty."""
    path = here / "runtrue.db"

    async def nothing(store: object) -> None: ...

    with_store(path, nothing)
    return path


@pytest.fixture
def runtrue(here: Path, capfd: pytest.CaptureFixture[str]) -> Runtrue:
    """Run a command line in this process."""

    def run(*words: str) -> Result:
        capfd.readouterr()
        code = main(words)
        sys.stdout.flush()
        captured = capfd.readouterr()
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture
def command(here: Path) -> Runtrue:
    """Run the real command as a process of its own."""

    def run(*words: str, stdin: str | bytes = "", **environment: str) -> Result:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            [*COMMAND, *words],
            input=given,
            capture_output=True,
            env={**os.environ, **environment},
            timeout=60,
            check=False,
        )
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture
def a_run(database: Path) -> Callable[[Status], str]:
    """Make a run with a status in the default database; its id."""

    def made(status: Status) -> str:
        run_id = f"run-{status.value}"
        with_store(database, lambda store: make(store, run_id, status))
        return run_id

    return made
