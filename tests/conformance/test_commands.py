"""Commands beyond the table: identity, lateness, holds, the snapshot."""

import asyncio
import dataclasses

import pytest
from tests.conformance.stage import HOUR, SECOND, Stage, step

from runtrue.codec import decode_error
from runtrue.errors import StoreBusy, StoreError
from runtrue.lifecycle import Answer, Command, HoldKind, Status
from runtrue.store.protocol import Finish, ParkBlocked, ParkHeld, ParkRequested, Recorded


async def test_a_verb_for_no_run_is_not_found_and_leaves_nothing(stage: Stage):
    assert not (await stage.verb(Command.CANCEL, "nobody")).found
    assert await stage.store.commands("nobody") == []


# ---------------------------------------------------------------- identity
async def test_a_repeat_of_a_request_gets_the_stored_reply_and_changes_nothing(stage: Stage):
    await stage.make(Status.RUNNING)
    first = await stage.verb(Command.PAUSE, request_id="mine")
    await stage.verb(Command.RESUME)
    before = await stage.everything()
    again = await stage.verb(Command.PAUSE, request_id="mine", actor="otto")
    assert again == dataclasses.replace(first, repeated=True)
    assert again.open_holds[0].kind is HoldKind.OPERATOR
    assert again.status is Status.PAUSING, "what it was then, not what it is now"
    assert await stage.everything() == before
    assert [command.request_id for command in await stage.store.commands("r")].count("mine") == 1


async def test_a_repeat_of_a_refused_request_is_refused_again_though_it_would_do_now(stage: Stage):
    await stage.start()
    first = await stage.verb(Command.RESUME, request_id="mine")
    await stage.verb(Command.PAUSE)
    again = await stage.verb(Command.RESUME, request_id="mine")
    assert (first.answer, again) == (Answer.REFUSED, dataclasses.replace(first, repeated=True))
    assert (await stage.run()).status is Status.PAUSED


async def test_a_request_id_used_for_another_verb_is_a_conflict(stage: Stage):
    await stage.start()
    await stage.verb(Command.PAUSE, request_id="mine")
    before = await stage.everything()
    reply = await stage.verb(Command.CANCEL, request_id="mine")
    assert reply.request_conflict
    assert reply.answer is Answer.REFUSED
    assert reply.refusal == "request id mine was used before for pause; use a new id for cancel"
    assert await stage.everything() == before


@pytest.mark.parametrize("other", [{"hold_id": None}, {"hold_id": "h-0"}, {"value": "fail"}])
async def test_a_request_id_used_for_another_answer_is_a_conflict(stage: Stage, other: dict[str, str | None]):
    await stage.held(HoldKind.KEEPS_LOSING_ITS_WORKER)
    (hold,) = await stage.store.holds("r")
    asked = {"request_id": "mine", "hold_id": hold.id, "value": "retry"}
    await stage.verb(Command.ANSWER, **asked)
    before = await stage.everything()
    reply = await stage.verb(Command.ANSWER, **(asked | other))
    assert (reply.request_conflict, reply.answer, reply.repeated) == (True, Answer.REFUSED, False)
    assert reply.refusal == "request id mine was used before for answer with other arguments; use a new id for answer"
    assert (await stage.verb(Command.ANSWER, **asked, reason="another one")).repeated, "a reason may differ"
    assert await stage.everything() == before


@pytest.mark.parametrize("pauses", [("first", None), (None, "first"), ("first", "p-0")])
async def test_a_request_id_used_for_another_pause_is_a_conflict(stage: Stage, pauses: tuple[str | None, str | None]):
    await stage.start()
    first = (await stage.verb(Command.PAUSE)).pause_id
    named, other = (first if name == "first" else name for name in pauses)
    assert (await stage.verb(Command.RESUME, request_id="mine", pause_id=named)).changed
    await stage.verb(Command.PAUSE)
    assert (await stage.verb(Command.RESUME, request_id="mine", pause_id=other)).request_conflict
    assert (await stage.run()).status is Status.PAUSED
    assert (await stage.verb(Command.RESUME, request_id="mine", pause_id=named)).repeated


@pytest.mark.parametrize(
    "fields", [{"pause_id": "\ud800"}, {"hold_id": "\ud800"}, {"reason": "\ud800"}, {"value": 2**70}]
)
async def test_a_command_that_cannot_be_stored_is_refused_as_a_whole(stage: Stage, fields: dict[str, object]):
    await stage.paused_at_boundary()
    before = await stage.everything()
    for verb in (Command.RESUME, Command.CANCEL):
        with pytest.raises(StoreError, match="refuses what was to be written"):
            await stage.verb(verb, **fields)
    assert await stage.everything() == before


