"""A worker must execute what it owns by the row, or let go of it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support import flows
from tests.support.histories import assert_sound, events_of
from tests.support.stage import Stage
from tests.support.waiting import CLOCK, SECOND, until

import runtrue.client as client_module
from runtrue import App
from runtrue.errors import OutcomeUnknown
from runtrue.lifecycle import Status
from runtrue.store.protocol import Claimed, Store


@pytest.mark.parametrize(
    ("verb", "end"), [(None, Status.COMPLETED), ("pause", Status.PAUSED), ("cancel", Status.CANCELLED)]
)
async def test_a_run_that_a_living_worker_owns_without_knowing_is_given_back(
    stage: Stage, verb: str | None, end: Status
):
    """As if the reply to its claim had been lost on the way."""
    worker = await stage.worker(lease=1)
    run = await stage.client.start(
        flows.chain.options(id="run", delay=3_600), folder=str(stage.folder), names=["a", "b"]
    )
    with stage.raw() as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(
            "UPDATE runtrue_runs SET status = 'running', epoch = epoch + 1, worker_id = ?, started_at = created_at,"
            " ready_at = created_at, event_seq = event_seq + 1 WHERE id = 'run'",
            (worker.worker_id,),
        )
        connection.execute(
            "INSERT INTO runtrue_events (run_id, seq, at, type, data)"
            " SELECT id, event_seq, created_at, 'claimed', '{}' FROM runtrue_runs WHERE id = 'run'"
        )
        connection.execute("COMMIT")
    if verb is not None:
        await getattr(run, verb)()
    await stage.reached(end)
    assert [row.status for row in await stage.rows_of(worker)] == ["alive"], "without losing its lease"
    assert stage.names() == ([] if verb else ["a", "b"])
    if verb is None:
        types = [event.type for event in await events_of(stage.client, "run") if event.type != "step"]
        assert types == ["created", "claimed", "released", "claimed", "completed"]
        assert (await run.info()).attempt == 1
    await assert_sound(stage.client, "run", ended=end is not Status.PAUSED)


class Tampered:
    """A real store but for one thing: what becomes of the reply to the first claim that brought something."""

    def __init__(self, store: Store, meet: Callable[[list[Claimed]], Awaitable[None]]) -> None:
        self._store = store
        self._meet = meet
        self._met = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def claim(self, *given: Any) -> list[Claimed]:
        claimed = await self._store.claim(*given)
        if claimed and not self._met:
            self._met = True
            await self._meet(claimed)
        return claimed


@pytest.fixture
def tamper(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[list[Claimed]], Awaitable[None]]], None]:
    """From now on opened Apps meet the reply of their first claim as the test wants it."""

    def tampered(meet: Callable[[list[Claimed]], Awaitable[None]]) -> None:
        opened = client_module.open_store

        async def open_tampered(*given: Any, **named: Any) -> Tampered:
            return Tampered(await opened(*given, **named), meet)

        monkeypatch.setattr(client_module, "open_store", open_tampered)

    return tampered


@pytest.mark.parametrize("trouble", [OutcomeUnknown("the line went dead before the reply came"), ValueError("a fault")])
async def test_a_claim_whose_reply_was_lost_is_made_good_by_the_renewals(
    stage: Stage, tamper: Callable[..., None], trouble: Exception
):
    run = await stage.start("a", "b")
    lost: list[str] = []

    async def lose(claimed: list[Claimed]) -> None:
        lost.extend(one.run_id for one in claimed)
        raise trouble

    tamper(lose)
    async with App(stage.database, workflows=[flows.chain], lease=1) as app:
        worker_id = app.worker_id
        assert await run.result(timeout=45) == ["a", "b"]
        assert app.worker_id == worker_id
    assert lost == ["run"]
    assert stage.names() == ["a", "b"]
    await assert_sound(stage.client, "run")


async def test_a_worker_that_drains_during_a_claim_gives_back_what_the_claim_brings(
    stage: Stage, tamper: Callable[..., None]
):
    run = await stage.start("a", "b")
    on_its_way, delivered = asyncio.Event(), asyncio.Event()

    async def delay(claimed: list[Claimed]) -> None:
        on_its_way.set()
        await delivered.wait()

    tamper(delay)
    app = await App(stage.database, workflows=[flows.chain]).open()
    await on_its_way.wait()
    closing = asyncio.create_task(app.close())
    await until(lambda: app.worker_id == "", "the App is closing")
    # Long enough for a worker that does not care: it would have said goodbye by now.
    await asyncio.wait((closing,), timeout=0.2)
    delivered.set()
    await closing
    assert await stage.status() is Status.PENDING
    assert [event.type for event in await events_of(stage.client, "run")] == ["created", "claimed", "released"]
    assert (await run.info()).attempt == 1
    assert stage.names() == []
    await assert_sound(stage.client, "run", ended=False)


async def test_a_fault_in_a_renewal_does_not_end_the_renewals(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    faults: list[str] = []
    opened = client_module.open_store

    async def open_faulty(*given: Any, **named: Any) -> Store:
        store = await opened(*given, **named)
        renew = store.renew

        def fail_once(beat: Any) -> Any:
            if not faults:
                faults.append(beat.worker_id)
                raise ValueError("a fault")
            return renew(beat)

        monkeypatch.setattr(store, "renew", fail_once)
        return store

    monkeypatch.setattr(client_module, "open_store", open_faulty)
    stage.say("hold", "a")
    run = await stage.start("a", "b")
    async with App(stage.database, workflows=[flows.chain], lease=1) as app:
        await stage.begun("a")
        assert faults == [app.worker_id]
        # Twice the lease: without renewals the worker would have stopped by now.
        await stage.passed(CLOCK.now() + 2 * SECOND)
        stage.unsay("hold", "a")
        assert await run.result(timeout=20) == ["a", "b"]
        assert faults == [app.worker_id]
    assert stage.names() == ["a", "b"]
    await assert_sound(stage.client, "run")
