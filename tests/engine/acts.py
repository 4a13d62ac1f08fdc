"""A step that tests hold, let fail and look at, by the name that it is called with; and a worker that is lost."""

from collections.abc import Callable
from typing import Any

from tests.engine.faults import FaultyStore
from tests.engine.running import SOON, Gate
from tests.support.waiting import until as until_so

import runtrue as rt
from runtrue.errors import StoreBusy
from runtrue.store.protocol import RunEffects
from runtrue.testing import TestApp


class Broken(Exception):
    """What a step fails with because the test wants it to."""


class Acts:
    """`act(name)` notes that it was begun, waits if it is held, fails if it is to, and returns its name."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.under_way: set[str] = set()
        self.most_under_way = 0
        self.gates: dict[str, Gate] = {}
        self.failing: set[str] = set()

        async def perform(name: str) -> str:
            self.begun.append(name)
            self.under_way.add(name)
            self.most_under_way = max(self.most_under_way, len(self.under_way))
            try:
                if name in self.gates:
                    await self.gates[name].pass_through()
            finally:
                self.under_way.discard(name)
            if name in self.failing:
                raise Broken(name)
            self.ended.append(name)
            return name

        self.act = rt.step(name="act", raises=(Broken,))(perform)
        self.act_unless_interrupted = rt.step(name="act", raises=(Broken,), interruptible=True)(perform)

    def hold(self, *names: str) -> None:
        """Let these wait once they are begun."""
        for name in names:
            self.gates[name] = Gate()

    def fail(self, *names: str) -> None:
        self.failing |= set(names)

    async def reached(self, *names: str) -> None:
        """Wait until these are held."""
        for name in names:
            await self.gates[name].reached()

    def let_go(self, *names: str) -> None:
        """Let these go on, and hold them no more."""
        for name in names:
            self.gates.pop(name).open()

    async def two(self, name: str) -> list[str]:
        """A helper of two steps."""
        return [await self.act(f"{name}1"), await self.act(f"{name}2")]


def lose_at(
    app: TestApp, faulty: FaultyStore, what: Callable[[RunEffects], object], *, committed: bool = False
) -> None:
    """Lose the worker when it sends the first effects of which `what` is true: before they are committed, or just after
    it. Another worker begins then, which is not lost.
    """
    faults = faulty.after if committed else faulty.before

    def strike() -> None:
        if any(what(effects) for effects in faulty.batches[-1]):
            del faults["record"]
            app._lose_worker()
            raise StoreBusy("the process has ended")

    faults["record"] = strike


def records(kind: str) -> Callable[[RunEffects], bool]:
    """Whether effects record a call of this kind."""
    return lambda effects: any(step.kind == kind for step in effects.steps)


async def until_recorded(run: rt.RunHandle[Any], count: int) -> None:
    """Wait until the run has so many records."""

    async def look() -> bool:
        return (await run.info()).steps_done >= count

    await until_so(look, f"{count} calls are recorded", seconds=SOON)


async def places(app: rt.Client, run: rt.RunHandle[Any]) -> list[str]:
    """What was recorded and where, as `branch/ordinal kind`, in the order of the places."""
    steps, _ = await app.service.steps(run.id)
    return sorted(f"{step.branch}/{step.ordinal} {step.kind}".lstrip("/") for step in steps)


async def outcome(app: rt.Client, run: rt.RunHandle[Any], kind: str) -> bytes | None:
    """The recorded outcome of the run's only group of this kind."""
    steps, _ = await app.service.steps(run.id)
    (found,) = [step for step in steps if step.kind == kind]
    return found.output


async def open_waits(app: rt.Client, run: rt.RunHandle[Any]) -> list[str]:
    """Branches that wait by the database."""
    return [wait.branch for wait in await app.store.waits(run.id) if wait.closed_at is None]
