"""The journal by itself: what goes into a batch, and when it is sent."""

import asyncio
from collections.abc import Sequence

from tests.engine.running import until
from tests.support.manual_clock import ManualClock

from runtrue.engine.journal import Journal
from runtrue.lifecycle import Status
from runtrue.store.protocol import EffectsReply, Finish, Recorded, Release, RunEffects


class SlowStore:
    """Takes one batch at a time, when it is let."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.effects: list[Sequence[RunEffects]] = []
        self._let = asyncio.Semaphore(0)

    async def record(self, worker_id: str, effects: Sequence[RunEffects]) -> list[EffectsReply]:
        self.batches.append([effect.epoch for effect in effects])
        self.effects.append(effects)
        await self._let.acquire()
        return [EffectsReply(Recorded.OK, Status.RUNNING) for _ in effects]

    def let_one_pass(self) -> None:
        self._let.release()


def journal(store: SlowStore, *, may_write: bool = True, fenced: list[str] | None = None) -> Journal:
    def note() -> None:
        (fenced if fenced is not None else []).append("fenced")

    return Journal(store, ManualClock(), "w", lambda: may_write, note)  # type: ignore[arg-type]


async def test_two_effects_of_one_run_go_into_two_batches_one_after_the_other():
    """The epochs number the effects here. Each is asked for in another way: with the first, and while it is sent."""
    store = SlowStore()
    written = journal(store)
    # Of two claims, so that they are not merged.
    replies = [written.record(RunEffects("r", 1)), written.record(RunEffects("r", 2))]
    await until(lambda: bool(store.batches))
    replies += [written.record(RunEffects("r", 3)), written.record(RunEffects("other", 4))]
    await until(lambda: len(store.batches) == 2)
    assert store.batches == [[1], [4]], "another run does not wait for this one"
    for _ in replies:
        store.let_one_pass()
    assert [(await reply).recorded for reply in replies] == [Recorded.OK] * 4
    assert store.batches == [[1], [4], [2], [3]]


async def test_nothing_is_sent_once_the_lease_may_be_over():
    store = SlowStore()
    fenced: list[str] = []
    store.let_one_pass()
    reply = await journal(store, may_write=False, fenced=fenced).record(RunEffects("r", 1))
    assert reply.recorded is Recorded.FENCED
    assert store.batches == []
    assert fenced == ["fenced"]


async def test_what_was_told_before_an_end_goes_before_it_in_a_batch_of_its_own():
    """An end comes alone: the store looks at nothing else that comes with it."""
    store = SlowStore()
    written = journal(store)
    written.note_published("r", 1, "state", b'"done"')
    ended = written.record(RunEffects("r", 1, end=Finish(Status.COMPLETED, b"null")))
    await until(lambda: bool(store.effects))
    (told,) = store.effects[0]
    assert told.published == {"state": b'"done"'}
    assert told.end is None
    for _ in range(2):
        store.let_one_pass()
    await ended
    (last,) = store.effects[1]
    assert last.end is not None
    assert last.published is None


async def test_the_effects_of_all_branches_of_a_run_are_one_entry_and_an_end_is_not_among_them():
    store = SlowStore()
    written = journal(store)
    first = RunEffects("r", 1, closed_waits=[("0.0", 0)])
    second = RunEffects("r", 1, closed_waits=[("0.1", 0)], looks=True)
    end = RunEffects("r", 1, end=Release())
    of_another_claim = RunEffects("r", 2)
    replies = [written.record(effects) for effects in (first, second, end, of_another_claim)]
    for _ in replies:
        store.let_one_pass()
    await asyncio.gather(*replies)
    merged, alone, apart = (batch[0] for batch in store.effects)
    assert merged.closed_waits == [("0.0", 0), ("0.1", 0)]
    assert merged.looks
    assert merged.end is None
    assert alone.end is not None
    assert apart.epoch == 2
