"""What a run publishes: visible once it is committed, the last value of a key, never doubled by a replay."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.engine import faults
from tests.engine.looking import outside, until_recorded
from tests.engine.running import Gate, audit, failure, finished, opened, reaches
from tests.support import waiting
from tests.support.manual_clock import ManualClock

import runtrue as rt
from runtrue.lifecycle import Status

MINUTE = 60


async def shown(run: rt.RunHandle[Any], key: str = "stage") -> Any:
    try:
        return await run.published(key)
    except rt.NotFound:
        return "nothing"


async def until_shown(run: rt.RunHandle[Any], value: Any, key: str = "stage") -> None:
    async def look() -> bool:
        return await shown(run, key) == value

    await waiting.until(look, f"{value!r} is published")


async def test_a_value_is_seen_from_outside_while_the_step_after_it_is_at_work(database: Path):
    gate = Gate()

    @rt.step
    async def works() -> None:
        await gate.pass_through()

    @rt.workflow
    async def flow() -> None:
        rt.publish("stage", "begun")
        rt.publish("stage", "working")
        await works()
        rt.publish("stage", "done")

    async with opened(database, flow) as app:
        run = await app.start(flow)
        await gate.reached()
        await until_shown(run, "working")
        gate.open()
        await finished(run)
        assert await shown(run) == "done", "what was published last goes before the end"
        await audit(app, run)


async def test_a_replay_publishes_nothing_again(database: Path, clock: ManualClock):
    """What the first execution has published stands though the code has been through there once more."""

    @rt.workflow
    async def flow(times: list[int]) -> None:
        for number in times:
            rt.publish(f"stage {number}", number)
            await rt.sleep(MINUTE)

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow, [1, 2, 3])
        await until_shown(run, 1, "stage 1")
        await reaches(run, "waiting")
    writes: list[Any] = []
    for number in (2, 3):
        with pytest.MonkeyPatch.context() as patch:
            faulty = faults.install(patch)
            clock.advance(MINUTE)
            async with opened(database, flow, clock=clock) as app:
                run = await app.get(run.id)
                await until_shown(run, number, f"stage {number}")
                await reaches(run, "waiting")
            writes += [effect.published for batch in faulty.batches for effect in batch if effect.published]
    assert writes == [{"stage 2": b"2"}, {"stage 3": b"3"}]


async def test_what_a_run_has_published_survives_its_worker_and_its_end(database: Path, clock: ManualClock):
    @rt.workflow
    async def flow() -> None:
        rt.publish("stage", {"at": [1, None]})
        await rt.sleep(MINUTE)
        raise LookupError("the end")

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await until_recorded(app, run, "sleep")
    async with outside(database, clock) as client:
        assert await shown(await client.get(run.id)) == {"at": [1, None]}
    clock.advance(MINUTE)
    async with opened(database, flow, clock=clock) as app:
        run = await app.get(run.id)
        await failure(run)
        assert await shown(run) == {"at": [1, None]}


async def test_branches_publish_beside_each_other(database: Path, clock: ManualClock):
    @rt.workflow
    async def flow() -> None:
        async def branch(number: int) -> None:
            rt.publish(f"branch {number}", number)
            await rt.sleep(MINUTE)
            rt.publish(f"branch {number}", number + 10)

        await rt.gather(branch(1), branch(2))

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        assert [await shown(run, f"branch {n}") for n in (1, 2)] == [1, 2]
        clock.advance(MINUTE)
        await finished(run)
        assert [await shown(run, f"branch {n}") for n in (1, 2)] == [11, 12]


async def test_what_was_not_committed_when_the_worker_died_is_published_by_the_next_one(
    database: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    faulty = faults.install(monkeypatch)

    @rt.workflow
    async def flow() -> None:
        rt.publish("stage", "begun")
        await rt.sleep(MINUTE)

    def die() -> None:
        assert app._worker is not None
        app._worker.vanish()
        raise rt.StoreBusy("nobody hears this any more")

    faulty.before["record"] = die
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        worker = app._worker
        assert worker is not None
        await waiting.until(lambda: worker._gave_up, "the worker has vanished")
        (lost,) = await app.service.workers()
        assert await shown(run) == "nothing"
    async with opened(database, flow, clock=clock) as app:
        await app.store.retire_worker(lost.id)
        await app.store.sweep()
        await until_shown(await app.get(run.id), "begun")


@dataclass
class Report:
    at: datetime
    bytes: int
    note: str


async def test_values_keep_what_json_has_of_them(database: Path):
    @rt.workflow
    async def flow() -> None:
        rt.publish("stage", Report(datetime(2026, 1, 1, tzinfo=UTC), 2**70, "a\0b"))

    async with opened(database, flow) as app:
        run = await app.start(flow)
        await finished(run)
        assert await shown(run) == {"at": "2026-01-01T00:00:00Z", "bytes": 2**70, "note": "a\0b"}


@pytest.mark.parametrize(
    ("value", "message"),
    [(object(), "the published value stage"), ("\udc80", "the published value stage"), (asyncio.Lock, "stage")],
    ids=["an object", "half a character", "a class"],
)
async def test_what_cannot_be_published_is_an_error_that_names_the_key(database: Path, value: object, message: str):
    @rt.workflow
    async def flow() -> None:
        rt.publish("stage", value)

    async with opened(database, flow) as app:
        run = await app.start(flow)
        error = await failure(run)
        assert error.type == "runtrue.errors.NotEncodable"
        assert message in error.message
        assert await shown(run) == "nothing"


async def test_publishing_in_a_step_is_refused_with_the_right_place(database: Path):
    @rt.step
    async def publishes() -> None:
        rt.publish("stage", 1)

    @rt.workflow
    async def flow() -> None:
        await publishes()

    async with opened(database, flow) as app:
        run = await app.start(flow)
        error = await failure(run)
        assert "rt.publish was called inside step publishes" in error.message
        assert await run.status() is Status.FAILED
