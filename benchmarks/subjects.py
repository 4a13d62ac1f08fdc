"""What is measured: the engines, and where each of them keeps its runs."""

import contextlib
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.process import Program

Database = Callable[[Path], AbstractAsyncContextManager[str]]
"""Makes an empty database in a folder and brings its URL."""


@dataclass(frozen=True)
class Subject:
    """An engine on a kind of database."""

    name: str
    python: str
    module: str
    database: Database

    def client(self, url: str, folder: Path) -> Program:
        return Program([self.python, "-m", self.module, url], folder / "client.log")

    def worker(
        self, url: str, folder: Path, *, slots: int, expected_steps: int = 0, log: Path | None = None
    ) -> Program:
        options = ["--slots", str(slots), "--expected-steps", str(expected_steps), "--log", str(log or "")]
        return Program([self.python, "-m", self.module, url, *options], folder / "worker.log")


def sqlite_file(folder: Path) -> Path:
    """The file that an engine on SQLite keeps in the folder of its case."""
    return folder / "bench.db"


@contextlib.asynccontextmanager
async def sqlite_database(folder: Path) -> AsyncGenerator[str]:
    """A file in the folder."""
    yield f"sqlite:///{sqlite_file(folder)}"


RUNTRUE = Subject("runtrue", sys.executable, "benchmarks.programs.runtrue_program", sqlite_database)
