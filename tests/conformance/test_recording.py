"""What a worker records: fenced, counted, once."""

import dataclasses

import pytest
from tests.conformance.stage import RESULT, Stage, attempt, step, without_seq

from runtrue.lifecycle import Command, HoldKind, Status
from runtrue.records import Progress, StepRecord
from runtrue.store.protocol import (
    Claimed,
    EffectsReply,
    End,
    Finish,
    ParkBlocked,
    ParkHeld,
    ParkRequested,
    Recorded,
    Release,
    RunEffects,
)

OK, FENCED, REFUSED, CONDEMNED = Recorded.OK, Recorded.FENCED, Recorded.REFUSED, Recorded.CONDEMNED


async def test_steps_come_back_as_they_were_recorded_by_place(stage: Stage):
    claimed = await stage.running()
    steps = [
        step(2, name="slept", kind="sleep", output=None, wake_at=77),
        step(1, attempt=3, output=b"\x00\xff"),
        step(1, branch="0", output=None, error=b'{"type":"ValueError"}'),
    ]
    assert (await stage.record(claimed, *steps)) == EffectsReply(OK, Status.RUNNING, 0)
    recorded, attempts = await stage.store.steps("r")
    assert attempts == []
    assert without_seq(recorded) == without_seq([steps[1], steps[0], steps[2]])
    assert [record.seq for record in recorded] == [4, 3, 5], "in the order of the batch, after created and claimed"
    run = await stage.run()
    assert (run.steps_done, run.event_seq, run.updated_at) == (3, 5, stage.clock.now())


async def test_attempts_and_progress_are_recorded_without_a_step(stage: Stage):
    claimed = await stage.running()
    progress = Progress(3.0, 10.0, "third of ten", stage.clock.now())
    assert (await stage.record(claimed, attempts=[attempt(1, 1)], progress=progress)).recorded is OK
    assert (await stage.record(claimed, attempts=[attempt(1, 2)])).recorded is OK
    steps, attempts = await stage.store.steps("r")
    assert steps == []
    assert [dataclasses.replace(one, seq=0) for one in attempts] == [attempt(1, 1), attempt(1, 2)]
    assert [one.seq for one in attempts] == [3, 4]
    run = await stage.run()
    assert (run.progress, run.steps_done, run.event_seq) == (progress, 0, 4)


async def test_the_last_progress_stands(stage: Stage):
    claimed = await stage.running()
    for done in (1.0, 2.0, None):
        await stage.record(claimed, progress=Progress(done, None, "", 5))
    assert (await stage.run()).progress == Progress(None, None, "", 5)
    assert (await stage.run()).event_seq == 2


async def test_events_steps_and_attempts_are_one_history_without_gaps(stage: Stage):
    claimed = await stage.running()
    await stage.record(claimed, attempts=[attempt(1, 1)])
    await stage.record(claimed, step(1, attempt=2))
    await stage.verb(Command.PAUSE)
    await stage.record(claimed, step(2))
    await stage.end(claimed, ParkRequested())
    events = await stage.store.events("r")
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.type for event in events] == [
        *("created", "claimed", "attempt_failed", "step", "hold_opened", "pause_requested", "step", "paused")
    ]
    assert events[3].data["name"] == "charge"
    assert events[3].data["failed"] is False
    assert [event.seq for event in await stage.store.events("r", after=3, limit=2)] == [4, 5]
    assert await stage.store.events("r", after=len(events)) == []
    assert await stage.store.events("nobody") == []


