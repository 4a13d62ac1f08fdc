"""Runs that nobody asked to cancel: their deadline has passed, or their parent does not want them any more."""

import pytest
from tests.conformance.stage import HOUR, RESULT, SECOND, Stage, child_start, child_wait, receive, step

from runtrue.lifecycle import TERMINAL, Command, Status
from runtrue.store.protocol import (
    NEVER,
    ChildStart,
    Claimed,
    Finish,
    ParkBlocked,
    Release,
)


# ---------------------------------------------------------------- deadlines
async def with_deadline(stage: Stage, status: Status) -> Claimed | None:
    """A run in this status whose deadline is in a second."""
    return await stage.make(status, deadline_at=stage.clock.now() + SECOND)


@pytest.mark.parametrize("status", sorted(set(Status) - TERMINAL - {Status.CANCELLING}))
async def test_a_run_past_its_deadline_is_cancelled(stage: Stage, status: Status):
    await with_deadline(stage, status)
    stage.clock.advance(0.999)
    assert (await stage.store.sweep()).runs_cancelled == 0
    stage.clock.advance(0.001)
    assert (await stage.store.sweep()).runs_cancelled == 1
    run = await stage.run()
    owned = status in {Status.RUNNING, Status.PAUSING}
    assert run.status is (Status.CANCELLING if owned else Status.CANCELLED)
    assert run.request is not None
    assert (run.request.verb, run.request.by, run.request.reason) == ("cancel", "deadline", "its deadline has passed")
    event = await stage.last_event()
    assert event.type == ("cancel_requested" if owned else "cancelled")
    assert event.data == {"by": "deadline", "reason": "its deadline has passed", "cause": "deadline"}
    assert not [hold for hold in await stage.store.holds("r") if hold.closed_at is None]
    assert (await stage.store.sweep()).runs_cancelled == 0


@pytest.mark.parametrize("status", sorted({*TERMINAL, Status.CANCELLING}))
async def test_what_has_ended_or_is_being_cancelled_has_no_deadline_any_more(stage: Stage, status: Status):
    await with_deadline(stage, status)
    before = await stage.everything()
    stage.clock.advance(5)
    assert (await stage.store.sweep()).runs_cancelled == 0
    assert await stage.everything() == before


async def test_a_run_past_its_deadline_is_not_claimed_and_wakes_nobody(stage: Stage):
    serves = (("flow", "1"),)
    await stage.start(deadline_at=stage.clock.now() + SECOND)
    assert await stage.store.next_ready_at(serves) == stage.clock.now()
    stage.clock.advance(1)
    await stage.start("later", ready_at=stage.clock.now() + HOUR, deadline_at=stage.clock.now() + 2 * HOUR)
    assert await stage.claim() == []
    assert await stage.store.next_ready_at(serves) == stage.clock.now() + HOUR


async def test_a_run_before_its_deadline_is_claimed(stage: Stage):
    await stage.start(deadline_at=stage.clock.now() + 1)
    assert [claimed.run_id for claimed in await stage.claim()] == ["r"]
    assert (await stage.run()).deadline_at == stage.clock.now() + 1


# ---------------------------------------------------------------- with the parent
async def family(stage: Stage, *, cancels: bool = True, waits: bool = True) -> Claimed:
    """Run `r`, which the worker has, with a child that nobody has."""
    claimed = await stage.running()
    start = child_start(cancels=cancels, priority=9)
    if not waits:
        start = ChildStart(start.run, record=step(2, name="flow", kind="start_child"))
    await stage.record(claimed, children=[start])
    return claimed


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("verb", [Command.CANCEL, Command.TERMINATE])
async def test_a_child_goes_with_its_cancelled_parent(stage: Stage, verb: Command, waits: bool):
    claimed = await family(stage, waits=waits)
    await stage.verb(verb)
    if verb is Command.CANCEL:
        assert (await stage.store.sweep()).runs_cancelled == 0, "the parent is not cancelled yet"
        await stage.end(claimed, Release())
    assert (await stage.run("child")).status is Status.PENDING
    assert (await stage.store.sweep()).runs_cancelled == 1
    child = await stage.run("child")
    assert (child.status, child.request and child.request.by) == (Status.CANCELLED, "parent")
    event = await stage.last_event("child")
    assert event.data == {"by": "parent", "reason": "its parent r was cancelled", "cause": "parent"}
    assert (await stage.store.sweep()).runs_cancelled == 0


async def test_a_child_that_a_worker_has_is_cancelled_at_its_boundary_and_asked_once(stage: Stage):
    await family(stage)
    await stage.verb(Command.PAUSE)
    (child,) = await stage.claim()
    await stage.verb(Command.TERMINATE)
    assert (await stage.store.sweep()).runs_cancelled == 1
    assert (await stage.run("child")).status is Status.CANCELLING
    assert (await stage.store.sweep()).runs_cancelled == 0
    assert await stage.end(child, Release()) is Status.CANCELLED


@pytest.mark.parametrize("how", ["its branch was closed", "its parent failed", "its parent completed"])
async def test_a_child_goes_when_nobody_waits_for_it_any_more(stage: Stage, how: str):
    claimed = await family(stage)
    await stage.record(claimed, children=[child_start("other", 3)])
    if how == "its branch was closed":
        await stage.record(claimed, closed_waits=[("", 2)])
        assert (await stage.run()).children_left == 1
    else:
        await stage.end(claimed, Finish(Status.FAILED if "failed" in how else Status.COMPLETED, RESULT))
    expected = ["child"] if how == "its branch was closed" else ["child", "other"]
    assert (await stage.store.sweep()).runs_cancelled == len(expected)
    cancelled = [run.id for run in await stage.store.children("r") if run.status is Status.CANCELLED]
    assert cancelled == expected
    why = "has failed" if "failed" in how else "waits for it no longer"
    assert (await stage.last_event("child")).data["reason"] == f"its parent r {why}"


