"""`def` steps that are awaited: they run on the threads of the pool, and a thread cannot be ended."""

import asyncio
import contextvars
import logging
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.engine.running import Gate, audit, failure, finished, opened, reaches, recorded, until, until_heard
from tests.support import waiting
from tests.support.manual_clock import ManualClock
from tests.support.thread_gate import SOON_SECONDS, ThreadGate, our_threads

import runtrue as rt
from runtrue.lifecycle import Status

COLOUR: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")


@pytest.fixture(autouse=True)
async def _no_thread_outlives_its_test() -> AsyncIterator[None]:
    before = our_threads()
    yield
    await waiting.until(lambda: our_threads() <= before, lambda: f"no thread is left: {our_threads()}", seconds=10)


@pytest.fixture
def gate() -> ThreadGate:
    return ThreadGate()


async def attempts_of(app: rt.App, run: rt.RunHandle[Any]) -> list[str]:
    _, attempts = await app.service.steps(run.id)
    return [attempt.error.decode() for attempt in attempts]


@rt.step
async def double(number: int) -> int:
    return 2 * number


@rt.workflow
async def doubling(number: int) -> int:
    return await double(number)


async def others_come_and_go(app: rt.App) -> None:
    """Whatever is on its way in this worker has had the time to get there: other runs have begun since, and ended."""
    for number in range(3):
        await finished(await app.start(doubling, number))


# ------------------------------------------------------------ results, errors, attempts
async def test_it_runs_beside_the_loop_on_a_daemon_thread_of_the_pool_and_its_result_is_recorded(database: Path):
    seen: list[threading.Thread] = []

    @rt.step
    def measure(number: int) -> datetime:
        seen.append(threading.current_thread())
        return datetime(2026, 1, number, tzinfo=UTC)

    @rt.workflow
    async def flow() -> int:
        first = await measure.aio(1)
        await rt.sleep(2)
        return (await measure.aio(9) - first).days

    async with opened(database, flow) as app:
        run = await app.start(flow)
        assert await finished(run) == 8
        assert await recorded(app, run) == [("measure", 1), ("sleep", 1), ("measure", 1)]
    assert len(seen) == 2, "what is recorded is not called again"
    assert all(thread.daemon and thread.name.startswith("runtrue-step-") for thread in seen)


class Refusal(Exception):
    pass


@pytest.mark.parametrize("kind", [ValueError, StopIteration, SystemExit, GeneratorExit, StopAsyncIteration])
async def test_whatever_it_raises_fails_its_step_and_nothing_else(database: Path, kind: type[BaseException]):
    @rt.step
    def broken() -> None:
        raise kind("no")

    @rt.step
    def fine() -> str:
        return "fine"

    @rt.workflow
    async def flow() -> str:
        try:
            await broken.aio()
        except rt.StepFailed as failed:
            return f"{failed.error.type}; {await fine.aio()}"
        return "not raised"

    async with opened(database, flow, threads=1) as app:
        assert await finished(await app.start(flow)) == f"{kind.__name__}; fine"


async def test_a_declared_error_is_the_same_class_live_and_on_replay(database: Path):
    @rt.step(raises=(Refusal,))
    def refuse() -> None:
        raise Refusal("the card")

    @rt.workflow
    async def flow() -> str:
        try:
            await refuse.aio()
        except Refusal as refusal:
            await rt.sleep(1.1)
            return str(refusal)
        return "not raised"

    async with opened(database, flow) as app:
        assert await finished(await app.start(flow)) == "the card"


async def test_asyncios_own_cancelled_error_raised_on_a_thread_is_an_error_like_others(database: Path):
    @rt.step
    def strange() -> None:
        raise asyncio.CancelledError

    @rt.workflow
    async def flow() -> None:
        await strange.aio()

    async with opened(database, flow) as app:
        assert "raised CancelledError; nobody had cancelled it" in (await failure(await app.start(flow))).message


