"""Waiting: which exit code for which end, and what a wait that gives up says."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Runtrue
from tests.cli.making import make, with_store

from runtrue.cli.waiting import Reasons
from runtrue.clock import SystemClock
from runtrue.lifecycle import Status
from runtrue.service import Service
from runtrue.store import Store

ARun = Callable[[Status], str]
S = Status

# The rows are what is waited for, the columns the status that the run has.
ORDER = (S.PENDING, S.RUNNING, S.WAITING, S.PAUSING, S.PAUSED, S.CANCELLING, S.COMPLETED, S.FAILED, S.CANCELLED)
CODES = {
    "finished": (7, 7, 7, 7, 8, 7, 0, 5, 6),
    "completed": (7, 7, 7, 7, 8, 7, 0, 5, 6),
    "failed": (7, 7, 7, 7, 8, 7, 4, 0, 6),
    "cancelled": (7, 7, 7, 7, 8, 7, 4, 5, 0),
    "paused": (7, 7, 7, 7, 0, 7, 4, 5, 6),
    "waiting": (7, 7, 0, 7, 8, 7, 4, 5, 6),
}


@pytest.mark.parametrize("status", ORDER)
def test_each_end_of_a_wait_has_its_exit_code(runtrue: Runtrue, a_run: ARun, status: Status) -> None:
    run_id = a_run(status)
    codes = {wanted: runtrue("run", "wait", run_id, "--for", wanted, "--timeout", "0").code for wanted in CODES}
    assert codes == {wanted: row[ORDER.index(status)] for wanted, row in CODES.items()}


@pytest.mark.parametrize(("status", "code"), [(S.COMPLETED, 0), (S.FAILED, 5), (S.CANCELLED, 6)])
def test_a_watch_leaves_as_a_wait_for_the_end_does(runtrue: Runtrue, a_run: ARun, status: Status, code: int) -> None:
    told = runtrue("run", "watch", a_run(status))
    assert (told.code, told.err) == (code, "")
    assert told.out.splitlines()[-1].startswith(f"{status.value}: run run-{status.value} after ")


def test_a_wait_prints_the_fact_and_the_result(runtrue: Runtrue, a_run: ARun) -> None:
    told = runtrue("run", "wait", a_run(S.COMPLETED))
    assert told.code == 0
    assert told.out.startswith("completed: run run-completed after ")
    assert told.out.endswith(', with the result {"total": 7}\n')
    told = runtrue("run", "wait", a_run(S.FAILED))
    assert "failed: run run-failed after " in told.out
    assert told.out.endswith(": ValueError: no such order\n")
    told = runtrue("run", "wait", a_run(S.CANCELLED))
    assert told.out.endswith(", by otto: not wanted any more\n")


def test_a_wait_in_json_prints_the_run(runtrue: Runtrue, a_run: ARun) -> None:
    body = runtrue("run", "wait", a_run(S.COMPLETED), "-o", "json").json
    assert (body["status"], body["output"]) == ("completed", {"total": 7})
    assert runtrue("run", "wait", "run-completed", "-o", "id").out == "run-completed\n"


def test_a_wait_that_gives_up_says_that_the_run_goes_on(runtrue: Runtrue, a_run: ARun) -> None:
    told = runtrue("run", "wait", a_run(S.RUNNING), "--timeout", "0")
    assert told.out == "running: run run-running\n"
    assert told.err.startswith("the time is up: run run-running is running (on worker w-test")
    assert told.err.endswith("it goes on, only the wait has ended\n")


def test_a_wait_does_not_hang_on_a_paused_run(runtrue: Runtrue, a_run: ARun) -> None:
    told = runtrue("run", "wait", a_run(S.PAUSED))
    assert (told.code, told.out) == (8, "paused: run run-paused\n")
    assert told.err == "run run-paused waits for a person (paused by otto (stocktaking); `resume` lets it go on)\n"


def test_a_wait_for_what_can_never_be_ends_at_once(runtrue: Runtrue, a_run: ARun) -> None:
    told = runtrue("run", "wait", a_run(S.COMPLETED), "--for", "paused")
    assert told.code == 4
    assert told.err == "run run-completed is completed, it will never be paused\n"


@pytest.mark.parametrize("words", [("--for", "happy"), ("--timeout", "-1"), ("--timeout", "soon")])
def test_a_wait_for_nonsense_is_a_matter_of_usage(runtrue: Runtrue, database: Path, words: tuple[str, str]) -> None:
    assert runtrue("run", "wait", "x", *words).code == 2


@pytest.mark.parametrize("verb", ["pause", "cancel"])
def test_a_verb_that_waits_and_gives_up_says_that_the_request_stands(runtrue: Runtrue, a_run: ARun, verb: str) -> None:
    told = runtrue("run", verb, a_run(S.RUNNING), "--wait", "--timeout", "0")
    assert told.code == 7
    assert f"{verb} requested: run run-running is still with its worker" in told.err
    assert "the request stands, only the wait has ended" in told.err
    assert told.out in ("pausing: run run-running\n", "cancelling: run run-running\n")


@pytest.mark.parametrize("verb", ["pause", "cancel"])
def test_a_verb_that_is_done_at_once_has_nothing_to_wait_for(runtrue: Runtrue, a_run: ARun, verb: str) -> None:
    told = runtrue("run", verb, a_run(S.PENDING), "--wait")
    assert (told.code, told.err) == (0, "")


# ---------------------------------------------------------------- why it stands still
class Watch(SystemClock):
    """A clock whose hands can be put forward."""

    forward_seconds = 0.0

    def steady(self) -> float:
        return super().steady() + self.forward_seconds


def test_a_reason_is_told_once_it_has_lasted_for_a_second_and_again_only_when_it_is_another(
    database: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    watch = Watch()

    async def told_by_looks(store: Store) -> list[str]:
        await make(store, "order-1", S.PENDING)
        service = Service(store, watch)
        reasons = Reasons(service)
        told: list[str] = []
        for seconds in (0.0, 0.5, 0.6, 5.0, 5.0):
            watch.forward_seconds += seconds
            await reasons.look(await service.get("order-1"))
            told.append(capfd.readouterr().err)
        await service.pause("order-1", actor="otto")
        for _ in range(2):
            watch.forward_seconds += 5.0
            await reasons.look(await service.get("order-1"))
            told.append(capfd.readouterr().err)
        return told

    pending = "pending: no worker serves fulfil@1: none is alive\n"
    paused = "paused: paused by otto; `resume` lets it go on\n"
    assert with_store(database, told_by_looks) == ["", "", pending, "", "", "", paused]
