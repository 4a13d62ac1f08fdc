"""The account at the end: what must be true now, each claim looked up in the database and in the warehouse."""

from dataclasses import dataclass

from runtrue.clock import MICROSECOND
from runtrue.codec import decode
from runtrue.demo._stage import Stage
from runtrue.demo.etl.birdstrikes import Report
from runtrue.lifecycle import Status

Claim = tuple[bool, str]


@dataclass(frozen=True)
class Lost:
    """A worker was killed at `killed_at`, another claimed its run at `claimed_at` (microseconds).

    `unrecorded` are the loads that the killed one had written and not recorded.
    """

    unrecorded: list[str]
    killed_at: int
    claimed_at: int


async def check(stage: Stage, first: str, lost: Lost, second: str) -> bool:
    """Print each claim with its figures. True if all of them hold.

    The `first` run lost its worker and was paused, the `second` was cancelled within a step.
    """
    stage.screen.chapter("What is true now")
    claims = [*await _of_the_first(stage, first, lost), *await _of_the_second(stage, second)]
    findings = (await stage.service.doctor()).findings
    claims.append((not findings, f"broken promises that the database finds in itself: {len(findings)}"))
    for holds, text in claims:
        stage.screen.verdict(holds=holds, text=text)
    return all(holds for holds, _ in claims)


async def _of_the_first(stage: Stage, run_id: str, lost: Lost) -> list[Claim]:
    run = await stage.service.get(run_id)
    steps, attempts = await stage.service.steps(run_id)
    report: Report = decode(run.output or b"", Report, what="the report of run A")
    loads = [step.name for step in steps if step.name.startswith("load ")]
    again = {step: times for step, times in stage.executions(run_id).items() if times > 1}
    rejected = sum(report.rejected.values())
    paused, resumed = await stage.event(run_id, "paused"), await stage.event(run_id, "resumed")
    while_paused = [step for step in steps if paused.seq < step.seq < resumed.seq]
    lost_seconds = (lost.claimed_at - lost.killed_at) / MICROSECOND
    paused_seconds = (resumed.at - paused.at) / MICROSECOND
    return [
        (
            run.status is Status.COMPLETED and run.attempt == 2,
            f"run A is {run.status.value}; its attempt is {run.attempt}, for its first worker was lost",
        ),
        (lost_seconds > 0, f"the second one had it {lost_seconds:.1f} s after the first was killed"),
        (len(loads) == len(set(loads)) == report.loads, f"{len(loads)} loads are recorded, each of them once"),
        (
            again == dict.fromkeys(lost.unrecorded, 2),
            f"executed twice: {', '.join(again) or 'nothing'}, in both attempts; the kill left that unrecorded",
        ),
        (
            report.rows_stored == report.rows_read - rejected,
            f"{report.rows_stored:,} rows stored = {report.rows_read:,} read - {rejected} rejected",
        ),
        (
            [attempt.attempt for attempt in attempts] == [1, 2],
            f"the rates service failed {len(attempts)} times and was asked again",
        ),
        (not while_paused, f"steps recorded in the {paused_seconds:.1f} s of the pause: {len(while_paused)}"),
    ]


async def _of_the_second(stage: Stage, run_id: str) -> list[Claim]:
    run = await stage.service.get(run_id)
    steps, _ = await stage.service.steps(run_id)
    asked = await stage.event(run_id, "cancel_requested")
    begun_after = [step for step in steps if step.started_at > asked.at]
    loads = [step.name for step in steps if step.name.startswith("load ")]
    return [
        (run.status is Status.CANCELLED, f"run B is {run.status.value}"),
        (not begun_after, f"steps of run B that began after the cancel was asked: {len(begun_after)}"),
        (
            list(stage.executions(run_id)) == loads,
            f"{len(loads)} loads of run B are recorded, and no others are in the warehouse",
        ),
    ]