async def test_it_is_tried_again_and_each_attempt_knows_its_number_and_shares_the_key(database: Path):
    seen: list[tuple[int, str]] = []

    @rt.step(retry=rt.Retry(3, first_delay=0))
    def flaky() -> str:
        step = rt.this_step()
        seen.append((step.attempt, step.idempotency_key))
        if step.attempt < 3:
            raise OSError("busy")
        return "through"

    @rt.workflow
    async def flow() -> str:
        return await flaky.aio()

    async with opened(database, flow) as app:
        run = await app.start(flow)
        assert await finished(run) == "through"
        assert seen == [(number, f"{run.id}/0") for number in (1, 2, 3)]


async def test_cancel_run_raised_in_it_ends_the_run(database: Path):
    @rt.step
    def give_up() -> None:
        raise rt.CancelRun("sold out")

    @rt.workflow
    async def flow() -> None:
        await give_up.aio()

    async with opened(database, flow) as app:
        with pytest.raises(rt.RunCancelled, match="sold out"):
            await finished(await app.start(flow))


# ------------------------------------------------------------ what it can ask
async def test_all_that_a_step_may_ask_works_on_its_thread(
    database: Path, caplog: pytest.LogCaptureFixture, gate: ThreadGate
):
    seen: dict[str, Any] = {}

    @rt.step(name="look around")
    def look() -> None:
        rt.logger.warning("looking")
        rt.set_progress(done=1, total=2, note="half")
        seen.update(
            step=rt.this_step().name,
            run=rt.this_run().id,
            replaying=rt.this_run().replaying,
            state=rt.state(dict),
            inherited=COLOUR.get(),
            asked=rt.this_step().cancel_requested(),
        )
        COLOUR.set("green")

    @rt.workflow
    async def flow() -> str:
        COLOUR.set("red")
        await look.aio()
        await asyncio.to_thread(gate.pass_through)
        return COLOUR.get()

    with caplog.at_level(logging.WARNING, "runtrue.run"):
        async with opened(database, flow, lifespan=yielding({"pool": 1})) as app:
            run = await app.start(flow)
            await gate.reached()
            progress = (await app.service.get(run.id)).progress
            gate.open()
            assert await finished(run) == "red", "the thread has a copy of the context"
    assert progress is not None
    assert (progress.done, progress.total, progress.note) == (1, 2, "half")
    assert seen == {
        "step": "look around",
        "run": run.id,
        "replaying": False,
        "state": {"pool": 1},
        "inherited": "red",
        "asked": False,
    }
    (told,) = caplog.records
    assert (told.run_id, told.workflow, told.step, told.attempt) == (run.id, "flow", "look around", 1)


def yielding(value: object) -> Any:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[object]:
        yield value

    return lifespan


async def test_a_step_called_within_it_is_its_function_on_the_same_thread(database: Path):
    @rt.step
    def inner() -> tuple[int, str]:
        return threading.get_ident(), rt.this_step().name

    @rt.step
    def outer() -> bool:
        return inner() == (threading.get_ident(), "outer")

    @rt.workflow
    async def flow() -> bool:
        return await outer.aio()

    async with opened(database, flow) as app:
        run = await app.start(flow)
        assert await finished(run)
        assert await recorded(app, run) == [("outer", 1)]


# ------------------------------------------------------------ how many at once
async def test_no_more_run_at_once_than_threads_whatever_the_slots(database: Path):
    lock, barrier = threading.Lock(), threading.Barrier(2, timeout=SOON_SECONDS)
    most = now = 0

    @rt.step
    def work() -> int:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        barrier.wait()  # two are there at a time
        with lock:
            now -= 1
        barrier.wait()
        return 1

    @rt.workflow
    async def flow() -> int:
        return await work.aio()

    async with opened(database, flow, slots=100, threads=2) as app:
        runs = [await app.start(flow) for _ in range(100)]
        assert sum([await finished(run) for run in runs]) == 100
        assert most == 2
        assert sum(thread.name.startswith("runtrue-step-") for thread in threading.enumerate()) == 2