async def test_two_runs_may_have_the_same_request_id(stage: Stage):
    await stage.start("a")
    await stage.start("b")
    assert (await stage.verb(Command.PAUSE, "a", request_id="mine")).changed
    assert (await stage.verb(Command.PAUSE, "b", request_id="mine")).changed


async def test_a_command_that_comes_after_its_time_does_nothing(stage: Stage):
    await stage.start()
    before = await stage.everything()
    with pytest.raises(StoreBusy, match="nothing was changed"):
        await stage.verb(Command.CANCEL, not_after=stage.clock.now() - 1)
    assert await stage.everything() == before
    assert await stage.store.commands("r") == []
    assert (await stage.verb(Command.CANCEL, not_after=stage.clock.now())).changed


# ---------------------------------------------------------------- pause
async def test_a_pause_of_a_run_that_nobody_has_is_complete_at_once(stage: Stage):
    await stage.start()
    reply = await stage.verb(Command.PAUSE)
    (hold,) = await stage.store.holds("r")
    (pause,) = await stage.store.pauses("r")
    run = await stage.run()
    assert (hold.kind, hold.opened_by, hold.reason, hold.closed_at) == (HoldKind.OPERATOR, "anna", "because", None)
    assert (reply.open_holds, reply.pause_id, run.open_run_holds) == ((hold,), pause.id, 1)
    assert (pause.paused_at, pause.ended_at, pause.steps_done, pause.digest) == (stage.clock.now(), None, 0, 0)
    assert await stage.event_types() == ["created", "hold_opened", "paused"]
    assert await stage.claim() == []


async def test_a_pause_of_a_running_run_is_complete_at_the_boundary(stage: Stage):
    claimed = await stage.make(Status.PAUSING)
    assert claimed is not None
    assert await stage.store.pauses("r") == []
    assert (await stage.record(claimed, step(2))).status is Status.PAUSING
    assert await stage.end(claimed, ParkRequested()) is Status.PAUSED
    (pause,) = await stage.store.pauses("r")
    run = await stage.run()
    assert (pause.snapshot_schema, pause.epoch, pause.wakeups) == (1, run.epoch, run.wakeups)
    assert (pause.steps_done, pause.digest) == (2, step(1).digest ^ step(2).digest)
    assert run.worker_id is None
    assert (await stage.event_types())[2:] == ["step", "hold_opened", "pause_requested", "step", "paused"]


async def test_a_run_that_the_engine_holds_gets_the_operators_hold_once(stage: Stage):
    await stage.held(HoldKind.CODE_MISMATCH)
    assert (await stage.verb(Command.PAUSE)).changed
    assert not (await stage.verb(Command.PAUSE)).changed
    kinds = [hold.kind for hold in await stage.store.holds("r", open_only=True)]
    assert sorted(kinds) == [HoldKind.CODE_MISMATCH, HoldKind.OPERATOR]
    assert (await stage.run()).open_run_holds == 2
    assert len(await stage.store.pauses("r")) == 1


# ---------------------------------------------------------------- resume
async def test_a_resumed_run_is_claimable_now_and_has_its_history(stage: Stage):
    await stage.paused_at_boundary(steps=3)
    reply = await stage.verb(Command.RESUME, reason="go on")
    assert (reply.answer, reply.status, reply.open_holds) == (Answer.DONE, Status.PENDING, ())
    run = await stage.run()
    assert (run.request, run.open_run_holds, run.wakeups) == (None, 0, 1)
    (hold,) = await stage.store.holds("r")
    assert (hold.outcome, hold.closed_by, hold.closed_at) == ("resumed", "anna", stage.clock.now())
    (pause,) = await stage.store.pauses("r")
    assert pause.ended_at == stage.clock.now()
    assert (await stage.event_types())[-2:] == ["hold_closed", "resumed"]
    (claimed,) = await stage.claim("w-2")
    assert (claimed.epoch, len(claimed.steps)) == (2, 3)


async def test_a_resume_that_meets_a_pausing_run_withdraws_the_pause(stage: Stage):
    claimed = await stage.make(Status.PAUSING)
    assert claimed is not None
    assert (await stage.verb(Command.RESUME)).status is Status.RUNNING
    assert [hold.outcome for hold in await stage.store.holds("r")] == ["resumed"]
    assert (await stage.run()).request is None
    assert (await stage.record(claimed, end=ParkRequested())).recorded is Recorded.REFUSED
    assert (await stage.run()).status is Status.RUNNING


