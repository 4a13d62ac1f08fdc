"""Children: born in the transaction of their parent's effect, and their ends told to whoever waits for them."""

import dataclasses

import pytest
from tests.conformance.stage import HOUR, INPUT, RESULT, Stage, child_start, child_wait, receive, step

from runtrue import codec
from runtrue.lifecycle import Command, HoldKind, Status
from runtrue.records import Wait
from runtrue.store.protocol import (
    NEVER,
    ChildStart,
    Claimed,
    Finish,
    NewRun,
    ParentLink,
    ParkBlocked,
    ParkRequested,
    Recorded,
    Release,
    RunEffects,
)

OK, FENCED, REFUSED, CONDEMNED = Recorded.OK, Recorded.FENCED, Recorded.REFUSED, Recorded.CONDEMNED
ERROR = codec.encode_error(ValueError("no"))


async def claim_child(stage: Stage, run_id: str = "child") -> Claimed:
    """The worker takes this child and no other run."""
    claims = {claimed.run_id: claimed for claimed in await stage.claim()}
    return claims[run_id]


async def parent_of(stage: Stage, *children: str, by_any_child: bool = True) -> dict[str, Claimed]:
    """Run `r` that waits for these children, each of which the worker has."""
    claimed = await stage.running()
    starts = [child_start(run_id, number) for number, run_id in enumerate(children, 1)]
    reply = await stage.record(claimed, children=starts)
    assert (reply.recorded, reply.existing) == (OK, [])
    assert await stage.end(claimed, ParkBlocked(reply.wakeups, NEVER, by_any_child)) is Status.WAITING
    return {child.run_id: child for child in await stage.claim(limit=len(children))}


# ---------------------------------------------------------------- births
async def test_a_child_is_born_with_its_parents_effect(stage: Stage):
    claimed = await stage.running()
    deadline = stage.clock.now() + HOUR
    start = child_start(branch="3.0", tags={"k": "v"}, deadline_at=deadline, priority=5)
    assert (await stage.record(claimed, children=[start])).existing == []
    child = await stage.run("child")
    assert (child.status, child.parent_id, child.deadline_at, child.priority) == (Status.PENDING, "r", deadline, 5)
    assert (child.input, child.tags) == (INPUT, {"k": "v"})
    assert await stage.event_types("child") == ["created"]
    assert (await stage.last_event("child")).data["parent"] == "r"
    assert await stage.store.waits("r") == [Wait("3.0", 2, "child", "flow", "child", 10)]
    assert (await stage.run()).children_left == 1
    (taken,) = await stage.claim()
    assert (taken.run_id, taken.parent_id, claimed.parent_id) == ("child", "r", None)
    assert [run.id for run in await stage.store.children("r")] == ["child"]
    assert await stage.store.children("child") == []


async def test_a_parent_that_does_not_wait_records_the_id_of_its_child(stage: Stage):
    claimed = await stage.running()
    record = step(2, name="flow", kind="start_child", output=None, digest=0)
    start = ChildStart(dataclasses.replace(child_start().run, id="ünï"), record=record)
    (recorded,) = (await stage.record(claimed, children=[start])).existing
    assert (recorded.output, recorded.error, recorded.seq) == ('"ünï"'.encode(), None, 3)
    assert recorded.digest == codec.place_digest("", 2, recorded.output, None)
    run = await stage.run()
    assert (run.children_left, run.steps_done) == (0, 1)
    assert await stage.store.waits("r") == []
    assert (await stage.run("ünï")).parent_id == "r"


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize(
    ("key", "other", "why"),
    [
        (None, {"workflow": "other"}, "of another workflow"),
        (None, {"input": b"2"}, "with another input"),
        ("k", {"input": b"2"}, "with another input"),
    ],
)
async def test_an_id_or_key_that_is_taken_by_another_start_is_a_recorded_conflict(
    stage: Stage, key: str | None, waits: bool, other: dict[str, object], why: str
):
    await stage.start("child" if key is None else "taken", idempotency_key=key, **other)
    claimed = await stage.running()
    start = child_start(idempotency_key=key)
    if not waits:
        start = ChildStart(start.run, record=step(2, name="flow", kind="start_child"))
    (recorded,) = (await stage.record(claimed, children=[start])).existing
    assert (recorded.kind, recorded.name, recorded.output) == ("child" if waits else "start_child", "flow", None)
    assert recorded.error is not None
    info = codec.decode_error(recorded.error)
    assert info.type == "runtrue.errors.Conflict"
    assert not (waits and recorded.attempt), "it is no error of the child's own"
    assert why in info.message
    assert recorded.digest == codec.place_digest("", 2, None, recorded.error)
    assert (await stage.run()).children_left == 0
    assert await stage.store.children("r") == []