async def test_a_map_of_a_blocking_step_waits_for_threads_in_order(database: Path):
    order: list[int] = []

    @rt.step
    def note(number: int) -> int:
        order.append(number)
        return number

    @rt.workflow
    async def flow() -> list[int]:
        return await rt.map(note, range(50))

    async with opened(database, flow, threads=1) as app:
        assert await finished(await app.start(flow)) == list(range(50))
        assert order == list(range(50))


class Queue:
    """One run holds the only thread, another waits for it."""

    def __init__(self) -> None:
        self.gate = ThreadGate()
        self.called: list[str] = []

        @rt.step
        def hold() -> None:
            self.gate.pass_through()

        @rt.step
        def use(who: str) -> str:
            self.called.append(who)
            return who

        @rt.workflow
        async def holding() -> None:
            await hold.aio()

        @rt.workflow
        async def queueing(who: str) -> str:
            return await use.aio(who)

        self.holding, self.queueing = holding, queueing

    async def begin(self, app: rt.App, *who: str) -> tuple[rt.RunHandle[None], list[rt.RunHandle[str]]]:
        holder = await app.start(self.holding)
        await self.gate.reached()
        runs = []
        for each in who:
            runs.append(await app.start(self.queueing, each))
            await until(lambda: waits_for_threads(app) == len(runs))
        return holder, runs


def waits_for_threads(app: rt.App) -> int:
    assert app._worker is not None
    return sum(not turn.is_over for turn in app._worker.threads._queue)


@pytest.fixture
def line() -> Queue:
    return Queue()


async def test_a_run_that_waits_for_a_thread_is_paused_at_once_and_goes_on_after_the_resume(
    database: Path, line: Queue
):
    async with opened(database, line.holding, line.queueing, threads=1) as app:
        holder, (run,) = await line.begin(app, "a")
        await run.pause()
        await reaches(run, "paused")
        await run.resume()
        await until(lambda: waits_for_threads(app) == 1)
        line.gate.open()
        assert await finished(run) == "a"
        await finished(holder)
        assert line.called == ["a"]
        await audit(app, run)


async def test_a_run_that_waits_for_a_thread_is_cancelled_at_once_and_the_next_one_has_its_turn(
    database: Path, line: Queue
):
    async with opened(database, line.holding, line.queueing, threads=1) as app:
        _, (first, second) = await line.begin(app, "a", "b")
        await first.cancel()
        await reaches(first, "cancelled")
        line.gate.open()
        assert await finished(second) == "b"
        assert line.called == ["b"]


async def test_a_run_that_waits_for_a_thread_is_given_back_when_its_worker_drains(database: Path, line: Queue):
    async with opened(database, line.holding, line.queueing, threads=1) as app:
        _, (run,) = await line.begin(app, "a")
        closing = asyncio.create_task(app.close())
        async with rt.Client(database) as client:
            found = await client.get(run.id)

            async def given_back() -> bool:
                return await found.status() is Status.PENDING

            await waiting.until(given_back, "the run was given back", seconds=SOON_SECONDS)
        line.gate.open()
        await closing
    assert line.called == []


async def test_a_run_that_waits_for_a_thread_is_no_step_in_flight(database: Path, line: Queue):
    async with opened(database, line.holding, line.queueing, threads=1) as app:
        _, (run,) = await line.begin(app, "a")
        worker = app._worker
        assert worker is not None
        flights = {each.run_id: each.steps_in_flight() for each in worker._executions.values()}
        assert flights[run.id] == []
        line.gate.open()
        await finished(run)


async def test_who_waits_for_a_thread_is_unwound_with_its_group_and_takes_no_turn(database: Path, line: Queue):
    @rt.step
    async def quick() -> str:
        await line.gate.reached()
        return "quick"

    use = line.queueing

    @rt.step
    def slow() -> str:
        line.called.append("slow")
        return "slow"

    @rt.workflow
    async def race() -> str:
        _, winner = await rt.first(slow.aio(), quick())
        return winner

    async with opened(database, line.holding, use, race, threads=1) as app:
        holder, _ = await line.begin(app)
        assert await finished(await app.start(race)) == "quick"
        line.gate.open()
        await finished(holder)
        assert await finished(await app.start(use, "next")) == "next"
        assert line.called == ["next"]


