"""Ends and batches that come when, or as, they must not."""

import dataclasses

import pytest
from tests.conformance.stage import RESULT, Stage, step

from runtrue.lifecycle import Status
from runtrue.store.protocol import Finish, ParkRequested, Recorded, RunEffects


async def test_an_end_is_not_taken_for_the_same_one_of_another_worker(stage: Stage):
    """The worker that was replaced would believe that its own result stands."""
    first = await stage.running()
    await stage.lose()
    await stage.store.sweep()
    (second,) = await stage.claim("w-2")
    await stage.end(second, Finish(Status.COMPLETED, RESULT), worker_id="w-2")
    late = await stage.record(first, end=Finish(Status.COMPLETED, b'"late"'))
    assert (late.recorded, late.status) == (Recorded.FENCED, Status.COMPLETED)
    assert (await stage.run()).output == RESULT


async def test_a_batch_with_two_entries_of_one_run_is_refused_whole(stage: Stage):
    claimed = await stage.running()
    twice = [RunEffects("r", claimed.epoch, steps=[step(number)]) for number in (1, 2)]
    with pytest.raises(AssertionError, match="a run may stand in a batch once"):
        await stage.store.record("w", twice)
    assert (await stage.run()).steps_done == 0


async def test_only_the_claim_that_owns_a_run_can_meet_the_pause_that_was_asked(stage: Stage):
    claimed = await stage.make(Status.PAUSING)
    assert claimed is not None
    older, newer = (dataclasses.replace(claimed, epoch=claimed.epoch + by) for by in (-1, 1))
    for stale, worker in ((older, "w"), (newer, "w"), (claimed, "other")):
        assert (await stage.record(stale, end=ParkRequested(), worker_id=worker)).recorded is Recorded.FENCED
    assert (await stage.run()).status is Status.PAUSING
    assert await stage.end(claimed, ParkRequested()) is Status.PAUSED
