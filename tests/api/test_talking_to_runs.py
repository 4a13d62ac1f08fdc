"""Messages to runs, what they publish, deadlines and declared errors, seen from outside."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.manual_clock import ManualClock

import runtrue as rt
from runtrue import codec
from runtrue.client_sync import SyncClient
from runtrue.lifecycle import Status
from runtrue.service import StartOptions
from runtrue.store.protocol import Finish, NewWorker, RunEffects

HOUR = 3_600_000_000
LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)


@dataclass
class Confirmed:
    token: str


@dataclass
class Note:
    text: str
    pages: int = 1


confirmed = rt.Topic("confirmed", Confirmed)


class CardDeclined(Exception):
    pass


@rt.workflow(raises=(CardDeclined,))
async def pay(cents: int) -> int:
    return cents


@rt.workflow(deadline=60)
async def hurry() -> None: ...


async def messages(client: rt.Client, run: rt.RunHandle[Any]) -> list[tuple[str, bytes]]:
    return [(message.topic, message.body) for message in await client.service.messages(run.id)]


async def claimed(client: rt.Client, run: rt.RunHandle[Any]) -> int:
    """A worker of paper has the run; its epoch."""
    await client.store.register_worker(NewWorker("w-paper", "here", 1, 10, ["pay@1"], HOUR))
    (found,) = await client.store.claim("w-paper", [("pay", "1")], 1)
    assert found.run_id == run.id
    return found.epoch


# ---------------------------------------------------------------- send
async def test_a_message_is_encoded_by_the_type_of_its_topic_or_by_its_own(database: Path):
    async with rt.Client(database, actor="anna") as client:
        run = await client.start(pay, 1)
        await run.send(confirmed, Confirmed("t-1"))
        await run.send("notes", Note("hello"))
        await run.send("notes", {"free": [1, None]})
        assert await messages(client, run) == [
            ("confirmed", b'{"token":"t-1"}'),
            ("notes", b'{"text":"hello","pages":1}'),
            ("notes", b'{"free":[1,null]}'),
        ]
        (first, *_) = await client.service.messages(run.id)
        assert (first.sent_by, first.received_at) == ("anna", None)


async def test_what_is_no_message_of_its_topic_is_refused_and_nothing_is_sent(database: Path):
    async with rt.Client(database) as client:
        run = await client.start(pay, 1)
        for payload in ({"token": 7}, object(), "\udc80"):
            with pytest.raises(rt.NotEncodable):
                await run.send(confirmed, payload)  # type: ignore[arg-type]
        for topic in ("", "a\nb", 7):
            with pytest.raises(rt.ConfigurationError, match="the name of a topic"):
                await run.send(topic, 1)  # type: ignore[call-overload]
        with pytest.raises(rt.ConfigurationError, match="the key of a message must have 1 to 200 characters"):
            await run.send("notes", 1, key="")
        assert await messages(client, run) == []


async def test_a_message_sent_again_under_its_key_is_there_once_and_another_one_is_a_conflict(database: Path):
    async with rt.Client(database) as client:
        run, other = await client.start(pay, 1), await client.start(pay, 2)
        for _ in range(2):
            await run.send(confirmed, Confirmed("t-1"), key="t-1")
        with pytest.raises(rt.Conflict, match=r"'t-1' was used for another message or command of run .* nothing was"):
            await run.send(confirmed, Confirmed("t-2"), key="t-1")
        with pytest.raises(rt.Conflict):
            await run.send("notes", Confirmed("t-1"), key="t-1")
        await other.send(confirmed, Confirmed("t-2"), key="t-1")
        assert [len(await messages(client, each)) for each in (run, other)] == [1, 1]


async def test_a_run_that_has_ended_or_is_not_there_takes_no_message(database: Path):
    async with rt.Client(database) as client:
        run = await client.start(pay, 1)
        await run.cancel()
        with pytest.raises(rt.Refused, match=r"send refused for run .*: too late: the run is cancelled") as refused:
            await run.send(confirmed, Confirmed("t-1"))
        assert refused.value.status is Status.CANCELLED
        with pytest.raises(rt.NotFound):
            await client.handle("nowhere").send(confirmed, Confirmed("t-1"))


# ---------------------------------------------------------------- published
async def test_what_a_run_has_published_is_read_by_key_while_it_goes_on(database: Path):
    async with rt.Client(database) as client:
        run = await client.start(pay, 1)
        with pytest.raises(rt.NotFound, match="has published no 'stops', nothing so far"):
            await run.published("stops")
        epoch = await claimed(client, run)
        published = {"note": codec.encode(Note("hi"), Note, what="a note"), "none": b"null"}
        await client.store.record("w-paper", [RunEffects(run.id, epoch, published=published)])
        assert await run.published("note") == {"text": "hi", "pages": 1}
        assert await run.published("none") is None
        with pytest.raises(rt.NotFound, match="has published no 'stops', only none, note"):
            await run.published("stops")
        with pytest.raises(rt.NotFound, match="there is no run"):
            await client.handle("nowhere").published("note")


# ---------------------------------------------------------------- declared errors
@pytest.mark.parametrize("declared", [True, False])
async def test_the_cause_of_a_failure_is_the_declared_error_itself(database: Path, declared: bool):
    async with rt.Client(database) as client:
        run = await client.start(pay, 1)
        epoch = await claimed(client, run)
        error = CardDeclined("no money", 7) if declared else LookupError("no card")
        body = codec.encode_business_error(error, (CardDeclined,))
        await client.store.record("w-paper", [RunEffects(run.id, epoch, end=Finish(Status.FAILED, body))])
        for handle in (run, await client.get(run.id, pay)):
            with pytest.raises(rt.RunFailed) as failed:
                await handle.result()
            cause = failed.value.__cause__
            assert (type(cause), cause and cause.args) == (
                (CardDeclined, ("no money", 7)) if declared else (type(None), None)
            )
        with pytest.raises(rt.RunFailed) as failed:
            await (await client.get(run.id)).result()
        assert failed.value.__cause__ is None, "without the code nobody knows the class"


# ---------------------------------------------------------------- deadlines and names
async def test_a_deadline_counts_from_when_the_run_may_begin(database: Path, clock: ManualClock):
    client = rt.Client(database)
    client.clock = clock
    async with client:
        now = clock.now()

        async def deadline_of(workflow: Any) -> int | None:
            return (await client.service.get((await client.start(workflow)).id)).deadline_at

        assert await deadline_of(hurry) == now + 60_000_000
        assert await deadline_of(hurry.options(deadline=5)) == now + 5_000_000
        assert await deadline_of(hurry.options(delay=3_600)) == now + HOUR + 60_000_000
        assert await deadline_of(hurry.options(at=LONG_AGO)) == now + 60_000_000
        with pytest.raises(rt.ConfigurationError, match="the deadline of a run must be longer than 0 seconds"):
            await client.service.start("hurry", "1", b"{}", StartOptions(deadline=0))


async def test_a_workflow_known_by_name_is_started_in_the_version_that_is_served(database: Path):
    async with rt.Client(database) as client:
        by_name = rt.ref("pay", int)
        unserved = await client.start(by_name, cents=1)
        await client.store.register_worker(NewWorker("w-paper", "here", 1, 10, ["pay@7"], HOUR))
        served = await client.start(by_name.options(id="one", tags={"shop": "17"}), cents=1)
        many = await client.start_many(by_name, [{"cents": 2}, {"cents": 3}])
        versions = [(await run.info()).version for run in (unserved, served, *many)]
        assert versions == ["1", "7", "7", "7"]
        assert (served.id, (await served.info()).tags) == ("one", {"shop": "17"})
        with pytest.raises(rt.ConfigurationError, match="give its arguments by keyword"):
            await client.start(by_name, 1)


def test_it_is_all_there_without_a_loop(database: Path):
    with SyncClient(database) as client:
        run = client.start(pay.options(deadline=60), 1)
        run.send(confirmed, Confirmed("t-1"), key="t-1")
        with pytest.raises(rt.NotFound, match="nothing so far"):
            run.published("note")
        run.cancel()
        with pytest.raises(rt.Refused):
            run.send(confirmed, Confirmed("t-2"))

    async def look() -> int:
        async with rt.Client(database) as awaited:
            return len(await awaited.service.messages(run.id))

    assert asyncio.run(look()) == 1