async def test_a_run_that_is_to_stop_when_its_turn_comes_leaves_the_thread_to_others(database: Path, line: Queue):
    gate = Gate()

    @rt.step
    async def beside() -> None:
        await gate.pass_through()

    @rt.step
    def use() -> None:
        line.called.append("both")

    @rt.workflow
    async def both() -> None:
        await rt.gather(beside(), use.aio())

    async with opened(database, line.holding, line.queueing, both, threads=1) as app:
        holder, _ = await line.begin(app)
        stopping = await app.start(both)
        await gate.reached()
        await until(lambda: waits_for_threads(app) == 1)
        next_one = await app.start(line.queueing, "next")
        await until(lambda: waits_for_threads(app) == 2)
        await stopping.pause()
        await until_pausing(app, stopping)
        line.gate.open()
        assert await finished(next_one) == "next"
        assert await stopping.status() is Status.PAUSING
        gate.open()
        await reaches(stopping, "paused")
        assert line.called == ["next"]
        await stopping.resume()
        await finished(stopping)
        await finished(holder)


async def until_pausing(app: rt.App, run: rt.RunHandle[Any]) -> None:
    """The worker has heard that the run is to pause."""
    worker = app._worker
    assert worker is not None
    await until(lambda: all(each.is_asked for each in worker._executions.values() if each.run_id == run.id))


async def test_a_short_sleep_ends_in_time_beside_a_branch_that_waits_for_a_thread(database: Path, line: Queue):
    @rt.step
    def slow() -> str:
        return "slow"

    @rt.workflow
    async def race() -> str:
        number, _ = await rt.first(slow.aio(), rt.sleep(0.2))
        return "slept" if number else "slow"

    async with opened(database, line.holding, race, threads=1) as app:
        holder, _ = await line.begin(app)
        assert await finished(await app.start(race)) == "slept"
        line.gate.open()
        await finished(holder)


async def test_the_deadline_of_a_step_holds_while_it_waits_for_a_thread_too(
    database: Path, line: Queue, clock: ManualClock
):
    @rt.step(deadline=60, retry=5)
    def late() -> None:
        line.called.append("late")

    @rt.workflow
    async def flow() -> None:
        await late.aio()

    async with opened(database, line.holding, line.queueing, flow, clock=clock, threads=1) as app:
        holder, _ = await line.begin(app)
        run = await app.start(flow)
        await until(lambda: waits_for_threads(app) == 1)
        clock.advance(61)
        error = await failure(run)
        assert "step late took longer than its deadline of 60 s" in error.message
        line.gate.open()
        await finished(holder)
        assert line.called == []
        assert await finished(await app.start(line.queueing, "next")) == "next", "its turn is the next one's"


async def test_an_attempt_begins_when_it_has_its_thread_and_its_timeout_counts_from_then(
    database: Path, line: Queue, clock: ManualClock
):
    @rt.step(timeout=60)
    def patient() -> str:
        return "in time"

    @rt.workflow
    async def flow() -> str:
        return await patient.aio()

    async with opened(database, line.holding, flow, clock=clock, threads=1) as app:
        holder, _ = await line.begin(app)
        run = await app.start(flow)
        await until(lambda: waits_for_threads(app) == 1)
        clock.advance(90)
        line.gate.open()
        assert await finished(run) == "in time"
        await finished(holder)
        (step,), _ = await app.service.steps(run.id)
        assert step.started_at == clock.now()


# ------------------------------------------------------------ timeouts
class Slow:
    """A blocking step that hangs in its first attempt, and the order in which its attempts begin and end."""

    def __init__(self, **settings: Any) -> None:
        self.gate = ThreadGate()
        self.told: list[str] = []
        self.infos: list[rt.StepInfo] = []
        self.asked = Counter[int]()

        @rt.step(**{"timeout": 30, "retry": rt.Retry(2, first_delay=0), **settings})
        def slow() -> str:
            step = rt.this_step()
            self.infos.append(step)
            number = step.attempt
            self.told.append(f"{number} begins")
            try:
                if number == 1:
                    self.gate.pass_through()
                self.asked[number] += step.cancel_requested()
            finally:
                self.told.append(f"{number} ends")
            return f"from {number}"

        @rt.workflow
        async def flow() -> str:
            return await slow.aio()

        self.flow = flow


