"""Ends and batches that come when, or as, they must not."""

import pytest
from tests.conformance.stage import RESULT, Stage, step

from runtrue.lifecycle import Status
from runtrue.store.protocol import Finish, Recorded, RunEffects


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
