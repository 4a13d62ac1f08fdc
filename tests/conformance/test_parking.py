"""How a worker lets go of a run, from each status and under the wake counter."""

import pytest
from tests.conformance.stage import HOUR, RESULT, Stage, step

from runtrue.lifecycle import MOVES, OWNED, Command, HoldKind, Status, targets
from runtrue.store.protocol import (
    EffectsReply,
    End,
    Finish,
    ParkBlocked,
    ParkHeld,
    ParkRequested,
    Recorded,
    Release,
)

ENDS: dict[str, End] = {
    "park_requested": ParkRequested(),
    "park_blocked": ParkBlocked(0, 5),
    "park_held": ParkHeld(HoldKind.CODE_MISMATCH, "other steps"),
    "release": Release(),
    "finish_completed": Finish(Status.COMPLETED, RESULT),
    "finish_failed": Finish(Status.FAILED, RESULT),
    "finish_cancelled": Finish(Status.CANCELLED, reason="no"),
}
EVENT_OF = {Status.PENDING: "released"}


def test_every_move_by_which_a_worker_lets_go_is_tried_here():
    assert set(ENDS) == set(MOVES) - {"claim", "answer_fail", "wake", "code_fits"}


@pytest.mark.parametrize("move", ENDS)
@pytest.mark.parametrize("status", sorted(OWNED))
async def test_an_end_leads_where_the_table_says_or_is_refused(stage: Stage, move: str, status: Status):
    claimed = await stage.make(status)
    assert claimed is not None
    before = await stage.everything()
    reply = await stage.record(claimed, end=ENDS[move])
    if status not in targets(move):
        assert reply == EffectsReply(Recorded.REFUSED, status, 0)
        assert await stage.everything() == before
        assert (await stage.record(claimed, step(2))).recorded is Recorded.OK, "it is still the worker's"
        return
    reached = targets(move)[status][0]
    run = await stage.run()
    assert (reply.recorded, reply.status, run.status, run.worker_id) == (Recorded.OK, reached, reached, None)
    event = await stage.last_event()
    assert event.type == EVENT_OF.get(reached, reached)
    assert (event.data["worker"], event.data["epoch"]) == ("w", claimed.epoch)
    assert run.output == (RESULT if reached is Status.COMPLETED else None)
    assert run.error == (RESULT if reached is Status.FAILED else None)
    assert run.finished_at == (stage.clock.now() if reached.value in {"completed", "failed", "cancelled"} else None)


async def test_a_run_does_not_park_when_something_came_in_meanwhile(stage: Stage):
    claimed = await stage.running()
    await stage.verb(Command.PAUSE)
    await stage.verb(Command.RESUME)
    reply = await stage.record(claimed, end=ParkBlocked(claimed.wakeups, stage.clock.now() + HOUR))
    assert reply == EffectsReply(Recorded.REFUSED, Status.RUNNING, 1)
    assert await stage.end(claimed, ParkBlocked(1, stage.clock.now() + HOUR)) is Status.WAITING


async def test_a_run_that_is_blocked_while_a_pause_is_asked_pauses(stage: Stage):
    claimed = await stage.make(Status.PAUSING)
    assert claimed is not None
    assert await stage.end(claimed, ParkBlocked(0, stage.clock.now() + HOUR)) is Status.PAUSED
    (pause,) = await stage.store.pauses("r")
    assert pause.steps_done == 1


async def test_a_hold_of_the_engine_is_there_with_the_pause(stage: Stage):
    await stage.held(HoldKind.CODE_MISMATCH)
    (hold,) = await stage.store.holds("r", open_only=True)
    assert (hold.kind, hold.reason, hold.opened_by) == (HoldKind.CODE_MISMATCH, "the engine says so", "w")
    assert len(await stage.store.pauses("r")) == 1
    assert (await stage.event_types())[-2:] == ["hold_opened", "paused"]
    assert (await stage.last_event()).data["cause"] == "code_mismatch"


@pytest.mark.parametrize("target", [Status.COMPLETED, Status.FAILED, Status.CANCELLED])
async def test_a_pause_that_was_not_reached_is_closed_as_moot(stage: Stage, target: Status):
    claimed = await stage.make(Status.PAUSING)
    assert claimed is not None
    assert await stage.end(claimed, Finish(target, RESULT)) is target
    (hold,) = await stage.store.holds("r")
    assert hold.outcome == "moot"
    assert (await stage.run()).open_run_holds == 0
    assert await stage.store.pauses("r") == []
    assert (await stage.event_types())[-2:] == ["hold_closed", target.value]


async def test_a_cancel_that_was_acknowledged_ends_cancelled_and_keeps_who_asked(stage: Stage):
    claimed = await stage.make(Status.CANCELLING)
    assert claimed is not None
    assert await stage.end(claimed, Finish(Status.CANCELLED, reason="from inside")) is Status.CANCELLED
    request = (await stage.run()).request
    assert request is not None
    assert (request.verb, request.by, request.reason) == ("cancel", "anna", "because")


async def test_a_cancel_from_inside_is_told_as_the_workflows_own(stage: Stage):
    claimed = await stage.running()
    await stage.end(claimed, Finish(Status.CANCELLED, reason="out of stock"))
    request = (await stage.run()).request
    assert request is not None
    assert (request.verb, request.by, request.reason) == ("cancel", "workflow", "out of stock")
    assert (await stage.last_event()).data["reason"] == "out of stock"


async def test_a_released_run_is_claimed_next_with_its_steps(stage: Stage):
    claimed = await stage.running()
    await stage.record(claimed, step(1))
    await stage.end(claimed, Release())
    run = await stage.run()
    assert (run.status, run.losses, run.attempt) == (Status.PENDING, 0, 1)
    (again,) = await stage.claim("w-2")
    assert (again.epoch, again.attempt, len(again.steps)) == (2, 1, 1)
