"""SyncClient: the blocking twin of Client, its thread, its threads, its forks, and where it is refused."""

import asyncio
import inspect
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import runtrue as rt
import runtrue.sync as rts
from runtrue.client_sync import Background, SyncClient, SyncRunHandle
from runtrue.lifecycle import Status


@rt.workflow
async def double(number: int) -> int:
    return 2 * number


@rt.workflow
async def nap() -> str:
    await rt.sleep(3_600)
    return "awake"


@rt.workflow
async def break_down() -> None:
    raise LookupError("no such order")


@pytest.fixture
def threads() -> Iterator[None]:
    """A test leaves no thread behind."""
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.fixture
def client(database: Path, threads: None) -> Iterator[SyncClient]:
    with SyncClient(database) as opened:
        yield opened


@pytest.fixture
def app(database: Path, threads: None) -> Iterator[SyncClient]:
    with rt.App(database, workflows=[double, nap, break_down]) as opened:
        yield opened


# ---------------------------------------------------------------- the twin
@pytest.mark.parametrize(("blocking", "awaited"), [(SyncClient, rt.Client), (SyncRunHandle, rt.RunHandle)])
def test_it_has_every_word_of_its_twin_with_the_same_parameters(blocking: type, awaited: type):
    of_the_loop = {"open", "store", "service", "watcher", "changed", "handle", "twin", "next_events", "clock"}
    words = {name for name in vars(awaited) if not name.startswith("_")} - of_the_loop
    for name in words:
        ours, theirs = vars(blocking)[name], vars(awaited)[name]
        if callable(theirs):
            assert not inspect.iscoroutinefunction(ours)
            assert _parameters(ours) == _parameters(theirs), name
    assert len(words) >= 5


def _parameters(function: Any) -> list[tuple[str, Any, Any]]:
    return [(each.name, each.kind, each.default) for each in inspect.signature(function).parameters.values()]


def test_a_run_is_started_looked_at_and_waited_for_without_a_loop(app: SyncClient):
    run = app.start(double.options(id="one"), 21)
    assert run.result(timeout=20) == 42
    assert run.result(timedelta(seconds=20)) == 42
    assert (run.status(), run.info().output, run.id, repr(run)) == (Status.COMPLETED, 42, "one", "<run one>")
    assert app.run(double, 4) == 8
    assert app.get("one").result() == 42
    assert app.get("one", double).wait("completed").steps_done == 0
    assert [found.result(timeout=20) for found in app.start_many(double, [{"number": 1}, {"number": 2}])] == [2, 4]
    assert len(app.runs(workflow="double", status=Status.COMPLETED)) == 4
    with pytest.raises(rt.RunFailed, match="no such order"):
        app.run(break_down)
    with pytest.raises(rt.NotFound):
        app.get("nowhere")


def test_a_run_is_paused_resumed_and_cancelled_without_a_loop(app: SyncClient):
    run = app.start(nap)
    run.wait("waiting", timeout=20)
    assert run.pause(reason="lunch").status is Status.PAUSED
    assert [hold.reason for hold in run.holds()] == ["lunch"]
    run.resume()
    run.wait("waiting", timeout=20)
    with pytest.raises(rt.ResultTimeout):
        run.result(timeout=0)
    assert run.cancel(reason="not needed", wait=True).status is Status.CANCELLED
    with pytest.raises(rt.RunCancelled, match="not needed"):
        run.result()
    with pytest.raises(rt.Refused):
        run.pause()
    assert app.start(nap).terminate().done
    assert [event.type for event in run.events()][-1] == "cancelled"


def test_events_are_followed_until_the_run_has_ended(app: SyncClient):
    seen: list[str] = []
    run = app.start(nap)
    for event in run.events(follow=True):
        seen.append(event.type)
        if event.type == "waiting":
            run.cancel()
    assert (seen[0], seen[-1]) == ("created", "cancelled")


# ---------------------------------------------------------------- opening and closing
def test_it_opens_nothing_before_the_first_call(database: Path, threads: None):
    client = SyncClient(database)
    before = threading.active_count()
    client.close()
    assert not database.exists()
    assert threading.active_count() == before
    assert client.database.value.endswith("runs.db")


