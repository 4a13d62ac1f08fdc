"""Looking at runs: lists and their pages, one run, its steps and events, holds and workers."""

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Runtrue
from tests.cli.making import (
    CLOCK,
    HOUR,
    attempt,
    claim,
    command,
    make,
    make_held,
    record,
    report_in_flight,
    start,
    step,
    with_store,
)

from runtrue.codec import decode_error, encode_error
from runtrue.errors import StepFailed
from runtrue.lifecycle import Command, HoldKind, Status
from runtrue.store.protocol import Finish, ParkBlocked, RunEffects

ARun = Callable[[Status], str]


@pytest.fixture
def every_status(database: Path) -> Path:
    """One run in each status."""

    async def all_of_them(store):
        for status in Status:
            await make(store, f"run-{status.value}", status)

    with_store(database, all_of_them)
    return database


# ---------------------------------------------------------------- list
def test_the_list_tells_of_each_run_why_it_does_not_move(runtrue: Runtrue, every_status: Path) -> None:
    lines = runtrue("run", "list").out.splitlines()
    assert lines[0].split() == ["id", "workflow", "status", "why", "attempt", "started", "age"]
    told = {line.split()[0]: line for line in lines[1:]}
    assert list(told) == [f"run-{status.value}" for status in reversed(Status)]
    assert "not taken yet" in told["run-pending"]
    assert "on worker w-test (here, pid 4711)" in told["run-running"]
    assert "sleeps until " in told["run-waiting"]
    assert "(in 59 min)" in told["run-waiting"] or "(in 60 min)" in told["run-waiting"]
    assert "pause requested by otto" in told["run-pausing"]
    assert "paused by otto (stocktaking); `resume` lets it go on" in told["run-paused"]
    assert "cancel requested by otto" in told["run-cancelling"]
    assert "ValueError: no such order" in told["run-failed"]
    assert "cancelled by otto: not wanted any more" in told["run-cancelled"]


def test_the_list_is_filtered_by_status_workflow_and_tag(runtrue: Runtrue, every_status: Path) -> None:
    with_store(every_status, lambda store: start(store, "other", workflow="mail"))
    ids = runtrue("run", "list", "--status", "failed", "--status", "paused", "-o", "id").out.split()
    assert ids == ["run-failed", "run-paused"]
    assert runtrue("run", "list", "--workflow", "mail", "-o", "id").out.split() == ["other"]
    assert len(runtrue("run", "list", "--tag", "shop=17", "-o", "id").out.split()) == len(Status) + 1
    none = runtrue("run", "list", "--tag", "shop=18")
    assert (none.code, none.out, none.err) == (0, "", "no runs are like that\n")


def test_the_list_is_filtered_by_age(runtrue: Runtrue, every_status: Path) -> None:
    assert len(runtrue("run", "list", "--since", "1h", "-o", "id").out.split()) == len(Status)
    assert runtrue("run", "list", "--since", "2001-01-31", "-o", "id").out != ""
    assert runtrue("run", "list", "--since", "2999-01-31T00:00Z", "-o", "id").out == ""
    nonsense = runtrue("run", "list", "--since", "yesterday")
    assert nonsense.code == 2
    assert "'yesterday' is no time" in nonsense.err


def test_pages_follow_each_other_by_the_cursor(runtrue: Runtrue, every_status: Path) -> None:
    everything = runtrue("run", "list", "-o", "id").out.split()
    seen: list[str] = []
    words: list[str] = []
    while True:
        page = runtrue("run", "list", "--limit", "4", *words, "-o", "json").json
        seen += [run["id"] for run in page["runs"]]
        if page["cursor"] is None:
            break
        words = ["--cursor", page["cursor"]]
    assert seen == everything
    assert len(seen) == len(Status)
    told = runtrue("run", "list", "--limit", "4")
    assert told.err.startswith("there are more: add --cursor ")


@pytest.mark.parametrize("cursor", ["", "x", "12", ":a", "-1:a", "9" * 30 + ":a", "1\u00b2:a"])
def test_a_cursor_that_is_none_is_a_matter_of_usage(runtrue: Runtrue, database: Path, cursor: str) -> None:
    told = runtrue("run", "list", "--cursor", cursor)
    assert told.code == 2
    assert "is no cursor" in told.err


def test_lines_of_json_are_one_run_each(runtrue: Runtrue, every_status: Path) -> None:
    bodies = [json.loads(line) for line in runtrue("run", "list", "-o", "jsonl").out.splitlines()]
    assert [body["status"] for body in bodies] == [status.value for status in reversed(Status)]
    assert all("input" not in body for body in bodies)
    assert all(body["created_at"].endswith("Z") for body in bodies)