@pytest.mark.parametrize("ended", [True, False])
async def test_the_same_start_made_before_is_the_child(stage: Stage, ended: bool):
    other = await stage.running("child")
    if ended:
        await stage.end(other, Finish(Status.COMPLETED, b"7"))
    claimed = await stage.running()
    reply = await stage.record(claimed, children=[child_start()])
    assert [record.output for record in reply.existing] == ([b"7"] if ended else [])
    assert (await stage.run()).children_left == (0 if ended else 1)
    assert (await stage.run("child")).parent_id is None, "it stays what it was"


async def test_a_child_under_a_key_is_found_under_its_own_id(stage: Stage):
    await stage.start("first", idempotency_key="k", priority=-1)
    (other,) = await stage.claim(limit=1)
    claimed = await stage.running()
    await stage.record(claimed, children=[child_start("second", idempotency_key="k")])
    assert [wait.subject for wait in await stage.store.waits("r")] == ["first"]
    await stage.end(other, Finish(Status.COMPLETED, b"7"))
    assert [record.output for record in (await stage.record(claimed, looks=True)).existing] == [b"7"]


async def test_no_run_is_its_own_child(stage: Stage):
    claimed = await stage.running()
    (recorded,) = (await stage.record(claimed, children=[child_start("r")])).existing
    assert recorded.error is not None
    assert "cannot be its own child" in codec.decode_error(recorded.error).message


@pytest.mark.parametrize("state", ["open", "ended", "conflict", "not waited for"])
async def test_a_child_whose_place_stands_is_not_started_again(stage: Stage, state: str):
    claimed = await stage.running()
    start = child_start()
    if state == "conflict":
        await stage.start("child", input=b"2")
    elif state == "not waited for":
        start = ChildStart(start.run, record=step(2, name="flow", kind="start_child"))
    batch = RunEffects("r", claimed.epoch, steps=[step(1)], children=[start, child_start("other", 3)])
    (first,) = await stage.store.record("w", [batch])
    if state == "ended":
        await stage.end(await claim_child(stage), Finish(Status.COMPLETED, b"7"))
        await stage.record(claimed, looks=True)
    before = await stage.everything()
    again = await stage.record(claimed, step(1), children=[start, child_start("other", 3)])
    expected = {"open": [1], "ended": [1, 2], "conflict": [1, 2], "not waited for": [1, 2]}[state]
    assert sorted(record.ordinal for record in again.existing) == expected
    assert (first.recorded, again.recorded) == (OK, OK)
    assert await stage.everything() == before
    assert (await stage.run()).children_left == (1 if state in {"ended", "conflict", "not waited for"} else 2)


# ---------------------------------------------------------------- ends
ENDS = {
    "completed": (Finish(Status.COMPLETED, b"7"), b"7", None),
    "failed": (Finish(Status.FAILED, ERROR), None, ERROR),
    "cancelled": (Finish(Status.CANCELLED, reason="enough"), None, codec.encode_cancelled("enough")),
}