def test_closing_twice_is_fine_and_what_is_closed_is_refused_until_it_is_entered_again(database: Path, threads: None):
    client = SyncClient(database)
    run = client.start(double, 1)
    client.close()
    client.close()
    for call in (run.status, run.result, client.runs):
        with pytest.raises(rt.ConfigurationError, match="this SyncClient is closed; use it within `with`"):
            call()
    with client:
        assert run.status() is Status.PENDING


def test_a_database_that_cannot_be_opened_is_told_at_the_call_and_tried_again_at_the_next(
    tmp_path: Path, threads: None
):
    client = SyncClient(tmp_path / "runs.db", create=False)
    for _ in range(2):
        with pytest.raises(rt.StoreUnusable, match="there is no database at"):
            client.runs()
    with SyncClient(tmp_path / "runs.db"):
        pass
    assert client.runs() == []
    client.close()


def test_a_call_in_progress_is_told_when_the_client_is_closed_under_it(database: Path, threads: None):
    client = SyncClient(database)
    run = client.start(double, 1)
    entered = threading.Event()

    def wait() -> None:
        entered.set()
        run.result()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait)
        entered.wait(20)
        client.close()
        with pytest.raises(rt.ConfigurationError, match="closed"):
            waiting.result(20)


def test_a_call_that_comes_when_the_loop_has_ended_is_refused_and_never_waits(database: Path, threads: None):
    background = Background(lambda: rt.Client(database))
    background.close()
    background.close()
    with pytest.raises(rt.ConfigurationError, match="closed while it was called; nothing was asked"):
        background.call(lambda client: client.runs())


def test_many_threads_share_one_client(database: Path, threads: None):
    client = SyncClient(database)
    ready = threading.Barrier(8)

    def work(number: int) -> str:
        ready.wait(20)  # the first calls come together, and open it once
        return client.start(double, number).id

    with ThreadPoolExecutor(8) as pool:
        ids = set(pool.map(work, range(8)))
    assert len(ids) == len(client.runs()) == 8
    assert [thread.name for thread in threading.enumerate()].count("runtrue-client") == 1
    client.close()


def test_a_program_that_does_not_close_it_ends_all_the_same(tmp_path: Path):
    done = _program(
        tmp_path,
        """
client = SyncClient("runs.db")
print(client.start(flow, 3).status().value)
""",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "pending\n", "")


# ---------------------------------------------------------------- forks
def test_one_that_was_open_before_a_fork_is_opened_anew_in_the_child(tmp_path: Path):
    done = _program(
        tmp_path,
        """
import os
client = SyncClient("runs.db")
run = client.start(flow.options(id="parents"), 1)
child = os.fork()
if child == 0:
    client.start(flow.options(id="childs"), 2)
    run.cancel(reason="by the child")
    client.close()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print(sorted(found.id for found in client.runs()), run.status().value)
client.close()
""",
    )
    assert (done.returncode, done.stdout) == (0, "['childs', 'parents'] cancelled\n"), done.stderr


def test_a_fork_of_many_threads_in_the_middle_of_calls_leaves_the_child_a_client_that_works(tmp_path: Path):
    done = _program(
        tmp_path,
        """
import os, threading
client = SyncClient("runs.db")
client.runs()
ended = threading.Event()
def keep_asking():
    while not ended.is_set():
        client.runs()
threads = [threading.Thread(target=keep_asking) for _ in range(4)]
for thread in threads: thread.start()
for _ in range(10):
    child = os.fork()
    if child == 0:
        client.start(flow, 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
ended.set()
for thread in threads: thread.join()
print(len(client.runs()))
client.close()
""",
    )
    assert (done.returncode, done.stdout) == (0, "10\n"), done.stderr


def test_an_app_that_is_open_in_the_background_is_refused_in_a_forked_child(tmp_path: Path):
    done = _program(
        tmp_path,
        """
import os
with rt.App("runs.db", workflows=[flow]) as client:
    child = os.fork()
    if child == 0:
        try:
            client.runs()
        except rt.ConfigurationError as refused:
            os.write(1, f"{refused}\\n".encode())
        os._exit(0)
    os.waitpid(child, 0)
    print(client.run(flow, 3))
""",
    )
    assert done.stdout == "this App was opened before the fork; open one in the child\n3\n", done.stderr


