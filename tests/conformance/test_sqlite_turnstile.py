"""The queue of writers: it is for fairness, and nobody waits in it for ever."""

import fcntl
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.conformance.stage import Stage
from tests.support.manual_clock import ManualClock
from tests.support.waiting import CLOCK, until

from runtrue.errors import StoreBusy
from runtrue.lifecycle import Command, Status
from runtrue.store import open_store
from runtrue.store.sqlite import turnstile
from runtrue.store.sqlite.turnstile import Turnstile

FORKING = """
import asyncio, os, signal, sys
from runtrue.clock import SystemClock
from runtrue.store import open_store

async def main(url):
    store = await open_store(url, clock=SystemClock())
    def die_in_the_transaction(connection):
        if os.fork() == 0:
            print("child", flush=True)
            sys.stdin.read()
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    await store._writer.run(die_in_the_transaction)

asyncio.run(main(sys.argv[1]))
"""


@contextmanager
def somebody_has_the_turn(path: Path) -> Iterator[None]:
    with Path(f"{path}.turn").open() as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield


def standing() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "runtrue-turn"]


async def test_who_cannot_have_the_turn_goes_on_without_and_waits_for_it_once(file_stage: Stage, path: Path):
    await file_stage.start()
    with somebody_has_the_turn(path):
        began = CLOCK.steady()
        assert (await file_stage.verb(Command.PAUSE)).status is Status.PAUSED
        waited = CLOCK.steady() - began
        for verb in (Command.RESUME, Command.PAUSE, Command.CANCEL):
            assert (await file_stage.verb(verb)).changed
        assert waited >= turnstile.TURN_SECONDS > CLOCK.steady() - began - waited
        assert len(standing()) == 1, "it keeps its place"
    await until(lambda: not standing(), "its turn comes, and is passed on as nobody wants it now")
    with somebody_has_the_turn(path):
        pass


async def test_a_writer_takes_its_turn(file_stage: Stage, path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(turnstile, "TURN_SECONDS", 60)
    await file_stage.start()
    with somebody_has_the_turn(path), pytest.raises(StoreBusy):
        await file_stage.verb(Command.CANCEL)
    assert (await file_stage.verb(Command.PAUSE)).status is Status.PAUSED


async def test_who_cannot_queue_for_want_of_a_thread_goes_on_without(
    file_stage: Stage, path: Path, monkeypatch: pytest.MonkeyPatch
):
    def cannot(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    await file_stage.start()
    with somebody_has_the_turn(path), monkeypatch.context() as lacking:
        lacking.setattr(threading.Thread, "start", cannot)
        assert (await file_stage.verb(Command.PAUSE)).status is Status.PAUSED
    assert (await file_stage.verb(Command.CANCEL)).status is Status.CANCELLED
    assert free(path)


async def test_the_turn_is_given_back_after_each_transaction(file_stage: Stage, path: Path):
    await file_stage.start()
    await until(lambda: free(path), "it is free")


def free(path: Path) -> bool:
    with Path(f"{path}.turn").open() as turn:
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


async def test_a_turn_that_comes_after_closing_is_passed_on(path: Path):
    path.with_name(f"{path.name}.turn").touch()
    with somebody_has_the_turn(path):
        began = CLOCK.steady()
        store = await open_store(f"sqlite:///{path}", clock=ManualClock())
        await store.close()
        assert CLOCK.steady() - began < 2 * turnstile.TURN_SECONDS
    await until(lambda: not standing(), "the turn comes")
    assert free(path)


def test_many_who_queue_come_through_one_at_a_time(path: Path):
    inside: list[int] = []
    worst: list[int] = []

    def pass_often() -> None:
        turn = Turnstile(path)
        for _ in range(50):
            with turn:
                inside.append(1)
                worst.append(len(inside))
                inside.pop()
        turn.close()

    threads = [threading.Thread(target=pass_often) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (max(worst), len(worst)) == (1, 300)
    assert free(path)


def test_a_forked_child_does_not_keep_the_turn_of_its_dead_parent(path: Path):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", FORKING, f"sqlite:///{path}"], **pipes) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"child\n"
        assert parent.wait() == -signal.SIGKILL
        assert free(path)
        parent.stdin.close()


def test_a_turnstile_that_is_forgotten_is_not_kept_for_the_sake_of_forks(path: Path):
    before = len(turnstile._open)
    turn = Turnstile(path)
    turn.close()
    del turn
    assert len(turnstile._open) == before