@pytest.mark.parametrize("how", ["cancelled", "closed"])
async def test_a_child_that_does_not_go_with_its_parent_goes_on(stage: Stage, how: str):
    claimed = await family(stage, cancels=False)
    if how == "closed":
        await stage.record(claimed, closed_waits=[("", 2)])
    else:
        await stage.verb(Command.TERMINATE)
    assert (await stage.store.sweep()).runs_cancelled == 0
    assert (await stage.run("child")).status is Status.PENDING


async def test_a_child_that_nobody_waits_for_goes_with_a_parent_that_fails(stage: Stage):
    claimed = await family(stage, waits=False)
    await stage.end(claimed, Finish(Status.FAILED, RESULT))
    assert (await stage.store.sweep()).runs_cancelled == 1
    assert (await stage.run("child")).status is Status.CANCELLED


async def test_a_child_that_nobody_waits_for_outlives_a_parent_that_completes(stage: Stage):
    claimed = await family(stage, waits=False)
    await stage.end(claimed, Finish(Status.COMPLETED, RESULT))
    assert (await stage.store.sweep()).runs_cancelled == 0


async def test_a_wait_that_was_met_or_has_given_up_leaves_the_child_alone(stage: Stage):
    claimed = await family(stage)
    await stage.record(claimed, waits=[child_wait(gives_up=b'{"type":"X","message":"","traceback":""}')])
    assert [wait.outcome for wait in await stage.store.waits("r")] == ["expired"]
    assert (await stage.store.sweep()).runs_cancelled == 0


async def test_some_children_go_and_others_stay(stage: Stage):
    claimed = await family(stage)
    await stage.record(claimed, children=[child_start("stays", 3, cancels=False)])
    await stage.verb(Command.TERMINATE)
    assert (await stage.store.sweep()).runs_cancelled == 1
    assert [run.status for run in await stage.store.children("r")] == [Status.CANCELLED, Status.PENDING]


async def test_a_parent_that_gives_up_a_second_wait_does_not_take_the_child_along(stage: Stage):
    claimed = await family(stage)
    await stage.record(claimed, waits=[child_wait("child", 2, branch="3.0"), child_wait("child", 9)])
    await stage.record(claimed, closed_waits=[("3.0", 2), ("", 9)])
    assert (await stage.store.sweep()).runs_cancelled == 0
    assert (await stage.run()).children_left == 1


async def test_another_who_closes_a_wait_for_a_run_does_not_take_it_along(stage: Stage):
    await family(stage)
    other = await stage.running("other")
    await stage.record(other, waits=[child_wait("child", 2)])
    await stage.end(other, Finish(Status.FAILED, RESULT))
    assert (await stage.store.sweep()).runs_cancelled == 0
    assert (await stage.run("child")).status is Status.PENDING


async def test_generations_go_in_one_round(stage: Stage):
    claimed = await stage.running("r0")
    for number in range(1, 6):
        start = child_start(f"r{number}", 1, parent=f"r{number - 1}", priority=-1)
        reply = await stage.record(claimed, children=[start])
        await stage.end(claimed, ParkBlocked(reply.wakeups, NEVER))
        (claimed,) = await stage.claim(limit=1)
        assert claimed.parent_id == f"r{number - 1}"
    await stage.end(claimed, Release())
    await stage.verb(Command.CANCEL, "r0")
    swept = await stage.store.sweep()
    assert (swept.runs_cancelled, swept.more) == (5, False)
    assert {run.status for run in [await stage.run(f"r{number}") for number in range(6)]} == {Status.CANCELLED}


async def test_a_round_of_cancels_is_bounded_and_says_that_there_is_more(stage: Stage):
    claimed = await stage.running()
    await stage.record(claimed, children=[child_start(f"c{number}", number) for number in range(5)])
    for number in range(3):
        await stage.start(f"late{number}", deadline_at=stage.clock.now() + 1)
    stage.clock.advance(1)
    await stage.verb(Command.TERMINATE)
    rounds = [await stage.store.sweep(3) for _ in range(4)]
    assert [(swept.runs_cancelled, swept.more) for swept in rounds] == [(3, True), (3, True), (2, False), (0, False)]


async def test_the_deadline_of_a_child_wakes_its_parent(stage: Stage):
    claimed = await stage.running()
    start = child_start(deadline_at=stage.clock.now() + SECOND)
    reply = await stage.record(claimed, children=[start], waits=[receive(9)])
    await stage.end(claimed, ParkBlocked(reply.wakeups, NEVER, by_any_child=False))
    stage.clock.advance(1)
    await stage.store.sweep()
    (claimed,) = await stage.claim()
    (record,) = claimed.steps
    assert (claimed.run_id, record.error is not None, [wait.ordinal for wait in claimed.waits]) == ("r", True, [9])


async def test_a_paused_child_ends_with_its_pause(stage: Stage):
    await family(stage)
    await stage.verb(Command.PAUSE, "child")
    await stage.verb(Command.TERMINATE)
    await stage.store.sweep()
    assert [pause.ended_at for pause in await stage.store.pauses("child")] == [stage.clock.now()]
    assert [hold.outcome for hold in await stage.store.holds("child")] == ["moot"]
