"""A worker that brings other code for a run whose code did not fit lets it try again, once for each code."""

from pathlib import Path
from typing import Any

import pytest
from tests.conformance.hands import without_triggers
from tests.conformance.stage import LEASE, Stage, step

from runtrue.lifecycle import Command, HoldKind, Status
from runtrue.store.protocol import Claimed, NewWorker, ParkHeld

MISMATCH = HoldKind.CODE_MISMATCH


async def bring(stage: Stage, worker_id: str, *digests: tuple[str, str, str]) -> None:
    """A worker registers with this code."""
    await stage.store.register_worker(NewWorker(worker_id, "host", 7, 10, ["flow@1"], LEASE, digests))


async def mismatched(stage: Stage, digest: str = "old", *, pausing: bool = False, **fields: Any) -> Claimed:
    """A run that is held because this code does not fit it."""
    claimed = await stage.running(**fields)
    await stage.record(claimed, step(1))
    if pausing:
        await stage.verb(Command.PAUSE)
    await stage.end(claimed, ParkHeld(MISMATCH, "call 2 is another", digest))
    return claimed


async def test_a_hold_tells_which_code_did_not_fit(stage: Stage):
    await mismatched(stage)
    (hold,) = await stage.store.holds("r")
    assert (hold.kind, hold.code_digest) == (MISMATCH, "old")
    await stage.verb(Command.PAUSE)
    assert {hold.code_digest for hold in await stage.store.holds("r", open_only=True)} == {"old", ""}
    assert {hold.code_digest for hold in await stage.store.holds(open_only=True)} == {"old", ""}


async def test_other_code_lets_the_run_try_again(stage: Stage):
    await mismatched(stage)
    stage.clock.advance(60)
    await bring(stage, "w-2", ("flow", "1", "new"))
    run, now = await stage.run(), stage.clock.now()
    assert (run.status, run.ready_at, run.open_run_holds, run.wakeups) == (Status.PENDING, now, 0, 1)
    (hold,) = await stage.store.holds("r")
    assert (hold.closed_at, hold.closed_by, hold.outcome) == (now, "w-2", "resumed")
    assert [pause.ended_at for pause in await stage.store.pauses("r")] == [now]
    closed, resumed = (await stage.store.events("r"))[-2:]
    assert (closed.type, closed.data["by"], closed.data["outcome"]) == ("hold_closed", "w-2", "resumed")
    assert (resumed.type, resumed.data) == (
        "resumed",
        {"by": "w-2", "reason": "it brings other code", "cause": "code_fits"},
    )
    (claimed,) = await stage.claim("w-2")
    assert [record.ordinal for record in claimed.steps] == [1]


@pytest.mark.parametrize(
    "code",
    [("flow", "1", "old"), ("flow", "2", "new"), ("other", "1", "new")],
    ids=["the same", "another version", "another workflow"],
)
async def test_code_that_cannot_help_changes_nothing(stage: Stage, code: tuple[str, str, str]):
    await mismatched(stage)
    before = await stage.everything()
    await bring(stage, "w-2", code)
    await bring(stage, "w-3")
    assert await stage.everything() == before


async def test_code_is_tried_once(stage: Stage):
    await mismatched(stage)
    for number, digest in enumerate(["new", "old", "newer", "new"], 2):
        stage.clock.advance(1)
        await bring(stage, f"w-{number}", ("other", "1", "x"), ("flow", "1", digest))
        tried = (await stage.run()).status is Status.PENDING
        assert tried is (number in {2, 4}), digest
        if tried:
            (claimed,) = await stage.claim(f"w-{number}")
            await stage.end(claimed, ParkHeld(MISMATCH, "still another", digest), worker_id=f"w-{number}")
    assert [hold.code_digest for hold in await stage.store.holds("r")] == ["old", "new", "newer"]


async def test_a_run_that_an_operator_holds_too_stays_paused(stage: Stage):
    await mismatched(stage, pausing=True)
    before = await stage.run()
    await bring(stage, "w-2", ("flow", "1", "new"))
    run = await stage.run()
    assert (run.status, run.open_run_holds, run.ready_at) == (Status.PAUSED, 1, before.ready_at)
    assert [hold.kind for hold in await stage.store.holds("r", open_only=True)] == [HoldKind.OPERATOR]
    assert (await stage.last_event()).type == "hold_closed"
    assert [pause.ended_at for pause in await stage.store.pauses("r")] == [None]
    assert (await stage.verb(Command.RESUME)).status is Status.PENDING


async def test_a_run_that_keeps_losing_its_worker_is_not_let_go_by_other_code(stage: Stage):
    await stage.held(HoldKind.KEEPS_LOSING_ITS_WORKER)
    before = await stage.everything()
    await bring(stage, "w-2", ("flow", "1", "new"))
    assert await stage.everything() == before


async def test_a_hold_from_before_digests_were_kept_is_tried_with_any_code(stage: Stage):
    await mismatched(stage, "")
    await bring(stage, "w-2", ("flow", "1", "new"))
    assert (await stage.run()).status is Status.PENDING


async def test_a_snapshot_that_does_not_fit_the_steps_keeps_the_run_paused(file_stage: Stage, path: Path):
    await mismatched(file_stage)
    without_triggers(path, "UPDATE runtrue_steps SET digest = digest + 1")
    before = await file_stage.everything()
    await bring(file_stage, "w-2", ("flow", "1", "new"))
    assert await file_stage.everything() == before


async def test_a_finished_run_is_left_alone(stage: Stage):
    await mismatched(stage)
    await stage.verb(Command.CANCEL)
    before = await stage.everything()
    await bring(stage, "w-2", ("flow", "1", "new"))
    assert await stage.everything() == before


async def test_all_runs_that_the_code_may_fit_are_let_go(stage: Stage):
    for run_id in ("a", "b", "c"):
        await mismatched(stage, "new" if run_id == "b" else "old", run_id=run_id)
    await bring(stage, "w-2", ("flow", "1", "new"))
    statuses = await stage.store.statuses(["a", "b", "c"])
    assert [statuses[run_id][0] for run_id in ("a", "b", "c")] == [Status.PENDING, Status.PAUSED, Status.PENDING]
