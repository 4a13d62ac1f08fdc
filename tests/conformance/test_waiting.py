"""What a run waits for: opened, met, given up, closed; under the fence, and once."""

import dataclasses

import pytest
from tests.conformance.stage import HOUR, RESULT, Stage, child_start, child_wait, receive, step

from runtrue import codec
from runtrue.lifecycle import Command, Status
from runtrue.records import StepRecord, Wait
from runtrue.store.protocol import (
    NEVER,
    Claimed,
    EffectsReply,
    Finish,
    OpenWait,
    ParkBlocked,
    Recorded,
    Release,
    RunEffects,
)

OK, FENCED, REFUSED, CONDEMNED = Recorded.OK, Recorded.FENCED, Recorded.REFUSED, Recorded.CONDEMNED
GAVE_UP = codec.encode_error(TimeoutError("nothing came"))


async def outcome(stage: Stage, ordinal: int = 2, run_id: str = "r") -> str | None:
    """How the wait at this place was closed; None while it is open."""
    (wait,) = [wait for wait in await stage.store.waits(run_id) if wait.ordinal == ordinal]
    return wait.outcome


async def child(stage: Stage, run_id: str = "child") -> Claimed:
    """A run that somebody else has started and that the worker has."""
    return await stage.running(run_id)


# ---------------------------------------------------------------- messages
async def test_a_wait_for_a_message_that_is_not_there_stays_open(stage: Stage):
    claimed = await stage.running()
    opening = receive(deadline_at=77, branch="3.0")
    assert await stage.record(claimed, waits=[opening]) == EffectsReply(OK, Status.RUNNING, 0, [])
    assert await stage.store.waits("r") == [Wait("3.0", 2, "receive", "topic", "topic", 10, 77)]
    assert (await stage.run()).event_seq == 2
    assert (await stage.store.steps("r"))[0] == []


async def test_a_message_that_is_there_meets_the_wait_as_it_is_opened(stage: Stage):
    claimed = await stage.running()
    await stage.verb(Command.SEND, body=b'"first"')
    await stage.verb(Command.SEND, body=b'"second"')
    stage.clock.advance(5)
    reply = await stage.record(claimed, step(1), waits=[receive()])
    digest = codec.place_digest("", 2, b'"first"', None)
    expected = StepRecord(
        "", 2, "topic", "receive", 1, b'"first"', None, 10, stage.clock.now(), digest, seq=6
    )  # created, claimed, two messages, the step before
    assert (reply.existing, reply.wakeups) == ([expected], 2)
    assert (await stage.store.steps("r"))[0][1] == expected
    run = await stage.run()
    assert (run.steps_done, run.event_seq) == (2, 6)
    assert await stage.store.waits("r") == [
        Wait("", 2, "receive", "topic", "topic", 10, None, stage.clock.now(), "met")
    ]
    assert [message.received_at for message in await stage.store.messages("r")] == [stage.clock.now(), None]


async def test_messages_are_taken_oldest_first_and_each_once(stage: Stage):
    claimed = await stage.running()
    for number in range(4):
        await stage.verb(Command.SEND, body=b"%d" % number, value="other" if number == 1 else "topic")
    reply = await stage.record(claimed, waits=[receive(number) for number in range(1, 5)])
    assert [(record.ordinal, record.output) for record in reply.existing] == [(1, b"0"), (2, b"2"), (3, b"3")]
    assert [wait.ordinal for wait in await stage.store.waits("r") if wait.closed_at is None] == [4]


async def test_a_message_goes_to_the_wait_that_was_opened_first(stage: Stage):
    await stage.waiting(receive(1, branch="3.0"), receive(1, branch="3.1"))
    await stage.verb(Command.SEND)
    (claimed,) = await stage.claim()
    assert [record.branch for record in claimed.steps] == ["3.0"]
    assert [wait.branch for wait in claimed.waits] == ["3.1"]


