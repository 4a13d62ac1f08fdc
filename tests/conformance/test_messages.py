"""Messages that are sent to a run: kept, taken once, and heard."""

from typing import Any

import pytest
from tests.conformance.stage import HOUR, RESULT, Stage, child_wait, receive

from runtrue.errors import StoreError
from runtrue.lifecycle import TERMINAL, Answer, Command, Status
from runtrue.records import Message, Wait
from runtrue.store.protocol import NEVER, ParkBlocked


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
