"""Workflows with branches that the tests of crashes run, and the App that their worker processes serve."""

import os
import uuid
from pathlib import Path

from tests.support.flows import leave_effect
from tests.support.waiting import CLOCK, moment

import runtrue as rt


@rt.step
async def take(folder: str, name: str, seconds: float) -> str:
    """Leave an effect, take so long, and return what no other attempt returns: the name, the process, a number."""
    leave_effect(Path(folder), name)
    await moment(CLOCK.steady() + seconds)
    return f"{name} {os.getpid()} {uuid.uuid4()}"


def note_winner(folder: str, winner: int) -> None:
    """Append one line, outside of any step: every replay that comes here leaves another one."""
    descriptor = os.open(Path(folder) / "winners", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, f"{rt.this_run().id} {winner}\n".encode())
    finally:
        os.close(descriptor)


@rt.workflow
async def fan(folder: str, latencies: list[float]) -> list[str]:
    """Five steps side by side, a race of two helpers and a sleep, and a step that names the winner."""

    async def two(name: str, first: float, second: float) -> str:
        await take(folder, f"{name}-1", first)
        return await take(folder, f"{name}-2", second)

    seconds = iter(latencies)
    gathered = await rt.gather(*(take(folder, f"g{number}", next(seconds)) for number in range(5)))
    helpers = [two(name, next(seconds), next(seconds)) for name in ("left", "right")]
    winner, result = await rt.first(*helpers, rt.sleep(3_600))
    note_winner(folder, winner)
    last = await take(folder, f"after-{winner}", next(seconds))
    return [*gathered, result or "", last]


app = rt.App(workflows=[fan])