async def test_a_resume_closes_the_hold_of_a_code_mismatch_too(stage: Stage):
    await stage.held(HoldKind.CODE_MISMATCH)
    await stage.verb(Command.PAUSE)
    assert (await stage.verb(Command.RESUME)).status is Status.PENDING
    assert {hold.outcome for hold in await stage.store.holds("r")} == {"resumed"}


async def test_a_resume_leaves_a_run_paused_that_something_else_holds(stage: Stage):
    await stage.held(HoldKind.KEEPS_LOSING_ITS_WORKER)
    await stage.verb(Command.PAUSE)
    reply = await stage.verb(Command.RESUME)
    assert (reply.answer, reply.changed, reply.status, reply.still_held) == (Answer.DONE, True, Status.PAUSED, True)
    assert [hold.kind for hold in reply.open_holds] == [HoldKind.KEEPS_LOSING_ITS_WORKER]
    assert (await stage.event_types())[-1] == "hold_closed"
    (pause,) = await stage.store.pauses("r")
    assert pause.ended_at is None


async def test_a_resume_that_can_close_no_hold_is_refused_and_names_what_holds(stage: Stage):
    await stage.held(HoldKind.KEEPS_LOSING_ITS_WORKER)
    (hold,) = await stage.store.holds("r")
    before = await stage.everything()
    reply = await stage.verb(Command.RESUME)
    assert (reply.answer, reply.changed) == (Answer.REFUSED, False)
    assert reply.refusal == f"the run is held by keeps_losing_its_worker ({hold.id}), which only an answer closes"
    assert await stage.everything() == before


async def test_a_resume_that_names_another_pause_is_refused(stage: Stage):
    await stage.start()
    first = await stage.verb(Command.PAUSE)
    await stage.verb(Command.RESUME, pause_id=first.pause_id)
    second = await stage.verb(Command.PAUSE)
    before = await stage.everything()
    late = await stage.verb(Command.RESUME, pause_id=first.pause_id)
    assert late.answer is Answer.REFUSED
    assert late.refusal == f"pause {first.pause_id} is not the active pause of run r; nothing was changed"
    assert await stage.everything() == before
    assert (await stage.verb(Command.RESUME, pause_id=second.pause_id)).status is Status.PENDING


async def test_a_run_for_later_that_was_paused_still_starts_later(stage: Stage):
    await stage.start(ready_at=stage.clock.now() + HOUR)
    await stage.verb(Command.PAUSE)
    await stage.verb(Command.RESUME)
    assert (await stage.run()).ready_at == stage.clock.now() + HOUR


async def test_a_sleeper_that_was_paused_is_claimed_at_once_when_resumed(stage: Stage):
    await stage.make(Status.WAITING)
    await stage.verb(Command.PAUSE)
    stage.clock.advance(1)
    await stage.verb(Command.RESUME)
    assert (await stage.run()).ready_at == stage.clock.now()


async def test_of_twenty_resumes_at_once_one_changes_the_run(stage: Stage):
    await stage.paused_at_boundary()
    replies = await asyncio.gather(*(stage.verb(Command.RESUME) for _ in range(20)))
    assert [reply.changed for reply in replies].count(True) == 1
    assert [reply.answer for reply in replies].count(Answer.REFUSED) == 19
    assert (await stage.event_types()).count("resumed") == 1
    assert len(await stage.store.commands("r")) == 21


# ---------------------------------------------------------------- answers
async def test_retry_makes_a_held_run_pending_and_forgets_its_losses(stage: Stage):
    await stage.held(HoldKind.KEEPS_LOSING_ITS_WORKER)
    stage.clock.advance(1)
    reply = await stage.verb(Command.ANSWER, value="retry")
    run = await stage.run()
    assert (reply.answer, run.status, run.losses, run.ready_at) == (Answer.DONE, Status.PENDING, 0, stage.clock.now())
    (hold,) = await stage.store.holds("r")
    assert (hold.outcome, hold.closed_by) == ("retry", "anna")
    assert (await stage.event_types())[-2:] == ["hold_closed", "resumed"]


async def test_retry_leaves_a_run_paused_that_an_operator_holds(stage: Stage):
    await stage.held(HoldKind.KEEPS_LOSING_ITS_WORKER)
    await stage.verb(Command.PAUSE)
    reply = await stage.verb(Command.ANSWER, value="retry")
    assert (reply.answer, reply.status, reply.still_held) == (Answer.DONE, Status.PAUSED, True)
    assert (await stage.verb(Command.RESUME)).status is Status.PENDING


