"""What the demo looks at: the database, read again and again. Nothing is told from memory or hope."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from runtrue.clock import Clock
from runtrue.demo._screen import Screen, event_text
from runtrue.demo.etl.birdstrikes import load_executions
from runtrue.explain import explain
from runtrue.lifecycle import TERMINAL
from runtrue.records import Event, RunRecord, WorkerRecord
from runtrue.service import Outcome, Service

LOOK_SECONDS = 0.02
PATIENCE_SECONDS = 45.0


class Untrue(Exception):
    """Something that was to happen did not. The message says what."""


@dataclass
class Stage:
    """The database with the demo's runs, and the screen that shows them. `names` tells what to call a run."""

    service: Service
    clock: Clock
    screen: Screen
    warehouse: Path
    names: dict[str, str] = field(default_factory=dict[str, str])
    _shown: dict[str, int] = field(default_factory=dict[str, int])

    def deed(self, text: str) -> int:
        """A line about what the demo does now. Returns the time."""
        now = self.clock.now()
        self.screen.deed(now, text)
        return now

    async def show_answer(self, outcome: Outcome) -> None:
        """A line with the answer to a command, made by the transaction that met it; before it that one's events."""
        await self.show_events(outcome.run_id)
        met = "it is so" if outcome.done else "requested, for the next boundary"
        doing = f", still running {outcome.in_flight[0].step}" if outcome.in_flight else ""
        self.screen.fact(self.clock.now(), "answer", f"{met}: {outcome.status.value}{doing}")

    async def show_row(self, run_id: str) -> RunRecord:
        """A line about what the run's row says now, and why the run does not move; before it what led there."""
        run = await self.show_events(run_id)
        holds, workers = await self.service.holds(run_id), await self.service.workers()
        now = self.clock.now()
        why = explain(run, now=now, holds=holds, workers=workers)
        self.screen.fact(now, self.names[run_id], f"the row says {run.status.value}: {why}")
        return run

    async def show_events(self, run_id: str) -> RunRecord:
        """Print what was committed since the last look, with the bar never behind the lines. Returns the row."""
        events = await self.service.events(run_id, after=self._shown.get(run_id, 0))
        run = await self.service.get(run_id)
        self.screen.progress(self.clock.now(), self.names[run_id], run)
        for event in events:
            self._shown[run_id] = event.seq
            self.screen.fact(event.at, self.names[run_id], event_text(event))
        return run

    async def looks(self, run_id: str, expected: str) -> AsyncIterator[RunRecord]:
        """Show the run's events and yield its row, again and again.

        Raises Untrue once the run has ended or 45 seconds have passed, for what was `expected` has not come then.
        """
        patient_until = self.clock.steady() + PATIENCE_SECONDS
        while True:
            run = await self.show_events(run_id)
            yield run
            if run.status in TERMINAL or self.clock.steady() > patient_until:
                await self.show_row(run_id)
                raise Untrue(f"run {run_id} is {run.status.value}, and this was expected of it: {expected}")
            await self.clock.sleep(LOOK_SECONDS)

    async def until(self, run_id: str, wish: Callable[[RunRecord], bool], expected: str) -> RunRecord:
        """Show the run until its row is as `wish` wants it."""
        async for run in self.looks(run_id, expected):
            if wish(run):
                await self.show_events(run_id)
                return run
        raise AssertionError("looks() ends by an error only")

    async def until_within_a_load(self, run_id: str, loads: int) -> str:
        """Show the run until at least `loads` loads are in the warehouse and one of them is not recorded yet.

        That is the worst moment of a step: its effect is in the world, and nobody knows but its own process.
        Returns the name of that step.
        """
        async for _ in self.looks(run_id, f"{loads} loads written, the last one not recorded yet"):
            if len(self.executions(run_id)) >= loads and (unrecorded := await self.unrecorded_loads(run_id)):
                return unrecorded[0]
        raise AssertionError("looks() ends by an error only")

    async def unrecorded_loads(self, run_id: str) -> list[str]:
        """The loads that are in the warehouse and have no recorded result."""
        written = self.executions(run_id)
        steps, _ = await self.service.steps(run_id)
        recorded = {step.name for step in steps}
        return [step for step in written if step not in recorded]

    def executions(self, run_id: str) -> dict[str, int]:
        """How often each load of the run was written to the warehouse, by the name of its step."""
        return {f"load {state}": times for state, times in load_executions(str(self.warehouse), run_id).items()}

    async def event(self, run_id: str, kind: str, *, after: int = 0) -> Event:
        """The first event of a kind with a number over `after`. Raises Untrue if there is none."""
        for event in await self.service.events(run_id, after=after):
            if event.type == kind:
                return event
        raise Untrue(f"run {run_id} has no event {kind!r} after #{after}")

    async def owner(self, run: RunRecord) -> WorkerRecord:
        """The worker that the run's row names. Raises Untrue if it names none."""
        for worker in await self.service.workers():
            if worker.id == run.worker_id:
                return worker
        raise Untrue(f"run {run.id} is {run.status.value} and its row names no worker")