async def test_a_wait_that_is_registered_keeps_its_first_deadline(stage: Stage):
    claimed = await stage.running()
    await stage.record(claimed, waits=[receive(deadline_at=50)])
    later = receive(deadline_at=99)
    later.wait.opened_at = 40
    await stage.record(claimed, waits=[later])
    assert await stage.store.waits("r") == [Wait("", 2, "receive", "topic", "topic", 10, 50)]


@pytest.mark.parametrize("registered", [True, False])
async def test_a_wait_that_gives_up_records_its_error(stage: Stage, registered: bool):
    claimed = await stage.running()
    if registered:
        await stage.record(claimed, waits=[receive(deadline_at=50)])
    (record,) = (await stage.record(claimed, waits=[receive(gives_up=GAVE_UP)])).existing
    assert (record.kind, record.name, record.output, record.error) == ("receive", "topic", None, GAVE_UP)
    assert record.digest == codec.place_digest("", 2, None, GAVE_UP)
    assert await outcome(stage) == "expired"
    await stage.verb(Command.SEND)
    again = await stage.record(claimed, waits=[receive(gives_up=GAVE_UP)])
    assert again.existing == [record], "what was given up stays so, though a message is there now"
    assert (await stage.store.messages("r"))[0].received_at is None


async def test_a_wait_that_would_give_up_takes_what_has_come_until_then(stage: Stage):
    claimed = await stage.running()
    await stage.record(claimed, waits=[receive(deadline_at=50)])
    await stage.verb(Command.SEND)
    (record,) = (await stage.record(claimed, waits=[receive(gives_up=GAVE_UP)])).existing
    assert (record.output, record.error, await outcome(stage)) == (RESULT, None, "met")


async def test_a_closed_wait_takes_nothing_any_more(stage: Stage):
    claimed = await stage.running()
    await stage.record(claimed, waits=[receive(1), receive(2)])
    assert (await stage.record(claimed, step(3, kind="first"), closed_waits=[("", 2), ("", 9)])).recorded is OK
    assert await outcome(stage) == "moot"
    await stage.verb(Command.SEND)
    await stage.verb(Command.SEND)
    reply = await stage.record(claimed, looks=True)
    assert [record.ordinal for record in reply.existing] == [1]
    assert [message.received_at is None for message in await stage.store.messages("r")] == [False, True]
    before = await stage.everything()
    assert (await stage.record(claimed, waits=[receive(2)])).recorded is CONDEMNED, "a closed branch never asks again"
    assert await stage.everything() == before


# ---------------------------------------------------------------- looks
async def test_a_look_meets_all_that_can_be_met_and_tells_the_counter_it_saw(stage: Stage):
    other = await child(stage)
    claimed = await stage.running()
    await stage.record(claimed, waits=[receive(1), receive(2, "other"), child_wait(ordinal=3)])
    await stage.verb(Command.SEND)
    await stage.end(other, Finish(Status.COMPLETED, b"5"))
    reply = await stage.record(claimed, looks=True)
    assert [(record.ordinal, record.kind, record.output) for record in reply.existing] == [
        (1, "receive", RESULT),
        (3, "child", b"5"),
    ]
    assert reply.wakeups == (await stage.run()).wakeups == 2
    assert await stage.end(claimed, ParkBlocked(reply.wakeups, NEVER)) is Status.WAITING


@pytest.mark.parametrize("beside", ["nothing", "a step", "a run that is fenced"])
async def test_a_look_that_comes_again_is_told_what_it_met_before(stage: Stage, beside: str):
    claimed = await stage.running()
    await stage.record(claimed, waits=[receive(number) for number in range(1, 6)])
    look = RunEffects("r", claimed.epoch, steps=[step(9)] if beside == "a step" else [], looks=True)
    others = [RunEffects("nobody", 1)] if beside == "a run that is fenced" else []
    for tries in range(1, 4):
        await stage.verb(Command.SEND)
        reply, *_ = await stage.store.record("w", [look, *others])
        met = [record.ordinal for record in reply.existing if record.kind == "receive"]
        assert met == list(range(1, tries + 1))
    (another,) = await stage.store.record("w", [RunEffects("r", claimed.epoch, looks=True)])
    assert another.existing == [], "a look of its own finds nothing new"


