"""Children through a worker: what their parent gets, who ends with whom, and who is woken how often."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.hands import execute
from tests.engine import faults
from tests.engine.looking import Before, outside, passing, until_event, until_open, until_parked_for
from tests.engine.running import Gate, audit, event_types, failure, finished, opened, reaches, recorded
from tests.support.manual_clock import ManualClock
from tests.support.waiting import until

import runtrue as rt
import runtrue.sync
from runtrue.engine.children import id_of
from runtrue.lifecycle import Status

MINUTE = 60


class CardDeclined(Exception):
    def __init__(self, message: str, cents: int) -> None:
        super().__init__(message, cents)
        self.cents = cents


@rt.workflow
async def double(number: int) -> int:
    return 2 * number


@rt.workflow
def double_blocking(number: int) -> int:
    return 2 * number


@rt.workflow(raises=(CardDeclined,))
async def declines(cents: int) -> int:
    raise CardDeclined("no money", cents)


@rt.workflow
async def breaks() -> None:
    raise LookupError("no such order")


@rt.workflow
async def gives_up() -> None:
    raise rt.CancelRun("not today")


@rt.workflow
async def listens() -> str:
    return await rt.receive("note", str)


CHILDREN = [double, double_blocking, declines, breaks, gives_up, listens]


async def of(run: rt.RunHandle[Any], app: rt.Client) -> list[str]:
    """The ids of the run's children."""
    return [child.id for child in await app.store.children(run.id)]


# ---------------------------------------------------------------- what the parent gets
async def test_a_child_that_is_called_gives_its_result_whatever_its_colour_and_its_parents(database: Path):
    @rt.workflow
    async def parent() -> list[int]:
        handle = await rt.start_child(double, 4)
        return [await double(1), await double.aio(2), await double_blocking.aio(3), await handle.result()]

    @rt.workflow
    def blocking_parent() -> list[int]:
        handle = runtrue.sync.start_child(double, 4)
        return [double.sync(1), double_blocking(2), double_blocking.sync(3), handle.result()]

    async with opened(database, parent, blocking_parent, *CHILDREN) as app:
        runs = [await app.start(parent), await app.start(blocking_parent)]
        for run in runs:
            assert await finished(run) == [2, 4, 6, 8]
            assert await of(run, app) == [f"{run.id}~{place}" for place in (0, 1, 2, 3)]
        await audit(app, runs[0])


@rt.workflow
async def tells(how: str) -> list[Any]:
    """What a parent is told of a child that did not complete, and the same after it slept."""
    told: list[Any] = []
    for _ in range(2):
        try:
            handle = await rt.start_child(
                {"declines": declines, "breaks": breaks, "gives up": gives_up}[how], *([7] * (how == "declines"))
            )
            await handle.result()
        except CardDeclined as declined:
            told.append(["CardDeclined", declined.cents])
        except rt.RunFailed as failed:
            told.append(["RunFailed", failed.error.type, failed.run_id == handle.id])
        except rt.RunCancelled as cancelled:
            told.append(["RunCancelled", cancelled.reason, cancelled.run_id == handle.id])
        if len(told) == 1:
            await rt.sleep(MINUTE)
    return told


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("declines", ["CardDeclined", 7]),
        ("breaks", ["RunFailed", "LookupError", True]),
        ("gives up", ["RunCancelled", "not today", True]),
    ],
)
async def test_what_became_of_a_child_is_told_in_the_same_words_live_and_on_replay(
    database: Path, clock: ManualClock, how: str, expected: list[Any]
):
    async with opened(database, tells, *CHILDREN, clock=clock) as app:
        run = await app.start(tells, how)
        await passing(clock, run)
        assert await finished(run) == [expected, expected]
        await audit(app, run)


async def test_a_child_that_nobody_waits_for_outlives_its_parent_that_completed(database: Path):
    @rt.workflow
    async def parent() -> str:
        return (await rt.start_child(listens)).id

    async with opened(database, parent, *CHILDREN) as app:
        child = await app.get(await finished(await app.start(parent)), listens)
        await app.store.sweep()
        await reaches(child, "waiting")
        await child.send("note", "still here")
        assert await finished(child) == "still here"


