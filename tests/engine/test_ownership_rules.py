"""What a renewal brings back, held against what the worker executes and what is on its way to it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.engine.faults import FaultyStore, install
from tests.engine.running import Gate, event_types, finished, opened, until

import runtrue as rt
from runtrue.lifecycle import Status
from runtrue.store.protocol import Claimed, OwnedRun


async def test_a_renewal_that_was_sent_before_the_claim_costs_no_run(database: Path):
    """Its reply knows nothing of the run, and may be heard after the run was claimed."""
    gate = Gate()

    @rt.step
    async def work() -> str:
        await gate.pass_through()
        return "done"

    @rt.workflow
    async def flow() -> str:
        return await work()

    async with opened(database, flow, lease=3_600) as app:
        run = await app.start(flow)
        await gate.reached()
        worker = app._worker
        assert worker is not None
        assert worker._heartbeat is not None
        (execution,) = worker._executions.values()
        worker._hear_owned(worker._heartbeat, [], execution.seen_beats)
        assert not execution.gone
        gate.open()
        assert await finished(run) == "done"
        worker._hear_owned(worker._heartbeat, [], execution.seen_beats + 1)


async def test_a_run_is_not_given_back_while_the_reply_of_its_claim_is_on_its_way(
    database: Path, monkeypatch: pytest.MonkeyPatch
):
    faulty = install(monkeypatch)
    claimed, delivered = asyncio.Event(), asyncio.Event()
    inner_claim = FaultyStore.claim

    async def claim(worker_id: str, serves: Sequence[tuple[str, str]], limit: int) -> list[Claimed]:
        found = await inner_claim(faulty, worker_id, serves, limit)
        if found:
            claimed.set()
            await delivered.wait()
        return found

    faulty.claim = claim  # type: ignore[method-assign]

    @rt.workflow
    async def flow() -> str:
        return "done"

    async with opened(database, flow, lease=3_600) as app:
        run = await app.start(flow)
        await claimed.wait()
        worker = app._worker
        assert worker is not None
        assert worker._heartbeat is not None
        for beat in (100, 101, 102):
            worker._hear_owned(worker._heartbeat, [OwnedRun(run.id, 1, Status.RUNNING, 0)], beat)
        delivered.set()
        assert await finished(run) == "done"
        assert await event_types(run) == ["created", "claimed", "completed"]


async def test_a_drain_waits_for_the_claim_under_way_though_the_last_run_has_ended(
    database: Path, monkeypatch: pytest.MonkeyPatch
):
    faulty = install(monkeypatch)
    claimed, delivered = asyncio.Event(), asyncio.Event()
    inner_claim = FaultyStore.claim
    gate = Gate()

    async def claim(worker_id: str, serves: Sequence[tuple[str, str]], limit: int) -> list[Claimed]:
        found = await inner_claim(faulty, worker_id, serves, limit)
        if any(one.run_id == "second" for one in found):
            claimed.set()
            await delivered.wait()
        return found

    faulty.claim = claim  # type: ignore[method-assign]

    @rt.step
    async def work() -> None:
        await gate.pass_through()

    @rt.workflow
    async def flow() -> None:
        await work()

    app = await rt.App(database, workflows=[flow], slots=2, lease=3_600).open()
    await app.start(flow.options(id="first"))
    await gate.reached()
    await app.start(flow.options(id="second"))
    await claimed.wait()
    worker = app._worker
    assert worker is not None
    closing = asyncio.create_task(app.close())
    await until(lambda: app._worker is None)
    gate.open()
    await until(lambda: worker.running == 0)
    # Long enough for a worker that does not care: it would have said goodbye by now.
    await asyncio.wait((closing,), timeout=0.3)
    delivered.set()
    await closing
    async with rt.Client(database) as client:
        run = await client.get("second")
        assert await run.status() is Status.PENDING
        assert await event_types(run) == ["created", "claimed", "released"]


async def test_a_worker_asks_for_no_more_runs_than_it_has_free_slots(database: Path, monkeypatch: pytest.MonkeyPatch):
    faulty = install(monkeypatch)
    asked: list[tuple[int, int]] = []
    inner_claim = FaultyStore.claim

    async def claim(worker_id: str, serves: Sequence[tuple[str, str]], limit: int) -> list[Claimed]:
        worker = app._worker
        assert worker is not None
        asked.append((worker.running, limit))
        return await inner_claim(faulty, worker_id, serves, limit)

    faulty.claim = claim  # type: ignore[method-assign]

    @rt.step
    async def work() -> None:
        await asyncio.sleep(0)

    @rt.workflow
    async def flow() -> None:
        await work()

    async with opened(database, flow, slots=3, lease=3_600) as app:
        for run in await app.start_many(flow, [{}] * 10):
            await finished(run)
    assert asked
    assert all(running + limit <= 3 for running, limit in asked), asked


async def test_a_draining_worker_has_left_off_claiming_while_its_steps_still_run(database: Path):
    gate = Gate()
    calls: list[str] = []

    @rt.step
    async def work() -> None:
        calls.append(rt.this_run().id)
        await gate.pass_through()

    @rt.workflow
    async def flow() -> None:
        await work()

    app = await rt.App(database, workflows=[flow], lease=3_600).open()
    await app.start(flow.options(id="first"))
    await gate.reached()
    worker = app._worker
    assert worker is not None
    closing = asyncio.create_task(app.close())
    await until(lambda: worker._main is not None and worker._main.done())
    async with rt.Client(database) as client:
        second = await client.start(flow.options(id="second"))
        gate.open()
        await closing
        assert await second.status() is Status.PENDING
    assert calls == ["first"]