@pytest.mark.parametrize("status", [Status.RUNNING, Status.PAUSING, Status.CANCELLING])
async def test_an_owned_run_of_any_status_may_look(stage: Stage, status: Status):
    claimed = await stage.make(status)
    assert claimed is not None
    assert (await stage.record(claimed, waits=[receive()], looks=True)).status is status


async def test_a_claim_meets_what_has_come_meanwhile(stage: Stage):
    await stage.waiting(receive(1), receive(2, "other"))
    await stage.verb(Command.SEND)
    (claimed,) = await stage.claim()
    assert [(record.ordinal, record.output) for record in claimed.steps] == [(1, RESULT)]
    assert claimed.waits == [Wait("", 2, "receive", "other", "other", 10)]
    run = await stage.run()
    assert claimed.wakeups == run.wakeups == 1
    assert (run.steps_done, await stage.event_types()) == (
        1,
        ["created", "claimed", "waiting", "message", "woken", "claimed", "step"],
    )
    assert await stage.end(claimed, ParkBlocked(claimed.wakeups, NEVER)) is Status.WAITING


async def test_what_is_met_at_a_claim_forgets_the_losses_as_any_step_does(stage: Stage):
    claimed = await stage.running()
    await stage.record(claimed, waits=[receive()])
    await stage.lose()
    await stage.store.sweep()
    assert (await stage.run()).losses == 1
    await stage.verb(Command.SEND)
    assert len((await stage.claim("w-2"))[0].steps) == 1
    assert (await stage.run()).losses == 0


async def test_a_claim_brings_the_open_waits_of_its_own_run_only(stage: Stage):
    owned = [await stage.running(run_id) for run_id in ("a", "b", "c")]
    for claimed in owned:
        await stage.record(claimed, waits=[] if claimed.run_id == "b" else [receive(topic=claimed.run_id)])
        await stage.end(claimed, Release())
    claims = {claimed.run_id: claimed for claimed in await stage.claim()}
    assert [[wait.subject for wait in claims[run_id].waits] for run_id in ("a", "b", "c")] == [["a"], [], ["c"]]


# ---------------------------------------------------------------- the fence, and once
EFFECTS = {
    "wait": {"waits": [receive()]},
    "wait that gives up": {"waits": [receive(gives_up=GAVE_UP)]},
    "closing": {"closed_waits": [("", 1)]},
    "look": {"looks": True},
    "child": {"children": [child_start()]},
    "publishing": {"published": {"k": b"1"}},
}


@pytest.mark.parametrize("effects", EFFECTS.values(), ids=EFFECTS)
async def test_a_stale_worker_neither_opens_nor_closes_nor_takes(stage: Stage, effects: dict[str, object]):
    await stage.worker("other")
    claimed = await stage.running()
    await stage.record(claimed, waits=[receive(1, "waited for")])
    await stage.verb(Command.SEND)
    await stage.verb(Command.SEND, value="waited for")
    before = await stage.everything()
    for stale, worker in [
        (dataclasses.replace(claimed, epoch=claimed.epoch - 1), "w"),
        (dataclasses.replace(claimed, epoch=claimed.epoch + 1), "w"),
        (claimed, "other"),
    ]:
        assert (await stage.record(stale, worker_id=worker, **effects)).recorded is FENCED
    assert await stage.everything() == before
    assert await stage.store.get("child") is None
    assert (await stage.record(claimed, **effects)).recorded is OK


@pytest.mark.parametrize("beside", [(), (step(7),)], ids=["alone", "beside a step"])
@pytest.mark.parametrize("effects", EFFECTS.values(), ids=EFFECTS)
async def test_a_batch_that_comes_again_changes_nothing_twice(
    stage: Stage, effects: dict[str, object], beside: tuple[StepRecord, ...]
):
    claimed = await stage.running()
    await stage.record(claimed, waits=[receive(1, "waited for")])
    for topic in ("topic", "topic", "waited for"):
        await stage.verb(Command.SEND, value=topic)
    batch = RunEffects("r", claimed.epoch, steps=beside, **effects)  # type: ignore[arg-type]
    (first,) = await stage.store.record("w", [batch])
    before = await stage.everything()
    (again,) = await stage.store.record("w", [batch])
    assert (first.recorded, again.recorded) == (OK, OK)
    assert {record.ordinal for record in again.existing} == {record.ordinal for record in [*first.existing, *beside]}
    assert await stage.everything() == before