async def test_a_wait_for_a_run_that_is_not_there_says_so_live_and_on_replay(database: Path, clock: ManualClock):
    @rt.workflow
    async def parent() -> list[str]:
        told: list[str] = []
        child = await rt.start_child(double, 1)
        await child.result()
        await forget(child.id)
        for _ in range(2):
            try:
                await child.result()
            except rt.NotFound as missing:
                told.append(str(missing).partition(";")[0])
            await rt.sleep(MINUTE)
        return told

    @rt.step
    async def forget(run_id: str) -> None:
        for table, column in (("runtrue_runs", "id"), ("runtrue_run_payloads", "run_id")):
            execute(database, f"DELETE FROM {table} WHERE {column} = ?", run_id)

    async with opened(database, parent, double, clock=clock) as app:
        run = await app.start(parent.options(id="p"))
        await passing(clock, run)
        assert await finished(run) == ["no run p~0"] * 2


# ---------------------------------------------------------------- ids
async def test_a_given_id_is_the_childs_and_the_same_start_finds_the_same_child(database: Path):
    @rt.workflow
    async def parent() -> list[Any]:
        named = double.options(id="twice-four")
        first, second = await named(4), await (await rt.start_child(named, 4)).result()
        keyed = double.options(idempotency_key="k")
        third, fourth = await rt.start_child(keyed, 5), await rt.start_child(keyed, 5)
        told: list[Any] = [first, second, third.id == fourth.id, await fourth.result()]
        for call in (lambda: named(5), lambda: rt.start_child(keyed, 6), breaks.options(id="twice-four")):
            try:
                await call()
            except rt.Conflict as conflict:
                told.append(str(conflict).partition(";")[0])
        return told

    async with opened(database, parent, *CHILDREN) as app:
        run = await app.start(parent)
        told = await finished(run)
        assert told[:4] == [8, 8, True, 10]
        assert told[4:] == [
            "run twice-four was started before under this id with another input",
            f"run {run.id}~3 was started before under key k with another input",
            "run twice-four is of another workflow than breaks",
        ]


async def test_the_ids_of_grandchildren_tell_where_they_came_from_and_stay_short(database: Path):
    @rt.workflow
    async def down(levels: int) -> list[str]:
        if not levels:
            return [rt.this_run().id, rt.this_run().parent or ""]
        return [rt.this_run().id, *await down(levels - 1)]

    async with opened(database, down) as app:
        short = await finished(await app.start(down.options(id="top"), 3))
        assert short == ["top", "top~0", "top~0~0", "top~0~0~0", "top~0~0"]
        *ids, parent = await finished(await app.start(down.options(id="t" * 195), 5))
        assert len(set(ids)) == 6
        assert parent == ids[-2]
        assert max(len(run_id) for run_id in ids) <= 200
        assert all(run_id.startswith("t" * 100) for run_id in ids)


async def test_children_of_branches_have_ids_of_their_own_that_name_their_place(database: Path):
    @rt.workflow
    async def parent() -> list[int]:
        keyed = await rt.map(double, [1, 2], key=lambda number: f"item {number}/x")
        plain = await rt.gather(double(3), double(4))
        return [*keyed, *plain]

    async with opened(database, parent, *CHILDREN) as app:
        run = await app.start(parent.options(id="p"))
        assert await finished(run) == [2, 4, 6, 8]
        ids = await of(run, app)
        assert len(ids) == 4
        assert all(run_id.startswith("p~") for run_id in ids), ids


# ---------------------------------------------------------------- who ends with whom
@rt.workflow
async def three_levels(levels: int, policy: str) -> str:
    if not levels:
        return await rt.receive("note", str)
    child = three_levels.options(id=f"level-{levels - 1}", on_parent_cancel=policy)  # type: ignore[arg-type]
    if levels % 2:
        return await (await rt.start_child(child, levels - 1, policy)).result()
    return await child(levels - 1, policy)


