"""Why a run does not move, for each reason there is."""

import dataclasses

import pytest
from tests.cli.making import SECOND

from runtrue.codec import encode_error
from runtrue.explain import explain, span_text
from runtrue.jsonform import cursor_text, dumps, parse_cursor, utc_text
from runtrue.lifecycle import HoldKind, Status
from runtrue.records import AttemptRecord, Hold, InFlight, Request, RunRecord, StepRecord, Wait, WorkerRecord
from runtrue.store.protocol import NEVER

NOW = 1_700_000_000 * SECOND
MINUTE = 60 * SECOND


def run(status: Status, **changes: object) -> RunRecord:
    base = RunRecord(
        id="order-1",
        workflow="fulfil",
        version="1",
        status=status,
        priority=0,
        ready_at=NOW - MINUTE,
        epoch=1,
        worker_id="w-1" if status in {Status.RUNNING, Status.PAUSING, Status.CANCELLING} else None,
        wakeups=0,
        open_run_holds=0,
        event_seq=1,
        steps_done=0,
        losses=0,
        attempt=1,
        idempotency_key=None,
        request=None,
        created_at=NOW - MINUTE,
        started_at=None,
        finished_at=None,
        updated_at=NOW,
    )
    return dataclasses.replace(base, **changes)


def worker(**changes: object) -> WorkerRecord:
    base = WorkerRecord("w-1", "box", 17, "alive", NOW, NOW, NOW + MINUTE, NOW, 10, ["fulfil@1"], [], "", 3, 0)
    return dataclasses.replace(base, **changes)


def hold(kind: HoldKind, reason: str = "") -> Hold:
    return Hold("h-1", "order-1", kind, NOW - MINUTE, "otto", reason)


def why(of: RunRecord, *workers: WorkerRecord, **known: object) -> str:
    holds = known.pop("holds", ())
    return explain(of, now=NOW, holds=holds, workers=workers, **known)


# ---------------------------------------------------------------- nobody has it
@pytest.mark.parametrize(
    ("workers", "told"),
    [
        ([], "no worker serves fulfil@1: none is alive"),
        ([worker(status="lost")], "no worker serves fulfil@1: none is alive"),
        ([worker(lease_until=NOW - 1)], "no worker serves fulfil@1: none is alive"),
        ([worker(serves=["mail@1"])], "no worker serves fulfil@1"),
        ([worker(serves=["fulfil@2", "fulfil@3"])], "no worker serves fulfil@1, only fulfil@2, fulfil@3"),
        ([worker(), worker(runs_held=10)], "not taken yet"),
        ([worker(runs_held=10), worker(runs_held=10)], "waits for a free worker (all 20 slots are taken)"),
    ],
)
def test_a_pending_run_tells_what_keeps_workers_from_it(workers: list[WorkerRecord], told: str) -> None:
    assert why(run(Status.PENDING), *workers) == told
    assert why(run(Status.WAITING), *workers) == f"due since {utc_text(NOW - MINUTE)}; {told}"


def test_a_delayed_run_tells_until_when() -> None:
    at = NOW + 150 * MINUTE
    assert why(run(Status.PENDING, ready_at=at)) == f"delayed until {utc_text(at)} (in 2 h 30 min)"


def test_a_run_that_lost_its_worker_tells_how_often_and_when_it_may_be_claimed() -> None:
    told = why(run(Status.PENDING, ready_at=NOW + 4 * SECOND, losses=3))
    assert told == f"lost its worker 3 times, may be claimed again at {utc_text(NOW + 4 * SECOND)} (in 4 s)"


# ---------------------------------------------------------------- waiting
def test_a_sleeping_run_tells_until_when() -> None:
    at = NOW + MINUTE
    assert why(run(Status.WAITING, ready_at=at), steps=[], attempts=[]) == f"sleeps until {utc_text(at)} (in 60 s)"
    assert why(run(Status.WAITING, ready_at=at)) == f"wakes at {utc_text(at)} (in 60 s)"


def test_a_run_between_attempts_tells_which_step_failed_how_often_and_why() -> None:
    at = NOW + MINUTE
    error = encode_error(ConnectionError("the line\nis down"))
    failed = [AttemptRecord("", 1, "charge", number, error, NOW, NOW, at) for number in (1, 2)]
    settled = AttemptRecord("", 0, "load", 1, error, NOW, NOW, NOW)
    done = StepRecord("", 0, "load", "step", 2, b"1", None, NOW, NOW, 1)
    told = why(run(Status.WAITING, ready_at=at), steps=[done], attempts=[settled, *failed])
    assert (
        told
        == f"step charge failed 2 times (ConnectionError: the line is down), tries again at {utc_text(at)} (in 60 s)"
    )


def sleep(branch: str, ordinal: int, wake_at: int) -> StepRecord:
    return StepRecord(branch, ordinal, "sleep", "sleep", 1, None, None, NOW, NOW, 1, wake_at)