def test_an_empty_database_lists_nothing(runtrue: Runtrue, database: Path) -> None:
    assert runtrue("run", "list").err == "no runs yet\n"
    assert runtrue("run", "list", "-o", "json").json == {"runs": [], "cursor": None}
    assert runtrue("run", "list", "-o", "jsonl").out == ""


# ---------------------------------------------------------------- show
def test_a_run_is_shown_with_all_that_is_recorded(runtrue: Runtrue, a_run: ARun) -> None:
    shown = runtrue("run", "show", a_run(Status.COMPLETED)).out
    facts = dict(line.split(maxsplit=1) for line in shown.splitlines() if line.split()[0] in {"id", "input", "output"})
    assert facts == {"id": "run-completed", "input": '{"city": "Lyon"}', "output": '{"total": 7}'}
    body = runtrue("run", "show", "run-completed", "-o", "json").json
    assert (body["output"], body["error"], body["why"]) == ({"total": 7}, None, "")
    assert body["available_actions"] == []


def test_the_recorded_error_of_a_failed_run_is_shown(runtrue: Runtrue, a_run: ARun) -> None:
    run_id = a_run(Status.FAILED)
    assert "ValueError: no such order" in runtrue("run", "show", run_id).out
    body = runtrue("run", "show", run_id, "-o", "json").json
    assert (body["error"]["type"], body["error"]["message"]) == ("ValueError", "no such order")


def test_a_run_that_failed_by_a_step_shows_where_in_the_step(runtrue: Runtrue, database: Path) -> None:
    async def failing(store):
        epoch = await claim(store, "order-1")
        with pytest.raises(ConnectionError) as caught:
            raise ConnectionError("the line is down")
        broken = encode_error(caught.value)
        charge = [dataclasses.replace(step(n, "charge"), output=None, error=broken) for n in (0, 1)]
        charge[0].error = encode_error(ConnectionError("an earlier one, which the workflow caught"))
        await record(store, RunEffects("order-1", epoch, steps=charge))
        error = encode_error(StepFailed("charge", decode_error(broken), 1))
        await record(store, RunEffects("order-1", epoch, end=Finish(Status.FAILED, error)))

    with_store(database, failing)
    shown = runtrue("run", "show", "order-1").out
    error, of_the_step = shown.split("of the step", 1)
    assert "step charge failed after 1 attempt: ConnectionError: the line is down" in error
    assert of_the_step.split()[:2] == ["ConnectionError:", "the"]
    assert 'raise ConnectionError("the line is down")' in of_the_step
    assert "which the workflow caught" not in shown


def test_a_run_shows_who_asked_for_what_when_and_why(runtrue: Runtrue, a_run: ARun) -> None:
    (line,) = [line for line in runtrue("run", "show", a_run(Status.PAUSED)).out.splitlines() if "request" in line]
    assert re.fullmatch(r"request +pause by otto at 2\d{3}-\d\d-\d\d \d\d:\d\d:\d\d\S+: stocktaking", line)
    runtrue("run", "resume", "run-paused")
    runtrue("run", "pause", "run-paused")
    assert not runtrue("run", "show", "run-paused").out.split("request")[1].splitlines()[0].endswith(": ")
    assert "calls recorded  0" in runtrue("run", "show", "run-paused").out


def test_a_run_shows_the_commands_that_it_can_be_given(runtrue: Runtrue, a_run: ARun) -> None:
    shown = runtrue("run", "show", a_run(Status.PAUSED)).out
    assert "runtrue run resume run-paused" in shown
    assert "runtrue run cancel run-paused" in shown
    assert "runtrue run answer" not in shown


@pytest.mark.parametrize("words", [("show",), ("steps",), ("events",), ("watch",), ("wait",)])
def test_a_run_that_is_not_there_is_not_found(runtrue: Runtrue, database: Path, words: tuple[str, ...]) -> None:
    told = runtrue("run", *words, "nobody")
    assert (told.code, told.out) == (3, "")
    assert told.err == "Error: there is no run 'nobody'; `runtrue run list` shows the runs there are\n"


@pytest.mark.parametrize("run_id", ["", "x" * 1_000, "a\nb", "'; --"])
def test_nonsense_for_an_id_is_not_found(runtrue: Runtrue, database: Path, run_id: str) -> None:
    told = runtrue("run", "show", run_id)
    assert (told.code, told.out) == (3, "")
    assert "\n" not in told.err.rstrip("\n")