@pytest.mark.parametrize("verb", ["cancel", "terminate"])
@pytest.mark.parametrize("policy", ["cancel", "abandon"])
async def test_children_are_cancelled_with_their_parent_down_to_the_last_unless_they_are_to_be_left(
    database: Path, clock: ManualClock, verb: str, policy: str
):
    async with opened(database, three_levels, clock=clock) as app:
        run = await app.start(three_levels.options(id="level-3"), 3, policy)
        below = [app.handle(f"level-{level}", three_levels) for level in (2, 1, 0)]
        await until_known(app, "level-0")
        await until_parked_for(app, below[-1], "note")
        for waiting in (run, *below):
            await reaches(waiting, "waiting")
        await (run.cancel(reason="enough") if verb == "cancel" else run.terminate(reason="enough"))
        await app.store.sweep()
        if policy == "abandon":
            await below[-1].send("note", "on we go")
            assert await finished(below[0]) == "on we go"
            assert await run.status() is Status.CANCELLED
            return
        for child in below:
            await reaches(child, "cancelled")
            info = await app.service.get(child.id)
            assert info.request is not None
            assert info.request.by == "parent"
            assert "was cancelled" in info.request.reason
        await audit(app, run)


async def until_known(app: rt.Client, run_id: str) -> None:
    async def look() -> bool:
        return await app.store.get(run_id, payloads=False) is not None

    await until(look, f"run {run_id} is there")


@pytest.mark.parametrize("awaited", [True, False])
async def test_children_of_a_parent_that_failed_are_cancelled_too(database: Path, clock: ManualClock, awaited: bool):
    @rt.step
    async def fails() -> None:
        raise LookupError("no more")

    async def fails_when_told() -> None:
        await rt.receive("fail", str)
        await fails()

    @rt.workflow
    async def parent() -> None:
        child = await rt.start_child(listens.options(id="child"))
        waits = [child.result()] if awaited else []
        await rt.gather(fails_when_told(), *waits)

    async with opened(database, parent, listens, clock=clock) as app:
        run, child = await app.start(parent), app.handle("child", listens)
        await until_open(app, run, "fail", *(["child"] if awaited else []))
        await reaches(child, "waiting")
        await run.send("fail", "now")
        await failure(run)
        await app.store.sweep()
        await reaches(child, "cancelled")
        await audit(app, run)


async def test_the_child_of_a_branch_that_lost_is_cancelled_and_one_to_be_left_goes_on(
    database: Path, clock: ManualClock
):
    @rt.workflow
    async def parent() -> int:
        number, _ = await rt.first(
            rt.receive("go", str),
            listens.options(id="goes")(),
            listens.options(id="stays", on_parent_cancel="abandon")(),
        )
        await rt.sleep(MINUTE)
        return number

    async with opened(database, parent, listens, clock=clock) as app:
        run, goes, stays = await app.start(parent), app.handle("goes"), app.handle("stays", listens)
        await until_parked_for(app, run, "go", "goes", "stays")
        for child in (goes, stays):
            await reaches(child, "waiting")
        await run.send("go", "now")
        await until_parked_for(app, run)
        await app.store.sweep()
        await reaches(goes, "cancelled")
        assert (await app.service.get(run.id)).children_left == 0
        await stays.send("note", "a")
        assert await finished(stays) == "a"
        clock.advance(MINUTE)
        assert await finished(run) == 0
        await audit(app, run)


async def test_a_child_whose_start_was_on_its_way_when_its_branch_lost_is_cancelled(database: Path, clock: ManualClock):
    @rt.step
    async def quick() -> None: ...

    @rt.workflow
    async def parent() -> None:
        await rt.first(quick(), listens.options(id="child")())
        await rt.sleep(MINUTE)

    async with opened(database, parent, listens, clock=clock) as app:
        run, child = await app.start(parent), app.handle("child")
        await until_parked_for(app, run)
        await app.store.sweep()
        await reaches(child, "cancelled")
        await audit(app, run)


# ---------------------------------------------------------------- who is woken
@rt.workflow
async def waits_for_one() -> str:
    return await listens.options(id="child")()


