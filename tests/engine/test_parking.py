"""Branches and the one decision about their run: when it leaves memory, and what a request does to each of them."""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.engine.acts import Acts, lose_at, open_waits, places, until_recorded
from tests.engine.faults import FaultyStore, install
from tests.engine.running import Gate, audit, event_types, finished, opened, reaches, recorded, until
from tests.support.manual_clock import BEGINNING, ManualClock
from tests.support.waiting import turning_until
from tests.support.waiting import until as until_so

import runtrue as rt
from runtrue.lifecycle import Status
from runtrue.store.protocol import EffectsReply, ParkBlocked, RunEffects
from runtrue.testing import TestApp

HOUR = 3_600


async def out_of_memory(app: rt.App) -> None:
    """Every slot is free, and no code of a run is left."""
    worker = app._worker
    assert worker is not None
    await until(lambda: worker.running == 0 and not worker._inside)


async def until_asked(app: rt.App) -> None:
    """A renewal has brought what was asked to every run of the worker."""
    worker = app._worker
    assert worker is not None
    await until(lambda: all(execution.is_asked for execution in worker._executions.values()))


# ---------------------------------------------------------------- leaving memory
async def test_a_run_of_which_every_branch_waits_is_waiting_until_the_earliest_time(database: Path, clock: ManualClock):
    @rt.workflow
    async def flow() -> list[None]:
        return list(await rt.gather(rt.sleep(3 * HOUR), rt.sleep(HOUR), rt.sleep(2 * HOUR)))

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        for hours in (1, 2, 3):
            await reaches(run, "waiting")
            await out_of_memory(app)
            assert (await app.service.get(run.id)).ready_at == BEGINNING + hours * HOUR * 1_000_000
            clock.advance(HOUR)
            count = hours + 1
            await until_so(lambda count=count: claimed(run, count), "it is claimed")
        assert await finished(run) == [None, None, None]
        assert await recorded(app, run) == [("sleep", 1)] * 3 + [("gather", 1)]
        await audit(app, run)


async def claimed(run: rt.RunHandle[object], count: int) -> bool:
    return (await event_types(run)).count("claimed") >= count


async def test_a_run_stays_in_memory_while_one_branch_steps_and_parks_when_that_one_waits_too(
    database: Path, clock: ManualClock, acts: Acts
):
    @rt.workflow
    async def flow() -> str:
        async def works() -> None:
            await acts.act("a")
            await rt.sleep(HOUR)

        await rt.gather(works(), rt.sleep(2 * HOUR))
        return "done"

    acts.hold("a")
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await acts.reached("a")
        await until_recorded(run, 1)
        assert await run.status() is Status.RUNNING
        acts.let_go("a")
        await reaches(run, "waiting")
        await out_of_memory(app)
        assert (await app.service.get(run.id)).ready_at == BEGINNING + HOUR * 1_000_000


async def test_a_sleep_in_memory_ends_in_time_while_another_branch_steps(
    database: Path, clock: ManualClock, acts: Acts
):
    @rt.workflow
    async def flow() -> str:
        async def naps() -> None:
            await rt.sleep(HOUR)
            await acts.act("b")

        await rt.gather(acts.act("a"), naps())
        return "done"

    acts.hold("a")
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await acts.reached("a")
        await clock.sleeper(HOUR)
        clock.advance(HOUR)
        await until(lambda: "b" in acts.ended)
        acts.let_go("a")
        assert await finished(run) == "done"
        assert await claimed(run, 1)
        assert not await claimed(run, 2)


