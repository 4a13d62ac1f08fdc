"""Messages that are sent to a run: kept, taken once, and heard."""

from typing import Any

import pytest
from tests.conformance.stage import HOUR, RESULT, Stage, child_wait, receive, step

from runtrue.errors import StoreError
from runtrue.lifecycle import TERMINAL, Answer, Command, Status
from runtrue.records import Message, Wait
from runtrue.store.protocol import NEVER, Finish, ParkBlocked, Recorded, RunEffects


async def test_a_message_is_kept_as_it_was_sent(stage: Stage):
    await stage.start()
    reply = await stage.verb(Command.SEND, value="note", body=b"\x00\xff", request_id="mine")
    assert (reply.answer, reply.changed, reply.status) == (Answer.DONE, True, Status.PENDING)
    assert await stage.store.messages("r") == [Message("r", 2, "note", b"\x00\xff", "anna", stage.clock.now())]
    event = await stage.last_event()
    assert (event.seq, event.type) == (2, "message")
    assert event.data == {"topic": "note", "by": "anna", "request_id": "mine"}
    run = await stage.run()
    assert (run.wakeups, run.event_seq, run.updated_at) == (1, 2, stage.clock.now())
    assert await stage.store.messages("nobody") == []


@pytest.mark.parametrize("topic", ["topic", "other"])
async def test_a_message_wakes_a_run_that_waits_for_its_topic_and_no_other(stage: Stage, topic: str):
    await stage.waiting(receive(1), receive(3, "third"))
    stage.clock.advance(3)
    reply = await stage.verb(Command.SEND, value=topic)
    run = await stage.run()
    assert (await stage.store.messages("r"))[0].seq == 4
    assert run.wakeups == 1
    if topic == "other":
        assert (reply.status, run.status, run.ready_at) == (Status.WAITING, Status.WAITING, NEVER)
        assert await stage.claim() == []
        return
    assert (reply.status, run.status, run.ready_at) == (Status.PENDING, Status.PENDING, stage.clock.now())
    woken = await stage.last_event()
    assert (woken.seq, woken.type, woken.data) == (5, "woken", {"cause": "message", "topic": "topic"})


async def test_a_topic_that_is_called_as_a_child_wakes_nobody_who_waits_for_the_child(stage: Stage):
    await stage.start("other", priority=9)
    await stage.waiting(child_wait("other"))
    assert (await stage.verb(Command.SEND, value="other")).status is Status.WAITING


async def test_a_sleeper_that_waits_for_nothing_sleeps_on(stage: Stage):
    await stage.make(Status.WAITING)
    ready_at = (await stage.run()).ready_at
    assert (await stage.verb(Command.SEND)).status is Status.WAITING
    assert (await stage.run()).ready_at == ready_at == stage.clock.now() + HOUR


async def test_a_wait_that_is_closed_is_not_woken_for(stage: Stage):
    claimed = await stage.running()
    await stage.record(claimed, waits=[receive(1), receive(2, "other")])
    reply = await stage.record(claimed, closed_waits=[("", 1)])
    await stage.end(claimed, ParkBlocked(reply.wakeups, NEVER))
    assert (await stage.verb(Command.SEND)).status is Status.WAITING


async def test_a_paused_run_keeps_the_message_until_it_is_resumed(stage: Stage):
    await stage.waiting(receive())
    await stage.verb(Command.PAUSE)
    assert (await stage.verb(Command.SEND)).status is Status.PAUSED
    await stage.verb(Command.RESUME)
    (claimed,) = await stage.claim()
    assert [record.output for record in claimed.steps] == [RESULT]


async def test_an_earlier_message_waits_for_whoever_asks_later(stage: Stage):
    await stage.start()
    await stage.verb(Command.SEND)
    (claimed,) = await stage.claim()
    assert (claimed.steps, claimed.waits, claimed.wakeups) == ([], (), 1)
    (record,) = (await stage.record(claimed, waits=[receive()])).existing
    assert record.output == RESULT


@pytest.mark.parametrize("status", sorted({*TERMINAL, Status.CANCELLING}))
async def test_a_refused_message_is_not_kept(stage: Stage, status: Status):
    await stage.make(status)
    before = await stage.everything()
    reply = await stage.verb(Command.SEND)
    assert (reply.answer, reply.changed, bool(reply.refusal)) == (Answer.REFUSED, False, True)
    assert await stage.everything() == before


async def test_a_message_to_no_run_is_not_found(stage: Stage):
    assert not (await stage.verb(Command.SEND, "nobody")).found
    assert await stage.store.messages("nobody") == []


async def test_a_message_that_is_sent_again_is_kept_once(stage: Stage):
    await stage.waiting(receive(1), receive(2))
    first = await stage.verb(Command.SEND, request_id="mine")
    before = await stage.everything()
    again = await stage.verb(Command.SEND, request_id="mine", actor="bob")
    assert (first.repeated, again.repeated, again.answer, again.status) == (False, True, Answer.DONE, Status.PENDING)
    assert await stage.everything() == before


@pytest.mark.parametrize("other", [{"value": "other"}, {"body": b"2"}, {"verb": Command.PAUSE}], ids=str)
async def test_a_request_id_belongs_to_one_message(stage: Stage, other: dict[str, object]):
    await stage.start()
    await stage.verb(Command.SEND, request_id="mine")
    before = await stage.everything()
    wish: dict[str, Any] = {"verb": Command.SEND, "request_id": "mine"}
    reply = await stage.verb(**(wish | other))
    assert (reply.answer, reply.request_conflict, reply.changed) == (Answer.REFUSED, True, False)
    assert "request id mine was used before for send" in reply.refusal
    assert await stage.everything() == before