def test_an_argument_that_is_no_text_is_a_matter_of_usage(runtrue: Runtrue, database: Path) -> None:
    told = runtrue("run", "show", "run-\udcff")
    assert (told.code, told.out) == (2, "")
    assert "'run-\\udcff' is not UTF-8 text" in told.err


# ---------------------------------------------------------------- steps and events
def test_steps_and_failed_attempts_are_listed_in_the_order_of_recording(runtrue: Runtrue, database: Path) -> None:
    async def failing(store):
        epoch = await claim(store, "order-1")
        later = CLOCK.now() + HOUR
        effects = RunEffects("order-1", epoch, steps=[step(0, "load", output="x" * 200)])
        await record(store, effects)
        await record(store, RunEffects("order-1", epoch, attempts=[attempt(1, "charge", 1, next_at=later)]))
        run = await store.get("order-1")
        await record(store, RunEffects("order-1", epoch, end=ParkBlocked(run.wakeups, later)))

    with_store(database, failing)
    lines = runtrue("run", "steps", "order-1").out.splitlines()
    assert lines[0].split() == ["call", "name", "kind", "attempt", "outcome", "started", "took", "result"]
    assert lines[1].split()[:5] == ["0", "load", "step", "1", "completed"]
    assert lines[1].endswith("…")
    assert lines[2].split()[:5] == ["1", "charge", "step", "1", "failed"]
    assert "ConnectionError: the line is down; tried again at " in lines[2]
    bodies = runtrue("run", "steps", "order-1", "-o", "json").json
    assert [(body["type"], body["name"]) for body in bodies] == [("step", "load"), ("attempt_failed", "charge")]
    assert bodies[0]["output"] == "x" * 200
    why = "step charge failed once (ConnectionError: the line is down), tries again at "
    assert why in runtrue("run", "list").out


def test_a_run_without_steps_says_so(runtrue: Runtrue, a_run: ARun) -> None:
    told = runtrue("run", "steps", a_run(Status.PENDING))
    assert (told.code, told.out, told.err) == (0, "", "run run-pending has recorded no step yet\n")


def test_events_are_numbered_without_gaps_and_read_from_any_of_them(runtrue: Runtrue, a_run: ARun) -> None:
    run_id = a_run(Status.CANCELLED)
    events = runtrue("run", "events", run_id, "-o", "json").json
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [events[0]["type"], events[-1]["type"]] == ["created", "cancelled"]
    assert [event["seq"] for event in runtrue("run", "events", run_id, "--after", "1", "-o", "json").json] == [2]
    assert "cancelled" in runtrue("run", "events", run_id).out
    told = runtrue("run", "events", run_id, "--after", "99")
    assert (told.code, told.out) == (0, "")
    assert runtrue("run", "events", run_id, "--after", "-1").code == 2


# ---------------------------------------------------------------- holds and workers
def test_open_holds_are_listed_and_closed_ones_on_request(runtrue: Runtrue, database: Path) -> None:
    async def two(store):
        await make(store, "a", Status.PAUSED)
        await command(store, "a", Command.RESUME)
        return await make_held(store, "b", HoldKind.CODE_MISMATCH)

    hold = with_store(database, two)
    assert runtrue("hold", "list", "-o", "id").out.split() == [hold]
    assert runtrue("hold", "list", "--run", "a").err == "no open holds\n"
    closed = runtrue("hold", "list", "--run", "a", "--all", "-o", "json").json
    assert [(item["kind"], item["outcome"]) for item in closed] == [("operator", "resumed")]
    assert runtrue("hold", "list", "--run", "nobody").code == 3


def test_workers_are_listed_with_what_they_hold(runtrue: Runtrue, database: Path) -> None:
    assert runtrue("worker", "list").err == "no worker is alive\n"

    async def running(store):
        await make(store, "order-1", Status.RUNNING)
        await report_in_flight(store, "order-1", "charge")

    with_store(database, running)
    lines = runtrue("worker", "list").out.splitlines()
    assert lines[0].split() == ["id", "host", "pid", "status", "runs", "serves", "heartbeat", "notes"]
    assert lines[1].split()[:5] == ["w-test", "here", "4711", "alive", "1"]
    assert "at its last heartbeat in step charge of run order-1 for 12 s" in lines[1]
    (body,) = runtrue("worker", "list", "-o", "json").json
    assert (body["runs_held"], body["slots"], body["serves"]) == (1, 10, ["fulfil@1"])

    with_store(database, lambda store: store.retire_worker("w-test"))
    assert runtrue("worker", "list", "-o", "id").out == ""
    assert runtrue("worker", "list", "--all", "-o", "id").out == "w-test\n"
