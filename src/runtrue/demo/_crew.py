"""The demo's worker processes, started by the real command line."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

DRAIN_SECONDS = 10
LOG_LINES_SHOWN = 20


class Crew:
    """Worker processes over one database. Leaving the `with` block ends those that still live."""

    def __init__(self, module: str, database: Path, lease_seconds: float) -> None:
        self._command = [sys.executable, "-m", "runtrue", "worker", module]
        self._command += ["--database", f"sqlite:///{database}", "--lease", f"{lease_seconds:g}"]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the crew

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.dismiss()
        self._log.close()

    def hire(self) -> int:
        """Start a worker and return its process id. A Ctrl-C in the terminal does not reach it; the demo ends it."""
        process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, start_new_session=True
        )
        self._processes[process.pid] = process
        return process.pid

    def alive(self) -> list[int]:
        """The process ids of those that live."""
        return [pid for pid, process in self._processes.items() if process.poll() is None]

    def kill(self, pid: int) -> None:
        """SIGKILL: the process gets no chance to say or save anything. Raises KeyError for a process of others."""
        process = self._processes[pid]
        process.send_signal(signal.SIGKILL)
        process.wait()

    def dismiss(self) -> None:
        """SIGTERM to all, so that they drain; SIGKILL to who does not end in time, and to all at another Ctrl-C."""
        living = [self._processes[pid] for pid in self.alive()]
        for process in living:
            process.terminate()
        try:
            for process in living:
                process.wait(DRAIN_SECONDS)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            for process in living:
                process.kill()
                process.wait()

    def last_words(self) -> list[str]:
        """The end of what the workers wrote, for when something went wrong."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - 8_192))
        return self._log.read().decode(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