# ---------------------------------------------------------------- the fence
@pytest.mark.parametrize(
    "effects",
    [
        {"steps": [step(1)]},
        {"attempts": [attempt()]},
        {"progress": Progress(1, 1, "", 1)},
        {"end": ParkBlocked(0, 5)},
        {"end": ParkHeld(HoldKind.CODE_MISMATCH, "")},
        {"end": Release()},
        {"end": Finish(Status.COMPLETED, RESULT)},
        {"end": Finish(Status.FAILED, RESULT)},
        {"end": Finish(Status.CANCELLED)},
    ],
    ids=lambda effects: repr(next(iter(effects.values())))[:30],
)
async def test_only_the_run_epoch_and_worker_of_the_claim_can_write(stage: Stage, effects: dict[str, object]):
    await stage.worker("other")
    claimed = await stage.running()
    before = await stage.everything()
    for stale, worker in [
        (dataclasses.replace(claimed, epoch=claimed.epoch - 1), "w"),
        (dataclasses.replace(claimed, epoch=claimed.epoch + 1), "w"),
        (claimed, "other"),
        (claimed, "nobody"),
        (claimed, ""),
    ]:
        reply = await stage.record(stale, worker_id=worker, **effects)
        assert (reply.recorded, reply.status) == (FENCED, Status.RUNNING)
    reply = await stage.record(dataclasses.replace(claimed, run_id="nobody"), **effects)
    assert (reply.recorded, reply.status) == (FENCED, None)
    assert await stage.everything() == before
    assert (await stage.record(claimed, **effects)).recorded is OK


async def test_a_worker_whose_run_was_taken_over_is_fenced(stage: Stage):
    first = await stage.running()
    await stage.record(first, step(1))
    await stage.lose()
    await stage.store.sweep()
    (second,) = await stage.claim("w-2")
    assert (second.epoch, [record.name for record in second.steps]) == (2, ["charge"])
    assert (await stage.record(first, step(2, name="stale"))).recorded is FENCED
    assert (await stage.record(first, end=Finish(Status.FAILED, RESULT))).recorded is FENCED
    assert (await stage.record(second, step(2), worker_id="w-2")).recorded is OK
    assert (await stage.run()).status is Status.RUNNING
    assert [record.name for record in (await stage.store.steps("r"))[0]] == ["charge", "charge"]


async def test_the_reply_tells_what_was_asked_meanwhile(stage: Stage):
    claimed = await stage.running()
    await stage.verb(Command.PAUSE)
    assert (await stage.record(claimed, step(1))).status is Status.PAUSING
    await stage.verb(Command.RESUME)
    assert await stage.record(claimed, step(2)) == EffectsReply(OK, Status.RUNNING, 1)
    await stage.verb(Command.CANCEL)
    assert (await stage.record(claimed, step(3))).status is Status.CANCELLING
    await stage.verb(Command.TERMINATE)
    assert await stage.record(claimed, step(4)) == EffectsReply(FENCED, Status.CANCELLED, 1)


# ---------------------------------------------------------------- once
async def test_a_batch_that_comes_again_is_recorded_once(stage: Stage):
    claimed = await stage.running()
    effects = {"attempts": [attempt(1, 1)]}
    first = await stage.record(claimed, step(1, attempt=2), step(2), **effects)
    before = await stage.everything()
    again = await stage.record(claimed, step(1, attempt=2), step(2), **effects)
    assert (first.recorded, again.recorded, again.status) == (OK, OK, Status.RUNNING)
    assert [record.ordinal for record in again.existing] == [1, 2]
    assert await stage.everything() == before


async def test_the_first_result_of_a_step_stands_and_is_handed_back(stage: Stage):
    claimed = await stage.running()
    await stage.record(claimed, step(1, output=b"1"))
    reply = await stage.record(claimed, step(1, name="other", output=b"2", digest=99), step(2))
    (existing,) = reply.existing
    assert (reply.recorded, existing.name, existing.output, existing.seq) == (OK, "charge", b"1", 3)
    recorded, _ = await stage.store.steps("r")
    assert [(record.ordinal, record.output) for record in recorded] == [(1, b"1"), (2, RESULT)]
    assert (await stage.run()).steps_done == 2


@pytest.mark.parametrize(
    ("end", "reached"),
    [
        (ParkBlocked(0, 5), Status.WAITING),
        (ParkHeld(HoldKind.CODE_MISMATCH, "x"), Status.PAUSED),
        (Release(), Status.PENDING),
        (Finish(Status.COMPLETED, RESULT), Status.COMPLETED),
        (Finish(Status.FAILED, RESULT), Status.FAILED),
        (Finish(Status.CANCELLED, reason="no"), Status.CANCELLED),
    ],
)
async def test_an_end_that_comes_again_is_told_that_it_holds(stage: Stage, end: End, reached: Status):
    claimed = await stage.running()
    assert await stage.end(claimed, end) is reached
    before = await stage.everything()
    assert await stage.record(claimed, end=end) == EffectsReply(OK, reached, 0)
    assert await stage.everything() == before