async def test_a_sleep_in_a_task_of_somebody_else_ends_in_time_though_nobody_was_busy_when_it_began(
    database: Path, clock: ManualClock, acts: Acts
):
    woke: list[str] = []

    def is_asleep() -> bool:
        worker = app._worker
        assert worker is not None
        (execution,) = worker._executions.values()
        return any(strand.due_at is not None for strand in execution.strands.all)

    @rt.workflow
    async def flow() -> str:
        sleep, step = rt.sleep(HOUR), acts.act("a")

        async def naps() -> None:
            await sleep
            woke.append("woke")

        async def works() -> None:
            # In the turn of the loop after the one in which all had come to rest: no decision has been taken yet.
            await turning_until(is_asleep)
            await step

        await asyncio.gather(naps(), works())
        return "done"

    acts.hold("a")
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await acts.reached("a")
        clock.advance(HOUR)
        await until(lambda: woke == ["woke"])
        acts.let_go("a")
        assert await finished(run) == "done"


async def test_code_that_waits_for_something_of_its_own_keeps_the_run_in_memory(
    database: Path, clock: ManualClock, acts: Acts
):
    gate = Gate()

    @rt.workflow
    async def flow() -> str:
        async def own() -> None:
            await gate.pass_through()
            await acts.act("a")

        await rt.gather(own(), rt.sleep(HOUR))
        return "done"

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await gate.reached()
        await clock.sleeper(HOUR)
        assert await run.status() is Status.RUNNING
        gate.open()
        await reaches(run, "waiting")
        assert acts.begun == ["a"]
        clock.advance(HOUR)
        assert await finished(run) == "done"


@pytest.mark.parametrize("longer_first", [True, False])
async def test_sleeps_that_asyncio_gathers_park_and_are_cancelled(
    database: Path, clock: ManualClock, longer_first: bool
):
    spans = [2 * HOUR, HOUR] if longer_first else [HOUR, 2 * HOUR]

    @rt.workflow
    async def flow() -> str:
        await asyncio.gather(*(rt.sleep(span) for span in spans))
        return "done"

    async with opened(database, flow, clock=clock) as app:
        kept, cancelled = await app.start(flow), await app.start(flow)
        await reaches(kept, "waiting")
        await reaches(cancelled, "waiting")
        assert (await cancelled.cancel()).done
        clock.advance(HOUR)
        await until_so(lambda: claimed(kept, 2), "it is claimed")
        await reaches(kept, "waiting")
        await out_of_memory(app)
        clock.advance(HOUR)
        assert await finished(kept) == "done"


async def test_steps_that_asyncio_gathers_are_paused_and_cancelled(database: Path, clock: ManualClock, acts: Acts):
    @rt.workflow
    async def flow() -> str:
        await asyncio.gather(acts.act("a"), rt.sleep(HOUR))
        return await acts.act("b")

    acts.hold("a")
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await acts.reached("a")
        await run.pause()
        acts.let_go("a")
        await reaches(run, "paused")
        await run.resume()
        await reaches(run, "waiting")
        assert (await run.cancel()).done
        assert acts.begun == ["a"]
        await audit(app, run)


