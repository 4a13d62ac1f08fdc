"""What one writer alone never meets on SQLite: a row that changed between the look and the statement."""

from pathlib import Path

import pytest
from tests.conformance.hands import hands_on
from tests.conformance.stage import HOUR, SERVES, Stage

from runtrue.errors import StoreError
from runtrue.lifecycle import CLAIMABLE, Status
from runtrue.store.sqlite import claiming, facts, sweeping


@pytest.mark.parametrize("status", sorted(set(Status) - CLAIMABLE))
async def test_a_claim_changes_only_what_is_claimable_and_due(file_stage: Stage, path: Path, status: Status):
    await file_stage.make(status)
    await file_stage.start("later", ready_at=file_stage.clock.now() + HOUR)
    await file_stage.start("over", deadline_at=file_stage.clock.now())
    await file_stage.start("due")
    now = file_stage.clock.now()
    with hands_on(path) as connection:
        rows = [
            connection.execute(claiming.SQL["claim"], ("w-2", now, now, run_id, now, now)).rowcount
            for run_id in ("r", "later", "over", "due")
        ]
    assert rows == [0, 0, 0, 1]
    assert (await file_stage.run()).status is status


async def test_a_claim_that_is_half_made_is_not_kept(file_stage: Stage, monkeypatch: pytest.MonkeyPatch):
    await file_stage.start("due")
    await file_stage.make(Status.PAUSED)
    await file_stage.worker()
    monkeypatch.setattr(claiming, "_candidates", lambda *_: ["due", "r"])
    with pytest.raises(AssertionError):
        await file_stage.store.claim("w", SERVES, 2)
    assert (await file_stage.run("due")).status is Status.PENDING


@pytest.mark.parametrize("statement", ["hold_orphan", "release_orphan"])
async def test_a_sweep_changes_no_run_of_another_claim(file_stage: Stage, path: Path, statement: str):
    claimed = await file_stage.running()
    before = await file_stage.everything()
    sql = sweeping._SQL[statement]
    found = {"run_id": "r", "epoch": claimed.epoch, "worker_id": "w", "now": 9, "losses_before_hold": 1}
    with hands_on(path) as connection:
        for stale in ({"epoch": claimed.epoch - 1}, {"epoch": claimed.epoch + 1}, {"worker_id": "other"}):
            assert connection.execute(sql, found | stale).fetchone() is None
        assert await file_stage.everything() == before
        assert connection.execute(sql, found).fetchone() is not None


async def test_a_pause_of_a_run_that_is_not_paused_is_refused_and_changes_nothing(file_stage: Stage, path: Path):
    await file_stage.start()
    with hands_on(path) as connection, pytest.raises(StoreError, match="run r is not paused"):
        facts.open_pause(connection, "r", 9)
    assert await file_stage.store.pauses("r") == []