async def test_two_runs_may_get_a_message_under_one_request_id(stage: Stage):
    for run_id in ("a", "b"):
        await stage.start(run_id)
        assert (await stage.verb(Command.SEND, run_id, request_id="mine")).changed
        assert len(await stage.store.messages(run_id)) == 1


async def test_a_message_without_a_body_is_refused_as_a_whole(stage: Stage):
    await stage.start()
    before = await stage.everything()
    with pytest.raises(StoreError, match="refuses what was to be written"):
        await stage.verb(Command.SEND, body=None)
    assert await stage.everything() == before
    assert await stage.store.commands("r") == []


async def test_a_received_message_tells_when(stage: Stage):
    await stage.waiting(receive(branch="3.0"))
    await stage.verb(Command.SEND)
    stage.clock.advance(9)
    await stage.claim()
    (message,) = await stage.store.messages("r")
    (wait,) = await stage.store.waits("r")
    assert message.received_at == wait.closed_at == stage.clock.now()
    assert wait == Wait("3.0", 2, "receive", "topic", "topic", 10, None, stage.clock.now(), "met")


# ---------------------------------------------------------------- given back
async def outcomes(stage: Stage) -> list[tuple[str, str | None]]:
    return [(wait.branch, wait.outcome) for wait in await stage.store.waits("r")]


async def test_a_message_that_its_branch_never_used_is_given_back_and_received_by_another(stage: Stage):
    claimed = await stage.running()
    await stage.record(claimed, waits=[receive(1, branch="3.0")])
    for body in (b"1", b"2"):
        await stage.verb(Command.SEND, body=body)
    await stage.record(claimed, looks=True)
    first, second = await stage.store.messages("r")
    assert (first.received_at, second.received_at) == (stage.clock.now(), None)
    stage.clock.advance(1)
    reply = await stage.record(claimed, step(3, kind="first"), closed_waits=[("3.0", 1)])
    assert [message.received_at for message in await stage.store.messages("r")] == [None, None]
    assert await outcomes(stage) == [("3.0", "moot")]
    assert (reply.existing, [record.branch for record in (await stage.store.steps("r"))[0]]) == ([], ["", "3.0"])
    (met,) = (await stage.record(claimed, waits=[receive(4)])).existing
    assert met.output == b"1", "it is the oldest again"
    assert await stage.store.check() == []


async def test_a_message_is_given_back_once_however_often_its_wait_is_closed(stage: Stage):
    claimed = await stage.running()
    await stage.verb(Command.SEND)
    await stage.record(claimed, waits=[receive(1, branch="3.0")])
    closing = RunEffects("r", claimed.epoch, closed_waits=[("3.0", 1)])
    (reply,) = await stage.store.record("w", [closing])
    assert (reply.recorded, reply.wakeups) == (Recorded.OK, 2)
    (met,) = (await stage.record(claimed, waits=[receive(4)])).existing
    before = await stage.everything()
    (again,) = await stage.store.record("w", [closing])
    assert (again.recorded, again.wakeups, again.existing) == (Recorded.OK, 2, [])
    assert await stage.everything() == before
    assert met.output == RESULT, "the message has a receiver that has used it, and keeps it"


async def test_what_is_given_back_is_heard_by_whoever_waits_for_it(stage: Stage):
    claimed = await stage.running()
    await stage.record(claimed, waits=[receive(1, branch="3.0"), receive(1, branch="4.0")])
    await stage.verb(Command.SEND)
    (met,) = (looked := await stage.record(claimed, looks=True)).existing
    assert met.branch == "3.0"
    reply = await stage.record(claimed, closed_waits=[("3.0", 1)])
    assert reply.wakeups == (await stage.run()).wakeups == looked.wakeups + 1
    late = await stage.record(claimed, end=ParkBlocked(looked.wakeups, NEVER))
    assert late.recorded is Recorded.REFUSED, "who has not heard of it looks again before it parks"
    assert [record.branch for record in (await stage.record(claimed, looks=True)).existing] == ["4.0"]


async def test_a_wait_that_is_opened_beside_a_closing_takes_what_is_given_back(stage: Stage):
    claimed = await stage.running()
    await stage.verb(Command.SEND)
    await stage.record(claimed, waits=[receive(1, branch="3.0")])
    reply = await stage.record(claimed, waits=[receive(4)], closed_waits=[("3.0", 1)])
    assert [record.ordinal for record in reply.existing] == [4]
    assert await outcomes(stage) == [("", "met"), ("3.0", "moot")]


async def test_only_a_message_goes_back_and_only_from_where_it_was_received(stage: Stage):
    other = await stage.running("child")
    await stage.end(other, Finish(Status.COMPLETED, b"5"))
    claimed = await stage.running()
    for _ in range(2):
        await stage.verb(Command.SEND)
    gave_up = receive(5, "nothing", gives_up=b"{}")
    await stage.record(claimed, waits=[receive(1), receive(1, branch="1.0"), child_wait(ordinal=3), gave_up])
    before = await stage.everything()
    assert (await stage.record(claimed, closed_waits=[("", 3), ("", 5), ("", 9)])).recorded is Recorded.OK
    assert await stage.everything() == before, "a child that has ended, a wait that gave up, no wait at all"
    await stage.record(claimed, closed_waits=[("1.0", 1)])
    assert [message.received_at is None for message in await stage.store.messages("r")] == [False, True]
