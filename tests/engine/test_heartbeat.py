"""The lease as the worker itself counts it."""

import threading
from pathlib import Path
from typing import Any

from tests.engine.running import Gate, opened, recorded, until
from tests.support.manual_clock import ManualClock
from tests.support.waiting import CLOCK

import runtrue as rt
from runtrue.engine.heartbeat import HeartbeatThread, LeaseTimes
from runtrue.store.protocol import Heartbeat, OwnedRun


class SlowStore:
    """Answers each renewal four seconds after it was sent."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def renew(self, beat: Heartbeat) -> list[OwnedRun]:
        self._clock.advance(4)
        return []


async def test_a_lease_counts_from_before_the_renewal_was_sent_and_ends_a_margin_early():
    """The database grants it some time between sending and hearing; only the earlier moment is safe."""
    clock = ManualClock()
    heard = threading.Event()
    given: dict[str, Any] = {
        "make_beat": lambda _: Heartbeat("w", 15_000_000, 0),
        "is_busy": lambda: False,
        "on_owned": lambda *_: heard.set(),
        "on_lost": lambda: None,
        "on_stalled": lambda _: None,
        "on_unusable": lambda _: None,
        "ask_loop": lambda answer: answer(),
        "stall_limit_seconds": 0,
    }
    times = LeaseTimes.of(15)
    heartbeat = HeartbeatThread(SlowStore(clock), clock, times, **given)  # type: ignore[arg-type]
    sent_at = clock.steady()
    heartbeat.start(sent_at - 9)
    try:
        await until(heard.is_set)
        assert times.margin == 3
        assert heartbeat.fence_at == sent_at + 15 - 3
    finally:
        heartbeat.stop()
        heartbeat.join(10)


async def test_a_worker_that_gave_its_lease_up_executes_nothing_though_the_lease_still_runs(database: Path):
    """The loop stands still over its limit; when it turns again, the code that held it up is still in the middle."""
    calls: list[str] = []
    gave_up_under: list[str] = []

    @rt.step
    async def work() -> None:
        calls.append("work")

    @rt.workflow
    async def flow() -> None:
        worker = app._worker
        assert worker is not None
        gave_up_under.append(worker.id)
        deadline = CLOCK.steady() + 30
        while not worker._gave_up and CLOCK.steady() < deadline:
            CLOCK.wait_in_thread(threading.Event(), 0.005)
        await work()

    async with opened(database, flow, lease=60, stall_limit=0.2, drain=0) as app:
        await app.start(flow)
        await until(lambda: bool(gave_up_under) and app.worker_id not in ("", *gave_up_under))
        assert calls == []


async def test_a_worker_that_lost_its_lease_lets_go_of_its_runs_at_once(database: Path, clock: ManualClock):
    """Others may have them already. The next renewal, under the new id, would tell it too, but only later."""
    gate = Gate()

    @rt.step
    async def work() -> None:
        await gate.pass_through()

    @rt.workflow
    async def flow() -> None:
        await work()

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await gate.reached()
        worker = app._worker
        assert worker is not None
        (execution,) = worker._executions.values()
        before = worker.id
        worker._lost.set()
        await until(lambda: worker.id != before)
        assert execution.gone
        gate.open()
        await until(lambda: worker.running == 0)
        assert await recorded(app, run) == [], "though by the row the run is still the old worker's"
        assert worker.fenced_writes == 1