async def test_after_its_timeout_an_attempt_is_waited_for_and_only_then_the_next_one_begins(
    database: Path, clock: ManualClock
):
    slow = Slow()
    async with opened(database, slow.flow, doubling, clock=clock) as app:
        run = await app.start(slow.flow)
        await slow.gate.reached()
        await clock.sleeper(30)
        clock.advance(30)
        await until(lambda: all(info.cancel_requested() for info in slow.infos))
        await others_come_and_go(app)
        assert slow.told == ["1 begins"]
        slow.gate.open()
        assert await finished(run) == "from 2", "what came too late is discarded"
        assert slow.told == ["1 begins", "1 ends", "2 begins", "2 ends"]
        assert slow.asked == {1: 1, 2: 0}, "the late attempt is asked to end, the next one is not"
        (error,) = await attempts_of(app, run)
        assert "step slow took longer than its timeout of 30 s" in error


async def test_a_step_that_abandons_at_its_timeout_is_tried_again_at_once_and_the_late_return_is_discarded(
    database: Path, clock: ManualClock
):
    slow = Slow(timeout_abandons=True)
    async with opened(database, slow.flow, clock=clock) as app:
        run = await app.start(slow.flow)
        await slow.gate.reached()
        await clock.sleeper(30)
        clock.advance(30)
        assert await finished(run) == "from 2"
        assert slow.told == ["1 begins", "2 begins", "2 ends"]
        slow.gate.open()
        await until(lambda: len(slow.told) == 4)
        assert slow.asked == {1: 1, 2: 0}, "the abandoned attempt is asked to end, the other is not"
        assert await recorded(app, run) == [("slow", 2)]


async def test_an_abandoned_attempt_keeps_its_thread_until_it_returns(database: Path, clock: ManualClock):
    slow = Slow(timeout_abandons=True)
    async with opened(database, slow.flow, clock=clock, threads=1) as app:
        run = await app.start(slow.flow)
        await slow.gate.reached()
        await clock.sleeper(30)
        clock.advance(30)
        await until(lambda: waits_for_threads(app) == 1)
        slow.gate.open()
        assert await finished(run) == "from 2"
        assert slow.told == ["1 begins", "1 ends", "2 begins", "2 ends"]


async def test_the_deadline_over_all_attempts_ends_the_one_in_flight_and_there_is_no_further(
    database: Path, clock: ManualClock
):
    slow = Slow(timeout=None, deadline=45, retry=rt.Retry(9, first_delay=0))
    async with opened(database, slow.flow, clock=clock) as app:
        run = await app.start(slow.flow)
        await slow.gate.reached()
        await clock.sleeper(45)
        clock.advance(45)
        slow.gate.open()
        error = await failure(run)
        assert "step slow failed after 1 attempt" in error.message
        assert "step slow took longer than its deadline of 45 s" in error.message
        assert slow.told == ["1 begins", "1 ends"]


async def test_a_timeout_error_of_its_own_is_told_apart_from_the_engines(database: Path):
    @rt.step(timeout=30)
    def own() -> None:
        raise TimeoutError("the service did not answer")

    @rt.workflow
    async def flow() -> None:
        await own.aio()

    async with opened(database, flow) as app:
        assert (await failure(await app.start(flow))).message.endswith("TimeoutError: the service did not answer")