@pytest.mark.parametrize("when", ["before the wait", "while it looks", "while it is parked"])
@pytest.mark.parametrize(("end", "output", "error"), ENDS.values(), ids=ENDS)
async def test_the_end_of_a_child_is_the_result_of_the_wait(
    stage: Stage, when: str, end: Finish, output: bytes | None, error: bytes | None
):
    other = await stage.running("child")
    claimed = await stage.running()
    if when == "before the wait":
        await stage.end(other, end)
        (recorded,) = (await stage.record(claimed, waits=[child_wait()])).existing
    elif when == "while it looks":
        await stage.record(claimed, waits=[child_wait()])
        await stage.end(other, end)
        (recorded,) = (await stage.record(claimed, looks=True)).existing
    else:
        reply = await stage.record(claimed, waits=[child_wait()])
        await stage.end(claimed, ParkBlocked(reply.wakeups, NEVER))
        await stage.end(other, end)
        ((recorded,),) = [claimed.steps for claimed in await stage.claim()]
    assert (recorded.kind, recorded.name, recorded.output, recorded.error) == ("child", "flow", output, error)
    assert recorded.digest == codec.place_digest("", 2, output, error)
    assert [wait.outcome for wait in await stage.store.waits("r")] == ["met"]
    assert (await stage.run()).children_left == 0


def test_a_cancelled_child_is_recorded_with_its_reason():
    info = codec.decode_error(codec.encode_cancelled("enough\0"))
    assert (info.type, info.message, info.traceback) == ("cancelled", "enough\\x00", "")


async def test_a_wait_for_a_run_that_does_not_exist_is_not_found(stage: Stage):
    claimed = await stage.running()
    (recorded,) = (await stage.record(claimed, waits=[child_wait("nobody")])).existing
    assert recorded.error is not None
    info = codec.decode_error(recorded.error)
    assert (info.type, "nobody" in info.message, recorded.attempt) == ("runtrue.errors.NotFound", True, 0)
    assert (await stage.run()).children_left == 0


async def test_a_child_and_its_parent_in_one_batch_meet_in_it(stage: Stage):
    other = await stage.running("child")
    claimed = await stage.running()
    batch = [
        RunEffects("r", claimed.epoch, waits=[child_wait()]),
        RunEffects("child", other.epoch, end=Finish(Status.COMPLETED, b"7")),
    ]
    replies = await stage.store.record("w", batch)
    assert [record.output for record in replies[0].existing] == [b"7"]
    assert [reply.status for reply in replies] == [Status.RUNNING, Status.COMPLETED]


async def test_a_child_that_ends_in_the_batch_of_a_registered_wait_is_told_and_met(stage: Stage):
    other = await stage.running("child")
    claimed = await stage.running()
    await stage.record(claimed, waits=[child_wait()])
    batch = [
        RunEffects("child", other.epoch, end=Finish(Status.COMPLETED, b"7")),
        RunEffects("r", claimed.epoch, looks=True),
    ]
    _, reply = await stage.store.record("w", batch)
    assert ([record.output for record in reply.existing], reply.wakeups) == ([b"7"], 1)
    assert (await stage.run()).children_left == 0


# ---------------------------------------------------------------- waking
async def test_the_last_child_wakes_its_parent_once(stage: Stage):
    children = await parent_of(stage, "a", "b", "c", by_any_child=False)
    for left, run_id in ((2, "a"), (1, "b")):
        await stage.end(children[run_id], Finish(Status.COMPLETED, RESULT))
        run = await stage.run()
        assert (run.status, run.children_left) == (Status.WAITING, left)
        assert await stage.claim() == []
    stage.clock.advance(7)
    await stage.end(children["c"], Finish(Status.COMPLETED, RESULT))
    run = await stage.run()
    assert (run.status, run.children_left, run.ready_at) == (Status.PENDING, 0, stage.clock.now())
    assert (await stage.event_types()).count("woken") == 1
    assert (await stage.last_event()).data == {"cause": "child", "child": "c"}
    (claimed,) = await stage.claim()
    assert [record.ordinal for record in claimed.steps] == [1, 2, 3]
    assert (claimed.waits, claimed.wakeups) == ([], 3)


