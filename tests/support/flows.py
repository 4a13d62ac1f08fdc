"""The workflows that the tests of crashes and incidents run, and the App that their worker processes serve.

What a step does is said by files in the folder of the test, so that a test can let a step wait, fail or die in
whichever process executes it. Each attempt leaves one line in `effects` before it does anything else.
"""

import asyncio
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from tests.support.waiting import CLOCK, block_until_gone, gone, moment, turning_until

import runtrue as rt


@dataclass(frozen=True)
class Effect:
    """One attempt of a step, as the step itself reported it."""

    run_id: str
    name: str
    attempt: int
    pid: int
    key: str


def leave_effect(folder: Path, name: str) -> None:
    """Append one line; a single write, so that lines of several processes never mix."""
    info = rt.this_step()
    line = f"{info.run_id} {name} {info.attempt} {os.getpid()} {info.idempotency_key}\n"
    descriptor = os.open(folder / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def read_effects(folder: Path) -> list[Effect]:
    """All effects so far, in the order in which they happened."""
    path = folder / "effects"
    if not path.exists():
        return []
    lines = (line.split(" ") for line in path.read_text().splitlines())
    return [Effect(run_id, name, int(attempt), int(pid), key) for run_id, name, attempt, pid, key in lines]


@rt.step
async def act(folder: str, name: str) -> str:
    """Leave an effect, then do what the files `WORD-NAME` say."""
    here = Path(folder)
    leave_effect(here, name)
    if (here / f"die-{name}").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    await gone(here / f"hold-{name}")
    block_until_gone(here / f"block-{name}")
    thread = here / f"thread-{name}"
    if thread.exists():
        await asyncio.to_thread(block_until_gone, thread)
    deaf = here / f"deaf-{name}"
    while deaf.exists():
        try:
            await gone(deaf)
        except asyncio.CancelledError:
            leave_effect(here, f"{name}-was-told")
    if (here / f"fail-{name}").exists():
        raise ConnectionError(f"{name} fails because the test wants it to")
    return name


@rt.step(interruptible=True)
async def act_unless_interrupted(folder: str, name: str) -> str:
    """As `act`, and a cancel interrupts it; `finally` runs and leaves an effect of its own."""
    try:
        return await act(folder, name)
    finally:
        leave_effect(Path(folder), f"{name}-cleaned-up")


@rt.step
async def look_for_cancel(folder: str, name: str) -> str:
    """Go on until a cancel is asked, which the step looks for itself."""
    leave_effect(Path(folder), name)
    await turning_until(rt.this_step().cancel_requested)
    return "heard"


@rt.step
async def take_a_moment(folder: str, name: str) -> str:
    """Leave an effect, then take ten milliseconds, so that a fault at a drawn moment mostly hits a step in flight."""
    leave_effect(Path(folder), name)
    await moment(CLOCK.steady() + 0.01)
    return name


@rt.workflow
async def walk(folder: str, steps: int) -> int:
    """Many steps of a moment each."""
    for number in range(steps):
        await take_a_moment(folder, f"s{number}")
    return steps


@rt.workflow
async def chain(folder: str, names: list[str]) -> list[str]:
    """Steps one after the other."""
    return [await act(folder, name) for name in names]


@rt.workflow
async def interruptible_chain(folder: str, names: list[str]) -> list[str]:
    """The same with steps that may be interrupted."""
    return [await act_unless_interrupted(folder, name) for name in names]


@rt.workflow
async def attentive(folder: str) -> str:
    """A step that looks for a cancel, and one that must not follow it."""
    heard = await look_for_cancel(folder, "a")
    await act(folder, "b")
    return heard


@rt.workflow
async def stubborn(folder: str, delay: float) -> str:
    """A step that is tried for ever, `delay` seconds apart."""
    retry = rt.Retry(None, first_delay=delay, factor=1, jitter=False)
    return await act.options(retry=retry)(folder, "a")


@rt.workflow
async def napping(folder: str, seconds: float) -> str:
    """A step, a sleep, a step."""
    await act(folder, "a")
    await rt.sleep(seconds)
    return await act(folder, "b")


@rt.workflow
async def musing(folder: str) -> str:
    """Code of the workflow's own that takes its time (while `think-ATTEMPT` is there), then a step."""
    await gone(Path(folder) / f"think-{rt.this_run().attempt}")
    return await act(folder, "b")


@rt.workflow
async def only_musing(folder: str) -> int:
    """The same without a step: the first thing that it has to record is its end."""
    attempt = rt.this_run().attempt
    await gone(Path(folder) / f"think-{attempt}")
    return attempt


app = rt.App(
    workflows=[chain, interruptible_chain, walk, attentive, stubborn, napping, musing, only_musing],
    drain=float(os.environ.get("DRAIN", "30")),
)
