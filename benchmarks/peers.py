"""Other engines, each in a virtual environment of its own outside the repository, filled by pip on first use."""

import asyncio
import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import venv
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from benchmarks.subjects import Subject, sqlite_database

DBOS = "dbos==3.4.0"
UNPRIVILEGED = "nobody"
"""PostgreSQL does not run as root; it is started as this user then."""


def dbos() -> list[Subject]:
    """DBOS on SQLite and, where PostgreSQL's programs are installed, on a server of its own."""
    python, module = str(_environment("dbos", [DBOS])), "benchmarks.programs.dbos_program"
    name = DBOS.replace("==", " ").replace("dbos", "DBOS")
    subjects = [Subject(f"{name} on SQLite", python, module, sqlite_database)]
    programs = postgres_programs()
    if programs:
        label = f"{name} on PostgreSQL {_version(programs)}"
        subjects.append(Subject(label, python, module, postgres_database))
    else:
        print("PostgreSQL is not installed, so DBOS is measured on SQLite only.", file=sys.stderr)
    return subjects


def _environment(name: str, requirements: Sequence[str]) -> Path:
    """The interpreter of an environment with `requirements`, made where the user's caches are."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = caches / "runtrue" / "bench" / f"{name}-{sys.version_info.major}.{sys.version_info.minor}"
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists() or ready.read_text() != "\n".join(requirements):
        print(f"Setting up {folder} …", file=sys.stderr)
        venv.create(folder, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *requirements], check=True)
        ready.write_text("\n".join(requirements))
    return python


def _version(programs: Path) -> str:
    done = subprocess.run([programs / "initdb", "--version"], capture_output=True, text=True, check=True)
    return done.stdout.split()[2]


def postgres_programs() -> Path | None:
    """The folder of the newest initdb that is installed."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if found:
        return max(found, key=lambda folder: [int(part) for part in re.findall(r"\d+", str(folder))])
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


@contextlib.asynccontextmanager
async def postgres_database(folder: Path) -> AsyncGenerator[str]:
    """A new server on loopback, with its data in `folder` and its default durability, gone afterwards."""
    programs, data, port = postgres_programs(), folder / "postgres", _free_port()
    assert programs
    data.mkdir()
    as_whom = _unprivileged(data) if os.geteuid() == 0 else []
    await _run([*as_whom, str(programs / "initdb"), "-D", str(data), "-U", "bench", "-A", "trust", "-E", "UTF8"], data)
    options = f"-c listen_addresses=127.0.0.1 -p {port} -c unix_socket_directories={data}"
    control = [*as_whom, str(programs / "pg_ctl"), "-D", str(data), "-w", "-l", str(data / "server.log")]
    await _run([*control, "-o", options, "start"], data)
    try:
        yield f"postgresql://bench@127.0.0.1:{port}/bench"
    finally:
        await _run([*control, "-m", "fast", "stop"], data)


def _unprivileged(data: Path) -> list[str]:
    """Give `data` to a user without rights; what to write before a command to run it as that user."""
    shutil.chown(data, UNPRIVILEGED)
    for folder in (data.parent, data.parent.parent):
        folder.chmod(0o711)  # these are private to root, and the server must be able to pass through
    return ["setpriv", f"--reuid={UNPRIVILEGED}", "--regid=nogroup", "--clear-groups"]


async def _run(command: Sequence[str], folder: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    # Only the errors of initdb and pg_ctl themselves: the server that pg_ctl leaves behind holds the pipe open.
    assert process.stderr
    if await process.wait():
        raise RuntimeError(f"{command[-1]}: {(await process.stderr.read()).decode(errors='replace')}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
