"""What a renewal brings back, held against what the worker executes and what is on its way to it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.engine.faults import FaultyStore, install
from tests.engine.running import Gate, event_types, finished, opened

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
