"""Messages to runs, and what a run has around it: waits, children, published values, a deadline."""

import asyncio
import dataclasses
import re
from pathlib import Path

import pytest
from tests.cli.conftest import Runtrue
from tests.cli.making import (
    CLOCK,
    HOUR,
    SECOND,
    WORKER,
    child_start,
    claim,
    command,
    make,
    message_wait,
    park,
    record,
    step,
    with_store,
)

from runtrue.cli.wording import event_text, place_text
from runtrue.codec import encode
from runtrue.lifecycle import Command, Status
from runtrue.records import Event, InFlight, StepRecord
from runtrue.store.protocol import Heartbeat, RunEffects


@pytest.fixture
def waiting(database: Path) -> str:
    """A run that waits for a message and for two children, and has published two values."""

    async def made(store):
        epoch = await claim(store, "order-1")
        published = {"city": encode("Lyon", what="city"), "stops": encode([1, 2], what="stops")}
        waits = [message_wait(0, "courier", branch="2.0", seconds=3_600)]
        children = [child_start("order-1", n, f"mail-{n}", branch="2.1") for n in (0, 1)]
        effects = RunEffects("order-1", epoch, waits=waits, children=children, published=published)
        await record(store, effects)
        await park(store, "order-1", epoch)
        await command(store, "mail-1", Command.PAUSE, "lunch")

    with_store(database, made)
    return "order-1"


# ---------------------------------------------------------------- send
@pytest.mark.parametrize(
    ("words", "body"),
    [
        (["arrived"], "arrived"),
        ([], None),
        ([""], ""),
        ([":=10"], 10),
        ([':={"parcel": 7}'], {"parcel": 7}),
        ([':="@not a file"'], "@not a file"),
        (["a=b"], "a=b"),
    ],
)
def test_a_message_is_text_or_json(runtrue: Runtrue, waiting: str, words: list[str], body: object) -> None:
    told = runtrue("run", "send", waiting, "post", *words)
    assert (told.code, told.out) == (0, "sent: run order-1 has the message; the run is waiting\n")
    (message,) = runtrue("run", "messages", waiting, "-o", "json").json
    assert (message["topic"], message["body"], message["received_at"]) == ("post", body, None)


def test_a_message_comes_from_a_file_or_from_standard_input(command: Runtrue, waiting: str, here: Path) -> None:
    (here / "note.json").write_text('{"parcel": 7}')
    command("run", "send", waiting, "post", "@note.json")
    command("run", "send", waiting, "post", "-", stdin="[1, 2]")
    found = command("run", "messages", waiting, "-o", "json").json
    assert [message["body"] for message in found] == [{"parcel": 7}, [1, 2]]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["post", ":={"], "VALUE ':={' is no JSON"),
        (["post", "@nowhere.json"], "VALUE @nowhere.json: cannot read file nowhere.json"),
        (["", "x"], "the topic must have 1 to 200 characters"),
        (["post", "x", "--key", "a\nb"], "the request id 'a\\nb' holds the character"),
    ],
)
def test_what_can_be_no_message_is_a_matter_of_usage(
    runtrue: Runtrue, waiting: str, words: list[str], complaint: str
) -> None:
    told = runtrue("run", "send", waiting, *words)
    assert (told.code, told.out) == (2, "")
    assert complaint in told.err
    assert runtrue("run", "messages", waiting).err == "no message was sent to run order-1\n"


def test_a_message_that_is_waited_for_wakes_the_run(runtrue: Runtrue, waiting: str) -> None:
    told = runtrue("run", "send", waiting, "courier", "arrived", "-o", "json").json
    assert (told["command"], told["status"], told["done"], told["changed"]) == ("send", "pending", True, True)
    events = runtrue("run", "events", waiting).out
    assert re.search(rf"message on courier from \w+ \({told['request_id']}\)", events)
    assert "woken by a message on courier" in events


def test_a_message_sent_again_under_its_key_changes_nothing_and_another_one_is_a_conflict(
    runtrue: Runtrue, waiting: str
) -> None:
    assert runtrue("run", "send", waiting, "post", "one", "--key", "scan-1").code == 0
    again = runtrue("run", "send", waiting, "post", "one", "--key", "scan-1")
    assert again.code == 0
    assert again.out.startswith("request scan-1 was met before, with this answer: sent: run order-1 has the message")
    other = runtrue("run", "send", waiting, "post", "two", "--key", "scan-1")
    assert (other.code, other.out) == (4, "")
    assert (
        "request id 'scan-1' was used for another message or command of run order-1; nothing was changed" in other.err
    )
    assert len(runtrue("run", "messages", waiting, "-o", "json").json) == 1