async def test_an_end_that_comes_again_after_something_else_happened_is_fenced(stage: Stage):
    claimed = await stage.running()
    await stage.end(claimed, Release())
    await stage.claim("w-2")
    assert (await stage.record(claimed, end=Release())).recorded is FENCED
    assert (await stage.run()).worker_id == "w-2"


# ---------------------------------------------------------------- condemned
BAD_STEPS = {
    "a digest beyond 64 bits": step(1, digest=2**70),
    "a lone surrogate in the name": step(1, name="\ud800"),
    "no name": step(1, name=None),
    "a value of another kind": step(1, output=object()),
}


@pytest.mark.parametrize("bad", BAD_STEPS.values(), ids=BAD_STEPS)
async def test_what_the_database_will_never_take_costs_its_own_run_only(stage: Stage, bad: StepRecord):
    claims = [await stage.running(run_id) for run_id in ("a", "b", "c")]
    before = await stage.everything("b")
    effects = [RunEffects(claimed.run_id, claimed.epoch, steps=[step(1)]) for claimed in claims]
    effects[1].steps = [step(2), bad]
    effects[2].steps, effects[2].end = [], Finish(Status.COMPLETED, RESULT)
    replies = await stage.store.record("w", effects)
    assert [reply.recorded for reply in replies] == [OK, CONDEMNED, OK]
    assert replies[1].error
    assert replies[1].status is Status.RUNNING
    assert await stage.everything("b") == before
    assert (await stage.run("a")).steps_done == 1
    assert (await stage.run("c")).status is Status.COMPLETED
    assert await stage.end(claims[1], Finish(Status.FAILED, RESULT)) is Status.FAILED


async def test_a_fenced_run_costs_its_own_effects_only(stage: Stage):
    claims = [await stage.running(run_id) for run_id in ("a", "b", "c")]
    await stage.verb(Command.TERMINATE, "b")
    replies = await stage.store.record("w", [RunEffects(one.run_id, one.epoch, steps=[step(1)]) for one in claims])
    assert [reply.recorded for reply in replies] == [OK, FENCED, OK]
    assert [reply.status for reply in replies] == [Status.RUNNING, Status.CANCELLED, Status.RUNNING]


async def test_a_large_batch_with_every_kind_of_reply_answers_in_order(stage: Stage):
    names = [f"r{number:03}" for number in range(60)]
    claims = {run_id: await stage.running(run_id) for run_id in names}
    expected: dict[str, Recorded] = {}
    effects: list[RunEffects] = []
    for number, (run_id, claimed) in enumerate(claims.items()):
        one = RunEffects(run_id, claimed.epoch, steps=[step(1)])
        expected[run_id] = OK
        if number % 7 == 1:
            one.steps, one.end = [], Finish(Status.COMPLETED, RESULT)
        elif number % 7 == 2:
            one.epoch, expected[run_id] = 9, FENCED
        elif number % 7 == 3:
            one.steps, one.end, expected[run_id] = [], ParkRequested(), REFUSED
        elif number % 7 == 4:
            one.steps, expected[run_id] = [step(1, digest=2**64)], CONDEMNED
        effects.append(one)
    replies = await stage.store.record("w", effects)
    assert {one.run_id: reply.recorded for one, reply in zip(effects, replies, strict=True)} == expected


async def test_an_empty_batch_is_nothing(stage: Stage):
    assert await stage.store.record("w", []) == []
    claimed = await stage.running()
    assert await stage.record(claimed) == EffectsReply(OK, Status.RUNNING, 0)


async def test_a_new_step_forgets_the_losses_and_a_failed_attempt_does_not(stage: Stage):
    claimed = await stage.running()
    await stage.lose()
    await stage.store.sweep()
    claimed = await _claimed(stage)
    await stage.record(claimed, attempts=[attempt()], worker_id="w-2")
    assert (await stage.run()).losses == 1
    await stage.record(claimed, step(1), worker_id="w-2")
    run = await stage.run()
    assert (run.losses, run.attempt) == (0, 2)


async def _claimed(stage: Stage) -> Claimed:
    (claimed,) = await stage.claim("w-2")
    return claimed
