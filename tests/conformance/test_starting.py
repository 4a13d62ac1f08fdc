"""How runs are born."""

import dataclasses

import pytest
from tests.conformance.stage import HOUR, INPUT, Stage

from runtrue.errors import StoreError
from runtrue.lifecycle import Status
from runtrue.records import RunRecord
from runtrue.store.protocol import NewRun, Started

NEW = NewRun(
    "r", "flow", "1", INPUT, 5, priority=3, idempotency_key="k", tags={"shop": "17", 'a"b': "c'd"}, actor="anna"
)


async def test_a_new_run_is_pending_with_all_it_was_given(stage: Stage):
    assert await stage.store.start([NEW]) == [Started("r", True, Status.PENDING)]
    now = stage.clock.now()
    assert await stage.store.get("r") == RunRecord(
        id="r",
        workflow="flow",
        version="1",
        status=Status.PENDING,
        priority=3,
        ready_at=5,
        epoch=0,
        worker_id=None,
        wakeups=0,
        open_run_holds=0,
        event_seq=1,
        steps_done=0,
        losses=0,
        attempt=1,
        idempotency_key="k",
        request=None,
        created_at=now,
        started_at=None,
        finished_at=None,
        updated_at=now,
        tags={"shop": "17", 'a"b': "c'd"},
        input=INPUT,
    )
    (event,) = await stage.store.events("r")
    assert (event.seq, event.type, event.at) == (1, "created", now)
    assert event.data == {"by": "anna", "workflow": "flow", "version": "1"}


async def test_the_same_start_again_finds_the_run_whatever_it_is_now(stage: Stage):
    await stage.store.start([NEW])
    await stage.claim()
    before = await stage.everything()
    later = dataclasses.replace(NEW, version="2", priority=9, tags={})
    assert await stage.store.start([later]) == [Started("r", False, Status.RUNNING)]
    assert await stage.everything() == before


async def test_an_id_taken_by_another_input_or_workflow_is_a_conflict_that_names_it(stage: Stage):
    await stage.store.start([NEW])
    other_input, other_flow = await stage.store.start(
        [
            dataclasses.replace(NEW, input=b'{"n":2}', idempotency_key=None),
            dataclasses.replace(NEW, workflow="other", idempotency_key=None),
        ]
    )
    assert not other_input.created
    assert other_input.conflict == "run r was started before under this id with another input; choose another id"
    assert other_flow.conflict == "run r is of another workflow than other; choose another id"
    assert (await stage.run()).input == INPUT


async def test_a_key_finds_the_run_that_was_started_with_it(stage: Stage):
    await stage.store.start([NEW])
    again, other_input, other_flow = await stage.store.start(
        [
            dataclasses.replace(NEW, id="again"),
            dataclasses.replace(NEW, id="other", input=b'{"n":2}'),
            dataclasses.replace(NEW, id="elsewhere", workflow="other"),
        ]
    )
    assert again == Started("r", False, Status.PENDING)
    assert other_input.conflict == "run r was started before under key k with another input; choose another key"
    assert other_flow == Started("elsewhere", True, Status.PENDING), "a key belongs to its workflow"
    assert await stage.store.get("again") is None


async def test_starts_of_one_call_are_one_transaction(stage: Stage):
    with pytest.raises((StoreError, OverflowError)):
        await stage.store.start([NEW, dataclasses.replace(NEW, id="s", idempotency_key=None, priority=2**70)])
    assert await stage.store.get("r") is None


async def test_the_same_run_twice_in_one_call_is_started_once(stage: Stage):
    first, second = await stage.store.start([NEW, NEW])
    assert (first.created, second.created, second.conflict) == (True, False, "")


async def test_a_run_for_later_is_not_claimed_before(stage: Stage):
    await stage.start(ready_at=stage.clock.now() + HOUR)
    assert await stage.claim() == []
    stage.clock.advance(3600)
    assert [claimed.run_id for claimed in await stage.claim()] == ["r"]


@pytest.mark.parametrize("body", [b"", b"\x00\xff", b"{}" * 300_000, "é\U0001f600".encode()])
async def test_an_input_comes_back_as_the_bytes_it_was(stage: Stage, body: bytes):
    await stage.start(input=body)
    (claimed,) = await stage.claim()
    assert claimed.input == body
    assert (await stage.run()).input == body


async def test_ids_differ_by_case_accents_and_length(stage: Stage):
    ids = ["r", "R", "é", "e\u0301", "r ", "日本", "r" * 200]
    for run_id in ids:
        await stage.start(run_id)
    assert {claimed.run_id for claimed in await stage.claim(limit=100)} == set(ids)
