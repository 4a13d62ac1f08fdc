"""A message that comes just before, during or just after a wait: never lost, never received twice."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from tests.support.histories import assert_sound
from tests.support.stage import Stage
from tests.support.waiting import CLOCK, turning_until

import runtrue as rt
from runtrue import App, Client


@rt.workflow
async def listens(begins_at: int) -> list[str]:
    """Begins to wait at a drawn moment; then looks whether there is a second message."""
    await turning_until(lambda: CLOCK.now() >= begins_at)
    note = await rt.receive("note", str)
    return [note, await rt.receive("note", str, timeout=0, default="no more")]


@rt.workflow
async def listens_a_while(seconds: float) -> str:
    """Gives up at about the moment at which the message comes."""
    return await rt.receive("note", str, timeout=seconds, default="gave up")


@rt.workflow
async def listens_in_branches() -> list[str]:
    """Two waits for one topic and one for another, of which only one counts; what it leaves is received after."""
    number, note = await rt.first(rt.receive("a", str), rt.receive("b", str))
    other = await rt.receive("b" if number == 0 else "a", str)
    return [note, other]


@pytest.fixture
async def app(stage: Stage) -> AsyncIterator[App]:
    """A worker in this process; the senders have a store of their own, as another process would."""
    async with App(stage.database, workflows=[listens, listens_a_while, listens_in_branches], lease=5) as opened:
        yield opened


# ---------------------------------------------------------------- around the beginning of a wait
async def test_a_message_around_the_beginning_of_a_wait_is_received_once(stage: Stage, app: App, chance: random.Random):
    await _around_the_beginning(stage, chance, 60)


@pytest.mark.prove
async def test_a_thousand_messages_around_the_beginning_of_a_wait_are_received_once(
    stage: Stage, app: App, chance: random.Random
):
    await _around_the_beginning(stage, chance, 1_000)


async def _around_the_beginning(stage: Stage, chance: random.Random, times: int) -> None:
    for number in range(times):
        begins_at = CLOCK.now() + 6_000
        run = await stage.client.start(listens.options(id=f"run-{number}"), begins_at)
        comes_at = begins_at + round(chance.uniform(-2_000, 2_000))
        await turning_until(lambda at=comes_at: CLOCK.now() >= at)
        await run.send("note", f"{number}")
        assert await run.result(timeout=45) == [f"{number}", "no more"]
    await assert_sound(stage.client, *(f"run-{number}" for number in range(times)))


# ---------------------------------------------------------------- around the end of a wait
async def test_a_message_around_the_timeout_of_a_wait_is_received_or_kept(
    stage: Stage, app: App, chance: random.Random
):
    await _around_the_end(stage, chance, 40)


@pytest.mark.prove
async def test_a_thousand_messages_around_the_timeout_of_a_wait_are_received_or_kept(
    stage: Stage, app: App, chance: random.Random
):
    said = await _around_the_end(stage, chance, 1_000)
    assert min(said["received"], said["kept"]) > 50, f"both sides of the timeout are met: {said}"


async def _around_the_end(stage: Stage, chance: random.Random, times: int) -> Counter[str]:
    lasts, said = 0.03, Counter[str]()
    for number in range(times):
        run = await stage.client.start(listens_a_while.options(id=f"run-{number}"), 0.02)
        comes_at = CLOCK.steady() + lasts + chance.uniform(-0.002, 0.002)
        await turning_until(lambda at=comes_at: CLOCK.steady() >= at)
        try:
            await run.send("note", "a")
            sent = True
        except rt.Refused:
            sent = False
        result = await run.result(timeout=45)
        (*messages,) = await stage.client.service.messages(run.id)
        received = [message for message in messages if message.received_at is not None]
        assert len(messages) == sent
        assert len(received) == (result == "a"), (result, messages)
        said["received" if result == "a" else "kept"] += 1
        # Aim at the timeout, wherever it is on this machine.
        lasts = max(0.0, lasts + (0.001 if result == "a" else -0.001))
    await assert_sound(stage.client, *(f"run-{number}" for number in range(times)))
    return said


# ---------------------------------------------------------------- several waits, several senders
async def test_messages_to_branches_of_which_one_counts_are_both_received(
    stage: Stage, app: App, chance: random.Random
):
    await _to_branches(stage, chance, 40)


@pytest.mark.prove
async def test_a_thousand_times_two_messages_to_branches_of_which_one_counts_are_both_received(
    stage: Stage, app: App, chance: random.Random
):
    await _to_branches(stage, chance, 1_000)


async def _to_branches(stage: Stage, chance: random.Random, times: int) -> None:
    senders = [await Client(stage.database).open() for _ in range(2)]
    try:
        for number in range(times):
            run = await stage.client.start(listens_in_branches.options(id=f"run-{number}"))

            async def send(client: Client, topic: str, after: float, run_id: str = run.id) -> None:
                await CLOCK.sleep(after)
                await client.handle(run_id).send(topic, topic)

            spans = [chance.uniform(0, 0.01), chance.uniform(0, 0.01)]
            await asyncio.gather(*(map(send, senders, ("a", "b"), spans)))
            assert sorted(await run.result(timeout=45)) == ["a", "b"]
            assert all(message.received_at for message in await stage.client.service.messages(run.id))
    finally:
        await asyncio.gather(*(client.close() for client in senders))
    assert await stage.client.store.check() == []


# ---------------------------------------------------------------- two worker processes
async def test_each_of_many_messages_is_received_once_though_workers_die_meanwhile(stage: Stage, chance: random.Random):
    await _while_workers_die(stage, chance, messages=30, deaths=2)


@pytest.mark.prove
async def test_each_of_a_thousand_messages_is_received_once_though_workers_die_meanwhile(
    stage: Stage, chance: random.Random
):
    await _while_workers_die(stage, chance, messages=1_000, deaths=15)


async def _while_workers_die(stage: Stage, chance: random.Random, *, messages: int, deaths: int) -> None:
    module = "tests.support.hearing"
    workers = [await stage.worker(module=module) for _ in range(2)]
    run = await stage.client.start("hears", count=messages)
    dies_at = sorted(chance.sample(range(messages), deaths))
    for number in range(messages):
        await run.send("note", number, key=f"note-{number}")
        if number in dies_at:
            victim = workers.pop(0)
            victim.kill()
            workers.append(await stage.worker(module=module))
        await CLOCK.sleep(chance.uniform(0, 0.005))
    assert await run.result(timeout=120) == list(range(messages))
    assert all(message.received_at for message in await stage.client.service.messages(run.id))
    await assert_sound(stage.client, run.id)