async def test_what_is_refused_beside_a_wait_takes_the_wait_with_it(stage: Stage):
    claims = [await stage.running(run_id) for run_id in ("a", "b")]
    await stage.verb(Command.SEND, "a")
    before = await stage.everything("a")
    batch = [
        RunEffects("a", claims[0].epoch, steps=[step(1, digest=2**70)], waits=[receive()], children=[child_start()]),
        RunEffects("b", claims[1].epoch, waits=[receive()]),
    ]
    assert [reply.recorded for reply in await stage.store.record("w", batch)] == [CONDEMNED, OK]
    assert await stage.everything("a") == before
    assert await stage.store.get("child") is None


async def test_a_wait_of_an_unknown_kind_is_condemned(stage: Stage):
    claimed = await stage.running()
    opening = OpenWait(Wait("", 2, "dinner", "x", "x", 10))
    assert (await stage.record(claimed, waits=[opening])).recorded is CONDEMNED


# ---------------------------------------------------------------- the end of the run
async def end_by(stage: Stage, how: str, claimed: Claimed) -> None:
    match how:
        case "completed" | "failed" | "cancelled":
            await stage.end(claimed, Finish(Status(how), RESULT))
        case "released":
            await stage.verb(Command.CANCEL)
            await stage.end(claimed, Release())
        case "terminated":
            await stage.verb(Command.TERMINATE)
        case "cancelled while it waits":
            await stage.end(claimed, ParkBlocked(claimed.wakeups, NEVER))
            await stage.verb(Command.CANCEL)
        case _:
            await stage.verb(Command.CANCEL)
            await stage.lose()
            await stage.store.sweep()


ENDS = ["completed", "failed", "cancelled", "released", "terminated", "cancelled while it waits", "swept"]


@pytest.mark.parametrize("how", ENDS)
async def test_what_a_run_waits_for_is_moot_when_it_ends(stage: Stage, how: str):
    claimed = await stage.running()
    await stage.start("child")
    await stage.record(claimed, waits=[receive(1), child_wait(ordinal=2)])
    await end_by(stage, how, claimed)
    run = await stage.run()
    assert (run.finished_at, run.children_left) == (stage.clock.now(), 0)
    assert [(wait.outcome, wait.closed_at) for wait in await stage.store.waits("r")] == [("moot", run.finished_at)] * 2
    before = await stage.everything()
    assert (await stage.verb(Command.TERMINATE, "child")).changed
    assert await stage.everything() == before, "the end of the child is not told to a finished run"


# ---------------------------------------------------------------- publishing
async def test_the_last_published_value_of_a_key_stands(stage: Stage):
    claimed = await stage.running()
    assert await stage.store.published("r") == {}
    await stage.record(claimed, published={"a": b"1", "b": b"2"})
    await stage.record(claimed, step(1), published={"a": b"3"})
    assert await stage.store.published("r") == {"a": b"3", "b": b"2"}
    assert (await stage.run()).event_seq == 3, "publishing is no happening"
    await stage.end(claimed, Finish(Status.COMPLETED, RESULT))
    assert await stage.store.published("r") == {"a": b"3", "b": b"2"}


async def test_parking_is_refused_when_a_message_came_after_the_look(stage: Stage):
    claimed = await stage.running()
    reply = await stage.record(claimed, waits=[receive()])
    await stage.verb(Command.SEND)
    park = ParkBlocked(reply.wakeups, stage.clock.now() + HOUR)
    assert (await stage.record(claimed, end=park)).recorded is REFUSED
    looked = await stage.record(claimed, looks=True)
    assert [record.output for record in looked.existing] == [RESULT]