async def test_children_that_end_in_one_batch_wake_their_parent_once(stage: Stage):
    names = [f"c{number:02}" for number in range(40)]
    children = await parent_of(stage, *names, by_any_child=False)
    batch = [RunEffects(run_id, one.epoch, end=Finish(Status.COMPLETED, RESULT)) for run_id, one in children.items()]
    assert {reply.recorded for reply in await stage.store.record("w", batch)} == {OK}
    run = await stage.run()
    assert (run.status, run.children_left, run.wakeups) == (Status.PENDING, 0, 1)
    assert (await stage.event_types()).count("woken") == 1


@pytest.mark.parametrize("end", [Finish(Status.FAILED, ERROR), Finish(Status.CANCELLED)])
async def test_a_child_that_does_not_complete_wakes_its_parent_at_once(stage: Stage, end: Finish):
    children = await parent_of(stage, "a", "b", by_any_child=False)
    await stage.end(children["b"], end)
    run = await stage.run()
    assert (run.status, run.children_left) == (Status.PENDING, 1)
    (claimed,) = await stage.claim()
    assert [wait.subject for wait in claimed.waits] == ["a"]


async def test_any_child_wakes_a_parent_that_said_so_when_it_parked(stage: Stage):
    children = await parent_of(stage, "a", "b")
    await stage.end(children["b"], Finish(Status.COMPLETED, RESULT))
    (claimed,) = await stage.claim()
    assert await stage.end(claimed, ParkBlocked(claimed.wakeups, NEVER, by_any_child=False)) is Status.WAITING
    assert (await stage.run()).children_left == 1


async def test_a_parent_that_is_awake_hears_of_it_by_its_counter(stage: Stage):
    other = await stage.running("child")
    claimed = await stage.running()
    reply = await stage.record(claimed, waits=[child_wait()])
    await stage.end(other, Finish(Status.COMPLETED, RESULT))
    assert (await stage.record(claimed, end=ParkBlocked(reply.wakeups, NEVER))).recorded is REFUSED
    assert (await stage.run()).status is Status.RUNNING
    assert [run.wakeups for run in await stage.renew() or []] == [1]


async def test_a_paused_parent_stays_paused_and_meets_its_child_after_the_resume(stage: Stage):
    children = await parent_of(stage, "child")
    await stage.verb(Command.PAUSE)
    await stage.end(children["child"], Finish(Status.COMPLETED, RESULT))
    run = await stage.run()
    assert (run.status, run.children_left, run.wakeups) == (Status.PAUSED, 0, 1)
    await stage.verb(Command.RESUME)
    (claimed,) = await stage.claim()
    assert [record.output for record in claimed.steps] == [RESULT]


async def test_all_who_wait_for_a_run_hear_of_its_end(stage: Stage):
    other = await stage.running("child")
    await stage.waiting(child_wait(ordinal=1), child_wait(ordinal=2), run_id="twice", by_any_child=False)
    await stage.waiting(child_wait(), receive(3), run_id="once", by_any_child=False)
    assert (await stage.run("twice")).children_left == 2
    await stage.end(other, Finish(Status.COMPLETED, RESULT))
    assert {claimed.run_id: len(claimed.steps) for claimed in await stage.claim()} == {"twice": 2, "once": 1}


async def end_by(stage: Stage, how: str, child: Claimed) -> None:
    match how:
        case "finished":
            await stage.end(child, Finish(Status.COMPLETED, RESULT))
        case "released":
            await stage.verb(Command.CANCEL, child.run_id)
            await stage.end(child, Release())
        case "terminated":
            await stage.verb(Command.TERMINATE, child.run_id)
        case "cancelled while paused":
            await stage.verb(Command.PAUSE, child.run_id)
            await stage.end(child, ParkRequested())
            await stage.verb(Command.CANCEL, child.run_id)
        case "failed by an answer":
            await stage.end(child, Release())
            await lose_until_held(stage, child.run_id)
            await stage.verb(Command.ANSWER, child.run_id, value="fail")
        case "swept":
            await stage.verb(Command.CANCEL, child.run_id)
            await stage.lose("w-2")
            await stage.store.sweep()
        case _:
            stage.clock.advance(3_600)
            assert (await stage.store.sweep()).runs_cancelled == 1