def _program(folder: Path, text: str) -> "subprocess.CompletedProcess[str]":
    start = """
import runtrue as rt
from runtrue.client_sync import SyncClient

@rt.workflow
async def flow(number: int) -> int:
    return number
"""
    program = folder / "program.py"
    program.write_text(start + text)
    command = [sys.executable, "-W", "ignore", str(program)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


# ---------------------------------------------------------------- where it is refused
async def test_where_an_event_loop_runs_it_is_refused_and_the_right_ways_are_named(database: Path):
    client = SyncClient(database)
    with pytest.raises(rt.WrongPlace, match=r"an event loop runs, .* use rt.Client with `await`, or .*to_thread"):
        client.start(double, 1)
    with pytest.raises(rt.WrongPlace, match="an event loop runs"), rt.App(database, workflows=[double]):
        pass
    run = await asyncio.to_thread(client.start, double, 1)
    with pytest.raises(rt.WrongPlace, match="an event loop runs"):
        run.status()
    with pytest.raises(rt.WrongPlace, match="an event loop runs"):
        client.close()
    await asyncio.to_thread(client.close)
    client.close()


def test_in_the_code_of_a_workflow_it_is_refused_and_in_a_step_on_a_thread_it_works(database: Path, threads: None):
    client = SyncClient(database)
    seen: list[Any] = []

    @rt.step
    async def start_another() -> str:
        return (await asyncio.to_thread(client.start, double, 1)).id

    @rt.workflow
    async def asks() -> str:
        try:
            client.start(double, 1)
        except rt.WrongPlace as refused:
            seen.append(str(refused))
        return await start_another()

    with rt.App(database, workflows=[asks]) as app:
        started = app.run(asks)
    (refused,) = seen
    assert refused.startswith("a SyncClient was used in the code of a workflow, where every replay would do the same")
    assert refused.endswith("use it in a step, or call rt.start_child or rt.send")
    assert client.get(started).status() is Status.PENDING
    client.close()


def test_blocking_workflows_are_refused_it_too_and_their_steps_are_not(database: Path, threads: None):
    client = SyncClient(database)

    @rts.step
    def start_another() -> str:
        return client.start(double, 1).id

    @rts.workflow
    def asks() -> str:
        with pytest.raises(rt.WrongPlace, match="in the code of a workflow"):
            client.start(double, 1)
        return start_another()

    with rt.App(database, workflows=[asks]) as app:
        started = app.run(asks)
    assert client.get(started).status() is Status.PENDING
    client.close()


# ---------------------------------------------------------------- over an App
def test_an_app_works_in_the_background_and_is_closed_with_its_block(database: Path, threads: None):
    app = rt.App(database, workflows=[double])
    for number in (1, 2):
        with app as client:
            assert app.worker_id
            assert client.run(double, number) == 2 * number
        assert app.worker_id == ""
        with pytest.raises(rt.ConfigurationError, match="this SyncClient is closed"):
            client.runs()


def test_an_app_that_is_open_is_refused_a_second_time_and_stays_open(database: Path, threads: None):
    app = rt.App(database, workflows=[double])
    with app as client:
        with pytest.raises(rt.ConfigurationError, match="this App is open already; close it first"), app:
            pass
        assert client.run(double, 5) == 10


def test_an_app_whose_opening_fails_leaves_no_thread_and_can_be_entered_again(tmp_path: Path, threads: None):
    folder = tmp_path / "folder"
    app = rt.App(folder / "runs.db", workflows=[double])
    with pytest.raises(rt.StoreUnusable), app:
        pass
    folder.mkdir()
    with app as client:
        assert client.run(double, 5) == 10


def test_the_clients_of_an_app_know_its_workflows_and_execute_nothing(database: Path, threads: None):
    app = rt.App(database, workflows=[double])
    with app as client:
        run = client.start(double.options(id="one"), 3)
        assert run.result(timeout=20) == 6
    with app.sync_client() as client:
        assert client.get("one").result() == 6
        assert client.start("double", number=4).status() is Status.PENDING

    async def look() -> Status:
        async with app.client() as client:
            return await (await client.get("one", double)).status()

    assert asyncio.run(look()) is Status.COMPLETED


def test_an_app_in_memory_has_no_other_clients():
    app = rt.App("sqlite://")
    for make in (app.client, app.sync_client):
        with pytest.raises(rt.ConfigurationError, match="in memory, where no other client can see it"):
            make()
