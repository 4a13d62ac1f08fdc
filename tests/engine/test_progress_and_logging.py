"""What a run says of itself while it goes: progress, and its logger."""

import asyncio
import logging
import math
from pathlib import Path
from typing import Any

import pytest
from tests.engine.running import Gate, failure, finished, opened, reaches
from tests.support import waiting
from tests.support.manual_clock import ManualClock

import runtrue as rt


async def shown(app: rt.App, run: rt.RunHandle[Any]) -> tuple[float | None, float | None, str] | None:
    progress = (await app.service.get(run.id)).progress
    return None if progress is None else (progress.done, progress.total, progress.note)


async def until_shown(app: rt.App, run: rt.RunHandle[Any], expected: tuple[float | None, float | None, str]) -> None:
    async def there() -> bool:
        return await shown(app, run) == expected

    await waiting.until(there, lambda: f"the run showed {expected}", seconds=10)


async def test_progress_from_the_workflow_shows_while_the_next_step_runs(database: Path):
    gate = Gate()

    @rt.step
    async def long() -> None:
        await gate.pass_through()

    @rt.workflow
    async def flow() -> None:
        rt.set_progress(done=1, total=4, note="loading")
        await long()

    async with opened(database, flow) as app:
        run = await app.start(flow)
        await gate.reached()
        await until_shown(app, run, (1, 4, "loading"))
        gate.open()
        await finished(run)


async def test_progress_from_a_step_shows_while_it_runs_and_the_last_report_stays(database: Path):
    gate = Gate()

    @rt.step
    async def long() -> None:
        rt.set_progress(done=1, total=3)
        rt.this_step().progress(done=2, total=3, note="nearly")
        await gate.pass_through()
        rt.set_progress(done=3, total=3, note="all")

    @rt.workflow
    async def flow() -> None:
        await long()

    async with opened(database, flow) as app:
        run = await app.start(flow)
        await gate.reached()
        await until_shown(app, run, (2, 3, "nearly"))
        gate.open()
        await finished(run)
        assert await shown(app, run) == (3, 3, "all")


async def test_progress_reported_just_before_the_end_is_kept(database: Path):
    """A completed run that shows two of three for ever would be a lie."""

    @rt.step
    async def quick() -> None:
        return None

    @rt.workflow
    async def flow(fails: bool) -> None:
        await quick()
        rt.set_progress(done=3, total=3, note="all")
        if fails:
            raise ValueError("at the very end")

    async with opened(database, flow) as app:
        run, failing = await app.start(flow, False), await app.start(flow, True)
        await finished(run)
        assert await shown(app, run) == (3, 3, "all")
        await failure(failing)
        assert await shown(app, failing) == (3, 3, "all")


async def test_progress_from_a_thread_of_the_step_shows(database: Path):
    gate = Gate()

    @rt.step
    async def long() -> None:
        await asyncio.to_thread(rt.this_step().progress, done=5, note="from a thread")
        await gate.pass_through()

    @rt.workflow
    async def flow() -> None:
        await long()

    async with opened(database, flow) as app:
        run = await app.start(flow)
        await gate.reached()
        await until_shown(app, run, (5, None, "from a thread"))
        gate.open()
        await finished(run)


async def test_a_replay_does_not_take_progress_back(database: Path, clock: ManualClock):
    @rt.step
    async def work() -> None:
        rt.set_progress(done=5)

    @rt.step
    async def work_on() -> None:
        return None

    @rt.workflow
    async def flow() -> None:
        rt.set_progress(done=1)
        await work()
        await rt.sleep(60)
        await work_on()

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        assert await shown(app, run) == (5, None, "")
        clock.advance(60)
        await finished(run)
        assert await shown(app, run) == (5, None, "")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"done": "1"}, "done must be a number, not str"),
        ({"total": True}, "total must be a number, not bool"),
        ({"done": math.nan}, "done must be a finite number, not nan"),
        ({"total": math.inf}, "total must be a finite number, not inf"),
        ({"done": 10**400}, "done must be a finite number"),
        ({"note": 3}, "note must be text, not int"),
    ],
    ids=str,
)
@pytest.mark.parametrize("where", ["in the workflow", "in a step", "by this_step"])
async def test_progress_that_is_none_is_refused_where_it_is_reported(
    database: Path, given: dict[str, Any], message: str, where: str
):
    @rt.step
    async def report() -> None:
        if where == "by this_step":
            rt.this_step().progress(**given)
        else:
            rt.set_progress(**given)

    @rt.workflow
    async def flow() -> None:
        if where == "in the workflow":
            rt.set_progress(**given)
        await report()

    async with opened(database, flow) as app:
        assert message in (await failure(await app.start(flow))).message