@pytest.mark.parametrize(
    "how",
    [
        *("finished", "released", "terminated", "cancelled while paused", "failed by an answer", "swept"),
        "past its deadline",
    ],
)
async def test_every_way_to_end_is_told_to_the_parent(stage: Stage, how: str):
    claimed = await stage.running()
    deadline = stage.clock.now() + HOUR if how == "past its deadline" else None
    starts = [child_start("a", 1, deadline_at=deadline, priority=-1), child_start("b", 2, priority=9)]
    reply = await stage.record(claimed, children=starts)
    await stage.end(claimed, ParkBlocked(reply.wakeups, NEVER))
    (child,) = await stage.claim("w-2", 1) if how == "swept" else await stage.claim(limit=1)
    assert child.run_id == "a"
    await end_by(stage, how, child)
    run = await stage.run()
    assert (run.status, run.children_left, run.wakeups) == (Status.PENDING, 1, 1)
    claims = {one.run_id: one for one in await stage.claim("w-9")}
    (recorded,) = claims["r"].steps
    assert (recorded.output is not None) is (how == "finished")


async def lose_until_held(stage: Stage, run_id: str) -> None:
    for number in range(5):
        worker_id = f"doomed-{number}"
        stage.clock.advance(600)
        (claimed,) = await stage.claim(worker_id, 1)
        assert claimed.run_id == run_id
        await stage.lose(worker_id)
        await stage.store.sweep()
    assert [hold.kind for hold in await stage.store.holds(run_id)] == [HoldKind.KEEPS_LOSING_ITS_WORKER]


# ---------------------------------------------------------------- counting
async def test_a_wait_for_a_child_that_is_closed_or_given_up_is_not_counted_any_more(stage: Stage):
    claimed = await stage.running()
    await stage.record(claimed, children=[child_start(name, number) for number, name in enumerate("abcd", 1)])
    (a,) = await stage.claim(limit=1)
    await stage.end(a, Finish(Status.COMPLETED, RESULT))
    assert (await stage.run()).children_left == 3
    await stage.record(claimed, closed_waits=[("", 1), ("", 2)])
    assert (await stage.run()).children_left == 2, "that of the first had ended and was not counted any more"
    await stage.record(claimed, waits=[child_wait("c", 3, gives_up=ERROR)])
    assert (await stage.run()).children_left == 1
    await stage.record(claimed, waits=[child_wait("c", 9, gives_up=ERROR)])
    assert (await stage.run()).children_left == 1, "one that was never open was never counted"
    assert [wait.outcome for wait in await stage.store.waits("r")] == ["moot", "moot", "expired", None, "expired"]


async def test_an_end_that_comes_again_is_told_once(stage: Stage):
    children = await parent_of(stage, "a", "b", by_any_child=False)
    for _ in range(2):
        reply = await stage.record(children["a"], end=Finish(Status.COMPLETED, RESULT))
        assert reply.recorded is OK
    assert (await stage.run()).children_left == 1
    assert (await stage.run()).wakeups == 1


async def test_a_child_that_could_not_finish_is_not_told(stage: Stage):
    children = await parent_of(stage, "a")
    stale = dataclasses.replace(children["a"], epoch=9)
    assert (await stage.record(stale, end=Finish(Status.COMPLETED, RESULT))).recorded is FENCED
    assert (await stage.run()).status is Status.WAITING
    assert (await stage.record(children["a"], end=ParkRequested())).recorded is REFUSED
    assert (await stage.run()).children_left == 1


async def test_a_child_takes_no_part_in_what_its_parent_is_refused(stage: Stage):
    claimed = await stage.running()
    link = ParentLink("r", "", 1, True)
    bad = NewRun("bad", "flow", "1", b"1", 0, priority=2**40, parent=link)
    starts = [child_start("good", 2), ChildStart(bad, wait=Wait("", 1, "child", "flow", "bad", 10))]
    assert (await stage.record(claimed, children=starts)).recorded is CONDEMNED
    assert await stage.store.get("good") is None
    assert (await stage.run()).children_left == 0
