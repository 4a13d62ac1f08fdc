"""Runs with all that is worth telling about them, gathered from the database."""

from collections.abc import Sequence
from dataclasses import dataclass

from runtrue.explain import TimeText, explain
from runtrue.jsonform import Json, run_body, utc_text
from runtrue.lifecycle import Status
from runtrue.records import Hold, InFlight, RunRecord
from runtrue.service import Service


@dataclass(frozen=True, slots=True)
class Described:
    """A run, its open holds, the step in flight, and why it does not move: for people and for programs."""

    run: RunRecord
    holds: Sequence[Hold]
    in_flight: InFlight | None
    why: str
    body: Json


async def describe(
    service: Service, runs: Sequence[RunRecord], *, time_text: TimeText, payloads: bool
) -> list[Described]:
    """Describe `runs` as they are now. Failed runs are looked up for their error, waiting ones for what they await."""
    now = service.clock.now()
    workers = await service.workers() if runs else []
    holds = await service.holds(runs[0].id if len(runs) == 1 else None) if runs else []
    described: list[Described] = []
    for run in runs:
        known = await service.get(run.id) if run.status is Status.FAILED and run.error is None else run
        steps, attempts = await service.steps(run.id) if run.status is Status.WAITING else (None, None)
        step = await service.in_flight(run)
        mine = [hold for hold in holds if hold.run_id == run.id]
        whys = [
            explain(
                known,
                now=now,
                holds=mine,
                workers=workers,
                in_flight=step,
                steps=steps,
                attempts=attempts,
                time_text=write,
            )
            for write in (time_text, utc_text)
        ]
        body = run_body(run, why=whys[1], holds=mine, in_flight=step, payloads=payloads)
        described.append(Described(run, mine, step, whys[0], body))
    return described