def test_messages_are_listed_with_who_sent_them_and_when_they_were_received(runtrue: Runtrue, waiting: str) -> None:
    runtrue("run", "send", waiting, "post", "x" * 100)
    runtrue("run", "send", waiting, "courier", "arrived\x1b[31m")
    head, post, courier = runtrue("run", "messages", waiting).out.splitlines()
    assert head.split() == ["seq", "topic", "sent", "by", "received", "message"]
    assert post.endswith(f'"{"x" * 58}…')
    assert courier.endswith('"arrived\\u001b[31m"')

    async def received(store):
        await store.claim(WORKER, [("fulfil", "1")], 1)

    with_store(Path("runtrue.db"), received)
    found = runtrue("run", "messages", waiting, "-o", "jsonl").out.splitlines()
    assert ['"received_at": null' in line for line in found] == [True, False]


# ---------------------------------------------------------------- what is around a run
def test_a_run_is_shown_with_what_it_waits_for_its_children_and_what_it_has_published(
    runtrue: Runtrue, waiting: str
) -> None:
    shown = runtrue("run", "show", waiting).out
    why = next(line for line in shown.splitlines() if line.startswith("why"))
    assert "waits for a message on courier until " in why
    assert why.endswith(", and 1 other wait")
    assert "child mail-0 (mail) at 2.1/0" in shown
    assert "a message on courier until " in shown
    assert "1 pending, 1 paused; see `runtrue run children order-1`" in shown
    assert 'city = "Lyon"' in shown
    assert "stops = [1, 2]" in shown
    assert "runtrue run send order-1 courier VALUE" in shown
    body = runtrue("run", "show", waiting, "-o", "json").json
    assert body["published"] == {"city": "Lyon", "stops": [1, 2]}
    assert body["children"] == {"pending": 1, "paused": 1}
    assert [(wait["kind"], wait["subject"], wait["branch"]) for wait in body["waits"]] == [
        ("receive", "courier", "2.0"),
        ("child", "mail-0", "2.1"),
        ("child", "mail-1", "2.1"),
    ]
    assert body["waits"][0]["deadline_at"].endswith("Z")
    assert body["parent_id"] is None


def test_children_are_listed_and_name_their_parent(runtrue: Runtrue, waiting: str) -> None:
    assert runtrue("run", "children", waiting, "-o", "id").out.split() == ["mail-0", "mail-1"]
    head, first, second = runtrue("run", "children", waiting).out.splitlines()
    assert head.split()[:4] == ["id", "workflow", "status", "why"]
    assert first.startswith("mail-0  mail@1    pending")
    assert "paused by otto (lunch)" in second
    bodies = runtrue("run", "children", waiting, "-o", "json").json
    assert [body["parent_id"] for body in bodies] == ["order-1", "order-1"]
    assert "parent    " in runtrue("run", "show", "mail-0").out
    none = runtrue("run", "children", "mail-0")
    assert (none.code, none.out, none.err) == (0, "", "run mail-0 has no children\n")
    assert runtrue("run", "children", "nobody").code == 3
    assert runtrue("run", "messages", "nobody").code == 3


def test_only_the_first_of_many_waits_are_shown_and_json_has_them_all(runtrue: Runtrue, database: Path) -> None:
    async def many(store):
        epoch = await claim(store, "order-1")
        waits = [message_wait(0, f"topic-{n}", branch=f"0.{n}") for n in range(30)]
        await record(store, RunEffects("order-1", epoch, waits=waits))

    with_store(database, many)
    shown = runtrue("run", "show", "order-1").out
    assert shown.count("a message on topic-") == 20
    assert "and 10 more; `-o json` has them all" in shown
    assert len(runtrue("run", "show", "order-1", "-o", "json").json["waits"]) == 30


def test_a_deadline_counts_from_when_the_run_may_begin_and_is_shown(runtrue: Runtrue, database: Path) -> None:
    before = CLOCK.now()
    runtrue("run", "start", "fulfil", "--id", "order-1", "--delay", "1h", "--deadline", "3h")
    run = with_store(database, lambda store: store.get("order-1"))
    assert 0 <= run.deadline_at - 4 * HOUR - before < 60 * SECOND
    assert "deadline" in runtrue("run", "show", "order-1").out
    assert runtrue("run", "show", "order-1", "-o", "json").json["deadline_at"].endswith("Z")
    refused = runtrue("run", "start", "fulfil", "--deadline", "0")
    assert (refused.code, refused.err) == (2, "Error: the deadline of a run must be longer than 0 seconds\n")
    assert runtrue("run", "start", "fulfil", "--deadline", "soon").code == 2


