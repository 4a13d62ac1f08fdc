"""Starting runs: once for an id or a key, in their order, and not before their time."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.engine.running import finished, opened
from tests.support.manual_clock import ManualClock

import runtrue as rt
from runtrue.lifecycle import Status


@dataclass
class Order:
    number: int
    day: date


@rt.workflow
async def echo(number: int = 1, *, word: str = "a") -> str:
    return f"{number}{word}"


@rt.workflow
async def other(number: int = 1) -> int:
    return number


@rt.workflow
async def place(order: Order) -> Order:
    return order


async def test_the_same_start_under_one_id_gives_the_same_run(database: Path):
    async with opened(database, echo) as app:
        first = await app.start(echo.options(id="order-1"), 5)
        assert await finished(first) == "5a"
        again = await app.start(echo.options(id="order-1"), 5)
        by_default = await app.start(echo.options(id="order-1"), 5, word="a")
        assert first.id == again.id == by_default.id == "order-1"
        assert len(await app.runs()) == 1
        assert await finished(again) == "5a"


@pytest.mark.parametrize(("workflow", "number"), [(echo, 6), (other, 5)], ids=["another input", "another workflow"])
async def test_another_start_under_a_taken_id_is_a_conflict_and_starts_nothing(
    database: Path, workflow: rt.AsyncWorkflow[..., Any], number: int
):
    async with rt.Client(database) as client:
        await client.start(echo.options(id="order-1"), 5)
        with pytest.raises(rt.Conflict, match="order-1") as conflict:
            await client.start(workflow.options(id="order-1"), number)
        assert "choose another" in str(conflict.value)
        assert len(await client.runs()) == 1


async def test_a_key_finds_the_run_that_was_started_with_it_and_is_each_workflows_own(database: Path):
    async with rt.Client(database) as client:
        first = await client.start(echo.options(idempotency_key="key"), 5)
        again = await client.start(echo.options(idempotency_key="key"), 5)
        assert first.id == again.id
        with pytest.raises(rt.Conflict, match="under key key with another input"):
            await client.start(echo.options(idempotency_key="key"), 6)
        elsewhere = await client.start(other.options(idempotency_key="key"), 6)
        assert elsewhere.id != first.id


async def test_ids_that_are_not_given_are_made_and_sort_by_time(database: Path):
    async with rt.Client(database) as client:
        ids = [(await client.start(echo)).id for _ in range(5)]
        assert len(set(ids)) == 5
        assert [run.id for run in await client.runs()][::-1] == [
            run.id for run in sorted(await client.runs(), key=lambda run: run.created_at)
        ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"id": ""}, "the run id must have 1 to 200 characters"),
        ({"id": "x" * 201}, "this one has 201"),
        ({"id": "a\nb"}, r"which no id may hold"),
        ({"id": "a\0"}, "which no id may hold"),
        ({"id": "\udc80"}, "which no id may hold"),
        ({"id": 7}, "the run id must be text, not int"),
        ({"idempotency_key": "a\n"}, "the idempotency key"),
        ({"idempotency_key": ""}, "the idempotency key"),
        ({"tags": {"": "x"}}, "the tag"),
        ({"tags": {"team": "a\nb"}}, "the value of tag team"),
        ({"tags": {"team": 7}}, "the value of tag team must be text, not int"),
    ],
    ids=str,
)
async def test_an_id_key_or_tag_that_can_be_none_is_refused_before_anything_is_started(
    database: Path, options: dict[str, Any], message: str
):
    async with rt.Client(database) as client:
        with pytest.raises(rt.ConfigurationError, match=message):
            await client.start(echo.options(**options))
        assert await client.runs() == []


async def test_an_id_may_hold_every_other_character(database: Path):
    async with opened(database, echo) as app:
        for run_id in ("Zürich/ü 42", "'; drop table runs; --", "😀", "x" * 200, " "):
            assert await finished(await app.start(echo.options(id=run_id))) == "1a"
            assert (await app.get(run_id)).id == run_id


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"priority": 1.5}, "priority is a whole number up to 1,000,000 either way, not 1.5"),
        ({"priority": True}, "not True"),
        ({"priority": 10**7}, "not 10000000"),
        ({"delay": -1}, "echo: delay must be from 0 seconds"),
        ({"delay": "1"}, "echo: delay must be seconds or a timedelta, not str"),
        ({"at": datetime(2026, 1, 1)}, "has no time zone"),
        ({"at": datetime(2026, 1, 1, tzinfo=UTC), "delay": 1}, "give delay or at, not both"),
    ],
    ids=str,
)
def test_options_that_can_be_none_are_refused_where_they_are_given(options: dict[str, Any], message: str):
    with pytest.raises(rt.ConfigurationError, match=message):
        echo.options(**options)


def test_options_add_up_and_leave_the_workflow_alone():
    chosen = echo.options(id="a", priority=3).options(tags={"k": "v"}).options(priority=4)
    assert (chosen.run_settings.id, chosen.run_settings.priority, chosen.run_settings.tags) == ("a", 4, {"k": "v"})
    assert echo.run_settings.id is None
    assert echo.run_settings.priority == 0


async def test_delay_and_at_given_one_after_the_other_are_refused_too(database: Path):
    with pytest.raises(rt.ConfigurationError, match="give delay or at, not both"):
        echo.options(delay=1).options(at=datetime(2027, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        (("one",), {}, "argument number"),
        ((1, 2), {}, "too many positional arguments"),
        ((), {"unknown": 1}, "unknown"),
        ((object(),), {}, "argument number"),
    ],
    ids=["ill-typed", "too many", "unknown", "not recordable"],
)
async def test_arguments_that_do_not_fit_are_refused_at_the_start(
    database: Path, args: tuple[Any, ...], kwargs: dict[str, Any], message: str
):
    async with rt.Client(database) as client:
        with pytest.raises(rt.RuntrueError, match=message):
            await client.start(echo, *args, **kwargs)
        assert await client.runs() == []


async def test_arguments_come_back_as_their_types(database: Path):
    async with opened(database, place) as app:
        order = Order(3, date(2026, 5, 4))
        assert await app.run(place, order) == order


async def test_lower_priority_numbers_are_claimed_first_then_the_older_run(database: Path):
    order: list[str] = []

    @rt.workflow
    async def note() -> None:
        order.append(rt.this_run().id)

    async with rt.Client(database) as client:
        for name, priority in (("late", 5), ("first", 0), ("second", 0), ("urgent", -5)):
            await client.start(note.options(id=name, priority=priority))
    async with opened(database, note, slots=1) as app:
        for name in ("late", "first", "second", "urgent"):
            await finished(await app.get(name))
    assert order == ["urgent", "first", "second", "late"]


@pytest.mark.parametrize("how", ["delay", "timedelta", "at"])
async def test_a_run_that_is_delayed_begins_at_its_time_and_not_before(database: Path, clock: ManualClock, how: str):
    options: dict[str, dict[str, Any]] = {
        "delay": {"delay": 90},
        "timedelta": {"delay": timedelta(seconds=90)},
        "at": {"at": datetime(2026, 1, 1, 0, 1, 30, tzinfo=UTC)},
    }
    async with opened(database, echo, clock=clock) as app:
        run = await app.start(echo.options(**options[how]))
        clock.advance(89)
        assert await run.status() is Status.PENDING
        clock.advance(1)
        assert await finished(run) == "1a"


async def test_a_time_that_has_passed_begins_at_once(database: Path):
    async with opened(database, echo) as app:
        assert await finished(await app.start(echo.options(at=datetime(2020, 1, 1, tzinfo=UTC)))) == "1a"


async def test_a_client_starts_by_name_what_it_has_no_code_of(database: Path):
    async with rt.Client(database) as client:
        run = await client.start("echo", number=7, word="z")
        with pytest.raises(rt.ConfigurationError, match="give its arguments by keyword"):
            await client.start("echo", 7)
        with pytest.raises(rt.ConfigurationError, match="start takes a workflow or its name, not int"):
            await client.start(7)  # type: ignore[call-overload]
        with pytest.raises(rt.ConfigurationError, match="the workflow name"):
            await client.start("a\nb")
    async with opened(database, echo) as app:
        assert await finished(await app.get(run.id)) == "7z"


async def test_an_app_starts_by_name_with_the_types_it_knows(database: Path):
    async with opened(database, echo, place) as app:
        assert await finished(await app.start("echo", 3, word="b")) == "3b"
        placed = await finished(await app.start("place", order={"number": 1, "day": "2026-02-03"}))
        assert placed == Order(1, date(2026, 2, 3))
        with pytest.raises(rt.NotEncodable, match="argument number"):
            await app.start("echo", "three")


async def test_by_name_the_version_is_that_of_the_youngest_worker_that_serves_it(database: Path):
    @rt.workflow(name="flow", version="1")
    async def old() -> str:
        return "old"

    @rt.workflow(name="flow", version="2")
    async def new() -> str:
        return "new"

    async with opened(database, old), opened(database, new), rt.Client(database) as client:
        run = await client.start("flow")
        assert (await run.info()).version == "2"
        assert await finished(run) == "new"
        unknown = await client.start("nobody serves this")
        assert (await unknown.info()).version == "1"


async def test_start_many_starts_all_and_refuses_what_cannot_be_many(database: Path):
    async with opened(database, echo) as app:
        runs = await app.start_many(echo.options(tags={"k": "v"}), [{"number": n} for n in range(1_100)])
        assert len({run.id for run in runs}) == 1_100
        assert await finished(runs[-1]) == "1099a"
        assert (await runs[3].info()).tags == {"k": "v"}
        for options in ({"id": "one"}, {"idempotency_key": "one"}):
            with pytest.raises(rt.ConfigurationError, match="one id or key cannot serve many runs"):
                await app.start_many(echo.options(**options), [{}])
        assert await app.start_many(echo, []) == []


async def test_run_starts_and_waits(database: Path):
    async with opened(database, echo) as app:
        assert await app.run(echo, 2, word="c") == "2c"
        assert await app.run("echo") == "1a"


async def test_who_started_a_run_is_told(database: Path):
    async with rt.Client(database, actor="nightly import") as client:
        run = await client.start(echo)
        (created,) = [event async for event in run.events()]
        assert created.type == "created"
        assert created.data["by"] == "nightly import"


async def test_many_starts_of_one_id_at_once_start_one_run(database: Path):
    async with opened(database, echo) as app:
        runs = await asyncio.gather(*(app.start(echo.options(id="one"), 3) for _ in range(30)))
        assert {run.id for run in runs} == {"one"}
        assert await finished(runs[0]) == "3a"
        assert len(await app.runs()) == 1
