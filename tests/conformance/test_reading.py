"""Lists, counts and look-ups."""

import pytest
from tests.conformance.stage import HOUR, Stage

from runtrue.lifecycle import Command, HoldKind, Status
from runtrue.store.protocol import RunFilter


async def ids(stage: Stage, limit: int = 50, before: tuple[int, str] | None = None, **where: object) -> list[str]:
    return [run.id for run in await stage.store.list_runs(RunFilter(**where), limit, before)]  # type: ignore[arg-type]


@pytest.fixture
async def some_runs(stage: Stage) -> Stage:
    """a and b are as old as each other; d is the newest."""
    await stage.start("a", tags={"shop": "1", "kind": "x"})
    await stage.start("b", workflow="other", tags={"shop": "1"})
    stage.clock.advance(1)
    await stage.start("c", tags={"shop": "2", 'a"b': "c'd"})
    await stage.verb(Command.PAUSE, "c")
    stage.clock.advance(1)
    await stage.start("d")
    await stage.verb(Command.CANCEL, "d")
    return stage


async def test_a_list_begins_with_the_newest(some_runs: Stage):
    assert await ids(some_runs) == ["d", "c", "b", "a"]
    assert await ids(some_runs, limit=2) == ["d", "c"]


async def test_a_list_filters_by_every_field(some_runs: Stage):
    created = (await some_runs.run("c")).created_at
    assert await ids(some_runs, statuses=(Status.PENDING,)) == ["b", "a"]
    assert await ids(some_runs, statuses=(Status.CANCELLED, Status.PENDING, Status.PAUSED)) == ["d", "c", "b", "a"]
    assert await ids(some_runs, statuses=(Status.CANCELLED, Status.PENDING), limit=2) == ["d", "b"]
    assert await ids(some_runs, statuses=(Status.FAILED,)) == []
    assert await ids(some_runs, workflow="other") == ["b"]
    assert await ids(some_runs, tags={"shop": "1"}) == ["b", "a"]
    assert await ids(some_runs, tags={"shop": "1", "kind": "x"}) == ["a"]
    assert await ids(some_runs, tags={'a"b': "c'd"}) == ["c"]
    assert await ids(some_runs, tags={"shop": "3"}) == []
    assert await ids(some_runs, since=created) == ["d", "c"]
    assert await ids(some_runs, since=created, statuses=(Status.PAUSED,), tags={"shop": "2"}, workflow="flow") == ["c"]


@pytest.mark.parametrize("statuses", [(), (Status.PENDING, Status.PAUSED, Status.CANCELLED)])
async def test_pages_follow_each_other_without_gap_or_overlap(some_runs: Stage, statuses: tuple[Status, ...]):
    seen: list[str] = []
    before = None
    while page := await some_runs.store.list_runs(RunFilter(statuses=statuses), 1, before):
        seen += [run.id for run in page]
        before = (page[-1].created_at, page[-1].id)
    assert seen == ["d", "c", "b", "a"]


async def test_a_list_has_no_payloads_and_a_look_up_can_do_without(some_runs: Stage):
    (run,) = await some_runs.store.list_runs(RunFilter(), 1)
    assert run.input is None
    (run,) = [run for run in await some_runs.store.list_runs(RunFilter(), 9) if run.id == "a"]
    assert run.tags == {"shop": "1", "kind": "x"}
    assert await some_runs.store.get("a", payloads=False) == run
    assert await some_runs.store.get("nobody") is None


async def test_runs_are_counted_by_status(some_runs: Stage):
    assert await some_runs.store.count_runs() == {Status.PENDING: 2, Status.PAUSED: 1, Status.CANCELLED: 1}


async def test_statuses_of_many_come_at_once(some_runs: Stage):
    found = await some_runs.store.statuses(["a", "c", "nobody"])
    assert found == {"a": (Status.PENDING, 1), "c": (Status.PAUSED, 3)}
    assert await some_runs.store.statuses([]) == {}


async def test_holds_are_listed_of_one_run_and_of_all(some_runs: Stage):
    await some_runs.start("e", ready_at=some_runs.clock.now() + HOUR)
    await some_runs.verb(Command.PAUSE, "e")
    await some_runs.verb(Command.RESUME, "c")
    everything = await some_runs.store.holds()
    assert [(hold.run_id, hold.kind) for hold in everything] == [("c", HoldKind.OPERATOR), ("e", HoldKind.OPERATOR)]
    assert [hold.run_id for hold in await some_runs.store.holds(open_only=True)] == ["e"]
    assert await some_runs.store.holds("c", open_only=True) == []
    assert [hold.outcome for hold in await some_runs.store.holds("c")] == ["resumed"]
    assert await some_runs.store.holds("nobody") == []


async def test_pauses_and_commands_of_a_run_come_oldest_first(some_runs: Stage):
    some_runs.clock.advance(1)
    await some_runs.verb(Command.RESUME, "c")
    some_runs.clock.advance(1)
    await some_runs.verb(Command.PAUSE, "c")
    first, second = await some_runs.store.pauses("c")
    assert first.paused_at < second.paused_at
    assert (first.ended_at is None, second.ended_at is None) == (False, True)
    assert [command.verb for command in await some_runs.store.commands("c")] == ["pause", "resume", "pause"]


async def test_the_schema_says_where_it_is(stage: Stage):
    status = await stage.store.schema_status()
    assert status.version == status.latest >= 1
    assert status == await stage.store.migrate()


async def test_subscribers_hear_of_changes_until_they_leave(stage: Stage):
    heard: list[str] = []
    leave = stage.store.subscribe(lambda: heard.append("first"))
    leave_too = stage.store.subscribe(lambda: heard.append("second"))
    await stage.start()
    assert {"first", "second"} <= set(heard)
    leave()
    heard.clear()
    await stage.start("s")
    assert set(heard) == {"second"}
    leave_too()
    leave_too()


async def test_tidying_up_changes_nothing(stage: Stage):
    await stage.start()
    before = await stage.everything()
    await stage.store.tidy()
    assert await stage.everything() == before
