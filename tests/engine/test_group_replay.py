"""Groups after a restart: the same items, the same winner, the same error, and nothing that was not begun before."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.engine.acts import Acts, Broken, lose_at, outcome, places, records, until_recorded
from tests.engine.faults import install
from tests.engine.running import audit, finished, opened, reaches, until
from tests.support.manual_clock import ManualClock

import runtrue as rt
from runtrue.lifecycle import HoldKind
from runtrue.testing import TestApp


@asynccontextmanager
async def resumed_with(database: Path, run_id: str, code: Any) -> AsyncIterator[tuple[TestApp, rt.RunHandle[Any]]]:
    """A TestApp that serves other code for the workflow `flow` of a run that was paused, and the run."""
    async with TestApp(workflows=[rt.workflow(name="flow")(code)], database=database) as app:
        run = await app.get(run_id)
        await run.resume()
        yield app, run


async def held(run: rt.RunHandle[Any]) -> str:
    """Why the run is held as one whose code does not fit."""
    await run.wait("paused")
    (hold,) = await run.holds()
    assert hold.kind is HoldKind.CODE_MISMATCH
    return hold.reason


# ---------------------------------------------------------------- what was recorded is not done again
async def test_a_crash_among_branches_repeats_only_what_was_not_recorded(database: Path, acts: Acts):
    @rt.workflow
    async def flow() -> list[list[str]]:
        return await rt.map(acts.two, ["a", "b", "c"])

    async with TestApp(workflows=[flow], database=database) as app:
        acts.hold("b1", "c2")
        run = await app.start(flow)
        await acts.reached("b1", "c2")
        await until_recorded(run, 3)
        await app.restart()
        acts.let_go("b1", "c2")
        assert await run.result() == [["a1", "a2"], ["b1", "b2"], ["c1", "c2"]]
        again = sorted(name for name in set(acts.begun) if acts.begun.count(name) > 1)
        assert again == ["b1", "c2"]
        await audit(app, run)


async def test_items_with_keys_find_their_records_though_the_list_is_in_another_order(database: Path, acts: Acts):
    names = ["a", "b", "c"]

    @rt.workflow
    async def flow() -> list[str]:
        found = await rt.map(acts.act, names, key=str)
        await rt.sleep(3_600)
        return found

    async with TestApp(workflows=[flow], database=database) as app:
        acts.hold("c")
        run = await app.start(flow)
        await acts.reached("c")
        await until_recorded(run, 2)
        names[:] = ["c", "d", "b", "a"]
        await app.restart()
        acts.let_go("c")
        assert await run.result() == ["c", "d", "b", "a"]
        assert sorted(acts.begun) == ["a", "b", "c", "c", "d"]


async def test_records_that_were_reached_before_others_are_not_gone_beyond_before_all_are_reached(
    database: Path, acts: Acts
):
    """The first branch must not begin a step while another has yet to find that the group had failed."""

    @rt.workflow
    async def flow() -> str:
        async def late() -> None:
            # Some turns of the loop that a replay takes too.
            for _ in range(20):
                await asyncio.sleep(0)
            await acts.act("bad")

        try:
            await rt.gather(acts.two("a"), late())
        except Broken:
            return "failed"
        return "none"

    acts.fail("bad")
    acts.hold("a2")
    async with TestApp(workflows=[flow], database=database) as app:
        run = await app.start(flow)
        await acts.reached("a2")
        await until_recorded(run, 2)
        await app.restart()
        assert await run.result() == "failed"
        assert sorted(acts.begun) == ["a1", "a2", "bad"]


@pytest.mark.parametrize("limit", [None, 2, 1])
async def test_a_failed_group_whose_outcome_was_not_recorded_begins_nothing_on_replay(
    database: Path, acts: Acts, monkeypatch: pytest.MonkeyPatch, limit: int | None
):
    @rt.workflow
    async def flow() -> str:
        try:
            await rt.map(acts.two, ["a", "b", "c", "d"], limit=limit)
        except Broken as broken:
            return await acts.act(f"after-{broken}")
        return "none"

    acts.fail("b1")
    faulty = install(monkeypatch)
    async with TestApp(workflows=[flow], database=database) as app:
        lose_at(app, faulty, records("map"))
        run = await app.start(flow)
        assert await run.result() == "after-b1"
        assert (await run.info()).attempt == 2
        assert len(set(acts.begun)) == len(acts.begun), "no step was begun twice"
        assert await outcome(app, run, "map") == b"1"
        await audit(app, run)


async def test_a_branch_with_a_group_of_its_own_passes_all_that_it_has_recorded_though_another_has_failed(
    database: Path, acts: Acts, monkeypatch: pytest.MonkeyPatch
):
    """On replay the failure comes at once, and the longer branch has its way to go: its records are no surplus."""

    @rt.workflow
    async def flow() -> str:
        async def long() -> None:
            await rt.gather(acts.two("a"), acts.two("b"))
            await acts.two("c")

        try:
            await rt.gather(acts.act("bad"), long())
        except Broken:
            return "failed"
        return "none"

    acts.fail("bad")
    acts.hold("bad", "c2")
    faulty = install(monkeypatch)
    async with TestApp(workflows=[flow], database=database) as app:
        lose_at(app, faulty, lambda effects: any(step.branch == "" and step.kind == "gather" for step in effects.steps))
        run = await app.start(flow)
        await acts.reached("bad", "c2")
        acts.let_go("bad")
        await until_recorded(run, 7)
        acts.let_go("c2")
        assert await run.result() == "failed"
        assert (await run.info()).attempt == 2
        assert acts.begun == ["bad", "a1", "b1", "a2", "b2", "c1", "c2"]


async def test_a_failed_group_whose_step_in_flight_is_lost_does_not_begin_it_again(database: Path, acts: Acts):
    @rt.workflow
    async def flow() -> str:
        try:
            await rt.gather(acts.act("slow"), acts.act("bad"))
        except Broken:
            return "failed"
        return "none"

    acts.fail("bad")
    acts.hold("slow")
    async with TestApp(workflows=[flow], database=database) as app:
        run = await app.start(flow)
        await acts.reached("slow")
        await until_recorded(run, 1)
        await app.restart()
        assert await run.result() == "failed"
        assert acts.begun == ["slow", "bad"]
        assert await places(app, run) == ["1 step", "2 gather"]


async def test_a_failed_map_with_a_limit_is_replayed_without_its_items_that_were_never_begun(
    database: Path, clock: ManualClock, acts: Acts
):
    seen: list[str] = []

    @rt.workflow
    async def flow() -> str:
        async def item(name: str) -> str:
            seen.append(name)
            return await acts.act(name)

        try:
            await rt.map(item, ["a", "bad", "c", "d"], limit=1)
        except Broken:
            await rt.sleep(3_600)
        return await acts.act("after")

    acts.fail("bad")
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        clock.advance(3_600)
        assert await finished(run) == "after"
        assert seen == ["a", "bad", "a", "bad"]
        assert acts.begun == ["a", "bad", "after"]


@pytest.mark.parametrize("loses", [False, True])
async def test_items_that_had_ended_before_another_failed_are_passed_on_replay_whatever_their_turn(
    database: Path, acts: Acts, monkeypatch: pytest.MonkeyPatch, loses: bool
):
    seen: list[list[str]] = []

    @rt.workflow
    async def flow() -> str:
        found: list[str] = []

        async def item(name: str) -> None:
            found.append(await acts.act(name))

        try:
            await rt.map(item, ["bad", "b", "c", "d", "e", "f"], limit=2)
        except Broken:
            seen.append(sorted(found))
            await rt.sleep(3_600)
        return await acts.act("after")

    acts.fail("bad")
    acts.hold("bad", "e")
    faulty = install(monkeypatch)
    async with TestApp(workflows=[flow], database=database) as app:
        if loses:
            lose_at(app, faulty, records("map"))
        run = await app.start(flow)
        await acts.reached("bad", "e")
        acts.let_go("bad")
        await until_recorded(run, 4)
        acts.let_go("e")
        assert await run.result() == "after"
        assert seen == [["b", "c", "d", "e"]] * 2
        assert acts.begun == ["bad", "b", "c", "d", "e", "after"]
        assert (await run.info()).attempt == 1 + loses


async def test_a_replay_of_return_exceptions_gives_the_same_errors(database: Path, clock: ManualClock, acts: Acts):
    seen: list[str] = []

    @rt.workflow
    async def flow() -> None:
        found = await rt.map(acts.act, ["a", "bad", "c"], limit=2, return_exceptions=True)
        seen.append(" ".join(repr(each) for each in found))
        await rt.sleep(3_600)

    acts.fail("bad")
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        clock.advance(3_600)
        await finished(run)
        assert seen == ["'a' Broken('bad') 'c'"] * 2


# ---------------------------------------------------------------- the same winner
async def test_the_winner_is_recorded_before_the_code_behind_first_goes_on(
    database: Path, acts: Acts, monkeypatch: pytest.MonkeyPatch
):
    passed: list[int] = []

    @rt.workflow
    async def flow() -> int:
        winner, _ = await rt.first(acts.act("a"), rt.sleep(3_600))
        passed.append(winner)
        return winner

    faulty = install(monkeypatch)
    async with TestApp(workflows=[flow], database=database) as app:
        lose_at(app, faulty, records("first"))
        run = await app.start(flow)
        assert await run.result() == 0
        assert (await run.info()).attempt == 2
        assert passed == [0]


async def test_the_winner_is_the_same_on_every_replay_though_the_loser_is_recorded_too(
    database: Path, clock: ManualClock, acts: Acts
):
    winners: list[int] = []

    @rt.workflow
    async def flow() -> int:
        winner, _ = await rt.first(acts.act("slow"), acts.act("fast"))
        winners.append(winner)
        await rt.sleep(60)
        await rt.sleep(60)
        return winner

    acts.hold("slow")
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await acts.reached("slow")
        await until(lambda: winners == [1])
        acts.let_go("slow")
        for replays in (1, 2):
            await until(lambda replays=replays: len(winners) == replays)
            await until_recorded(run, 3 + replays)
            await reaches(run, "waiting")
            clock.advance(60)
        assert await finished(run) == 1
        assert winners == [1, 1, 1]
        assert acts.begun == ["slow", "fast"]
        assert "0 step" in await places(app, run)
        await audit(app, run)


async def test_a_crash_after_both_results_and_before_the_outcome_leaves_one_winner(
    database: Path, acts: Acts, monkeypatch: pytest.MonkeyPatch
):
    winners: list[int] = []

    @rt.workflow
    async def flow() -> int:
        winner, _ = await rt.first(acts.act("a"), acts.act("b"))
        winners.append(winner)
        await rt.sleep(3_600)
        return winner

    faulty = install(monkeypatch)
    async with TestApp(workflows=[flow], database=database) as app:
        lose_at(app, faulty, records("first"))
        run = await app.start(flow)
        winner = await run.result()
        assert winners == [winner, winner]
        assert sorted(acts.begun) == ["a", "b"]
        assert await places(app, run) == ["0 step", "1 step", "2 first", "3 sleep"]


async def test_a_crash_just_after_the_outcome_of_first_keeps_the_winner(
    database: Path, acts: Acts, monkeypatch: pytest.MonkeyPatch
):
    @rt.workflow
    async def flow() -> str:
        winner, _ = await rt.first(acts.two("slow"), acts.act("fast"))
        return await acts.act(f"after-{winner}")

    acts.hold("slow1")
    faulty = install(monkeypatch)
    async with TestApp(workflows=[flow], database=database) as app:
        lose_at(app, faulty, records("first"), committed=True)
        run = await app.start(flow)
        assert await run.result() == "after-1"
        assert acts.begun == ["slow1", "fast", "after-1"], "a loser's step that was lost is not begun again"
        await audit(app, run)


# ---------------------------------------------------------------- losers end where they ended
@pytest.mark.parametrize("behind", ["cancels the run", "fails", "takes a note"])
async def test_a_losers_sleep_that_is_over_by_the_time_of_a_replay_was_not_over_for_it(
    database: Path, clock: ManualClock, acts: Acts, behind: str
):
    notes: list[str] = []

    @rt.workflow
    async def flow() -> str:
        async def guards() -> None:
            await rt.sleep(600)
            notes.append("woke")
            if behind == "cancels the run":
                raise rt.CancelRun("too late")
            if behind == "fails":
                raise ValueError("too late")

        winner, _ = await rt.first(guards(), acts.act("fast"))
        await rt.sleep(3_600)
        return await acts.act(f"after-{winner}")

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        clock.advance(3_600)
        assert await finished(run) == "after-1"
        assert notes == []


async def test_a_losers_sleep_that_is_not_over_when_records_behind_the_group_prove_time_is_not_proved(
    database: Path, clock: ManualClock, acts: Acts
):
    @rt.workflow
    async def flow() -> str:
        async def guards() -> None:
            await rt.sleep(7_200)
            raise rt.CancelRun("too late")

        await rt.first(guards(), acts.act("fast"))
        await acts.act("b")
        await rt.sleep(3_600)
        return await acts.act("c")

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        clock.advance(3_600)
        assert await finished(run) == "c"


async def test_a_branch_that_ended_before_another_failed_does_the_same_on_replay(
    database: Path, clock: ManualClock, acts: Acts
):
    seen: list[list[str]] = []
    notes: list[str] = []

    @rt.workflow
    async def flow() -> list[str]:
        found: list[str] = []

        async def sleeps(seconds: float) -> None:
            await rt.sleep(seconds)
            found.append(f"slept {seconds}")
            notes.append(f"slept {seconds}")

        async def fails() -> None:
            await rt.sleep(120)
            notes.append("failed")
            if len(notes) == 3:
                # By the time of the failure one more sleep is over, though nobody has been roused yet.
                clock.advance(10)
            raise ValueError

        async def works() -> None:
            found.append(await acts.act("slow"))

        try:
            await rt.gather(sleeps(60), sleeps(600), sleeps(120), sleeps(125), fails(), works())
        except ValueError:
            seen.append(sorted(found))
        await rt.sleep(3_600)
        return sorted(found)

    acts.hold("slow")
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await acts.reached("slow")
        await until_recorded(run, 5)
        clock.advance(60)
        await until(lambda: notes == ["slept 60"])
        clock.advance(60)
        await until(lambda: notes == ["slept 60", "slept 120", "failed", "slept 125"])
        clock.advance(1_000)
        acts.let_go("slow")
        await reaches(run, "waiting")
        clock.advance(3_600)
        expected = ["slept 120", "slept 125", "slept 60", "slow"]
        assert await finished(run) == expected
        assert seen == [expected, expected]


async def test_a_losers_own_code_does_not_hold_up_a_replay(database: Path, clock: ManualClock, acts: Acts):
    ends: list[str] = []

    @rt.workflow
    async def flow() -> str:
        async def listens(name: str) -> None:
            if name:
                await acts.act(name)
            try:
                await asyncio.Event().wait()
            finally:
                ends.append(name)

        winner, _ = await rt.first(listens(""), listens("a"), acts.two("b"))
        await rt.sleep(3_600)
        return f"{winner}"

    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await reaches(run, "waiting")
        clock.advance(3_600)
        assert await finished(run) == "2"
        assert sorted(ends) == ["", "", "a", "a"]


async def test_a_group_within_a_loser_records_no_outcome_on_replay(database: Path, clock: ManualClock, acts: Acts):
    @rt.workflow
    async def flow() -> str:
        async def gathers() -> None:
            await rt.gather(acts.two("slow"), acts.two("slower"))

        await rt.first(gathers(), acts.act("fast"))
        await rt.sleep(60)
        await rt.sleep(60)
        return "done"

    acts.hold("slow2", "slower1", "fast")
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await acts.reached("slow2", "slower1", "fast")
        acts.let_go("fast")
        await until(lambda: "fast" in acts.ended)
        acts.let_go("slow2", "slower1")
        for replays in (1, 2):
            # Two steps of the loser, the winner, the outcome, and the sleeps.
            await until_recorded(run, 4 + 1 + replays)
            await reaches(run, "waiting")
            assert "1.0/0 gather" not in await places(app, run)
            clock.advance(60)
        assert await finished(run) == "done"
        assert acts.begun == ["fast", "slow1", "slower1", "slow2"]
        await audit(app, run)


async def test_records_in_closed_branches_fit(database: Path, clock: ManualClock, acts: Acts):
    @rt.workflow
    async def flow() -> str:
        try:
            await rt.gather(acts.two("slow"), acts.act("bad"))
        except Broken:
            await rt.sleep(3_600)
        return "done"

    acts.hold("slow1")
    acts.fail("bad")
    async with opened(database, flow, clock=clock) as app:
        run = await app.start(flow)
        await acts.reached("slow1")
        await until_recorded(run, 1)
        acts.let_go("slow1")
        await reaches(run, "waiting")
        assert "1.0/0 step" in await places(app, run)
        clock.advance(3_600)
        assert await finished(run) == "done"
        assert acts.begun == ["slow1", "bad"]


# ---------------------------------------------------------------- code that does not fit
async def paused_behind_a_group(database: Path, acts: Acts) -> str:
    """The id of a run that was paused with its gather of two helpers recorded."""

    async def flow() -> str:
        await rt.gather(acts.two("a"), acts.two("b"))
        await rt.sleep(3_600)
        return "done"

    async with TestApp(workflows=[rt.workflow(name="flow")(flow)], database=database) as app:
        run = await app.start("flow")
        await run.wait("waiting")
        await run.pause()
    acts.begun.clear()
    return run.id


async def test_a_mismatch_within_a_branch_names_the_branch(database: Path, acts: Acts):
    @rt.step
    async def other() -> None:
        acts.begun.append("other")

    async def flow() -> None:
        async def changed() -> None:
            await acts.act("b1")
            await other()

        await rt.gather(acts.two("a"), changed())

    run_id = await paused_behind_a_group(database, acts)
    async with resumed_with(database, run_id, flow) as (_, run):
        reason = await held(run)
        assert reason == "call 2 of branch 0.1 of flow is step other, but the history holds step act there"
        assert acts.begun == []


async def test_records_that_a_branch_does_not_reach_any_more_hold_the_run(database: Path, acts: Acts):
    async def flow() -> None:
        async def shorter() -> None:
            await acts.act("b1")

        await rt.gather(acts.two("a"), shorter())
        await rt.sleep(3_600)

    run_id = await paused_behind_a_group(database, acts)
    async with resumed_with(database, run_id, flow) as (app, run):
        await app.advance(3_600)
        reason = await held(run)
        assert reason == (
            "the history holds step act as call 2 of branch 0.1, but the code of flow ended after 1 call there"
        )


@pytest.mark.parametrize("what", ["step", "value", "group"])
async def test_a_new_call_at_the_end_of_a_branch_whose_group_is_over_holds_the_run(
    database: Path, acts: Acts, what: str
):
    async def flow() -> None:
        async def longer() -> None:
            await acts.two("b")
            if what == "step":
                await acts.act("b3")
            elif what == "value":
                rt.uuid4()
            else:
                await rt.gather()

        await rt.gather(acts.two("a"), longer())
        await rt.sleep(3_600)

    run_id = await paused_behind_a_group(database, acts)
    async with resumed_with(database, run_id, flow) as (_, run):
        assert await held(run) == "the code of flow makes a new call in branch 0.1, which is over"
        assert acts.begun == []


async def test_a_step_in_the_place_of_a_group_holds_the_run(database: Path, acts: Acts):
    async def flow() -> None:
        await acts.act("a")
        await rt.sleep(3_600)

    run_id = await paused_behind_a_group(database, acts)
    async with resumed_with(database, run_id, flow) as (_, run):
        assert await held(run) == "call 1 of flow is step act, but the history holds rt.gather there"
        assert acts.begun == []


async def test_a_step_in_the_place_of_a_group_that_was_under_way_holds_the_run(database: Path, acts: Acts):
    async def old() -> None:
        await rt.gather(acts.two("a"), acts.two("b"))

    async def new() -> None:
        await acts.act("a")

    acts.hold("a2", "b1")
    async with TestApp(workflows=[rt.workflow(name="flow")(old)], database=database) as app:
        run = await app.start("flow")
        await acts.reached("a2", "b1")
        pausing = await run.pause()
        assert not pausing.done
        acts.let_go("a2", "b1")
        await run.wait("paused")
    acts.begun.clear()
    async with resumed_with(database, run.id, new) as (_, run):
        reason = await held(run)
        assert reason == "call 1 of flow is step act, but the history holds the branches of a group there"
        assert acts.begun == []


async def test_a_group_in_the_place_of_a_step_holds_the_run(database: Path, acts: Acts):
    async def old() -> None:
        await acts.act("a")
        await rt.sleep(3_600)

    async def new() -> None:
        await rt.gather(acts.two("a"))

    async with TestApp(workflows=[rt.workflow(name="flow")(old)], database=database) as app:
        run = await app.start("flow")
        await run.wait("waiting")
        await run.pause()
    acts.begun.clear()
    async with resumed_with(database, run.id, new) as (_, run):
        assert await held(run) == "call 1 of flow is rt.gather, but the history holds step act there"
        assert acts.begun == []


async def test_a_branch_that_fails_in_a_group_that_had_ended_well_holds_the_run(database: Path, acts: Acts):
    async def flow() -> None:
        async def stricter() -> None:
            await acts.two("b")
            raise ValueError("not good enough any more")

        await rt.gather(acts.two("a"), stricter())
        await rt.sleep(3_600)

    run_id = await paused_behind_a_group(database, acts)
    async with resumed_with(database, run_id, flow) as (_, run):
        reason = await held(run)
        assert reason == (
            "call 1 of flow: its branches have all ended well, and branch 1 fails now: "
            "ValueError('not good enough any more')"
        )


async def test_a_branch_that_decided_its_group_and_does_not_any_more_holds_the_run(database: Path, acts: Acts):
    is_strict = True

    @rt.workflow
    async def flow() -> None:
        async def checks() -> None:
            await acts.act("b")
            if is_strict:
                raise ValueError("no good")

        try:
            await rt.gather(acts.two("a"), checks())
        except ValueError:
            await rt.sleep(3_600)

    async with TestApp(workflows=[flow], database=database) as app:
        run = await app.start(flow)
        await run.wait("waiting")
        is_strict = False
        await app.advance(3_600)
        assert await held(run) == "call 1 of flow: its branch 1 has decided rt.gather, and does not do so any more"


async def test_a_replay_of_branches_whose_clock_was_set_back_finds_its_sleeps_over(database: Path, acts: Acts):
    """What a branch has recorded behind a sleep proves that the sleep is over."""

    @rt.workflow
    async def flow() -> str:
        async def naps(name: str) -> None:
            await rt.sleep(3_600)
            await acts.act(name)

        await rt.gather(naps("a"), naps("b"))
        return "done"

    acts.hold("b")
    async with TestApp(workflows=[flow], database=database) as app:
        run = await app.start(flow)
        await app.advance(3_600)
        await until_recorded(run, 3)
    acts.let_go("b")
    async with TestApp(workflows=[flow], database=database) as app:
        run = await app.get(run.id, flow)
        assert await run.result() == "done"
        assert acts.begun.count("a") == 1
