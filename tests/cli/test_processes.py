"""The real command and a real worker beside it: what is said while a step runs, and what is said when it is a fact."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import COMMAND, Runtrue
from tests.cli.gate import MODULE, Gate, open_gate

Spawn = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def gate() -> Iterator[Gate]:
    with open_gate() as gate:
        yield gate


@pytest.fixture
def spawn(here: Path, gate: Gate) -> Iterator[Spawn]:
    """Start a command as a process; whatever is left at the end is ended."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> "subprocess.Popen[str]":
        environment = {**os.environ, "GATE_PORT": str(gate.port)}
        process = subprocess.Popen(
            [*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def worker(here: Path, spawn: Spawn) -> "subprocess.Popen[str]":
    """A worker on the gate's workflows; returns once its database is there."""
    (here / "shop.py").write_text(MODULE)
    process = spawn("worker", "shop.py", "--lease", "2")
    assert process.stderr is not None
    while not (line := process.stderr.readline()).startswith("ready, as worker "):
        assert line, "the worker ended"
    return process


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def start(runtrue: Runtrue, workflow: str, *words: str) -> str:
    told = runtrue("run", "start", workflow, *words, "-o", "id")
    assert told.code == 0, told
    return told.out.strip()


# ---------------------------------------------------------------- verbs that wait
def test_cancel_says_cancelled_only_when_the_row_does(
    runtrue: Runtrue, spawn: Spawn, worker: object, gate: Gate
) -> None:
    run_id = start(runtrue, "through")
    step = gate.arrival("first")
    cancel = spawn("run", "cancel", run_id, "--reason", "not wanted", "--wait")
    assert cancel.stderr is not None
    said = cancel.stderr.readline()
    assert said.startswith(f"cancel requested: run {run_id} is still ")
    assert said.endswith("; it is cancelled at the next step boundary\n")
    assert runtrue("run", "show", run_id, "-o", "json").json["status"] == "cancelling"
    step.let_pass()
    code, out, _ = ended(cancel)
    assert code == 0
    assert out.startswith(f"cancelled: run {run_id} after ")
    assert out.endswith(": not wanted\n")
    assert gate.nobody_came()


def test_pause_waits_for_the_boundary_and_resume_goes_on_from_there(
    runtrue: Runtrue, spawn: Spawn, worker: object, gate: Gate
) -> None:
    run_id = start(runtrue, "through")
    step = gate.arrival("first")
    pause = spawn("run", "pause", run_id, "--wait")
    assert pause.stderr is not None
    assert pause.stderr.readline().startswith(f"pause requested: run {run_id} is still ")
    step.let_pass("one")
    assert ended(pause)[:2] == (0, f"paused: run {run_id}\n")
    assert runtrue("run", "wait", run_id).code == 8
    assert runtrue("run", "resume", run_id).code == 0
    gate.arrival("second").let_pass("two")
    told = runtrue("run", "wait", run_id)
    assert told.code == 0
    assert 'with the result ["one", "two"]' in told.out


def test_a_pause_that_is_withdrawn_while_it_is_waited_for_is_a_conflict(
    runtrue: Runtrue, spawn: Spawn, worker: object, gate: Gate
) -> None:
    run_id = start(runtrue, "through")
    step = gate.arrival("first")
    pause = spawn("run", "pause", run_id, "--wait")
    assert pause.stderr is not None
    pause.stderr.readline()
    told = runtrue("run", "resume", run_id)
    assert told.out == f"the pause request is withdrawn: run {run_id} is running\n"
    code, out, err = ended(pause)
    assert (code, out) == (4, f"running: run {run_id}\n")
    assert err.endswith(f"run {run_id} is running, not paused as asked\n")
    step.let_pass()


def test_a_run_that_ends_before_it_pauses_is_a_conflict_for_who_waits(
    runtrue: Runtrue, spawn: Spawn, worker: object, gate: Gate
) -> None:
    run_id = start(runtrue, "once")
    step = gate.arrival("first")
    pause = spawn("run", "pause", run_id, "--wait")
    assert pause.stderr is not None
    pause.stderr.readline()
    step.let_pass()
    code, out, err = ended(pause)
    # The boundary after the last step may still pause the run before it returns; then it is paused as asked.
    assert (code, out.split(":")[0]) in ((4, "completed"), (0, "paused"))
    assert ("not paused as asked" in err) == (code == 4)


def test_terminate_ends_a_run_in_the_middle_of_a_step(
    runtrue: Runtrue, spawn: Spawn, worker: object, gate: Gate
) -> None:
    run_id = start(runtrue, "through")
    step = gate.arrival("first")
    watch = spawn("run", "watch", run_id)
    assert watch.stdout is not None
    while "step first is running" not in watch.stdout.readline():
        pass
    told = runtrue("run", "terminate", run_id, "--reason", "wrong order")
    assert told.code == 0
    assert told.out.startswith(f"terminated: run {run_id} is cancelled; step first (attempt 1, ")
    assert told.out.endswith(" s) was running and may still run to its end, its result is discarded\n")
    code, out, _ = ended(watch)
    assert (code, out.endswith(": wrong order\n")) == (6, True)
    step.let_pass()
    assert runtrue("run", "wait", run_id).code == 6
    assert runtrue("run", "steps", run_id, "-o", "json").json == []


# ---------------------------------------------------------------- start and watch
def test_a_start_that_waits_leaves_with_the_end_of_the_run(runtrue: Runtrue, worker: object) -> None:
    told = runtrue("run", "start", "fails", "--wait")
    assert told.code == 5
    assert told.out.endswith(": ValueError: no such order\n")
    told = runtrue("run", "start", "fails", "--input", "message:=17", "--wait", "-o", "json")
    assert told.code == 5
    assert "message" in told.json["error"]["message"]


def test_a_start_that_waits_no_longer_than_asked_leaves_the_run_alone(
    runtrue: Runtrue, worker: object, gate: Gate
) -> None:
    told = runtrue("run", "start", "once", "--id", "slow", "--wait", "--timeout", "0")
    assert told.code == 7
    assert "it goes on, only the wait has ended" in told.err
    gate.arrival("first").let_pass("done")
    assert runtrue("run", "wait", "slow").code == 0


def test_a_wait_says_why_the_run_stands_still_and_says_it_again_only_when_it_changes(
    runtrue: Runtrue, spawn: Spawn, worker: object, gate: Gate
) -> None:
    waiting = spawn("run", "start", "onc", "--id", "typo", "--wait")
    assert waiting.stderr is not None
    assert waiting.stderr.readline().startswith("no living worker serves onc@1, only ")
    assert waiting.stderr.readline() == "started run typo, waiting for its end\n"
    assert waiting.stderr.readline() == "pending: no worker serves onc@1\n"
    assert runtrue("run", "pause", "typo", "--reason", "stocktaking").code == 0
    assert ended(waiting)[0] == 8

    run_id = start(runtrue, "through")
    step = gate.arrival("first")
    following = [
        spawn("run", "wait", run_id),
        spawn("run", "cancel", run_id, "--wait", "--reason", "not wanted"),
    ]
    assert following[1].stderr is not None
    assert following[1].stderr.readline().startswith(f"cancel requested: run {run_id} is still ")
    for process in following:
        assert process.stderr is not None
        while "(not wanted); still running step first (attempt 1, " not in (line := process.stderr.readline()):
            assert line.startswith(("running: ", "cancelling: ")), line
        assert line.startswith("cancelling: cancel requested by ")
    step.let_pass()
    for process, expected in zip(following, (6, 0), strict=True):
        code, _, err = ended(process)
        assert code == expected
        assert "still running step first" not in err


def test_watch_prints_a_line_for_each_change_and_ends_with_the_run(
    runtrue: Runtrue, spawn: Spawn, worker: object, gate: Gate
) -> None:
    run_id = start(runtrue, "through")
    step = gate.arrival("first")
    watch = spawn("run", "watch", run_id)
    assert watch.stdout is not None
    assert "created: by " in watch.stdout.readline()
    assert "claimed: on w-" in watch.stdout.readline()
    step.let_pass("one")
    gate.arrival("second").let_pass("two")
    code, out, err = ended(watch)
    assert (code, err) == (0, "")
    assert "step first completed" in out
    assert "step second completed" in out
    assert "progress: 0 of 2 (0 %), on the way" in out
    assert out.splitlines()[-1].startswith(f"completed: run {run_id} after ")
    assert "\x1b" not in out


def test_a_wait_for_a_retry_says_which_step_failed_and_when_it_is_tried_again(runtrue: Runtrue, worker: object) -> None:
    run_id = start(runtrue, "retries")
    assert runtrue("run", "wait", run_id, "--for", "waiting").code == 0
    shown = runtrue("run", "show", run_id).out
    assert "step flaky failed once (ConnectionError: the line is down \\x1b[31m), tries again at " in shown
    assert "\x1b" not in shown
    steps = runtrue("run", "steps", run_id).out
    assert "tried again at " in steps
    assert "\x1b" not in steps


def test_ctrl_c_ends_a_wait_with_130_and_changes_nothing(
    runtrue: Runtrue, spawn: Spawn, worker: object, gate: Gate
) -> None:
    waiting = spawn("run", "start", "once", "--id", "order-1", "--wait")
    assert waiting.stderr is not None
    assert waiting.stderr.readline() == "started run order-1, waiting for its end\n"
    step = gate.arrival("first")
    watching = spawn("run", "watch", "order-1")
    assert watching.stdout is not None
    watching.stdout.readline()
    for process in (waiting, watching):
        process.send_signal(signal.SIGINT)
        code, _, err = ended(process)
        assert code == 130
        assert err.endswith("interrupted\n")
    step.let_pass()
    assert runtrue("run", "wait", "order-1").code == 0


# ---------------------------------------------------------------- workers
def test_a_worker_says_what_it_serves_and_which_database_and_why(
    here: Path, spawn: Spawn, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "shop.py").write_text(MODULE)
    monkeypatch.setenv("RUNTRUE_DATABASE_URL", "sqlite:///orders.db")
    process = spawn("dev", "shop")
    assert process.stderr is not None
    served = "through@1, once@1, fails@1, retries@1, together@1, listens@1, parent@1"
    assert process.stderr.readline() == f"working on {served}; Ctrl-C ends it\n"
    assert process.stderr.readline() == f"database: {here / 'orders.db'} (RUNTRUE_DATABASE_URL)\n"
    assert process.stderr.readline().startswith("ready, as worker w-")
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert code == 130
    assert "SIGINT: takes no new runs" in err
    assert err.splitlines()[-1].startswith("worker w-")
    assert err.endswith(" has ended\n")
    assert "Traceback" not in err


def test_a_worker_says_which_runs_failed_and_which_its_code_does_not_fit(
    runtrue: Runtrue, here: Path, worker: "subprocess.Popen[str]", spawn: Spawn, gate: Gate
) -> None:
    assert worker.stderr is not None
    start(runtrue, "fails", "--id", "failing")
    told = worker.stderr.readline()
    assert told == "run failing failed: ValueError: no such order; see `runtrue run show failing`\n"

    start(runtrue, "through", "--id", "paused")
    step = gate.arrival("first")
    assert runtrue("run", "pause", "paused").code == 0
    step.let_pass()
    assert runtrue("run", "wait", "paused", "--for", "paused").code == 0
    worker.send_signal(signal.SIGTERM)
    assert worker.stderr.readline().startswith("SIGTERM: "), "an operator's pause is none of the worker's business"
    assert worker.stderr.readline().startswith("worker w-")
    assert ended(worker)[0] == 0

    (here / "shop.py").write_text(MODULE.replace("[await first(), await second()]", "[await second()]"))
    renewed = spawn("worker", "shop.py", "--lease", "2", "--database", "runtrue.db")
    assert renewed.stderr is not None
    while not renewed.stderr.readline().startswith("ready, as worker "):
        pass
    assert runtrue("run", "resume", "paused").code == 0
    told = renewed.stderr.readline()
    assert told.startswith("run paused is held: the code does not fit its history (call 1 of through is step second, ")
    assert told.endswith(
        "restart the worker, and `runtrue run resume paused` unless the workflow itself is changed; "
        "see `runtrue run show paused --database runtrue.db`\n"
    )


def test_a_worker_that_is_asked_to_end_lets_its_step_finish_and_gives_the_run_back(
    runtrue: Runtrue, worker: "subprocess.Popen[str]", gate: Gate
) -> None:
    run_id = start(runtrue, "through")
    step = gate.arrival("first")
    worker.send_signal(signal.SIGTERM)
    assert worker.stderr is not None
    assert worker.stderr.readline().startswith("SIGTERM: takes no new runs")
    step.let_pass()
    code, _, err = ended(worker)
    assert (code, "Traceback" in err) == (0, False)
    body = runtrue("run", "show", run_id, "-o", "json").json
    assert (body["status"], body["steps_done"], body["attempt"]) == ("pending", 1, 1)
    assert gate.nobody_came()
    assert runtrue("worker", "list", "-o", "id").out == ""


def test_a_worker_that_is_asked_twice_leaves_at_once_and_another_goes_on(
    runtrue: Runtrue, spawn: Spawn, worker: "subprocess.Popen[str]", gate: Gate
) -> None:
    run_id = start(runtrue, "once")
    gate.arrival("first")
    worker.send_signal(signal.SIGINT)
    assert worker.stderr is not None
    assert worker.stderr.readline().startswith("SIGINT: takes no new runs")
    worker.send_signal(signal.SIGINT)
    code, _, err = ended(worker)
    assert code == 130
    assert "left at once" in err
    assert "Traceback" not in err
    assert runtrue("run", "show", run_id, "-o", "json").json["status"] == "running"
    spawn("worker", "shop.py", "--lease", "2")
    gate.arrival("first").let_pass("again")
    assert runtrue("run", "wait", run_id).code == 0


# ---------------------------------------------------------------- branches, messages, children
def test_several_steps_in_flight_are_all_told(runtrue: Runtrue, spawn: Spawn, worker: object, gate: Gate) -> None:
    run_id = start(runtrue, "together")
    visitors = sorted(gate.arrivals(2), key=lambda visitor: visitor.name)
    assert [visitor.name for visitor in visitors] == ["first", "second"]
    watch = spawn("run", "watch", run_id)
    assert watch.stdout is not None
    seen: set[str] = set()
    while len(seen) < 2:
        line = watch.stdout.readline()
        assert line, "the watch ended"
        seen |= {name for name in ("first", "second") if f"step {name} is running (attempt 1)" in line}
    shown = runtrue("run", "show", run_id, "-o", "json").json
    assert {step["step"] for step in shown["in_flight"]} == {"first", "second"}
    visitors[0].let_pass("one")
    while "step first completed (" not in watch.stdout.readline():
        pass
    assert [step["step"] for step in runtrue("run", "show", run_id, "-o", "json").json["in_flight"]] == ["second"]
    visitors[1].let_pass("two")
    code, out, _ = ended(watch)
    assert (code, 'with the result ["one", "two"]' in out, "gather completed" in out) == (0, True, True)


def test_a_message_reaches_the_run_that_waits_for_it(runtrue: Runtrue, spawn: Spawn, worker: object) -> None:
    run_id = start(runtrue, "listens")
    assert runtrue("run", "wait", run_id, "--for", "waiting").code == 0
    shown = runtrue("run", "show", run_id)
    assert "waits for a message on courier" in shown.out
    assert 'stage = "listening"' in shown.out
    watch = spawn("run", "watch", run_id)
    assert runtrue("run", "send", run_id, "courier", ':={"parcel": 7}').code == 0
    told = runtrue("run", "wait", run_id)
    assert (told.code, 'with the result {"parcel": 7}' in told.out) == (0, True)
    lines = ended(watch)[1]
    for line in ("message on courier from ", "woken by a message on courier", "receive courier completed"):
        assert line in lines
    (message,) = runtrue("run", "messages", run_id, "-o", "json").json
    assert message["received_at"] is not None
    late = runtrue("run", "send", run_id, "courier", ":={}")
    assert (late.code, "too late: the run is completed" in late.err) == (4, True)


def test_a_parent_tells_of_its_children_until_they_have_ended(runtrue: Runtrue, worker: object, gate: Gate) -> None:
    run_id = start(runtrue, "parent")
    child = gate.arrival("first")
    assert runtrue("run", "wait", run_id, "--for", "waiting").code == 0
    assert runtrue("run", "wait", "child-2", "--for", "waiting").code == 0
    assert "waits for 2 children (listens, once)" in runtrue("run", "show", run_id).out
    assert runtrue("run", "show", run_id, "-o", "json").json["children"] == {"running": 1, "waiting": 1}
    child.let_pass("one")
    assert runtrue("run", "wait", "child-1").code == 0
    assert runtrue("run", "send", "child-2", "courier", ':={"n": 1}').code == 0
    told = runtrue("run", "wait", run_id)
    assert (told.code, 'with the result ["one", {"n": 1}]' in told.out) == (0, True)
    assert [body["status"] for body in runtrue("run", "children", run_id, "-o", "json").json] == ["completed"] * 2
    events = runtrue("run", "events", run_id).out
    assert "child once completed" in events
    assert "woken by the end of child child-2" in events


def test_a_worker_whose_database_is_lost_ends_with_an_error(
    runtrue: Runtrue, worker: "subprocess.Popen[str]", here: Path
) -> None:
    for file in here.glob("runtrue.db*"):
        file.unlink()
    code, _, err = ended(worker)
    assert code == 1
    assert "Error: " in err
    assert str(here / "runtrue.db") in err
    assert "Traceback" not in err


def test_a_run_whose_worker_was_killed_does_not_claim_to_go_on(
    runtrue: Runtrue, worker: "subprocess.Popen[str]", gate: Gate
) -> None:
    run_id = start(runtrue, "once")
    gate.arrival("first")
    worker.kill()
    worker.wait(60)
    told = runtrue("run", "wait", run_id, "--timeout", "3")
    assert told.code == 7
    assert "is gone, last heard of " in told.err
    assert runtrue("worker", "list").err == "no worker is alive\n"
    assert "its lease ran out " in runtrue("worker", "list", "--all").out


@pytest.mark.parametrize(
    ("text", "target", "code", "complaint"),
    [
        ("x = 1", "shop.py", 2, "shop.py holds no rt.App"),
        ("import runtrue as rt\na = rt.App()\nb = rt.App()", "shop.py", 2, "say which: shop.py:a, shop.py:b"),
        ("import runtrue as rt\na = rt.App()", "shop.py:b", 2, "shop.py has no `b`; its Apps: shop.py:a"),
        ("import runtrue as rt\na = rt.App()", "shop", 2, "has no workflow to work on"),
        ("", "nowhere.py", 2, "there is no file"),
        ("", "no.where", 2, "there is no module no.where"),
        ("def f(:\n", "shop.py", 1, "SyntaxError"),
        ("import nowhere_to_be_found", "shop.py", 1, "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("raise SystemExit(0)", "shop.py", 1, "SystemExit"),
        ("1 / 0", "shop", 1, "ZeroDivisionError"),
    ],
    ids=lambda value: str(value)[:25],
)
def test_a_module_that_cannot_be_served_is_told_apart(
    command: Runtrue, here: Path, text: str, target: str, code: int, complaint: str
) -> None:
    (here / "shop.py").write_text(text)
    told = command("worker", target)
    assert told.code == code
    assert complaint in told.err
    assert "runtrue/cli" not in told.err
    assert "importlib" not in told.err
    assert not (here / "runtrue.db").exists()


@pytest.mark.parametrize(
    "words", [(), ("--slots", "0", "shop"), ("--slots", "many", "shop"), ("--lease", "0.1", "shop"), ("shop", "other")]
)
def test_a_worker_with_a_setting_that_cannot_be_does_not_start(
    command: Runtrue, here: Path, words: tuple[str, ...]
) -> None:
    (here / "shop.py").write_text(MODULE)
    told = command("worker", *words)
    assert told.code == 2
    assert "Traceback" not in told.err
    assert not (here / "runtrue.db").exists()


def test_a_database_in_memory_is_refused_by_a_worker(command: Runtrue, here: Path) -> None:
    (here / "shop.py").write_text(MODULE.replace("rt.App(", 'rt.App(":memory:", '))
    told = command("worker", "shop.py")
    assert told.code == 2
    assert "the database is in memory (the program's own setting)" in told.err
