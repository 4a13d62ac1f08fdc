"""What a person's `retry` is worth to a run that kept losing its worker."""

from tests.conformance.stage import Stage

from runtrue.lifecycle import Command, Status
from runtrue.store.protocol import LOSSES_BEFORE_HOLD


async def lose_a_worker(stage: Stage, name: str) -> None:
    stage.clock.advance(400)
    assert await stage.claim(name)
    await stage.lose(name)
    await stage.store.sweep()


async def test_a_run_that_was_answered_with_retry_has_all_its_losses_before_it_again(stage: Stage):
    await stage.start()
    for number in range(LOSSES_BEFORE_HOLD):
        await lose_a_worker(stage, f"w{number}")
    assert (await stage.run()).status is Status.PAUSED
    await stage.verb(Command.ANSWER, value="retry")
    assert (await stage.run()).losses == 0
    await lose_a_worker(stage, "another")
    assert (await stage.run()).status is Status.PENDING