def group(kind: str, branch: str, ordinal: int) -> StepRecord:
    return StepRecord(branch, ordinal, kind, kind, 1, b"0", None, NOW, NOW, 1)


def message(topic: str, branch: str = "", *, until: int | None = None, closed_at: int | None = None) -> Wait:
    return Wait(branch, 1, "receive", topic, topic, NOW - MINUTE, until, closed_at)


def child(run_id: str, workflow: str = "mail", branch: str = "") -> Wait:
    return Wait(branch, 1, "child", workflow, run_id, NOW - MINUTE)


def test_a_run_that_waits_for_a_message_tells_its_topic_and_until_when() -> None:
    waiting = run(Status.WAITING, ready_at=NEVER)
    assert why(waiting, steps=[], waits=[message("courier")]) == "waits for a message on courier"
    at = NOW + MINUTE
    told = why(run(Status.WAITING, ready_at=at), steps=[], waits=[message("courier", until=at)])
    assert told == f"waits for a message on courier until {utc_text(at)} (in 60 s)"
    assert why(waiting, steps=[], waits=[message("old", closed_at=NOW), message("courier")]).endswith("on courier")
    assert why(waiting) == "waits for a message or a child", "where nobody asked for its waits"


def test_a_run_that_waits_for_children_tells_which_or_how_many() -> None:
    waiting = run(Status.WAITING, ready_at=NEVER, children_left=1)
    assert why(waiting, steps=[], waits=[child("mail-1")]) == "waits for its child mail-1 (mail)"
    three = [child("a"), child("b", "print"), child("c")]
    some = dataclasses.replace(waiting, children_left=3)
    assert why(some, steps=[], waits=three) == "waits for 3 children (mail, print)"
    assert why(waiting, steps=[], waits=three) == "waits for 1 of 3 children (mail, print)"
    many = [child(name, name) for name in "edcba"]
    assert why(some, steps=[], waits=many) == "waits for 3 of 5 children (a, b, c and 2 more)"


def test_a_run_that_waits_for_several_things_tells_the_first_to_end_and_how_many_more() -> None:
    early, late = NOW + MINUTE, NOW + 60 * MINUTE
    waiting = run(Status.WAITING, ready_at=early, children_left=1)
    steps = [sleep("3.0", 0, late), sleep("3.1", 0, early), sleep("3.2", 0, NOW)]
    told = why(waiting, steps=steps, waits=[message("courier", "3.3"), child("mail-1", branch="3.4")])
    assert told == f"sleeps until {utc_text(early)} (in 60 s), and 3 other waits"
    told = why(waiting, steps=steps[:1], waits=[message("courier", "3.3", until=early)])
    assert told == f"waits for a message on courier until {utc_text(early)} (in 60 s), and 1 other wait"
    failed = AttemptRecord("3.5", 0, "charge", 1, encode_error(ValueError("no")), NOW, NOW, early)
    told = why(waiting, steps=steps[:1], attempts=[failed])
    assert (
        told
        == f"step charge failed once (ValueError: no), tries again at {utc_text(early)} (in 60 s), and 1 other wait"
    )


def test_what_was_left_behind_in_branches_that_are_closed_is_not_told() -> None:
    early, late = NOW + MINUTE, NOW + 60 * MINUTE
    waiting = run(Status.WAITING, ready_at=late)
    failed = AttemptRecord("3.1/0:b", 0, "charge", 1, encode_error(ValueError("no")), NOW, NOW, early)
    left = [sleep("3.0", 0, early), sleep("3.1/0:a", 0, early), sleep("", 4, late)]
    told = f"sleeps until {utc_text(late)} (in 60 min)"
    assert why(waiting, steps=[*left, group("first", "", 3)], attempts=[failed]) == told
    inner = why(waiting, steps=[*left, group("map", "3.1", 0)], attempts=[failed])
    assert inner == f"sleeps until {utc_text(early)} (in 60 s), and 1 other wait"
    assert "charge" not in inner
    assert why(waiting, steps=[sleep("30.0", 0, late), group("first", "", 3)]) == told, "30 is no branch of 3"


# ---------------------------------------------------------------- a worker has it
def test_a_running_run_tells_its_step_or_its_worker() -> None:
    assert why(run(Status.RUNNING), worker()) == "on worker w-1 (box, pid 17)"
    step = InFlight("order-1", "charge", 2, NOW - 12 * SECOND)
    assert why(run(Status.RUNNING), worker(), in_flight=[step]) == "running step charge (attempt 2, 12 s)"


def test_a_running_run_tells_the_steps_in_flight_the_first_of_them_by_name() -> None:
    steps = [InFlight("order-1", name, 1, NOW - 9 * SECOND) for name in ("a", "b", "c", "d", "e")]
    told = why(run(Status.RUNNING), worker(), in_flight=steps[:2])
    assert told == "running step a (attempt 1, 9.0 s), step b (attempt 1, 9.0 s)"
    assert why(run(Status.RUNNING), worker(), in_flight=steps).endswith("step c (attempt 1, 9.0 s) and 2 more")


