"""Workers, their leases, and what becomes of the runs of those that are gone."""

import asyncio

import pytest
from tests.conformance.stage import LEASE, SECOND, Stage, step

from runtrue.errors import Conflict
from runtrue.lifecycle import OWNED, Command, HoldKind, Status
from runtrue.records import InFlight
from runtrue.store.protocol import Heartbeat, OwnedRun, Recorded


async def lose_again(stage: Stage, number: int) -> None:
    """A new worker claims the run and is lost."""
    stage.clock.advance(400)
    await stage.claim(f"w{number}")
    await stage.lose(f"w{number}")
    await stage.store.sweep()


# ---------------------------------------------------------------- leases
async def test_a_worker_is_what_it_told_of_itself(stage: Stage):
    await stage.worker()
    stage.clock.advance(1)
    flying = [InFlight("r", "charge", 2, 5)]
    beat = Heartbeat("w", LEASE, 7, flying, stalled_in="charge of run r", fenced_writes=3)
    assert stage.store.renew(beat) == []
    (worker,) = await stage.store.workers()
    now = stage.clock.now()
    assert (worker.host, worker.pid, worker.status, worker.slots) == ("host", 7, "alive", 10)
    assert (worker.started_at, worker.heartbeat_at, worker.lease_until) == (now - SECOND, now, now + LEASE)
    assert (worker.loop_seen_at, worker.serves, worker.in_flight) == (7, ["flow@1"], flying)
    assert (worker.stalled_in, worker.fenced_writes, worker.runs_held) == ("charge of run r", 3, 0)


async def test_a_worker_id_is_used_once(stage: Stage):
    await stage.worker()
    with pytest.raises(Conflict, match="worker id w was used before"):
        await stage.worker()


async def test_a_renewal_brings_back_what_the_worker_owns(stage: Stage):
    await stage.make(Status.PAUSING, "b")
    await stage.make(Status.RUNNING, "a")
    await stage.make(Status.CANCELLING, "c")
    await stage.make(Status.PAUSED, "d")
    await stage.running("e", "other")
    assert await stage.renew() == [
        OwnedRun("a", 1, Status.RUNNING, 0),
        OwnedRun("b", 1, Status.PAUSING, 0),
        OwnedRun("c", 1, Status.CANCELLING, 0),
    ]
    assert {worker.id: worker.runs_held for worker in await stage.store.workers()} == {"w": 3, "other": 1}


async def test_a_renewal_from_a_foreign_thread_works_while_the_loop_is_blocked(stage: Stage):
    await stage.worker()
    beat = Heartbeat("w", LEASE, stage.clock.now())
    assert await asyncio.gather(*(asyncio.to_thread(stage.store.renew, beat) for _ in range(5))) == [[]] * 5
    # Called here it blocks the event loop, as user code might: the answer must not need it.
    assert stage.store.renew(beat) == []


async def test_expiry_is_one_way(stage: Stage):
    await stage.running()
    await stage.lose()
    assert await stage.renew() is not None, "late, but nobody has found it lost yet"
    await stage.lose()
    swept = await stage.store.sweep()
    assert (swept.workers_lost, swept.runs_released) == (["w"], 1)
    assert await stage.renew() is None
    assert (await stage.store.workers())[0].status == "lost"
    await stage.store.retire_worker("w")
    assert (await stage.store.workers())[0].status == "lost"
    assert (await stage.run()).status is Status.PENDING


async def test_a_lease_that_has_not_run_out_is_left_alone(stage: Stage):
    await stage.running()
    stage.clock.advance(LEASE / SECOND)
    swept = await stage.store.sweep()
    assert (swept.workers_lost, swept.runs_released, swept.more) == ([], 0, False)
    assert (await stage.run()).status is Status.RUNNING


async def test_what_a_worker_left_when_it_said_goodbye_is_swept_at_once(stage: Stage):
    await stage.running()
    await stage.store.retire_worker("w")
    assert await stage.renew() is None
    swept = await stage.store.sweep()
    assert (swept.workers_lost, swept.runs_released) == ([], 1)
    assert (await stage.last_event()).data["cause"] == "it stopped before it let go of the run"


# ---------------------------------------------------------------- runs without an owner
@pytest.mark.parametrize("status", sorted(OWNED))
async def test_a_run_without_an_owner_is_put_right_by_its_status(stage: Stage, status: Status):
    claimed = await stage.make(status)
    assert claimed is not None
    await stage.lose()
    assert (await stage.store.sweep()).runs_released == 1
    run = await stage.run()
    events = await stage.store.events("r")
    lost = next(event for event in events if event.type == "worker_lost")
    assert (lost.data["worker"], lost.data["epoch"], lost.data["cause"]) == ("w", 1, "its lease ran out")
    expected = {
        Status.RUNNING: (Status.PENDING, "worker_lost"),
        Status.PAUSING: (Status.PAUSED, "paused"),
        Status.CANCELLING: (Status.CANCELLED, "cancelled"),
    }
    assert (run.status, events[-1].type) == expected[status]
    assert (run.worker_id, run.losses, run.attempt) == (None, 1, 2)
    assert len(await stage.store.pauses("r")) == (1 if status is Status.PAUSING else 0)
    assert (await stage.record(claimed, step(9))).recorded is Recorded.FENCED