async def test_a_message_that_comes_while_the_run_is_being_parked_is_not_slept_through(
    database: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    faulty = install(monkeypatch)
    inner_record = FaultyStore.record
    sent: list[str] = []

    async def record(worker_id: str, effects: Sequence[RunEffects]) -> list[EffectsReply]:
        if any(isinstance(effect.end, ParkBlocked) for effect in effects) and not sent:
            sent.append("sent")
            await run.send("orders", "tea")
        return await inner_record(faulty, worker_id, effects)

    faulty.record = record  # type: ignore[method-assign]

    @rt.workflow
    async def flow() -> list[str]:
        async def asks(topic: str) -> str:
            return await rt.receive(topic, str)

        winner, order = await rt.first(asks("others"), asks("orders"))
        return [str(winner), order]

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        assert await finished(run) == ["1", "tea"]
        assert sent
        assert await open_waits(app, run) == []
        await audit(app, run)


# ---------------------------------------------------------------- pause and resume
async def test_a_pause_lets_the_step_in_flight_end_and_stops_every_branch_and_the_resume_goes_on_with_each(
    database: Path, clock: ManualClock, acts: Acts
):
    @rt.workflow
    async def flow() -> list[Any]:
        async def naps() -> str:
            await rt.sleep(HOUR)
            return await acts.act("n")

        async def asks() -> str:
            return await rt.receive("orders", str)

        return list(await rt.gather(acts.two("a"), acts.two("b"), naps(), asks()))

    acts.hold("a1", "b1")
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await acts.reached("a1", "b1")
        assert not (await run.pause()).done
        acts.let_go("a1")
        await until_recorded(run, 2)
        assert await run.status() is Status.PAUSING, "the other step is in flight"
        acts.let_go("b1")
        await reaches(run, "paused")
        await out_of_memory(app)
        assert sorted(acts.begun) == ["a1", "b1"]
        clock.advance(HOUR)
        await run.send("orders", "tea")
        assert acts.begun == ["a1", "b1"]
        await run.resume()
        assert await finished(run) == [["a1", "a2"], ["b1", "b2"], "n", "tea"]
        assert sorted(acts.begun) == ["a1", "a2", "b1", "b2", "n"]
        await audit(app, run)


async def test_a_pause_acts_at_once_where_every_branch_sleeps_in_memory(database: Path, clock: ManualClock):
    @rt.workflow
    async def flow() -> str:
        await rt.gather(rt.sleep(0.9), rt.sleep(0.8))
        return "done"

    async with opened(database, flow, clock=clock, lease=1.5) as app:
        run = await app.start(flow)
        await clock.sleeper(0.8)
        await run.pause()
        clock.advance(0.5)
        await reaches(run, "paused")
        clock.advance(0.4)
        await run.resume()
        assert await finished(run) == "done"


async def test_a_pause_that_is_withdrawn_before_the_last_step_has_ended_lets_every_branch_go_on(
    database: Path, clock: ManualClock, acts: Acts
):
    @rt.workflow
    async def flow() -> list[list[str]]:
        return list(await rt.gather(acts.two("a"), acts.two("b")))

    acts.hold("a1", "b1")
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await acts.reached("a1", "b1")
        await run.pause()
        acts.let_go("a1")
        await until_recorded(run, 1)
        await run.resume()
        acts.let_go("b1")
        assert await finished(run) == [["a1", "a2"], ["b1", "b2"]]
        assert not await claimed(run, 2)


async def test_a_pause_that_is_asked_when_the_function_has_returned_and_a_loser_is_in_flight_comes_too_late(
    database: Path, acts: Acts
):
    @rt.workflow
    async def flow() -> int:
        winner, _ = await rt.first(acts.two("slow"), acts.act("fast"))
        return winner

    acts.hold("slow1")
    async with opened(database, flow) as app:
        run = await app.start(flow)
        await acts.reached("slow1")
        await until_recorded(run, 2)
        worker = app._worker
        assert worker is not None
        await until(lambda: all(execution.wished is not None for execution in worker._executions.values()))
        await run.pause()
        acts.let_go("slow1")
        assert await finished(run) == 1
        assert "paused" not in await event_types(run)
        await audit(app, run)


# ---------------------------------------------------------------- cancel
async def test_a_cancel_lets_steps_in_flight_end_and_closes_all_else(database: Path, clock: ManualClock, acts: Acts):
    @rt.workflow
    async def flow() -> None:
        async def asks() -> str:
            return await rt.receive("orders", str)

        async def own() -> None:
            await asyncio.Event().wait()

        await rt.gather(acts.two("a"), acts.two("b"), rt.sleep(HOUR), asks(), own())

    acts.hold("a1", "b2")
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await acts.reached("a1", "b2")
        await until_so(lambda: open_waits(app, run), "the wait is open")
        assert not (await run.cancel(reason="enough")).done
        acts.let_go("b2")
        await until_recorded(run, 3)
        assert await run.status() is Status.CANCELLING
        acts.let_go("a1")
        clock.advance(1)
        await reaches(run, "cancelled")
        assert acts.begun == ["a1", "b1", "b2"]
        assert {"1.0/0 step", "1.1/1 step"} <= set(await places(app, run))
        assert await open_waits(app, run) == []
        await out_of_memory(app)
        await audit(app, run)


async def test_a_cancel_interrupts_only_the_steps_that_asked_for_it(database: Path, clock: ManualClock, acts: Acts):
    @rt.workflow
    async def flow() -> None:
        await rt.gather(acts.act("firm"), acts.act_unless_interrupted("soft"))

    acts.hold("firm", "soft")
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await acts.reached("firm", "soft")
        await run.cancel()
        clock.advance(1)
        await until(lambda: acts.under_way == {"firm"})
        assert await run.status() is Status.CANCELLING
        acts.let_go("firm")
        await reaches(run, "cancelled")
        assert acts.ended == ["firm"]


async def test_a_cancel_of_a_run_whose_branches_are_all_parked_is_done_at_once(database: Path, clock: ManualClock):
    @rt.workflow
    async def flow() -> None:
        async def asks() -> None:
            await rt.receive("orders", str)

        await rt.gather(asks(), rt.sleep(HOUR))

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        assert (await run.cancel()).done
        assert await run.status() is Status.CANCELLED
        assert await open_waits(app, run) == []


# ---------------------------------------------------------------- drain and loss
async def test_a_drain_gives_a_run_back_when_the_step_in_flight_in_one_branch_has_ended(
    database: Path, clock: ManualClock, acts: Acts
):
    @rt.workflow
    async def flow() -> list[Any]:
        return list(await rt.gather(acts.two("a"), rt.sleep(HOUR)))

    acts.hold("a1")
    async with opened(database, flow, clock=clock, drain=60) as app:
        run = await app.start(flow)
        await acts.reached("a1")
        worker = app._worker
        assert worker is not None
        draining = asyncio.create_task(worker.drain(60))
        await until_asked(app)
        acts.let_go("a1")
        await draining
        assert await run.status() is Status.PENDING
        assert acts.begun == ["a1"]
    async with opened(database, flow, clock=clock) as app:
        run = await app.get(run.id, flow)
        await reaches(run, "waiting")
        clock.advance(HOUR)
        assert await finished(run) == [["a1", "a2"], None]
        assert acts.begun == ["a1", "a2"]


async def test_a_drain_whose_time_is_up_interrupts_the_steps_of_every_branch_and_records_no_attempt(
    database: Path, clock: ManualClock, acts: Acts
):
    @rt.workflow
    async def flow() -> list[str]:
        return list(await rt.gather(acts.act("a"), acts.act("b"), acts.act("c")))

    acts.hold("a", "b")
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await acts.reached("a", "b")
        await until_recorded(run, 1)
    acts.let_go("a", "b")
    async with opened(database, flow, clock=clock) as app:
        run = await app.get(run.id, flow)
        assert await finished(run) == ["a", "b", "c"]
        assert sorted(acts.begun) == ["a", "a", "b", "b", "c"]
        _, attempts = await app.service.steps(run.id)
        assert attempts == []


async def test_a_worker_that_is_lost_with_branches_in_every_state_repeats_only_the_steps_in_flight(
    database: Path, acts: Acts
):
    @rt.workflow
    async def flow() -> list[Any]:
        async def asks() -> str:
            return await rt.receive("orders", str)

        async def naps() -> str:
            await rt.sleep(HOUR)
            return await acts.act("n")

        async def nested() -> list[Any]:
            return list(await rt.gather(acts.two("c"), rt.sleep(HOUR)))

        async def races() -> int:
            winner, _ = await rt.first(acts.two("slow"), acts.act("fast"))
            return winner

        return list(await rt.gather(acts.two("a"), asks(), naps(), nested(), races()))

    acts.hold("a2", "c1", "slow1")
    async with TestApp(workflows=[flow], database=database) as app:
        run = await app.start(flow)
        await acts.reached("a2", "c1", "slow1")
        # One step of `a`, two sleeps, the winner and its outcome.
        await until_recorded(run, 5)
        await until_so(lambda: open_waits(app, run), "the wait is open")
        await app.restart()
        acts.let_go("a2", "c1", "slow1")
        await run.wait("waiting")
        await run.send("orders", "tea")
        assert await run.result() == [["a1", "a2"], "tea", "n", [["c1", "c2"], None], 1]
        again = sorted(name for name in set(acts.begun) if acts.begun.count(name) > 1)
        assert again == ["a2", "c1"], "the loser's step is not begun again"
        assert await open_waits(app, run) == []
        await audit(app, run)


async def test_a_worker_that_is_lost_while_it_parks_leaves_a_run_that_is_taken_up_again(
    database: Path, acts: Acts, monkeypatch: pytest.MonkeyPatch
):
    @rt.workflow
    async def flow() -> str:
        await rt.gather(rt.sleep(HOUR), acts.act("a"))
        return "done"

    faulty = install(monkeypatch)
    async with TestApp(workflows=[flow], database=database) as app:
        lose_at(app, faulty, lambda effects: isinstance(effects.end, ParkBlocked))
        run = await app.start(flow)
        assert await run.result() == "done"
        assert (await run.info()).attempt == 2
        assert acts.begun == ["a"]


# ---------------------------------------------------------------- unwinding
async def _finally(call: object) -> None:
    try:
        await call  # type: ignore[misc]
    finally:
        await _later.act("trap")


async def _except(call: object) -> None:
    try:
        await call  # type: ignore[misc]
    except BaseException:  # what such code does must not matter
        await _later.act("trap")
        raise


async def _suppress(call: object) -> None:
    with contextlib.suppress(BaseException):
        await call  # type: ignore[misc]
        return
    for _ in range(3):
        with contextlib.suppress(BaseException):
            await _later.act("trap")
    raise ValueError("raised while it is unwound")


_later = Acts()
TRAPS = [_finally, _except, _suppress]


@pytest.fixture
async def later(monkeypatch: pytest.MonkeyPatch) -> Acts:
    """The acts of the traps."""
    made = Acts()
    monkeypatch.setitem(globals(), "_later", made)
    return made


@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("where", ["in a branch", "in the root"])
async def test_code_that_holds_on_to_a_run_that_parks_begins_nothing(
    database: Path, clock: ManualClock, later: Acts, trap: object, where: str
):
    @rt.workflow
    async def flow() -> str:
        if where == "in a branch":
            await rt.gather(trap(rt.sleep(HOUR)), rt.sleep(2 * HOUR))  # type: ignore[operator]
        else:
            await trap(rt.gather(rt.sleep(HOUR), rt.sleep(2 * HOUR)))  # type: ignore[operator]
        return "done"

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        await out_of_memory(app)
        assert later.begun == []
        assert await run.status() is Status.WAITING
        clock.advance(HOUR)
        await until_so(lambda: claimed(run, 2), "it is claimed")
        await reaches(run, "waiting")
        clock.advance(HOUR)
        assert await finished(run) == "done"
        assert later.begun == ([] if trap in (_except, _suppress) else ["trap"])
        await audit(app, run)


@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("where", ["in a branch", "in the root"])
async def test_code_that_holds_on_to_a_run_that_is_cancelled_begins_nothing(
    database: Path, clock: ManualClock, acts: Acts, later: Acts, trap: object, where: str
):
    @rt.workflow
    async def flow() -> str:
        if where == "in a branch":
            await rt.gather(trap(rt.sleep(HOUR)), acts.act("a"))  # type: ignore[operator]
        else:
            await trap(rt.gather(rt.sleep(HOUR), acts.act("a")))  # type: ignore[operator]
        return "done"

    acts.hold("a")
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await acts.reached("a")
        await until_recorded(run, 1)
        await run.cancel()
        acts.let_go("a")
        clock.advance(1)
        await reaches(run, "cancelled")
        await out_of_memory(app)
        assert later.begun == []
        assert (await run.info()).error is None
        await audit(app, run)


@pytest.mark.parametrize("trap", TRAPS)
async def test_code_that_holds_on_to_a_branch_that_is_closed_begins_nothing_and_the_run_goes_on(
    database: Path, clock: ManualClock, acts: Acts, later: Acts, trap: object
):
    @rt.workflow
    async def flow() -> str:
        async def own() -> None:
            await asyncio.Event().wait()

        group = [trap(rt.sleep(HOUR)), trap(own()), trap(acts.act("slow")), acts.act("fast")]  # type: ignore[operator]
        winner, _ = await rt.first(*group)
        await rt.sleep(2 * HOUR)
        return await acts.act(f"after-{winner}")

    acts.hold("slow")
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await acts.reached("slow")
        acts.let_go("slow")
        await reaches(run, "waiting")
        await out_of_memory(app)
        clock.advance(2 * HOUR)
        assert await finished(run) == "after-3"
        assert later.begun == []
        await audit(app, run)


# ---------------------------------------------------------------- boundaries
@pytest.mark.parametrize("verb", ["pause", "cancel"])
async def test_no_branch_begins_a_step_once_a_request_was_heard(
    database: Path, clock: ManualClock, acts: Acts, verb: str
):
    """Branches in their own code come to their next call after the request, each in its own time."""
    gates = [Gate() for _ in range(3)]

    @rt.workflow
    async def flow() -> str:
        async def item(number: int) -> None:
            with contextlib.suppress(asyncio.CancelledError):
                await gates[number].pass_through()
            await acts.act(f"n{number}")

        await rt.map(item, range(3))
        return "done"

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        for gate in gates:
            await gate.reached()
        await (run.pause() if verb == "pause" else run.cancel())
        clock.advance(1)
        await until_asked(app)
        for gate in gates:
            gate.open()
        await reaches(run, "paused" if verb == "pause" else "cancelled")
        assert acts.begun == []
        if verb == "pause":
            await run.resume()
            assert await finished(run) == "done"


async def test_a_branch_whose_step_waits_for_its_next_attempt_parks_and_the_attempt_comes_in_time(
    database: Path, clock: ManualClock
):
    calls: list[str] = []

    @rt.step(retry=rt.Retry(3, first_delay=600, factor=1, jitter=False))
    async def flaky(name: str) -> str:
        calls.append(f"{name}{rt.this_step().attempt}")
        if rt.this_step().attempt < 3:
            raise ConnectionError(name)
        return name

    @rt.workflow
    async def flow() -> list[Any]:
        return list(await rt.gather(flaky("a"), rt.sleep(HOUR), flaky("b")))

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        for attempt in (1, 2):
            await until(lambda attempt=attempt: {f"a{attempt}", f"b{attempt}"} <= set(calls))
            await reaches(run, "waiting")
            await out_of_memory(app)
            clock.advance(600)
        await until_recorded(run, 3)
        await reaches(run, "waiting")
        clock.advance(HOUR)
        assert await finished(run) == ["a", None, "b"]
        assert sorted(calls) == ["a1", "a2", "a3", "b1", "b2", "b3"]
        _, attempts = await app.service.steps(run.id)
        assert len(attempts) == 4


async def test_effects_of_several_branches_are_written_together(
    database: Path, acts: Acts, monkeypatch: pytest.MonkeyPatch
):
    faulty = install(monkeypatch)

    @rt.workflow
    async def flow() -> int:
        return len(await rt.map(acts.act, [f"n{number}" for number in range(40)]))

    async with opened(database, flow) as app:
        run = await app.start(flow)
        assert await finished(run) == 40
        steps = [len(effects.steps) for batch in faulty.batches for effects in batch if effects.end is None]
        assert sum(steps) == 41
        assert max(steps) > 10
        for batch in faulty.batches:
            assert len({effects.run_id for effects in batch}) == len(batch)
            assert all(not effects.steps for effects in batch if effects.end is not None), "an end comes alone"
