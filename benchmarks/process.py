"""A measured process, spoken to in JSON lines."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_SECONDS = 300.0
LINE_BYTES_MAX = 16 * 1024 * 1024


class Program:
    """A child process. Leaving the context closes its stdin, upon which it goes by itself, or ends it."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command = command
        self._log = log

    async def __aenter__(self) -> Self:
        with self._log.open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                limit=LINE_BYTES_MAX,
            )
        await self.hear("ready")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if self._process.returncode is not None:
            return
        assert self._process.stdin
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), 5)
        except TimeoutError:
            await self.lose()

    async def hear(self, field: str) -> dict[str, Any]:
        """The next line that has `field`. Raises RuntimeError if the process ends or is silent for too long."""
        assert self._process.stdout
        while True:
            try:
                line = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE_SECONDS)
            except TimeoutError:
                line = b""
            if not line:
                await self.lose()
                told = self._log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"`{' '.join(self._command)}` said no {field!r} and went or fell silent.\n{told}")
            said: dict[str, Any] = json.loads(line)
            if field in said:
                return said

    async def ask(self, question: str, answer: str, **details: object) -> dict[str, Any]:
        """Ask, and wait for the line that has the field `answer`."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"ask": question, **details}).encode() + b"\n")
        await self._process.stdin.drain()
        return await self.hear(answer)

    async def lose(self) -> None:
        """End the process as a crash would, with SIGKILL; nothing where it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


async def output_of(module: str, *arguments: str) -> dict[str, float]:
    """Run a module of ours to its end in a process of its own; the JSON that it prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    printed, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{module} {' '.join(arguments)} ended with {process.returncode}")
    figures: dict[str, float] = json.loads(printed)
    return figures
