"""A worker must execute what it owns by the row, or let go of it."""

import asyncio

import pytest
from tests.support import flows
from tests.support.histories import assert_sound, events_of
from tests.support.stage import Stage

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


class LosesTheReply:
    """A store that loses the reply to the first claim that brought something. All else is the real store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.lost: list[Claimed] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def claim(self, *given: object) -> list[Claimed]:
        claimed = await self._store.claim(*given)  # type: ignore[arg-type]
        if claimed and not self.lost:
            self.lost = claimed
            raise OutcomeUnknown("the line went dead before the reply came")
        return claimed


async def test_a_claim_whose_reply_was_lost_is_made_good_by_the_renewals(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    run = await stage.start("a", "b")
    app = App(stage.database, workflows=[flows.chain], lease=1)
    loses: list[LosesTheReply] = []

    async def open_losing(*given: object, **named: object) -> LosesTheReply:
        loses.append(LosesTheReply(await opened(*given, **named)))  # type: ignore[arg-type]
        return loses[0]

    import runtrue.client as client_module

    opened = client_module.open_store
    monkeypatch.setattr(client_module, "open_store", open_losing)
    async with app, asyncio.timeout(45):
        assert await run.result() == ["a", "b"]
        assert [claimed.run_id for claimed in loses[0].lost] == ["run"]
    assert stage.names() == ["a", "b"]
    await assert_sound(stage.client, "run")
