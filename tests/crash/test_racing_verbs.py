"""Verbs that race with a run's end and with each other: whatever is answered is what is so."""

import asyncio
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from tests.support.histories import assert_sound, events_of
from tests.support.stage import ROOT, Stage
from tests.support.waiting import CLOCK, turning_until

import runtrue as rt
from runtrue import App, Client, Refused, RunCancelled
from runtrue.lifecycle import Status
from runtrue.service import Outcome


@rt.step
async def quick(n: int) -> int:
    return n


@rt.workflow
async def brief(steps: int) -> int:
    """Steps that do nothing, as fast as they can be recorded."""
    done = 0
    for n in range(steps):
        done += await quick(n)
    return done


@pytest.fixture
async def app(stage: Stage) -> AsyncIterator[App]:
    """A worker in this process, so that a race can be timed to the millisecond. Verbs come by the stage's client."""
    async with App(stage.database, workflows=[brief], lease=5) as opened:
        yield opened


# ---------------------------------------------------------------- cancel against the end
async def test_a_cancel_at_the_end_of_a_run_is_answered_as_it_then_is(stage: Stage, app: App, chance: random.Random):
    await _cancel_at_the_end(stage, chance, 60)


@pytest.mark.prove
async def test_a_thousand_cancels_at_the_end_of_a_run_are_answered_as_it_then_is(
    stage: Stage, app: App, chance: random.Random
):
    answers = await _cancel_at_the_end(stage, chance, 1_000)
    assert min(answers["accepted"], answers["refused"]) > 50, f"both sides of the end are met: {answers}"


async def _cancel_at_the_end(stage: Stage, chance: random.Random, times: int) -> Counter[str]:
    lasts = 0.005
    answers: Counter[str] = Counter()
    for number in range(times):
        run = await stage.client.start(brief.options(id=f"run-{number}"), 3)
        began = CLOCK.steady()
        moment = began + lasts + chance.uniform(-0.001, 0.001)
        await turning_until(lambda moment=moment: CLOCK.steady() >= moment)
        try:
            outcome = await run.cancel()
        except Refused:
            assert await run.result(timeout=45) == 3
            answers["refused"] += 1
            # Aim a little earlier next time, and a little later after an accepted one: the end stays in sight.
            lasts = max(0.0, lasts - 0.0003)
        else:
            with pytest.raises(RunCancelled):
                await run.result(timeout=45)
            assert outcome.status in {Status.CANCELLING, Status.CANCELLED}
            answers["accepted"] += 1
            lasts += 0.0003
    await assert_sound(stage.client, *(f"run-{number}" for number in range(times)))
    return answers


# ---------------------------------------------------------------- verbs against each other
async def test_rapid_verbs_of_many_clients_at_a_finishing_run_leave_a_legal_history(
    stage: Stage, app: App, chance: random.Random
):
    await _rapid_verbs(stage, chance, clients=10, verbs=200, run_id="run")


@pytest.mark.prove
async def test_a_thousand_rapid_verbs_of_twenty_clients_leave_a_legal_history(
    stage: Stage, app: App, chance: random.Random
):
    for number in range(10):
        await _rapid_verbs(stage, chance, clients=20, verbs=1_000, run_id=f"run-{number}")


async def _rapid_verbs(stage: Stage, chance: random.Random, *, clients: int, verbs: int, run_id: str) -> None:
    opened = [await Client(stage.database).open() for _ in range(clients)]
    run = await stage.client.start(brief.options(id=run_id), 400)

    async def hammer(client: Client) -> list[object]:
        replies: list[object] = []
        for _ in range(verbs // clients):
            # A cancel ends the run, so it is drawn rarely: most verbs should meet a run that is still alive.
            verb = chance.choices(["pause", "resume", "cancel"], [20, 20, 0.2])[0]
            try:
                replies.append(await getattr(client.service, verb)(run_id))
            except Refused as refused:
                replies.append(refused)
        return replies

    try:
        replies = [reply for some in await asyncio.gather(*(hammer(c) for c in opened)) for reply in some]
    finally:
        await asyncio.gather(*(client.close() for client in opened))
    if await stage.status(run_id) in {Status.PAUSED, Status.PAUSING}:
        await run.resume()
    ended = await run.wait(timeout=60)
    assert ended.status in {Status.COMPLETED, Status.CANCELLED}
    cancels = [r for r in replies if isinstance(r, Outcome) and r.command.value == "cancel"]
    assert (ended.status is Status.CANCELLED) == bool(cancels)
    types = Counter(event.type for event in await events_of(stage.client, run_id))
    resumed = [r for r in replies if isinstance(r, Outcome) and r.command.value == "resume" and r.changed]
    assert len(resumed) <= types["resumed"] <= len(resumed) + 1
    assert len(replies) == verbs
    commands = await stage.client.service.commands(run_id)
    assert verbs <= len(commands) <= verbs + 1
    await assert_sound(stage.client, run_id)


# ---------------------------------------------------------------- many processes
@pytest.mark.prove
async def test_of_resumes_by_twenty_processes_one_wins(stage: Stage):
    stage.say("hold", "a")
    run = await stage.start("a", "b")
    await stage.worker()
    await stage.begun("a")
    await run.pause()
    stage.unsay("hold", "a")
    await stage.reached(Status.PAUSED)
    codes = await asyncio.gather(*(_resume_by_command(stage) for _ in range(20)))
    assert Counter(codes) == {0: 1, 4: 19}
    assert await run.result(timeout=45) == ["a", "b"]
    assert stage.names() == ["a", "b"]
    await assert_sound(stage.client, "run")


async def _resume_by_command(stage: Stage) -> int:
    words = ["-m", "runtrue", "run", "resume", "run", "--database", stage.database]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, cwd=ROOT, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    return await process.wait()