async def test_odd_but_true_progress_is_shown(database: Path):
    @rt.workflow
    async def flow() -> None:
        rt.set_progress(done=10**30, total=-1, note="nul \0, surrogate \udc80, " + "long " * 1_000)
        await rt.sleep(0)

    async with opened(database, flow) as app:
        run = await app.start(flow)
        await finished(run)
        found = await shown(app, run)
        assert found is not None
        assert found[:2] == (1e30, -1)
        assert len(found[2]) <= 1_000
        assert "\0" not in found[2]


async def test_late_progress_of_a_run_that_has_ended_changes_nothing(database: Path):
    kept: list[rt.StepInfo] = []

    @rt.step
    async def step() -> None:
        kept.append(rt.this_step())

    @rt.workflow
    async def flow() -> None:
        await step()

    async with opened(database, flow) as app:
        run = await app.start(flow)
        await finished(run)
        kept[0].progress(done=9)
        await finished(await app.start(flow))
        assert await shown(app, run) is None
        worker = app._worker
        assert worker is not None
        assert worker.fenced_writes == 0


async def test_the_logger_is_silent_while_a_run_replays_and_names_run_step_and_attempt(
    database: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, logger="runtrue.run")

    @rt.step(retry=rt.Retry(2, first_delay=0))
    async def work() -> None:
        rt.logger.info("in the step")
        if rt.this_step().attempt == 1:
            raise ValueError("again")

    @rt.workflow
    async def flow() -> None:
        rt.logger.info("begin")
        await work()
        rt.logger.info("between")
        await rt.sleep(60)
        rt.logger.info("after", extra={"mine": 1})

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        clock.advance(60)
        await finished(run)
    records = [record for record in caplog.records if record.name == "runtrue.run"]
    assert [record.getMessage() for record in records] == ["begin", "in the step", "in the step", "between", "after"]
    assert {getattr(record, "run_id", None) for record in records} == {run.id}
    assert {getattr(record, "workflow", None) for record in records} == {"flow"}
    assert [(record.step, record.attempt) for record in records] == [  # type: ignore[attr-defined]
        (None, 1),
        ("work", 1),
        ("work", 2),
        (None, 1),
        (None, 1),
    ]
    assert records[-1].mine == 1  # type: ignore[attr-defined]


async def test_the_logger_is_silent_about_what_came_before_a_long_back_off(
    database: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, logger="runtrue.run")
    calls: list[int] = []

    @rt.step(retry=rt.Retry(2, first_delay=60, jitter=False))
    async def flaky() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("again")

    @rt.workflow
    async def flow() -> None:
        rt.logger.info("begin")
        await flaky()
        rt.logger.info("after")

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        clock.advance(60)
        await finished(run)
    messages = [record.getMessage() for record in caplog.records if record.name == "runtrue.run"]
    assert messages == ["begin", "after"]


def test_the_logger_works_outside_of_runs_too_and_configures_nothing(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, logger="runtrue.run")
    rt.logger.info("plain")
    assert [record.getMessage() for record in caplog.records] == ["plain"]
    assert not hasattr(caplog.records[0], "run_id")
    assert logging.getLogger("runtrue").handlers == []
    assert logging.getLogger("runtrue.run").handlers == []
