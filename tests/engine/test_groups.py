"""Several things at once: gather, map and first, what they give, and what becomes of the others."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.engine.acts import Acts, Broken, open_waits, outcome, places, until_recorded
from tests.engine.faults import install
from tests.engine.running import audit, failure, finished, opened, reaches, recorded, until
from tests.support.manual_clock import ManualClock
from tests.support.waiting import until as until_so

import runtrue as rt


# ---------------------------------------------------------------- results
async def test_gather_gives_results_in_the_order_of_its_calls_whoever_ends_first(database: Path, acts: Acts):
    @rt.workflow
    async def flow() -> list[str]:
        return list(await rt.gather(acts.act("a"), acts.act("b"), acts.act("c")))

    acts.hold("a", "b", "c")
    async with opened(database, flow) as app:
        run = await app.start(flow)
        await acts.reached("a", "b", "c")
        for name in "cba":
            acts.let_go(name)
            await until(lambda name=name: name in acts.ended)
        assert await finished(run) == ["a", "b", "c"]
        assert acts.ended == ["c", "b", "a"]
        await audit(app, run)


async def test_calls_keep_their_place_in_the_parent_and_helpers_have_places_of_their_own(database: Path, acts: Acts):
    @rt.workflow
    async def flow() -> list[Any]:
        before = acts.act("before")
        return list(await rt.gather(acts.act("a"), acts.two("b"), before))

    async with opened(database, flow) as app:
        run = await app.start(flow)
        assert await finished(run) == ["a", ["b1", "b2"], "before"]
        assert await places(app, run) == ["0 step", "1 step", "2 gather", "2.1/0 step", "2.1/1 step"]


async def test_gather_and_map_of_nothing_give_nothing_and_are_recorded(database: Path, acts: Acts):
    @rt.workflow
    async def flow() -> list[Any]:
        return [*await rt.gather(), *await rt.map(acts.act, []), await acts.act("a")]

    async with opened(database, flow) as app:
        run = await app.start(flow)
        assert await finished(run) == ["a"]
        assert await places(app, run) == ["0 gather", "1 map", "2 step"]


async def test_map_gives_results_in_the_order_of_its_items_and_keeps_to_its_limit(database: Path, acts: Acts):
    names = [f"n{number}" for number in range(12)]

    @rt.workflow
    async def flow() -> list[str]:
        return await rt.map(acts.act, names, limit=3)

    acts.hold(*names)
    async with opened(database, flow) as app:
        run = await app.start(flow)
        await acts.reached(*names[:3])
        # Always the one that was begun last goes first.
        while acts.under_way:
            name = acts.begun[-1] if acts.begun[-1] in acts.under_way else min(acts.under_way)
            count = min(len(acts.begun) + 1, len(names))
            acts.let_go(name)
            await until(lambda name=name, count=count: name in acts.ended and len(acts.begun) >= count)
            assert len(acts.under_way) <= 3
        assert await finished(run) == names
        assert acts.most_under_way == 3
        assert sorted(acts.begun) == sorted(names)


async def test_an_item_of_several_steps_holds_its_place_under_the_limit_until_its_end(database: Path, acts: Acts):
    @rt.workflow
    async def flow() -> list[list[str]]:
        return await rt.map(acts.two, ["a", "b", "c"], limit=1)

    async with opened(database, flow) as app:
        run = await app.start(flow)
        assert await finished(run) == [["a1", "a2"], ["b1", "b2"], ["c1", "c2"]]
        assert acts.begun == ["a1", "a2", "b1", "b2", "c1", "c2"]


async def test_a_map_with_keys_records_each_item_under_its_key(database: Path, acts: Acts):
    @rt.workflow
    async def flow() -> list[str]:
        return await rt.map(acts.act, ["x", "a/b"], key=lambda name: f"k-{name}")

    async with opened(database, flow) as app:
        run = await app.start(flow)
        assert await finished(run) == ["x", "a/b"]
        assert await places(app, run) == ["0 map", "0:k-a%2Fb/0 step", "0:k-x/0 step"]


async def test_groups_within_groups(database: Path, acts: Acts):
    @rt.workflow
    async def flow() -> list[Any]:
        async def inner(name: str) -> list[Any]:
            winner, _ = await rt.first(acts.act(f"{name}-fast"), rt.sleep(3_600))
            return [winner, *await rt.map(acts.two, [f"{name}-x", f"{name}-y"], limit=1)]

        return list(await rt.gather(inner("l"), inner("r")))

    async with opened(database, flow) as app:
        run = await app.start(flow)
        left, right = await finished(run)
        assert left == [0, ["l-x1", "l-x2"], ["l-y1", "l-y2"]]
        assert right == [0, ["r-x1", "r-x2"], ["r-y1", "r-y2"]]
        assert "0.1/3.0/1 step" in await places(app, run)
        await audit(app, run)


async def test_the_outcome_of_a_group_is_one_record_however_many_its_items(database: Path, acts: Acts):
    @rt.workflow
    async def flow() -> int:
        return len(await rt.map(acts.act, [f"n{number}" for number in range(100)]))

    async with opened(database, flow) as app:
        run = await app.start(flow)
        assert await finished(run) == 100
        names = [name for name, _ in await recorded(app, run)]
        assert (names.count("act"), names.count("map"), len(names)) == (100, 1, 101)
        assert await outcome(app, run, "map") == b"null"


async def test_values_drawn_in_branches_are_recorded_with_the_outcome_at_the_latest(database: Path):
    @rt.workflow
    async def flow() -> bool:
        async def draw() -> str:
            return str(rt.uuid4())

        first, second = await rt.gather(draw(), draw())
        return first != second

    async with opened(database, flow) as app:
        run = await app.start(flow)
        assert await finished(run)
        assert await places(app, run) == ["0 gather", "0.0/0 uuid4", "0.1/0 uuid4"]


# ---------------------------------------------------------------- errors
async def test_the_error_that_came_first_surfaces_when_the_steps_in_flight_have_ended(database: Path, acts: Acts):
    passed: list[str] = []

    @rt.workflow
    async def flow() -> str:
        try:
            await rt.gather(acts.act("slow"), acts.act("second"), acts.act("first"))
        except Broken as broken:
            passed.append(str(broken))
            return f"{broken}"
        return "none"

    acts.hold("slow", "first", "second")
    acts.fail("first", "second")
    async with opened(database, flow) as app:
        run = await app.start(flow)
        await acts.reached("slow", "first", "second")
        acts.let_go("first")
        await until(lambda: "first" not in acts.under_way)
        acts.let_go("second")
        await until(lambda: "second" not in acts.under_way)
        assert passed == []
        acts.let_go("slow")
        assert await finished(run) == "first"
        assert await outcome(app, run, "gather") == b"2"
        assert await places(app, run) == ["0 step", "1 step", "2 step", "3 gather"]
        await audit(app, run)


async def test_after_a_failure_a_helper_makes_no_further_step(database: Path, acts: Acts):
    @rt.workflow
    async def flow() -> str:
        try:
            await rt.gather(acts.two("slow"), acts.act("bad"))
        except Broken:
            return "failed"
        return "none"

    acts.hold("slow1")
    acts.fail("bad")
    async with opened(database, flow) as app:
        run = await app.start(flow)
        await acts.reached("slow1")
        await until_recorded(run, 1)
        acts.let_go("slow1")
        assert await finished(run) == "failed"
        assert acts.begun == ["slow1", "bad"]
        assert await places(app, run) == ["0 step", "1 gather", "1.0/0 step"]


async def test_after_a_failure_no_item_that_waits_for_its_turn_begins(database: Path, acts: Acts):
    seen: list[str] = []

    @rt.workflow
    async def flow() -> str:
        async def item(name: str) -> str:
            seen.append(name)
            return await acts.act(name)

        try:
            await rt.map(item, ["slow", "bad", "c", "d"], limit=2)
        except Broken:
            return "failed"
        return "none"

    acts.hold("slow")
    acts.fail("bad")
    async with opened(database, flow) as app:
        run = await app.start(flow)
        await acts.reached("slow")
        await until_recorded(run, 1)
        acts.let_go("slow")
        assert await finished(run) == "failed"
        assert seen == ["slow", "bad"]


async def test_a_group_that_is_closed_begins_none_of_its_items_that_wait_for_their_turn(database: Path, acts: Acts):
    seen: list[str] = []

    @rt.workflow
    async def flow() -> str:
        async def item(name: str) -> None:
            seen.append(name)
            await rt.sleep(3_600)

        async def many() -> None:
            await rt.map(item, ["a", "b", "c", "d"], limit=1)

        try:
            await rt.gather(many(), acts.act("bad"))
        except Broken:
            return "failed"
        return "none"

    acts.hold("bad")
    acts.fail("bad")
    async with opened(database, flow) as app:
        run = await app.start(flow)
        await acts.reached("bad")
        await until(lambda: seen == ["a"])
        acts.let_go("bad")
        assert await finished(run) == "failed"
        assert seen == ["a"]


async def test_after_a_failure_what_sleeps_is_closed_at_once(database: Path, clock: ManualClock, acts: Acts):
    @rt.workflow
    async def flow() -> str:
        try:
            await rt.gather(rt.sleep(3_600), acts.act("bad"))
        except Broken:
            return "failed"
        return "none"

    acts.fail("bad")
    async with opened(database, flow, clock=clock) as app:
        assert await finished(await app.start(flow)) == "failed"


async def test_return_exceptions_gives_errors_in_the_places_of_results(database: Path, acts: Acts):
    @rt.workflow
    async def flow() -> list[str]:
        found = await rt.map(acts.act, ["a", "bad", "c"], limit=1, return_exceptions=True)
        return [repr(each) for each in found]

    acts.fail("bad")
    async with opened(database, flow) as app:
        run = await app.start(flow)
        assert await finished(run) == ["'a'", "Broken('bad')", "'c'"]
        assert await outcome(app, run, "map") == b"null"


async def test_cancel_run_in_a_branch_ends_the_run_cancelled_once_the_steps_in_flight_have_ended(
    database: Path, acts: Acts
):
    @rt.workflow
    async def flow() -> None:
        async def gives_up() -> None:
            await acts.act("a")
            raise rt.CancelRun("enough")

        await rt.gather(acts.two("slow"), gives_up(), rt.sleep(3_600))

    acts.hold("slow1")
    async with opened(database, flow) as app:
        run = await app.start(flow)
        await acts.reached("slow1")
        await until(lambda: "a" in acts.ended)
        assert await run.status() is rt.Status.RUNNING
        acts.let_go("slow1")
        with pytest.raises(rt.RunCancelled, match="enough"):
            await finished(run)
        assert acts.begun == ["slow1", "a"]
        assert await places(app, run) == ["0 sleep", "1.0/0 step", "1.1/0 step"]
        await audit(app, run)


async def test_system_exit_in_a_branch_is_that_branchs_error_and_no_other_runs(database: Path, acts: Acts):
    @rt.workflow
    async def flow() -> None:
        async def leaves() -> None:
            raise SystemExit(3)

        await rt.gather(leaves(), acts.act("a"))

    @rt.workflow
    async def other() -> str:
        return await acts.act("b")

    async with opened(database, flow, other) as app:
        assert (await failure(await app.start(flow))).type == "SystemExit"
        assert await finished(await app.start(other)) == "b"


# ---------------------------------------------------------------- first
async def test_first_gives_the_number_and_result_of_what_ended_first(database: Path, acts: Acts):
    @rt.workflow
    async def flow() -> list[Any]:
        return list(await rt.first(rt.sleep(3_600), acts.act("a")))

    async with opened(database, flow) as app:
        run = await app.start(flow)
        assert await finished(run) == [1, "a"]
        assert await outcome(app, run, "first") == b"1"
        await audit(app, run)


async def test_first_raises_the_error_of_what_ended_first(database: Path, acts: Acts):
    @rt.workflow
    async def flow() -> str:
        try:
            await rt.first(rt.sleep(3_600), acts.act("bad"))
        except Broken:
            return "failed"
        return "none"

    acts.fail("bad")
    async with opened(database, flow) as app:
        run = await app.start(flow)
        assert await finished(run) == "failed"
        assert await outcome(app, run, "first") == b"1"


async def test_the_code_behind_first_goes_on_while_a_losers_step_ends_and_the_end_of_the_run_waits_for_it(
    database: Path, acts: Acts
):
    @rt.workflow
    async def flow() -> str:
        winner, _ = await rt.first(acts.two("slow"), acts.act("fast"))
        return await acts.act(f"after-{winner}")

    acts.hold("slow1")
    async with opened(database, flow) as app:
        run = await app.start(flow)
        await acts.reached("slow1")
        await until(lambda: "after-1" in acts.ended)
        assert await run.status() is rt.Status.RUNNING
        acts.let_go("slow1")
        assert await finished(run) == "after-1"
        assert acts.begun == ["slow1", "fast", "after-1"]
        assert await places(app, run) == ["0 step", "1 first", "1.0/0 step", "2 step"]
        await audit(app, run)


async def test_a_losers_step_that_may_be_interrupted_is_and_is_not_recorded(database: Path, acts: Acts):
    @rt.workflow
    async def flow() -> int:
        winner, _ = await rt.first(acts.act_unless_interrupted("slow"), acts.act("fast"))
        return winner

    acts.hold("slow")
    async with opened(database, flow) as app:
        run = await app.start(flow)
        assert await finished(run) == 1
        assert acts.ended == ["fast"]
        assert await places(app, run) == ["1 step", "2 first"]


async def test_a_losers_own_code_is_interrupted(database: Path, acts: Acts):
    cleaned: list[str] = []

    @rt.workflow
    async def flow() -> int:
        async def listens() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cleaned.append("up")

        winner, _ = await rt.first(listens(), acts.act("fast"))
        return winner

    async with opened(database, flow) as app:
        assert await finished(await app.start(flow)) == 1
        assert cleaned == ["up"]


async def test_the_waits_of_losers_are_closed_as_moot_with_the_outcome_and_nothing_is_left_open(
    database: Path, acts: Acts, monkeypatch: pytest.MonkeyPatch
):
    faulty = install(monkeypatch)

    def kinds_recorded() -> list[str]:
        return [step.kind for batch in faulty.batches for effects in batch for step in effects.steps]

    @rt.workflow
    async def flow() -> int:
        async def asks() -> str:
            try:
                return await rt.receive("orders", str, timeout=7_200)
            finally:
                # Its own code is not through when the outcome is recorded.
                await until(lambda: "first" in kinds_recorded())

        winner, _ = await rt.first(asks(), rt.sleep(3_600), acts.act("fast"))
        return winner

    acts.hold("fast")
    async with opened(database, flow) as app:
        run = await app.start(flow)
        await acts.reached("fast")
        await until_so(lambda: open_waits(app, run), "the wait is open")
        acts.let_go("fast")
        assert await finished(run) == 2
        (wait,) = await app.store.waits(run.id)
        assert wait.outcome == "moot"
        assert await open_waits(app, run) == []
        closing = [effects for batch in faulty.batches for effects in batch if effects.closed_waits]
        assert [step.kind for step in closing[0].steps] == ["first"]
        await audit(app, run)


async def test_what_a_loser_raises_when_its_step_has_ended_is_used_nowhere(database: Path, acts: Acts):
    @rt.workflow
    async def flow() -> str:
        async def gives_up() -> None:
            await acts.act("slow")
            raise rt.CancelRun("a loser has no say")

        async def fails() -> None:
            await acts.act("slower")
            raise ValueError("nor has this one")

        winner, _ = await rt.first(gives_up(), acts.act("fast"), fails())
        return await acts.act(f"after-{winner}")

    acts.hold("slow", "slower", "after-1")
    async with opened(database, flow) as app:
        run = await app.start(flow)
        await acts.reached("slow", "slower", "after-1")
        acts.let_go("slow", "slower")
        worker = app._worker
        assert worker is not None
        (execution,) = worker._executions.values()
        await until(lambda: len(execution.strands.all) == 1)
        acts.let_go("after-1")
        assert await finished(run) == "after-1"
        await audit(app, run)


async def test_ten_sleeps_of_which_one_ends_first_leave_no_timer(database: Path, clock: ManualClock):
    @rt.workflow
    async def flow() -> int:
        winner, _ = await rt.first(*(rt.sleep(100 - number) for number in range(10)))
        return winner

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        clock.advance(91)
        assert await finished(run) == 9
        worker = app._worker
        assert worker is not None
        await until(lambda: not worker._inside)
