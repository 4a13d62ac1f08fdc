"""A process that starts runs of its own and works on them, beside others that do the same on the same file.

    python -m tests.support.contender DATABASE NAME RUNS FOLDER

It says `ready-NAME`, begins when the file `hold-start` is gone, and appends its name to `done` for each finished run.
"""

import asyncio
import os
import sys
from pathlib import Path

from tests.support.waiting import gone

import runtrue as rt

STEPS = 10
AT_A_TIME = 20


async def contend(database: str, name: str, runs: int, folder: Path) -> None:
    """Start `runs` runs, a few at a time, and wait for each."""

    @rt.step
    async def nothing(n: int) -> int:
        return n

    @rt.workflow(name=f"contends-{name}")
    async def contends() -> int:
        return sum([await nothing(n) for n in range(STEPS)])

    done = os.open(folder / "done", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def carry_out(numbers: "asyncio.Queue[int]") -> None:
        while not numbers.empty():
            number = numbers.get_nowait()
            result = await app.run(contends.options(id=f"{name}-{number}"))
            assert result == sum(range(STEPS))
            os.write(done, f"{name}\n".encode())

    async with rt.App(database, workflows=[contends]) as app:
        (folder / f"ready-{name}").touch()
        await gone(folder / "hold-start")
        numbers: asyncio.Queue[int] = asyncio.Queue()
        for number in range(runs):
            numbers.put_nowait(number)
        await asyncio.gather(*(carry_out(numbers) for _ in range(AT_A_TIME)))


if __name__ == "__main__":
    asyncio.run(contend(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])))