async def test_a_run_whose_pause_the_sweeper_completed_can_be_resumed(stage: Stage):
    await stage.make(Status.PAUSING)
    await stage.lose()
    await stage.store.sweep()
    assert (await stage.verb(Command.RESUME)).status is Status.PENDING


async def test_the_first_loss_costs_no_time_and_the_next_ones_double(stage: Stage):
    await stage.start()
    delays: list[int] = []
    for number in range(4):
        await lose_again(stage, number)
        delays.append((await stage.run()).ready_at - stage.clock.now())
    assert delays == [0, 1 * SECOND, 2 * SECOND, 4 * SECOND]


async def test_the_fifth_loss_without_a_new_step_holds_the_run(stage: Stage):
    await stage.start()
    for number in range(5):
        await lose_again(stage, number)
    run = await stage.run()
    (hold,) = await stage.store.holds("r")
    assert (run.status, run.losses, run.attempt, run.open_run_holds) == (Status.PAUSED, 5, 6, 1)
    assert hold.kind is HoldKind.KEEPS_LOSING_ITS_WORKER
    assert hold.reason == "5 workers were lost without a newly recorded step"
    assert len(await stage.store.pauses("r")) == 1
    assert (await stage.event_types())[-3:] == ["worker_lost", "hold_opened", "paused"]
    await stage.verb(Command.ANSWER, value="retry")
    assert await stage.claim("w9") != []


async def test_the_hold_after_five_losses_names_the_step_that_the_last_worker_told(stage: Stage):
    await stage.start()
    await stage.start("other")
    for number in range(4):
        await lose_again(stage, number)
    stage.clock.advance(400)
    await stage.claim("w9")
    told = [InFlight("other", "reserve", 1, stage.clock.now()), InFlight("r", "charge", 2, stage.clock.now())]
    await stage.renew("w9", in_flight=told)
    await stage.lose("w9")
    await stage.store.sweep()
    (hold,) = await stage.store.holds("r")
    assert hold.reason == (
        "5 workers were lost without a newly recorded step; "
        "the last one was in step charge (attempt 2) at its last heartbeat"
    )


async def test_a_cancelled_run_ends_cancelled_however_many_workers_it_lost(stage: Stage):
    await stage.start()
    for number in range(4):
        await lose_again(stage, number)
    stage.clock.advance(400)
    await stage.claim("w9")
    await stage.verb(Command.CANCEL)
    await stage.lose("w9")
    swept = await stage.store.sweep()
    assert (swept.runs_held, (await stage.run()).status) == (0, Status.CANCELLED)


async def test_a_new_step_starts_the_count_of_losses_again(stage: Stage):
    await stage.start()
    for number in range(4):
        await lose_again(stage, number)
    stage.clock.advance(400)
    (claimed,) = await stage.claim("w9")
    await stage.record(claimed, step(1), worker_id="w9")
    await stage.lose("w9")
    assert (await stage.store.sweep()).runs_held == 0
    run = await stage.run()
    assert (run.status, run.losses, run.attempt) == (Status.PENDING, 1, 6)


async def test_a_round_of_the_sweeper_is_bounded_and_says_that_there_is_more(stage: Stage):
    for number in range(5):
        await stage.start(f"r{number}")
    await stage.claim()
    await stage.lose()
    rounds = [await stage.store.sweep(limit=2) for _ in range(4)]
    assert [(swept.runs_released, swept.more) for swept in rounds] == [(2, True), (2, True), (1, False), (0, False)]
    assert [swept.workers_lost for swept in rounds] == [["w"], [], [], []]


async def test_sweepers_at_once_release_each_run_once(stage: Stage):
    for number in range(30):
        await stage.start(f"r{number:02}")
    await stage.claim(limit=30)
    await stage.lose()
    rounds = await asyncio.gather(*(stage.store.sweep(limit=10) for _ in range(5)))
    assert sum(swept.runs_released for swept in rounds) == 30
    assert {(await stage.run(f"r{number:02}")).losses for number in range(30)} == {1}


@pytest.mark.prove
async def test_ten_thousand_lost_runs_are_put_right(stage: Stage):
    await _lose_many(stage, 10_000)


async def test_a_thousand_lost_runs_are_put_right(stage: Stage):
    await _lose_many(stage, 1_000)


async def _lose_many(stage: Stage, count: int) -> None:
    for number in range(count):
        await stage.start(f"r{number:05}")
    await stage.worker()
    while await stage.store.claim("w", (("flow", "1"),), 500):
        pass
    await stage.lose()
    while (await stage.store.sweep()).more:
        pass
    assert await stage.store.count_runs() == {Status.PENDING: count}