@pytest.mark.parametrize("how", ["completes", "fails", "is cancelled", "is terminated"])
async def test_a_parent_that_is_paused_while_its_child_ends_learns_of_it_after_the_resume(
    database: Path, clock: ManualClock, how: str
):
    @rt.workflow
    async def parent() -> str:
        try:
            return await child_of.options(id="child")()
        except rt.RunFailed:
            return "fails"
        except rt.RunCancelled:
            return "is cancelled"

    @rt.workflow
    async def child_of() -> str:
        if await rt.receive("note", str) == "fails":
            raise LookupError
        return "completes"

    async with opened(database, parent, child_of, clock=clock) as app:
        run, child = await app.start(parent), app.handle("child")
        await until_parked_for(app, run, "child")
        await reaches(child, "waiting")
        await run.pause()
        match how:
            case "is cancelled":
                await child.cancel()
            case "is terminated":
                await child.terminate()
            case _:
                await child.send("note", how)
        await child.wait()
        assert await run.status() is Status.PAUSED
        await run.resume()
        assert await finished(run) == ("is cancelled" if "terminated" in how else how)
        await audit(app, run)


async def test_a_parent_parks_and_leaves_its_slot_to_its_child(database: Path):
    @rt.workflow
    async def down(levels: int) -> int:
        return 1 + await down(levels - 1) if levels else 0

    async with opened(database, down, slots=1) as app:
        run = await app.start(down, 5)
        assert await finished(run) == 5


async def test_of_children_that_end_one_after_the_other_only_the_last_wakes_the_parent_of_their_gather(
    database: Path, clock: ManualClock
):
    @rt.workflow
    async def parent() -> list[str]:
        return list(await rt.gather(*(listens.options(id=f"child-{number}")() for number in range(5))))

    async with opened(database, parent, listens, clock=clock) as app:
        run, children = await app.start(parent), [app.handle(f"child-{number}") for number in range(5)]
        await until_parked_for(app, run, *(child.id for child in children))
        for child in children:
            await reaches(child, "waiting")
        for child in children:
            await child.send("note", child.id)
            await reaches(child, "completed")
        assert await finished(run) == [child.id for child in children]
        types = Counter(await event_types(run))
        assert (types["claimed"], types["woken"], types["waiting"]) == (2, 1, 1)


async def _gathers(database: Path, count: int) -> Counter[str]:
    @rt.workflow
    async def parent(count: int) -> int:
        return sum(await rt.gather(*(double(number) for number in range(count))))

    async with opened(database, parent, double, slots=50) as app:
        run = await app.start(parent, count)
        result = await run.result(timeout=300)
        assert result == count * (count - 1)
        await audit(app, run)
        return Counter(await event_types(run))


async def test_a_thousand_children_of_one_gather_wake_their_parent_once(database: Path):
    types = await _gathers(database, 1_000)
    assert (types["claimed"], types["woken"], types["waiting"]) == (2, 1, 1)


@pytest.mark.prove
async def test_ten_thousand_children_of_one_gather_wake_their_parent_once(database: Path):
    types = await _gathers(database, 10_000)
    assert (types["claimed"], types["woken"], types["waiting"]) == (2, 1, 1)


async def test_a_map_with_a_limit_wakes_its_parent_for_a_child_that_lets_another_begin(
    database: Path, clock: ManualClock
):
    @rt.workflow
    async def hears(number: int) -> str:
        return await rt.receive("note", str)

    @rt.workflow
    async def parent() -> list[str]:
        return await rt.map(hears, range(3), limit=2)

    async with opened(database, parent, hears, clock=clock) as app:
        run = await app.start(parent.options(id="p"))
        first, second, third = ids = [id_of("p", f"0.{number}", 0) for number in range(3)]
        for done, under_way in zip(ids, [(first, second), (second, third), ()], strict=True):
            if under_way:
                await until_parked_for(app, run, *under_way)
            child = app.handle(done)
            await reaches(child, "waiting")
            await child.send("note", done)
            await reaches(child, "completed")
        assert await finished(run) == ids
        assert (await event_types(run)).count("woken") == 2, "by the first child, and when all were done"


