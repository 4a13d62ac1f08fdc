"""Waiting for a run goes on whatever fails meanwhile, and ends where nothing can be read any more."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.hands import execute
from tests.conformance.stage import Stage
from tests.support.waiting import CLOCK, until

from runtrue.errors import StoreUnusable
from runtrue.lifecycle import Command, Status
from runtrue.store.sqlite import watching
from runtrue.watcher import RunWatcher


@pytest.fixture
async def watcher(file_stage: Stage) -> AsyncIterator[RunWatcher]:
    watcher = RunWatcher(file_stage.store, CLOCK)
    yield watcher
    await watcher.close()


@pytest.fixture
def no_descriptor(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """As long as there is something in it, no connection to look by can be opened."""
    lacking = ["descriptors"]
    connect = watching.connect_reader

    def connect_reader(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        if lacking:
            lacking.append("tried")
            raise sqlite3.OperationalError("unable to open database file")
        return connect(*args, **kwargs)

    monkeypatch.setattr(watching, "connect_reader", connect_reader)
    return lacking


async def waits(watcher: RunWatcher) -> "asyncio.Future[Status]":
    waiting = asyncio.ensure_future(watcher.wait("r", frozenset({Status.PAUSED})))
    await until(lambda: watcher._task is not None, "it looks on")
    return waiting


async def test_a_store_that_cannot_be_looked_at_just_now_is_looked_at_once_it_can(
    file_stage: Stage, path: Path, no_descriptor: list[str]
):
    await file_stage.start()
    heard: list[bool] = []
    leave = file_stage.store.subscribe(lambda: heard.append(True))
    await turns(file_stage, lambda: len(no_descriptor) > 3)
    assert not heard
    no_descriptor.clear()
    execute(path, "UPDATE runtrue_runs SET priority = 2")
    await turns(file_stage, lambda: bool(heard))
    leave()


async def turns(stage: Stage, condition: Any) -> None:
    def looked() -> bool:
        stage.clock.advance(1)
        return condition()

    await until(looked, "it looks again and again")


async def test_a_wait_outlives_a_moment_without_descriptors(
    file_stage: Stage, watcher: RunWatcher, no_descriptor: list[str]
):
    await file_stage.start()
    waiting = await waits(watcher)
    await file_stage.verb(Command.PAUSE)
    assert await waiting is Status.PAUSED


@pytest.mark.parametrize("fault", [RuntimeError("a fault of ours"), OSError(24, "too many open files")])
async def test_a_wait_outlives_a_look_that_fails(
    file_stage: Stage, watcher: RunWatcher, monkeypatch: pytest.MonkeyPatch, fault: Exception
):
    await file_stage.start()
    statuses = file_stage.store.statuses
    looks: list[int] = []

    async def failing(run_ids: list[str]) -> object:
        looks.append(len(looks))
        if len(looks) == 2:
            raise fault
        return await statuses(run_ids)

    monkeypatch.setattr(file_stage.store, "statuses", failing)
    waiting = await waits(watcher)
    await until(lambda: len(looks) >= 2, "a look fails")
    await file_stage.verb(Command.PAUSE)
    assert await asyncio.wait_for(waiting, 10) is Status.PAUSED


async def test_a_wait_for_a_run_of_a_file_that_was_lost_ends(file_stage: Stage, path: Path, watcher: RunWatcher):
    await file_stage.start()
    waiting = await waits(watcher)
    path.rename(path.with_name("elsewhere.db"))  # noqa: ASYNC240
    with pytest.raises(StoreUnusable, match="was moved, deleted or replaced"):
        await waiting
