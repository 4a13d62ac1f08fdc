"""A database file, a folder in which steps leave their traces, and the worker processes of one test."""

import contextlib
import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import flows
from tests.support.waiting import CLOCK, until

from runtrue import Client
from runtrue.lifecycle import Status
from runtrue.records import WorkerRecord

ROOT = Path(__file__).resolve().parents[2]


class WorkerProcess:
    """`runtrue worker` as a process of its own."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path, worker_id: str) -> None:
        self.worker_id = worker_id
        """The id it registered under first."""
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def threads(self) -> int:
        """How many threads it has; 0 where the system does not tell."""
        tasks = Path(f"/proc/{self.pid}/task")
        return len(list(tasks.iterdir())) if tasks.exists() else 0

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the number of the signal that ended it."""
        return self._process.poll()

    def kill(self) -> None:
        """End it with SIGKILL, as a machine that loses its power does."""
        self._process.kill()
        self._process.wait()

    def ask_to_end(self) -> None:
        """Send SIGTERM."""
        self._process.send_signal(signal.SIGTERM)

    async def ended(self, *, seconds: float = 45.0) -> int:
        """Wait for the end of the process; its exit code."""
        await until(lambda: self.exit_code is not None, f"worker process {self.pid} ends", seconds=seconds)
        return self._process.returncode

    def freeze(self) -> None:
        """Send SIGSTOP and wait until it holds."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def thaw(self) -> None:
        """Send SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def clean_up(self) -> None:
        if self._process.poll() is None:
            self.kill()


class Stage:
    """What one test plays on. `client` is open; workers that still run at the end are ended by their id."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "runs.db"
        self.database = f"sqlite:///{self.path}"
        self.client = Client(self.database, actor="anna")
        self._workers: list[WorkerProcess] = []

    # ------------------------------------------------------------ workers
    async def worker(
        self,
        *,
        lease: float = 1.0,
        slots: int = 10,
        module: str = "tests.support.flows",
        **environment: str,
    ) -> WorkerProcess:
        """Start a worker process and wait until it has registered."""
        process, log = self.spawn(module, lease, slots, environment)
        row = await until(lambda: self._row_of(process.pid), lambda: f"a worker registers; it says:\n{log.read_text()}")
        assert row is not None
        worker = WorkerProcess(process, log, row.id)
        self._workers.append(worker)
        return worker

    def spawn(
        self, module: str, lease: float, slots: int, environment: dict[str, str]
    ) -> "tuple[subprocess.Popen[bytes], Path]":
        """Start the process of a worker, which may not even have begun to import; the file that it logs to."""
        log = self.folder / f"worker-{len(self._workers)}.log"
        command = [sys.executable, "-m", "runtrue", "worker", module, "--database", self.database]
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*command, "--lease", str(lease), "--slots", str(slots)],
                cwd=ROOT,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        return process, log

    async def _row_of(self, pid: int) -> WorkerRecord | None:
        return next((w for w in await self.client.service.workers() if w.pid == pid and w.status == "alive"), None)

    async def rows_of(self, worker: WorkerProcess) -> list[WorkerRecord]:
        """Every id that a process has registered under, oldest first."""
        return [row for row in await self.client.service.workers() if row.pid == worker.pid]

    async def freeze(self, worker: WorkerProcess) -> None:
        """Freeze a worker while it holds no lock: one frozen within a transaction holds up everybody on SQLite."""
        with self.file_lock():
            worker.freeze()

    async def lost(self, worker_id: str) -> None:
        """Wait until a worker is known to be lost."""

        async def is_lost() -> bool:
            return any(w.id == worker_id and w.status == "lost" for w in await self.client.service.workers())

        await until(is_lost, f"worker {worker_id} is lost")

    # ------------------------------------------------------------ what steps do and did
    def say(self, word: str, *names: str) -> None:
        """Tell steps what to do: `hold`, `die`, `fail` and so on."""
        for name in names:
            (self.folder / f"{word}-{name}").touch()

    def unsay(self, word: str, *names: str) -> None:
        for name in names:
            (self.folder / f"{word}-{name}").unlink()

    def effects(self, run_id: str | None = None) -> list[flows.Effect]:
        """What happened in the world, in order."""
        return [e for e in flows.read_effects(self.folder) if run_id is None or e.run_id == run_id]

    def names(self, run_id: str | None = None) -> list[str]:
        """The names of the steps that were begun, in order, each attempt of them."""
        return [effect.name for effect in self.effects(run_id)]

    async def begun(self, *names: str, run_id: str | None = None, times: int = 1) -> None:
        """Wait until each of these steps was begun so often."""
        for name in names:
            await until(
                lambda name=name: self.names(run_id).count(name) >= times,
                lambda name=name: f"step {name} is begun {times} times; effects: {self.names(run_id)}; {self._logs()}",
            )

    def _logs(self) -> str:
        return "\n".join(f"worker {w.pid} ({w.exit_code}):\n{w.log}" for w in self._workers)

    # ------------------------------------------------------------ runs
    async def start(self, *names: str, run_id: str = "run") -> Any:
        """Start a chain of these steps."""
        return await self.client.start(flows.chain.options(id=run_id), str(self.folder), list(names))

    async def status(self, run_id: str = "run") -> Status:
        return (await self.client.service.get(run_id, payloads=False)).status

    async def reached(self, status: Status, run_id: str = "run", *, seconds: float = 45.0) -> None:
        """Wait until the run has this status."""

        async def is_so() -> bool:
            return await self.status(run_id) is status

        await until(is_so, lambda: f"run {run_id} is {status.value}; {self._logs()}", seconds=seconds)

    # ------------------------------------------------------------ the file
    @contextlib.contextmanager
    def raw(self) -> Iterator[sqlite3.Connection]:
        """A foreign connection to the file, which knows nothing of runtrue."""
        connection = sqlite3.connect(self.path, isolation_level=None, timeout=5)
        try:
            yield connection
        finally:
            connection.close()

    @contextlib.contextmanager
    def write_lock(self) -> Iterator[None]:
        """Hold SQLite's write lock, as a foreign program with a long transaction does."""
        with self.raw() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            finally:
                connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def file_lock(self) -> Iterator[None]:
        """Hold the file lock that writers take first: nobody is within a transaction meanwhile."""
        descriptor = os.open(f"{self.path}.turn", os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    async def passed(self, microseconds: int) -> None:
        """Wait until the wall clock says so."""
        await until(lambda: CLOCK.now() > microseconds, "the time has come")

    def end_workers(self) -> None:
        for worker in self._workers:
            worker.clean_up()


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(tmp_path)
    await made.client.open()
    try:
        yield made
    finally:
        made.end_workers()
        await made.client.close()