def test_a_run_without_any_of_it_shows_none_of_it(runtrue: Runtrue, database: Path) -> None:
    with_store(database, lambda store: make(store, "order-1", Status.PENDING))
    names = [line.split("  ")[0] for line in runtrue("run", "show", "order-1").out.splitlines()]
    assert not {"parent", "deadline", "waits for", "children", "published"} & set(names)
    body = runtrue("run", "show", "order-1", "-o", "json").json
    assert (body["waits"], body["children"], body["published"], body["deadline_at"]) == ([], {}, {}, None)


# ---------------------------------------------------------------- steps and events within branches
def test_steps_and_events_within_branches_are_told_with_their_place(runtrue: Runtrue, database: Path) -> None:
    async def branched(store):
        epoch = await claim(store, "order-1")
        steps = [
            dataclasses.replace(step(0, "charge"), branch="3.1"),
            StepRecord("", 3, "first", "first", 1, b"[1, null]", None, CLOCK.now(), CLOCK.now(), 7),
        ]
        await record(store, RunEffects("order-1", epoch, steps=steps))

    with_store(database, branched)
    charge, first = runtrue("run", "steps", "order-1").out.splitlines()[1:]
    assert charge.split()[:3] == ["3.1/0", "charge", "step"]
    assert first.split()[:3] == ["3", "first", "first"]
    events = runtrue("run", "events", "order-1").out
    assert "step charge completed (at 3.1/0, 0.25 s)" in events
    assert "first completed (0.00 s)" in events


def test_a_change_that_was_asked_about_is_told_by_its_name_and_branch() -> None:
    data = {"name": "tax", "kind": "patched", "branch": "#tax", "ordinal": 0, "attempt": 1, "failed": False}
    assert event_text(Event("order-1", 1, 0, "step", data)) == "patched tax"
    within = Event("order-1", 1, 0, "step", {**data, "branch": "3.1#tax"})
    assert event_text(within) == "patched tax (at 3.1#tax)"
    assert [place_text(*place) for place in (("", 2), ("3.1", 0), ("#tax", 0))] == ["2", "3.1/0", "#tax"]


@pytest.mark.parametrize(
    ("kind", "name", "told"),
    [
        ("receive", "courier", "receive courier completed (2.0 s)"),
        ("child", "mail", "child mail completed (2.0 s)"),
        ("start_child", "mail", "start of child mail completed"),
        ("send", "courier", "send to courier completed"),
        ("gather", "gather", "gather completed (2.0 s)"),
        ("map", "map", "map completed (2.0 s)"),
        ("patched", "new-tax", "patched new-tax"),
        ("now", "now", "now"),
    ],
)
def test_each_kind_of_call_is_told_in_its_own_words(kind: str, name: str, told: str) -> None:
    data = {"name": name, "kind": kind, "branch": "", "ordinal": 1, "attempt": 1, "failed": False, "started_at": 0}
    assert event_text(Event("order-1", 1, 2 * SECOND, "step", data)) == told


def test_the_end_of_a_child_that_wakes_its_parent_is_told_by_its_id() -> None:
    woken = Event("order-1", 1, 0, "woken", {"cause": "child", "child": "mail-1"})
    assert event_text(woken) == "woken by the end of child mail-1"


def test_several_steps_in_flight_are_all_told_and_each_is_left_out_once_it_has_ended(
    runtrue: Runtrue, database: Path
) -> None:
    async def running(store):
        epoch = await claim(store, "order-1")
        began = CLOCK.now() - 60 * SECOND
        told = [InFlight("order-1", "charge", 1, began + n) for n in (0, 1)] + [InFlight("order-1", "mail", 1, began)]
        await asyncio.to_thread(store.renew, Heartbeat(WORKER, HOUR, CLOCK.now(), told))
        ended = dataclasses.replace(step(0, "charge"), branch="0.1", started_at=began + 1)
        await record(store, RunEffects("order-1", epoch, steps=[ended]))

    with_store(database, running)
    body = runtrue("run", "show", "order-1", "-o", "json").json
    assert [each["step"] for each in body["in_flight"]] == ["charge", "mail"]
    told = runtrue("run", "cancel", "order-1").out
    assert re.search(r"is still running step charge \(attempt 1, \d+ s\), step mail \(attempt 1, \d+ s\); it is", told)
