"""Runs with all that is worth telling about them, gathered from the database."""

from collections.abc import Sequence
from dataclasses import dataclass

from runtrue.explain import TimeText, explain
from runtrue.jsonform import Json, Surroundings, run_body, utc_text
from runtrue.lifecycle import Status
from runtrue.records import AttemptRecord, Hold, InFlight, RunRecord, StepRecord, Wait
from runtrue.service import Service


@dataclass(frozen=True, slots=True)
class Described:
    """A run, its open holds, the steps in flight, and why it does not move: for people and for programs.

    `surroundings` is None where only the row was asked for.
    """

    run: RunRecord
    holds: Sequence[Hold]
    in_flight: Sequence[InFlight]
    why: str
    body: Json
    surroundings: Surroundings | None


async def describe(
    service: Service, runs: Sequence[RunRecord], *, time_text: TimeText, whole: bool = False
) -> list[Described]:
    """Describe `runs` as they are now. Failed runs are looked up for their error, waiting ones for what they await.

    `whole` is for runs that were read with their payloads: what is recorded beside the row is told too.
    """
    now = service.clock.now()
    workers = await service.workers() if runs else []
    holds = await service.holds(runs[0].id if len(runs) == 1 else None) if runs else []
    described: list[Described] = []
    for run in runs:
        known = await service.get(run.id) if run.status is Status.FAILED and run.error is None else run
        steps: Sequence[StepRecord] | None = None
        attempts: Sequence[AttemptRecord] = ()
        waits: Sequence[Wait] = ()
        if whole or run.status is Status.WAITING:
            waits = [wait for wait in await service.waits(run.id) if wait.closed_at is None]
        if run.status is Status.WAITING:
            steps, attempts = await service.steps(run.id)
        running = await service.in_flight(run)
        mine = [hold for hold in holds if hold.run_id == run.id]
        whys = [
            explain(
                known,
                now=now,
                holds=mine,
                workers=workers,
                in_flight=running,
                steps=steps,
                attempts=attempts,
                waits=waits,
                time_text=write,
            )
            for write in (time_text, utc_text)
        ]
        beside = None
        if whole:
            beside = Surroundings(waits, await service.published(run.id), await service.children(run.id))
        body = run_body(run, why=whys[1], holds=mine, in_flight=running, surroundings=beside)
        described.append(Described(run, mine, running, whys[0], body, beside))
    return described