# ------------------------------------------------------------ cancel, terminate, drain
@pytest.mark.parametrize("interruptible", [False, True])
async def test_a_cancelled_run_stays_cancelling_until_its_thread_has_returned(
    database: Path, clock: ManualClock, interruptible: bool
):
    slow = Slow(timeout=None, interruptible=interruptible)
    async with opened(database, slow.flow, clock=clock) as app:
        run = await app.start(slow.flow)
        await slow.gate.reached()
        assert not (await run.cancel(reason="changed my mind")).done
        clock.advance(1.1)
        await until_heard(app)
        assert await run.status() is Status.CANCELLING
        slow.gate.open()
        with pytest.raises(rt.RunCancelled, match="changed my mind"):
            await finished(run)
        assert slow.told == ["1 begins", "1 ends"]
        assert slow.asked == {1: 1}, "it could see that a cancel was asked"
        await audit(app, run)


async def test_a_cancel_of_a_late_attempt_ends_the_run_when_it_has_returned_and_there_is_no_further(
    database: Path, clock: ManualClock
):
    slow = Slow()
    async with opened(database, slow.flow, clock=clock) as app:
        run = await app.start(slow.flow)
        await slow.gate.reached()
        await clock.sleeper(30)
        clock.advance(30)
        await run.cancel()
        clock.advance(1.1)
        await until_heard(app)
        slow.gate.open()
        await reaches(run, "cancelled")
        assert slow.told == ["1 begins", "1 ends"]


async def test_a_terminated_run_has_ended_at_once_and_its_thread_learns_of_it_by_asking(
    database: Path, clock: ManualClock
):
    slow = Slow(timeout=None)
    async with opened(database, slow.flow, clock=clock) as app:
        run = await app.start(slow.flow)
        await slow.gate.reached()
        assert (await run.terminate()).done
        clock.advance(1.1)
        await until_heard(app)
        slow.gate.open()
        await until(lambda: app._worker is not None and app._worker.is_idle)
        assert slow.asked == {1: 1}
        assert await recorded(app, run) == []


async def test_at_the_end_of_a_drain_a_run_is_given_back_though_its_thread_has_not_returned(
    database: Path, clock: ManualClock
):
    slow = Slow(timeout=None)
    async with opened(database, slow.flow, clock=clock, drain=0) as app:
        run = await app.start(slow.flow)
        await slow.gate.reached()
    assert slow.told == ["1 begins"], "nothing has waited for the thread"
    async with rt.Client(database) as client:
        found = await client.get(run.id)
        assert await found.status() is Status.PENDING
        assert await client.service.steps(run.id) == ([], [])
    slow.gate.open()


async def test_a_run_whose_step_somebody_else_cancels_fails_when_the_thread_has_returned(database: Path):
    gate, told = ThreadGate(), []

    @rt.step
    def slow() -> None:
        gate.pass_through()
        told.append("returned")

    @rt.workflow
    async def flow() -> None:
        async with asyncio.timeout(0.05):
            await slow.aio()

    async with opened(database, flow, doubling) as app:
        run = await app.start(flow)
        await gate.reached()
        execution = next(iter(app._worker._executions.values()))  # type: ignore[union-attr]
        await until(lambda: any(each.task.cancelling() for each in execution.strands.all))
        await others_come_and_go(app)
        assert await run.status() is Status.RUNNING
        gate.open()
        assert "give the step or wait a timeout= instead" in (await failure(run)).message
        assert told == ["returned"]


NEVER_RETURNS = """
import threading
import runtrue as rt

@rt.step
def never() -> None:
    print("begun", flush=True)
    threading.Event().wait()

@rt.workflow
async def flow() -> None:
    await never.aio()

app = rt.App("runs.db", workflows=[flow], drain=0.2)
"""


def test_a_step_that_never_returns_does_not_keep_the_worker_from_leaving(tmp_path: Path):
    (tmp_path / "hanging.py").write_text(NEVER_RETURNS)
    with rt.SyncClient(tmp_path / "runs.db") as client:
        command = [sys.executable, "-m", "runtrue", "worker", "hanging.py"]
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as worker:
            assert worker.stdout is not None
            run = client.start("flow")
            while b"begun" not in worker.stdout.readline():
                pass
            worker.send_signal(signal.SIGTERM)
            _, told = worker.communicate(timeout=SOON_SECONDS)
        assert worker.returncode == 0, told
        assert run.status() is Status.PENDING