async def test_a_child_that_fails_wakes_the_gather_at_once_and_its_sisters_are_cancelled(
    database: Path, clock: ManualClock
):
    @rt.workflow
    async def waits_then_breaks() -> None:
        await rt.receive("break", str)
        raise LookupError("broken")

    @rt.workflow
    async def parent() -> str:
        try:
            await rt.gather(listens.options(id="stays")(), waits_then_breaks.options(id="breaks")())
        except rt.RunFailed as failed:
            return failed.run_id
        return "none failed"

    async with opened(database, parent, waits_then_breaks, *CHILDREN, clock=clock) as app:
        run, stays, bad = await app.start(parent), app.handle("stays"), app.handle("breaks")
        await until_parked_for(app, run, "stays", "breaks")
        for child in (stays, bad):
            await reaches(child, "waiting")
        await bad.send("break", "now")
        assert await finished(run) == "breaks"
        await app.store.sweep()
        await reaches(stays, "cancelled")
        await audit(app, run)


# ---------------------------------------------------------------- crashes
async def test_a_childs_end_between_the_reply_to_the_wait_and_the_park_is_not_slept_through(
    database: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    faulty = faults.install(monkeypatch)

    @rt.workflow
    async def parent() -> str:
        try:
            return await listens.options(id="child", delay=9_999)()
        except rt.RunCancelled as cancelled:
            return cancelled.reason

    async with opened(database, parent, listens, clock=clock) as app, outside(database, clock) as client:

        async def cancel() -> None:
            await client.handle("child").cancel(reason="in between")

        before = Before(faulty, lambda effect: effect.end is not None, cancel)
        run = await app.start(parent)
        assert await finished(run) == "in between"
        assert before.done == 1
        assert "waiting" not in await event_types(run)


@pytest.mark.parametrize("dies", ["before the child is known", "after the child is known"])
async def test_a_child_is_started_once_over_the_death_of_its_parents_worker(
    database: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, dies: str
):
    faulty = faults.install(monkeypatch)

    @rt.workflow
    async def parent() -> list[int]:
        return [await double(1), await (await rt.start_child(double, 2)).result()]

    def die() -> None:
        if any(effect.children for effect in faulty.batches[-1]) and app._worker is not None:
            app._worker.vanish()
            raise rt.StoreBusy("nobody hears this any more")

    (faulty.before if "before" in dies else faulty.after)["record"] = die
    lost: list[str] = []
    async with opened(database, parent, double, clock=clock) as app:
        run = await app.start(parent)
        await until_vanished(app)
        lost += [worker.id for worker in await app.service.workers()]
    async with opened(database, parent, double, clock=clock) as app:
        for worker_id in lost:
            await app.store.retire_worker(worker_id)
        await app.store.sweep()
        run = await app.get(run.id, parent)
        assert await finished(run) == [2, 4]
        assert await of(run, app) == [f"{run.id}~0", f"{run.id}~1"]
        assert [name for name, _ in await recorded(app, run)] == ["double", "double", "double"]
        await audit(app, run)


async def until_vanished(app: rt.App) -> None:
    worker = app._worker
    assert worker is not None
    await until(lambda: worker._gave_up, "the worker has vanished")


async def test_a_parent_gets_the_result_of_a_child_whose_worker_died(database: Path, clock: ManualClock):
    gate, attempts = Gate(), list[int]()

    @rt.step
    async def works() -> str:
        attempts.append(rt.this_run().attempt)
        if len(attempts) == 1:
            await gate.pass_through()
        return "done"

    @rt.workflow
    async def child() -> str:
        return await works()

    @rt.workflow
    async def parent() -> str:
        return await child.options(id="child")()

    async with opened(database, parent, child, clock=clock) as app:
        run = await app.start(parent)
        await gate.reached()
        await until_parked_for(app, run, "child")
        (lost,) = await app.service.workers()
        assert app._worker is not None
        app._worker.vanish()
    async with opened(database, parent, child, clock=clock) as app:
        await app.store.retire_worker(lost.id)
        await app.store.sweep()
        run = await app.get(run.id, parent)
        assert await finished(run) == "done"
        assert attempts == [1, 2]
        await until_event(run, "completed")
        await audit(app, run)