def test_a_worker_that_is_gone_or_stalled_is_named() -> None:
    assert why(run(Status.RUNNING)) == "its worker w-1 is gone; any other worker puts the run right"
    gone = "its worker w-1 is gone, last heard of 20 s ago; any other worker puts the run right"
    late = worker(heartbeat_at=NOW - 20 * SECOND, lease_until=NOW - SECOND)
    assert why(run(Status.RUNNING), late) == gone
    assert why(run(Status.CANCELLING), dataclasses.replace(late, status="lost")) == f"cancel requested; {gone}"
    stalled = worker(stalled_in="step charge of run order-1")
    assert why(run(Status.RUNNING), stalled) == "worker w-1 is stalled in step charge of run order-1"


@pytest.mark.parametrize(("status", "verb"), [(Status.PAUSING, "pause"), (Status.CANCELLING, "cancel")])
def test_a_request_is_told_with_who_when_why_and_what_still_runs(status: Status, verb: str) -> None:
    asked = Request(verb, "otto", NOW - 5 * SECOND, "stocktaking")
    step = InFlight("order-1", "charge", 1, NOW - 90 * SECOND)
    told = why(run(status, request=asked), worker(), in_flight=[step])
    assert told == f"{verb} requested by otto 5.0 s ago (stocktaking); still running step charge (attempt 1, 90 s)"


# ---------------------------------------------------------------- held
@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (HoldKind.OPERATOR, "paused by otto (why not); `resume` lets it go on"),
        (
            HoldKind.CODE_MISMATCH,
            (
                "the code does not fit its history (why not); put fitting code back, or name the step as the history "
                'has it, as in `@rt.step(name="first")`; restart the worker, and `runtrue run resume order-1` unless '
                "the workflow itself is changed"
            ),
        ),
        (HoldKind.KEEPS_LOSING_ITS_WORKER, "keeps losing its worker (why not); `answer h-1 retry|fail` decides"),
    ],
)
def test_a_paused_run_tells_its_holds_and_what_closes_them(kind: HoldKind, told: str) -> None:
    assert why(run(Status.PAUSED), holds=[hold(kind, "why not")]) == told


def test_holds_that_are_closed_or_of_other_runs_are_not_told() -> None:
    mine = hold(HoldKind.OPERATOR)
    others = [dataclasses.replace(mine, closed_at=NOW), dataclasses.replace(mine, run_id="order-2")]
    assert why(run(Status.PAUSED), holds=[*others, mine]) == "paused by otto; `resume` lets it go on"


# ---------------------------------------------------------------- over
def test_an_end_tells_its_cause() -> None:
    assert why(run(Status.COMPLETED)) == ""
    assert why(run(Status.FAILED, error=encode_error(ValueError("no\n\nsuch order")))) == "ValueError: no such order"
    for verb, told in (("terminate", "terminated by otto"), ("cancel", "cancelled by otto")):
        assert why(run(Status.CANCELLED, request=Request(verb, "otto", NOW, "broken"))) == f"{told}: broken"
        assert why(run(Status.CANCELLED, request=Request(verb, "otto", NOW, ""))) == told
    assert why(run(Status.CANCELLED)) == ""


def test_a_long_error_is_shortened() -> None:
    told = why(run(Status.FAILED, error=encode_error(ValueError("x" * 5_000))))
    assert len(told) == 200
    assert told.endswith("…")


# ---------------------------------------------------------------- times and texts
@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0.00 s"),
        (0.254, "0.25 s"),
        (9.94, "9.9 s"),
        (12.4, "12 s"),
        (119.4, "119 s"),
        (120, "2 min"),
        (7_199, "119 min"),
        (12_000, "3 h 20 min"),
        (400_000, "4 d 15 h"),
    ],
)
def test_a_length_of_time_is_told_as_people_do(seconds: float, text: str) -> None:
    assert span_text(int(seconds * SECOND)) == text


def test_a_time_is_utc_with_z_and_one_that_no_calendar_has_is_a_number() -> None:
    assert utc_text(1_700_000_000_000_001) == "2023-11-14T22:13:20.000001Z"
    assert utc_text(10**19) == "10000000000000000000"


def test_json_for_a_terminal_escapes_what_commands_it_and_keeps_the_rest() -> None:
    assert dumps("Zoë\x1b\x7f\x9b\n", indent=None) == '"Zoë\\u001b\\u007f\\u009b\\n"'
    assert dumps(10**40, indent=None) == str(10**40)


def test_a_cursor_comes_back_as_it_was() -> None:
    for key in ((0, "a"), (1_700_000_000_000_000, "a:b c")):
        assert parse_cursor(cursor_text(key)) == key
