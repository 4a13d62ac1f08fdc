"""What each verb says about a run in each status, and the exit code it leaves with."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Runtrue
from tests.cli.making import make, make_held, report_in_flight, with_store

from runtrue.cli.wording import outcome_text
from runtrue.errors import OutcomeUnknown, StoreBusy
from runtrue.lifecycle import TABLE, Answer, Command, HoldKind, Status
from runtrue.records import InFlight
from runtrue.service import Outcome, Service

ARun = Callable[[Status], str]
S = Status

SAID: dict[tuple[str, Status], str] = {
    ("pause", S.PENDING): "paused: run {id} stays where it is until `runtrue run resume {id}`",
    ("pause", S.RUNNING): "pause requested: run {id} is still with its worker; it pauses at the next step boundary",
    ("pause", S.WAITING): "paused: run {id} stays where it is until `runtrue run resume {id}`",
    ("pause", S.PAUSING): "pause requested already: run {id} is still with its worker; it pauses at the next step",
    ("pause", S.PAUSED): "paused already: run {id} is held by an operator; nothing was changed",
    ("pause", S.CANCELLING): "pause refused for run {id}: the run is being cancelled and cannot be paused any more",
    ("pause", S.COMPLETED): "a finished run never changes",
    ("pause", S.FAILED): "a finished run never changes",
    ("pause", S.CANCELLED): "a finished run never changes",
    ("resume", S.PENDING): "resume refused for run {id}: the run is pending, not paused",
    ("resume", S.RUNNING): "resume refused for run {id}: the run is running, not paused",
    ("resume", S.WAITING): "resume refused for run {id}: the run is waiting, not paused",
    ("resume", S.PAUSING): "the pause request is withdrawn: run {id} is running",
    ("resume", S.PAUSED): "resumed: run {id} is pending and goes on when a worker takes it",
    ("resume", S.CANCELLING): "resume refused for run {id}: the run is being cancelled and cannot be resumed any more",
    ("resume", S.COMPLETED): "a finished run never changes",
    ("resume", S.FAILED): "a finished run never changes",
    ("resume", S.CANCELLED): "a finished run never changes",
    ("cancel", S.PENDING): "cancelled: run {id} is cancelled",
    (
        "cancel",
        S.RUNNING,
    ): "cancel requested: run {id} is still with its worker; it is cancelled at the next step boundary",
    ("cancel", S.WAITING): "cancelled: run {id} is cancelled",
    (
        "cancel",
        S.PAUSING,
    ): "cancel requested: run {id} is still with its worker; it is cancelled at the next step boundary",
    ("cancel", S.PAUSED): "cancelled: run {id} is cancelled",
    (
        "cancel",
        S.CANCELLING,
    ): "cancel requested already: run {id} is still with its worker; it is cancelled at the next",
    ("cancel", S.COMPLETED): "a finished run never changes",
    ("cancel", S.FAILED): "a finished run never changes",
    ("cancel", S.CANCELLED): "cancelled already: run {id} is cancelled; nothing was changed",
    ("terminate", S.PENDING): "terminated: run {id} is cancelled",
    ("terminate", S.RUNNING): "terminated: run {id} is cancelled; whatever its worker still sends is discarded",
    ("terminate", S.WAITING): "terminated: run {id} is cancelled",
    ("terminate", S.PAUSING): "terminated: run {id} is cancelled; whatever its worker still sends is discarded",
    ("terminate", S.PAUSED): "terminated: run {id} is cancelled",
    ("terminate", S.CANCELLING): "terminated: run {id} is cancelled; whatever its worker still sends is discarded",
    ("terminate", S.COMPLETED): "a finished run never changes",
    ("terminate", S.FAILED): "a finished run never changes",
    ("terminate", S.CANCELLED): "cancelled already: run {id} is cancelled; nothing was changed",
    ("answer", S.PENDING): "answer refused for run {id}: the run is pending and has no open hold",
    ("answer", S.RUNNING): "answer refused for run {id}: the run is running and has no open hold",
    ("answer", S.WAITING): "answer refused for run {id}: the run is waiting and has no open hold",
    ("answer", S.PAUSING): "answer refused for run {id}: the run is pausing and has no open hold",
    ("answer", S.PAUSED): "answer refused for run {id}: run {id} has no open hold h-none",
    ("answer", S.CANCELLING): "answer refused for run {id}: the run is being cancelled; its holds are closed with it",
    ("answer", S.COMPLETED): "a finished run never changes",
    ("answer", S.FAILED): "a finished run never changes",
    ("answer", S.CANCELLED): "a finished run never changes",
    ("send", S.PENDING): "sent: run {id} has the message; the run is pending",
    ("send", S.RUNNING): "sent: run {id} has the message; the run is running",
    ("send", S.WAITING): "sent: run {id} has the message; the run is waiting",
    ("send", S.PAUSING): "sent: run {id} has the message; the run is pausing",
    ("send", S.PAUSED): "sent: run {id} has the message; the run is paused",
    ("send", S.CANCELLING): "send refused for run {id}: the run is being cancelled and takes no more messages",
    ("send", S.COMPLETED): "a finished run never changes",
    ("send", S.FAILED): "a finished run never changes",
    ("send", S.CANCELLED): "a finished run never changes",
}


def words(verb: str, run_id: str) -> list[str]:
    more = {"answer": ["h-none", "retry"], "send": ["courier", "arrived"]}
    return ["run", verb, run_id, *more.get(verb, [])]


@pytest.mark.parametrize(("verb", "status"), SAID)
def test_each_verb_in_each_status_says_what_became_of_it(
    runtrue: Runtrue, a_run: ARun, verb: str, status: Status
) -> None:
    run_id = a_run(status)
    told = runtrue(*words(verb, run_id))
    found = TABLE[Command(verb)][status]
    refused = found.answer is Answer.REFUSED or verb == "answer"
    assert SAID[verb, status].format(id=run_id) in (told.err if refused else told.out)
    assert (told.out if refused else told.err) == ""
    assert told.code == (4 if refused else 0)
    now = runtrue("run", "show", run_id, "-o", "json").json
    moves = found.to is not None and not refused and verb != "send"  # this run waits for no message
    assert now["status"] == (found.to if moves else status)


def test_the_table_of_sentences_has_every_cell() -> None:
    assert set(SAID) == {(command.value, status) for command in Command for status in Status}


@pytest.mark.parametrize("verb", ["pause", "cancel"])
def test_a_request_names_the_step_that_is_still_running(runtrue: Runtrue, database: Path, verb: str) -> None:
    async def running(store):
        await make(store, "order-1", Status.RUNNING)
        await report_in_flight(store, "order-1", "charge")

    with_store(database, running)
    told = runtrue("run", verb, "order-1", "--reason", "stocktaking")
    assert told.code == 0
    assert f"{verb} requested: run order-1 is still running step charge (attempt 2, 12 s)" in told.out
    shown = runtrue("run", "show", "order-1")
    assert f"{verb} requested by " in shown.out
    assert "(stocktaking); still running step charge (attempt 2, 1" in shown.out
    assert "cancelled" not in told.out.replace("is cancelled at the next step boundary", "")


def test_a_terminated_run_tells_of_its_step_in_flight_that_the_result_is_discarded() -> None:
    now = 100_000_000
    step = InFlight("order-1", "charge", 2, now - 12_000_000)
    outcome = Outcome("order-1", Command.TERMINATE, S.CANCELLED, True, True, (), "q-1", in_flight=(step,))
    assert outcome_text(outcome, now) == (
        "terminated: run order-1 is cancelled; step charge (attempt 2, 12 s) was running and may still run to its "
        "end, its result is discarded"
    )
    assert outcome_text(dataclasses.replace(outcome, in_flight=(step, step)), now).endswith(
        "step charge (attempt 2, 12 s), step charge (attempt 2, 12 s) were running and may still run to their ends, "
        "their results are discarded"
    )


def test_a_run_that_was_terminated_does_not_say_that_it_was_cancelled(runtrue: Runtrue, a_run: ARun) -> None:
    run_id = a_run(Status.RUNNING)
    assert runtrue("run", "terminate", run_id, "--reason", "wrong order").code == 0
    for words in (("show", run_id), ("list",)):
        said = runtrue("run", *words).out
        assert "terminated by " in said
        assert ": wrong order" in said
    assert ", terminated by " in runtrue("run", "wait", run_id).out


def test_a_refusal_names_what_the_run_can_be_asked(runtrue: Runtrue, a_run: ARun) -> None:
    told = runtrue("run", "resume", a_run(Status.RUNNING))
    assert "it can be asked to: pause, cancel, terminate" in told.err


@pytest.mark.parametrize("verb", ["pause", "resume", "cancel", "terminate", "answer", "send"])
def test_a_verb_for_a_run_that_is_not_there_is_not_found(runtrue: Runtrue, database: Path, verb: str) -> None:
    told = runtrue(*words(verb, "nobody"))
    assert (told.code, told.out) == (3, "")
    assert told.err == "Error: there is no run 'nobody'; `runtrue run list` shows the runs there are\n"


def test_an_outcome_in_json_has_the_facts_of_the_row(runtrue: Runtrue, a_run: ARun) -> None:
    told = runtrue("run", "pause", a_run(Status.RUNNING), "--request-id", "q-1", "-o", "json").json
    assert told["id"] == "run-running"
    assert (told["command"], told["status"], told["done"], told["changed"]) == ("pause", "pausing", False, True)
    assert (told["request_id"], told["repeated"]) == ("q-1", False)
    assert told["available_actions"] == ["resume", "cancel", "terminate", "send"]
    assert [hold["kind"] for hold in told["holds"]] == ["operator"]


def test_a_repeated_request_gets_the_stored_answer_and_changes_nothing(runtrue: Runtrue, a_run: ARun) -> None:
    run_id = a_run(Status.PENDING)
    assert runtrue("run", "pause", run_id, "--request-id", "q-1").code == 0
    assert runtrue("run", "resume", run_id).code == 0
    told = runtrue("run", "pause", run_id, "--request-id", "q-1")
    assert told.code == 0
    assert told.out.startswith("request q-1 was met before, with this answer: paused:")
    assert runtrue("run", "show", run_id, "-o", "json").json["status"] == "pending"


def test_a_request_id_of_another_verb_is_a_conflict(runtrue: Runtrue, a_run: ARun) -> None:
    run_id = a_run(Status.PENDING)
    runtrue("run", "pause", run_id, "--request-id", "q-1")
    told = runtrue("run", "cancel", run_id, "--request-id", "q-1")
    assert told.code == 4
    assert "request id 'q-1' was used for another command" in told.err
    assert "nothing was changed" in told.err


def test_resume_can_name_the_pause_it_means(runtrue: Runtrue, a_run: ARun) -> None:
    told = runtrue("run", "resume", a_run(Status.PAUSED), "--pause", "p-other")
    assert told.code == 4
    assert "pause p-other is not the active pause" in told.err


# ---------------------------------------------------------------- holds
def test_a_lost_run_is_answered_with_retry_or_fail(runtrue: Runtrue, database: Path) -> None:
    kind = HoldKind.KEEPS_LOSING_ITS_WORKER
    first = with_store(database, lambda store: make_held(store, "first", kind))
    second = with_store(database, lambda store: make_held(store, "second", kind))
    listed = runtrue("hold", "list")
    assert first in listed.out
    assert second in listed.out
    shown = runtrue("run", "show", "first")
    assert f"keeps losing its worker (as the test wants it); `answer {first} retry|fail` decides" in shown.out
    assert f"runtrue run answer first {first} fail" in shown.out
    told = runtrue("run", "answer", "first", first, "retry")
    assert (told.code, told.out) == (0, "answered: run first is pending and goes on when a worker takes it\n")
    told = runtrue("run", "answer", "second", second, "fail", "--reason", "hopeless")
    assert (told.code, told.out) == (0, "answered: run second is failed\n")
    assert runtrue("hold", "list").err == "no open holds\n"
    assert "retry by" in runtrue("hold", "list", "--all").out


def test_a_resume_that_leaves_another_hold_open_says_so(runtrue: Runtrue, database: Path) -> None:
    hold = with_store(database, lambda store: make_held(store, "held", HoldKind.KEEPS_LOSING_ITS_WORKER))
    refused = runtrue("run", "resume", "held")
    assert refused.code == 4
    assert "which only an answer closes" in refused.err
    assert runtrue("run", "pause", "held").code == 0
    told = runtrue("run", "resume", "held")
    assert told.code == 0
    assert told.out == (
        f"your hold is closed, but run held stays paused: hold {hold} (keeps_losing_its_worker) is open; "
        f"`runtrue run answer held {hold} retry` (or fail) closes it\n"
    )


def test_an_answer_that_is_none_is_a_matter_of_usage(runtrue: Runtrue, database: Path) -> None:
    told = runtrue("run", "answer", "held", "h-1", "perhaps")
    assert told.code == 2
    assert "'perhaps' is not one of 'retry', 'fail'" in told.err


# ---------------------------------------------------------------- a busy database, a lost answer
def test_a_busy_database_is_told_with_the_assurance_that_nothing_changed(
    runtrue: Runtrue, a_run: ARun, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(*_: object, **__: object) -> None:
        raise StoreBusy("the database was busy for 1.8 s; nothing was changed")

    run_id = a_run(Status.PENDING)
    monkeypatch.setattr(Service, "pause", busy)
    told = runtrue("run", "pause", run_id)
    assert told.code == 1
    assert f"pause of run {run_id}: the database was busy for 1.8 s; nothing was changed" in told.err


def test_a_lost_answer_names_the_request_id_to_ask_again(
    runtrue: Runtrue, a_run: ARun, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []

    async def lost(*_: object, request_id: str, **__: object) -> None:
        sent.append(request_id)
        raise OutcomeUnknown("the connection broke during the commit")

    run_id = a_run(Status.PENDING)
    monkeypatch.setattr(Service, "cancel", lost)
    told = runtrue("run", "cancel", run_id)
    assert told.code == 1
    assert f"whether the cancel of run {run_id} was recorded is not known" in told.err
    assert f"repeat the command with --request-id {sent[0]}, that changes nothing twice" in told.err


@pytest.mark.parametrize("verb", ["pause", "cancel"])
def test_a_timeout_without_a_wait_is_refused(runtrue: Runtrue, database: Path, verb: str) -> None:
    told = runtrue("run", verb, "x", "--timeout", "3")
    assert told.code == 2
    assert "--timeout bounds a wait; add --wait" in told.err