async def test_fail_ends_a_held_run_with_an_error_that_says_so(stage: Stage):
    await stage.held(HoldKind.KEEPS_LOSING_ITS_WORKER)
    await stage.verb(Command.PAUSE)
    reply = await stage.verb(Command.ANSWER, value="fail", reason="no use")
    run = await stage.run()
    assert (reply.answer, reply.status, run.status) == (Answer.DONE, Status.FAILED, Status.FAILED)
    assert run.error is not None
    assert decode_error(run.error).message == (
        "the hold keeps_losing_its_worker was answered with fail by anna: no use"
    )
    outcomes = {hold.kind: hold.outcome for hold in await stage.store.holds("r")}
    assert outcomes == {HoldKind.KEEPS_LOSING_ITS_WORKER: "fail", HoldKind.OPERATOR: "moot"}
    assert (await stage.event_types())[-3:] == ["hold_closed", "hold_closed", "failed"]
    assert [pause.ended_at for pause in await stage.store.pauses("r")] == [stage.clock.now()]


@pytest.mark.parametrize(
    ("kind", "fields", "why"),
    [
        (HoldKind.KEEPS_LOSING_ITS_WORKER, {"value": "maybe"}, "takes retry or fail, not 'maybe'"),
        (HoldKind.KEEPS_LOSING_ITS_WORKER, {"value": "retry", "hold_id": "h-0"}, "run r has no open hold h-0"),
        (HoldKind.CODE_MISMATCH, {"value": "retry"}, "which takes no answer; resume the run"),
    ],
)
async def test_an_answer_that_fits_no_hold_is_refused(stage: Stage, kind: HoldKind, fields: dict[str, str], why: str):
    await stage.held(kind)
    before = await stage.everything()
    reply = await stage.verb(Command.ANSWER, **fields)
    assert reply.answer is Answer.REFUSED
    assert why in reply.refusal
    assert await stage.everything() == before


async def test_a_hold_is_answered_once(stage: Stage):
    await stage.held(HoldKind.KEEPS_LOSING_ITS_WORKER)
    (hold,) = await stage.store.holds("r")
    replies = await asyncio.gather(
        *(stage.verb(Command.ANSWER, hold_id=hold.id, value=value) for value in ("fail", "retry", "fail"))
    )
    assert [reply.changed for reply in replies].count(True) == 1
    assert len({event.seq for event in await stage.store.events("r")}) == (await stage.run()).event_seq


# ---------------------------------------------------------------- ends close what is open
@pytest.mark.parametrize("verb", [Command.CANCEL, Command.TERMINATE])
async def test_the_end_of_a_paused_run_closes_its_holds_and_its_pause(stage: Stage, verb: Command):
    await stage.held(HoldKind.CODE_MISMATCH)
    await stage.verb(Command.PAUSE)
    await stage.verb(verb)
    assert {hold.outcome for hold in await stage.store.holds("r")} == {"moot"}
    assert [pause.ended_at for pause in await stage.store.pauses("r")] == [stage.clock.now()]
    run = await stage.run()
    assert (run.status, run.open_run_holds) == (Status.CANCELLED, 0)
    assert (await stage.event_types())[-3:] == ["hold_closed", "hold_closed", "cancelled"]


async def test_a_cancel_of_a_pausing_run_makes_the_pause_moot_at_once(stage: Stage):
    claimed = await stage.make(Status.PAUSING)
    assert claimed is not None
    await stage.verb(Command.CANCEL)
    assert [hold.outcome for hold in await stage.store.holds("r")] == ["moot"]
    assert await stage.end(claimed, Finish(Status.COMPLETED, b"1")) is Status.CANCELLED
    assert (await stage.run()).output is None


async def test_a_held_run_that_slept_goes_back_to_sleep_by_itself(stage: Stage):
    claimed = await stage.running()
    assert await stage.end(claimed, ParkBlocked(claimed.wakeups, stage.clock.now() + HOUR)) is Status.WAITING
    await stage.verb(Command.PAUSE)
    await stage.verb(Command.RESUME)
    (claimed,) = await stage.claim()
    assert await stage.end(claimed, ParkBlocked(claimed.wakeups, stage.clock.now() + HOUR)) is Status.WAITING
    assert (await stage.run()).ready_at == stage.clock.now() + 3600 * SECOND


async def test_a_hold_of_the_engine_on_a_pausing_run_keeps_the_operators_too(stage: Stage):
    claimed = await stage.make(Status.PAUSING)
    assert claimed is not None
    assert await stage.end(claimed, ParkHeld(HoldKind.CODE_MISMATCH, "other steps")) is Status.PAUSED
    assert (await stage.run()).open_run_holds == 2
