"""Messages through a worker: whenever they come, each is received once, and nobody sleeps through one."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.engine import faults
from tests.engine.looking import (
    Before,
    kept,
    open_waits,
    outside,
    passing,
    until_event,
    until_kept,
    until_open,
    until_parked_for,
    until_recorded,
)
from tests.engine.running import Gate, audit, event_types, failure, finished, opened, reaches, recorded
from tests.support.manual_clock import ManualClock

import runtrue as rt
from runtrue.errors import StoreBusy
from runtrue.lifecycle import Status

MINUTE = 60


@dataclass
class Order:
    number: int
    note: str = ""


orders = rt.Topic("orders", Order)


@rt.workflow
async def takes_three() -> list[str]:
    return [await rt.receive("note", str) for _ in range(3)]


# ---------------------------------------------------------------- when they come
async def test_messages_that_came_before_the_run_asked_are_received_in_the_order_they_were_sent(database: Path):
    async with rt.Client(database) as client:
        run = await client.start(takes_three)
        for text in ("a", "b", "c"):
            await run.send("note", text)
    async with opened(database, takes_three) as app:
        run = await app.get(run.id)
        assert await finished(run) == ["a", "b", "c"]
        assert "waiting" not in await event_types(run), "nothing had to be waited for"
        await audit(app, run)


async def test_a_message_that_comes_while_the_run_waits_wakes_it_and_one_that_comes_too_late_is_kept(database: Path):
    async with opened(database, takes_three) as app:
        run = await app.start(takes_three)
        for text in ("a", "b"):
            await reaches(run, "waiting")
            await run.send("note", text)
        await run.send("note", "c")
        assert await finished(run) == ["a", "b", "c"]
        with pytest.raises(rt.Refused, match="too late"):
            await run.send("note", "d")


async def test_a_message_that_comes_while_the_worker_has_the_run_in_a_step_is_there_when_the_run_asks(database: Path):
    gate = Gate()

    @rt.step
    async def works() -> None:
        await gate.pass_through()

    @rt.workflow
    async def flow() -> str:
        await works()
        return await rt.receive("note", str)

    async with opened(database, flow) as app:
        run = await app.start(flow)
        await gate.reached()
        await run.send("note", "a")
        gate.open()
        assert await finished(run) == "a"


@pytest.mark.parametrize("when", ["before it began", "while it waits"])
async def test_a_message_that_comes_while_the_run_is_paused_is_received_after_the_resume(
    database: Path, clock: ManualClock, when: str
):
    async with outside(database, clock) as client:
        run = await client.start(takes_three)
        if when == "before it began":
            await run.pause()
    async with opened(database, takes_three, clock=clock) as app:
        run = await app.get(run.id)
        if when == "while it waits":
            await reaches(run, "waiting")
            await run.pause()
        for text in ("a", "b", "c"):
            await run.send("note", text)
        assert await run.status() is Status.PAUSED
        assert await kept(app, run) == [b'"a"', b'"b"', b'"c"']
        await run.resume()
        assert await finished(run) == ["a", "b", "c"]
        await audit(app, run)


async def test_two_branches_that_receive_of_one_topic_get_a_message_each(database: Path):
    @rt.workflow
    async def flow() -> tuple[str, str]:
        return await rt.gather(rt.receive("note", str), rt.receive("note", str))

    async with opened(database, flow) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        await run.send("note", "a")
        await run.send("note", "b")
        assert sorted(await finished(run)) == ["a", "b"]
        assert await kept(app, run) == []


async def test_a_message_sent_twice_under_a_key_is_received_once_and_another_body_is_a_conflict(database: Path):
    async with opened(database, takes_three) as app:
        run = await app.start(takes_three)
        for _ in range(3):
            await run.send("note", "a", key="first")
        with pytest.raises(rt.Conflict):
            await run.send("note", "other", key="first")
        await run.send("note", "b")
        await run.send("note", "c")
        assert await finished(run) == ["a", "b", "c"]


# ---------------------------------------------------------------- what they are
async def test_a_topic_gives_its_type_to_whoever_sends_and_receives(database: Path):
    @rt.workflow
    async def flow() -> list[Any]:
        by_topic = await rt.receive(orders)
        by_name = await rt.receive("orders", Order)
        return [type(by_topic).__name__, by_topic.number, by_name.note]

    async with opened(database, flow) as app:
        run = await app.start(flow)
        await run.send(orders, Order(7))
        await run.send("orders", Order(8, "quick"))
        assert await finished(run) == ["Order", 7, "quick"]


async def test_a_message_of_another_type_is_an_error_that_the_code_may_handle_and_costs_only_itself(database: Path):
    @rt.workflow
    async def flow(handles: bool) -> str:
        try:
            order = await rt.receive(orders)
        except rt.NotDecodable:
            if not handles:
                raise
            order = await rt.receive(orders)
        return order.note

    async with opened(database, flow) as app:
        handled, fails = await app.start(flow, True), await app.start(flow, False)
        for run in (handled, fails):
            await run.send("orders", {"number": "many"})
        await handled.send(orders, Order(1, "second"))
        assert await finished(handled) == "second"
        error = await failure(fails)
        assert error.type == "runtrue.errors.NotDecodable"
        assert "the message on topic orders" in error.message


# ---------------------------------------------------------------- deadlines of waits
@rt.workflow
async def waits_a_minute() -> list[str]:
    heard: list[str] = []
    try:
        heard.append(await rt.receive("note", str, timeout=MINUTE))
    except rt.WaitTimeout as late:
        heard.append(str(late))
    heard.append(await rt.receive("more", str))
    return heard


async def test_a_wait_that_is_over_raises_the_same_live_and_on_every_replay(database: Path, clock: ManualClock):
    async with opened(database, waits_a_minute, clock=clock) as app:
        run = await app.start(waits_a_minute)
        await reaches(run, "waiting")
        clock.advance(MINUTE)
        await until_parked_for(app, run, "more")
        assert await recorded(app, run) == [("note", 1)]
    async with opened(database, waits_a_minute, clock=clock) as app:
        run = await app.get(run.id)
        await run.send("note", "too late")
        await run.send("more", "m")
        assert await finished(run) == ["no message on topic note came within 60 s", "m"]
        assert await kept(app, run) == [b'"too late"']


async def test_a_default_comes_in_place_of_the_timeout_and_on_replay_too(database: Path, clock: ManualClock):
    @rt.workflow
    async def flow() -> list[Any]:
        heard: list[Any] = [await rt.receive("note", str, timeout=MINUTE, default=None)]
        await rt.sleep(MINUTE)
        return heard

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        clock.advance(MINUTE)
        await until_recorded(app, run, "sleep")
        await run.send("note", "too late")
    async with opened(database, flow, clock=clock) as app:
        clock.advance(MINUTE)
        assert await finished(await app.get(run.id)) == [None]


async def test_the_first_deadline_of_a_wait_stands_over_a_restart(database: Path, clock: ManualClock):
    async with opened(database, waits_a_minute, clock=clock) as app:
        run = await app.start(waits_a_minute)
        await reaches(run, "waiting")
        (before,) = await app.store.waits(run.id)
    clock.advance(MINUTE - 10)
    async with opened(database, waits_a_minute, clock=clock) as app:
        run = await app.get(run.id)
        await run.pause()
        await run.resume()
        await until_event(run, "claimed", 2)
        await reaches(run, "waiting")
        assert [wait.deadline_at for wait in await app.store.waits(run.id)] == [before.deadline_at]
        clock.advance(10)
        await until_parked_for(app, run, "more")


async def test_a_message_and_the_timeout_in_one_instant_are_one_or_the_other(database: Path, clock: ManualClock):
    """What came by the time the run looks is received; nobody is told both."""
    async with opened(database, waits_a_minute, clock=clock) as app:
        run = await app.start(waits_a_minute)
        await reaches(run, "waiting")
    async with outside(database, clock) as client:
        clock.advance(MINUTE)
        await (await client.get(run.id)).send("note", "just in time")
    async with opened(database, waits_a_minute, clock=clock) as app:
        run = await app.get(run.id)
        await run.send("more", "m")
        assert await finished(run) == ["just in time", "m"]
        await audit(app, run)


# ---------------------------------------------------------------- several waits at once
@rt.workflow
async def first_of_two() -> list[Any]:
    heard: list[Any] = [*await rt.first(rt.receive("a", str), rt.receive("b", str))]
    heard.append(await rt.receive("b", str))
    return heard


@rt.workflow
async def first_of_two_helpers() -> list[Any]:
    async def hear(topic: str) -> str:
        return await rt.receive(topic, str)

    heard: list[Any] = [*await rt.first(hear("a"), hear("b"))]
    heard.append(await rt.receive("b", str))
    return heard


@rt.workflow
async def first_of_two_groups() -> list[Any]:
    number, heard = await rt.first(rt.gather(rt.receive("a", str)), rt.gather(rt.receive("b", str)))
    return [number, *heard, await rt.receive("b", str)]


@rt.workflow
async def a_gather_that_fails() -> list[Any]:
    async def fails() -> None:
        await rt.receive("a", str)
        raise LookupError("a")

    async def stays() -> str:
        return await rt.receive("b", str)

    try:
        await rt.gather(stays(), fails())
    except LookupError as error:
        return [0, str(error), await rt.receive("b", str)]
    return []


@pytest.mark.parametrize(
    "flow", [first_of_two, first_of_two_helpers, first_of_two_groups, a_gather_that_fails], ids=lambda flow: flow.name
)
async def test_a_message_that_came_to_a_branch_which_lost_at_once_is_received_by_who_asks_next(
    database: Path, clock: ManualClock, flow: Any
):
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
    async with outside(database, clock) as client:
        for topic in ("b", "a"):
            await (await client.get(run.id)).send(topic, topic)
    async with opened(database, flow, clock=clock) as app:
        run = await app.get(run.id)
        assert await finished(run) == [0, "a", "b"]
        assert await kept(app, run) == []
        await audit(app, run)


@pytest.mark.parametrize("flow", [first_of_two, first_of_two_helpers, first_of_two_groups], ids=lambda flow: flow.name)
async def test_the_same_is_so_for_a_run_that_is_in_memory(database: Path, flow: Any):
    gate = Gate()

    @rt.step
    async def works() -> None:
        await gate.pass_through()

    @rt.workflow
    async def beside() -> list[Any]:
        _, heard = await rt.gather(works(), flow.fn())
        return heard

    async with opened(database, beside) as app:
        run = await app.start(beside)
        await gate.reached()
        await until_open(app, run, "a", "b")
        for topic in ("b", "a"):
            await run.send(topic, topic)
        gate.open()
        assert await finished(run) == [0, "a", "b"]
        await audit(app, run)


@pytest.mark.parametrize("sleeps_first", [True, False])
async def test_a_message_and_a_sleep_that_ends_at_once_are_not_both_used_up(
    database: Path, clock: ManualClock, sleeps_first: bool
):
    @rt.workflow
    async def flow() -> list[Any]:
        sleep, note = rt.sleep(MINUTE), rt.receive("note", str)
        number, heard = await (rt.first(sleep, note) if sleeps_first else rt.first(note, sleep))
        return [number, heard, await rt.receive("note", str, timeout=0, default="nothing")]

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
    async with outside(database, clock) as client:
        clock.advance(MINUTE)
        await (await client.get(run.id)).send("note", "a")
    async with opened(database, flow, clock=clock) as app:
        expected = [0, None, "a"] if sleeps_first else [0, "a", "nothing"]
        assert await finished(await app.get(run.id)) == expected


async def test_what_was_given_back_stays_so_over_a_restart_and_is_received_once(database: Path, clock: ManualClock):
    """The outcome is recorded with the message given back; a replay finds both, and gives back nothing again."""

    @rt.workflow
    async def flow() -> list[Any]:
        heard: list[Any] = [*await rt.first(rt.receive("a", str), rt.receive("b", str))]
        for _ in range(2):
            heard.append(await rt.receive("b", str))
            await rt.sleep(MINUTE)
        return heard

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
    async with outside(database, clock) as client:
        handle = await client.get(run.id)
        for topic, body in (("a", "a"), ("b", "b1"), ("b", "b2")):
            await handle.send(topic, body)
    for times in (2, 3):
        async with opened(database, flow, clock=clock) as app:
            await until_event(await app.get(run.id), "waiting", times)
        clock.advance(MINUTE)
    async with opened(database, flow, clock=clock) as app:
        run = await app.get(run.id)
        assert await finished(run) == [0, "a", "b1", "b2"]
        await audit(app, run)


async def test_a_branch_that_has_used_its_message_keeps_it_though_it_loses(database: Path, clock: ManualClock):
    gate, used = Gate(), list[str]()

    @rt.step
    async def uses(note: str) -> None:
        used.append(note)
        await gate.pass_through()

    async def hear_and_use() -> None:
        await uses(await rt.receive("note", str))

    @rt.workflow
    async def flow() -> str:
        await rt.first(hear_and_use(), rt.sleep(MINUTE))
        return await rt.receive("note", str)

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await run.send("note", "a")
        await gate.reached()
        clock.advance(MINUTE)
        await until_open(app, run, "note")
        await run.send("note", "b")
        gate.open()
        assert await finished(run) == "b"
        assert used == ["a"]


async def test_a_branch_that_is_unwound_after_the_code_has_gone_on_gives_its_message_back_too(database: Path):
    heard, clings = Gate(), Gate()

    async def hears() -> None:
        await rt.receive("note", str)
        try:
            await heard.pass_through()
        finally:
            await clings.pass_through()

    @rt.step
    async def works() -> None:
        await heard.reached()

    @rt.workflow
    async def flow() -> str:
        await rt.first(hears(), works())
        return await rt.receive("note", str)

    async with opened(database, flow) as app:
        run = await app.start(flow)
        await run.send("note", "a")
        await clings.reached()
        await until_open(app, run, "note")
        clings.open()
        assert await finished(run) == "a"
        await audit(app, run)


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_wait_that_was_on_its_way_when_its_branch_lost_is_closed_and_takes_nothing(
    database: Path, clock: ManualClock, restarts: bool
):
    """The step of one branch and the wait of the other are written in one batch; the branch is closed by its reply."""

    @rt.step
    async def quick() -> None: ...

    @rt.workflow
    async def flow() -> list[Any]:
        number, _ = await rt.first(quick(), rt.receive("note", str))
        await rt.sleep(MINUTE)
        return [number, await rt.receive("note", str)]

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await until_recorded(app, run, "sleep")
        if not restarts:
            assert await open_waits(app, run) == []
            await run.send("note", "a")
            clock.advance(MINUTE)
            assert await finished(run) == [0, "a"]
            return
    async with outside(database, clock) as client:
        await (await client.get(run.id)).send("note", "a")
    async with opened(database, flow, clock=clock) as app:
        clock.advance(MINUTE)
        assert await finished(await app.get(run.id)) == [0, "a"]


async def test_a_wait_left_open_by_a_crash_after_its_branch_lost_is_closed_by_the_replay(
    database: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    """The outcome of the group is recorded, what closes the wait is not: the worker dies between the two."""
    faulty = faults.install(monkeypatch)

    @rt.step
    async def quick() -> None: ...

    @rt.workflow
    async def flow() -> list[Any]:
        number, _ = await rt.first(quick(), rt.receive("note", str))
        await rt.sleep(MINUTE)
        return [number, await rt.receive("note", str)]

    async with opened(database, flow, clock=clock) as app:
        faulty.before["record"] = lambda: strip_closings(faulty)
        run = await app.start(flow)
        await until_recorded(app, run, "sleep")
        assert len(await open_waits(app, run)) == 1, "as a crash would leave it"
        await run.send("note", "a")
    async with opened(database, flow, clock=clock) as app:
        clock.advance(MINUTE)
        run = await app.get(run.id)
        assert await finished(run) == [0, "a"]
        await audit(app, run)


def strip_closings(faulty: faults.FaultyStore) -> None:
    for effects in faulty.batches[-1]:
        effects.closed_waits = ()


# ---------------------------------------------------------------- the wake counter
@pytest.mark.parametrize("notified", [True, False], ids=["and is notified", "and the notification is lost"])
async def test_a_message_between_the_reply_to_the_wait_and_the_park_is_not_slept_through(
    database: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, notified: bool
):
    faulty = faults.install(monkeypatch)
    if not notified:
        faulty.subscribe = lambda callback: lambda: None  # type: ignore[attr-defined]

    @rt.workflow
    async def flow() -> str:
        return await rt.receive("note", str)

    async with opened(database, flow, clock=clock) as app, outside(database, clock) as client:
        run_id = "the-run"

        async def send() -> None:
            await client.handle(run_id).send("note", "a")

        before = Before(faulty, lambda effect: effect.end is not None, send)
        run = await app.start(flow.options(id=run_id))
        if not notified:  # else the clock stands still, and no renewal and no poll comes to its help
            await passing(clock, run)
        assert await finished(run) == "a"
        assert before.done == 1
        assert "waiting" not in await event_types(run), "the park was refused, and the run goes on in memory"


async def test_a_parked_run_whose_notification_was_lost_is_found_by_the_next_poll(
    database: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    faulty = faults.install(monkeypatch)
    faulty.subscribe = lambda callback: lambda: None  # type: ignore[attr-defined]

    async with opened(database, takes_three, clock=clock) as app:
        run = await app.start(takes_three)
        await passing(clock, run, Status.WAITING)
        for text in ("a", "b", "c"):
            await run.send("note", text)
        await passing(clock, run)
        assert await finished(run) == ["a", "b", "c"]


async def test_a_run_with_a_branch_in_a_long_step_hears_of_a_message_by_the_renewal(database: Path):
    gate = Gate()

    @rt.step
    async def long() -> None:
        await gate.pass_through()

    @rt.step
    async def hears(note: str) -> str:
        gate.open()
        return note

    async def other() -> str:
        return await hears(await rt.receive("note", str))

    @rt.workflow
    async def flow() -> tuple[None, str]:
        return await rt.gather(long(), other())

    async with opened(database, flow) as app:
        run = await app.start(flow)
        await gate.reached()
        await until_open(app, run, "note")
        await run.send("note", "a")
        assert await finished(run) == (None, "a")


# ---------------------------------------------------------------- rt.send
@rt.workflow
async def sends(run_id: str, times: int) -> list[str]:
    said: list[str] = []
    for number in range(times):
        try:
            await rt.send(run_id, "note", f"{number}")
            said.append("sent")
        except (rt.NotFound, rt.Conflict) as refused:
            said.append(type(refused).__name__)
        except rt.StepFailed as refused:
            said.append(refused.error.type)
    await rt.sleep(MINUTE)
    return said


async def test_a_workflow_sends_each_message_once_by_handle_or_id_however_often_it_is_replayed(
    database: Path, clock: ManualClock
):
    @rt.workflow
    async def parent() -> list[Order]:
        child = await rt.start_child(collects)
        await child.send(orders, Order(1))
        await rt.send(child, orders, Order(2))
        await rt.send(child.id, "orders", Order(3))
        await rt.sleep(MINUTE)
        return await child.result()

    @rt.workflow
    async def collects() -> list[Order]:
        return [await rt.receive(orders) for _ in range(3)]

    async with opened(database, parent, collects, clock=clock) as app:
        run = await app.start(parent)
        await until_recorded(app, run, "sleep")
    async with opened(database, parent, collects, clock=clock) as app:
        clock.advance(MINUTE)
        run = await app.get(run.id)
        assert await finished(run) == [Order(1), Order(2), Order(3)]
        assert len(await app.service.messages(f"{run.id}~0")) == 3


async def test_a_message_is_sent_once_over_a_crash_between_the_send_and_its_record(
    database: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    faulty = faults.install(monkeypatch)

    def dies() -> None:
        if any(step.kind == "send" for effects in faulty.batches[-1] for step in effects.steps):
            assert app._worker is not None
            app._worker.vanish()
            raise StoreBusy("nobody hears this any more")

    faulty.before["record"] = dies
    async with opened(database, sends, clock=clock) as app:
        target = await app.start(takes_three)
        run = await app.start(sends, target.id, 1)
        await until_kept(app, target, 1)
        (lost,) = await app.service.workers()
    async with opened(database, sends, clock=clock) as app:
        await app.store.retire_worker(lost.id)
        await app.store.sweep()
        run = await app.get(run.id, sends)
        await until_recorded(app, run, "sleep")
        clock.advance(MINUTE)
        assert await finished(run) == ["sent"]
        assert await kept(app, target) == [b'"0"'], "the request is the same, so the message is"


async def test_what_cannot_be_sent_is_an_error_of_the_workflow_live_and_on_replay(database: Path, clock: ManualClock):
    async with opened(database, sends, takes_three, clock=clock) as app:
        ended = await app.start(takes_three)
        await ended.cancel(wait=True)
        unknown, finished_run = await app.start(sends, "nobody", 1), await app.start(sends, ended.id, 1)
        for run in (unknown, finished_run):
            await until_recorded(app, run, "sleep")
    async with opened(database, sends, takes_three, clock=clock) as app:
        clock.advance(MINUTE)
        assert await finished(await app.get(unknown.id)) == ["NotFound"]
        (refused,) = await finished(await app.get(finished_run.id))
        assert "Refused" in refused
