"""Every verb in every status, as the lifecycle table says."""

import pytest
from tests.conformance.stage import Stage, receive

from runtrue.lifecycle import TERMINAL, Answer, Command, HoldKind, Status, cell, refusal
from runtrue.store.protocol import CommandReply

CELLS = [(verb, status) for verb in Command for status in Status]

EVENT_OF = {
    Status.PAUSED: "paused",
    Status.PAUSING: "pause_requested",
    Status.RUNNING: "resumed",
    Status.PENDING: "resumed",
    Status.CANCELLING: "cancel_requested",
    Status.CANCELLED: "cancelled",
}


async def carry_out(stage: Stage, verb: Command, status: Status) -> CommandReply:
    """The verb on a run in `status`; an answer goes to a run that is held by something that takes one, a message to one
    that waits for its topic.
    """
    if verb is Command.ANSWER and status is Status.PAUSED:
        await stage.held(HoldKind.KEEPS_LOSING_ITS_WORKER)
    elif verb is Command.SEND and status is Status.WAITING:
        await stage.waiting(receive())
    else:
        await stage.make(status)
    return await stage.verb(verb, **({"value": "retry"} if verb is Command.ANSWER else {}))


@pytest.mark.parametrize(("verb", "status"), CELLS)
async def test_a_verb_is_met_as_the_table_says(stage: Stage, verb: Command, status: Status):
    reply = await carry_out(stage, verb, status)
    expected = cell(verb, status)
    already_held = verb is Command.PAUSE and status is Status.PAUSED
    assert reply.found
    assert reply.answer is expected.answer
    assert reply.status is (expected.to or status)
    assert reply.changed is (expected.changes and not already_held)
    assert reply.refusal == refusal(verb, status)
    assert (await stage.run()).status is reply.status
    if reply.changed:
        event = await stage.last_event()
        if verb is Command.SEND:
            assert event.type == ("woken" if status is Status.WAITING else "message")
            return
        assert event.type == EVENT_OF[reply.status]
        assert event.data["by"] == "anna"
        assert event.data["reason"] == "because"


@pytest.mark.parametrize(
    ("verb", "status"), [(verb, status) for verb, status in CELLS if not cell(verb, status).changes]
)
async def test_what_a_verb_did_not_change_is_as_it_was(stage: Stage, verb: Command, status: Status):
    await stage.make(status)
    before = await stage.everything()
    reply = await stage.verb(verb)
    assert not reply.changed
    assert await stage.everything() == before


@pytest.mark.parametrize(("verb", "status"), CELLS)
async def test_every_command_is_kept_with_its_actor_refused_ones_too(stage: Stage, verb: Command, status: Status):
    reply = await carry_out(stage, verb, status)
    command = next(
        command for command in await stage.store.commands("r") if command.request_id == f"q-{stage._requests}"
    )
    assert (command.verb, command.actor, command.reason) == (verb, "anna", "because")
    assert (command.answer, command.status) == (reply.answer, reply.status)
    assert command.at == stage.clock.now()


@pytest.mark.parametrize("status", Status)
async def test_the_row_tells_of_the_last_request(stage: Stage, status: Status):
    await stage.make(status)
    reply = await stage.verb(Command.CANCEL, reason="enough")
    request = (await stage.run()).request
    assert reply.request == request
    if cell(Command.CANCEL, status).to is not None:
        assert request is not None
        assert (request.verb, request.by, request.reason) == ("cancel", "anna", "enough")
        assert request.at == stage.clock.now()


@pytest.mark.parametrize("status", sorted(TERMINAL))
@pytest.mark.parametrize("verb", Command)
async def test_a_finished_run_never_changes(stage: Stage, verb: Command, status: Status):
    claimed = await stage.make(status)
    assert claimed is not None
    before = await stage.everything()
    reply = await stage.verb(verb)
    assert reply.answer is (Answer.REFUSED if cell(verb, status).answer is Answer.REFUSED else Answer.DONE)
    assert (await stage.record(claimed)).recorded == "fenced"
    await stage.lose()
    await stage.store.sweep()
    assert await stage.claim("w-2") == []
    assert await stage.everything() == before


@pytest.mark.parametrize("status", [Status.RUNNING, Status.PAUSING])
async def test_a_cancel_leaves_the_worker_its_run_until_the_boundary(stage: Stage, status: Status):
    await stage.make(status)
    reply = await stage.verb(Command.CANCEL)
    run = await stage.run()
    assert (reply.answer, run.status, run.worker_id, run.finished_at) == (
        Answer.REQUESTED,
        Status.CANCELLING,
        "w",
        None,
    )


@pytest.mark.parametrize("status", [Status.RUNNING, Status.PAUSING, Status.CANCELLING])
async def test_terminate_takes_the_run_from_its_worker_at_once(stage: Stage, status: Status):
    claimed = await stage.make(status)
    assert claimed is not None
    assert (await stage.verb(Command.TERMINATE)).answer is Answer.DONE
    run = await stage.run()
    assert (run.status, run.worker_id, run.finished_at) == (Status.CANCELLED, None, stage.clock.now())
    assert (await stage.record(claimed)).recorded == "fenced"
    assert await stage.renew() == []
