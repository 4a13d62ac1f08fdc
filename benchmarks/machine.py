"""What the figures were measured on."""

import importlib.metadata
import os
import platform
import sqlite3
import statistics
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.process import ROOT

SYNCS = 300
PAGE = bytes(4096)


def about(command: str, folder: Path) -> dict[str, object]:
    """Machine, versions, command and date, of what is measured in `folder`."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
        "commit": _commit(),
        "machine": f"{_processor()}, {os.cpu_count()} cores, {_memory_gib()} GiB, {platform.platform()}",
        "load before": load(),
        "file system": _file_system(folder),
        "4 KiB overwritten and synchronised": f"{sync_microseconds(folder):.0f} µs (median of {SYNCS})",
        "versions": f"runtrue {importlib.metadata.version('runtrue')}, Python {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}",
    }


def load() -> str:
    """How many processes have wanted a core in the last minute, on average."""
    return f"{os.getloadavg()[0]:.1f}"


def sync_microseconds(folder: Path) -> float:
    """How long the file system takes to make a page durable; most of what a commit alone costs."""
    taken: list[float] = []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(SYNCS + 1):
            file.seek(0)
            began = time.perf_counter()
            file.write(PAGE)
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - began)
    return statistics.median(taken[1:]) * 1e6


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _memory_gib() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)


def _file_system(folder: Path) -> str:
    """The type of the mount that holds `folder`, as the kernel lists it; unknown where it lists none."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    holding = [mount for mount in mounts if folder.resolve().is_relative_to(mount[1])]
    return max(holding, key=lambda mount: len(mount[1]))[2] if holding else "unknown"
