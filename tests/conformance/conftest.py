"""One suite for every store: what a store must do is asked of each of them in the same words."""

import sqlite3
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.conformance.faulty import FaultyConnection
from tests.conformance.stage import Stage
from tests.support.manual_clock import ManualClock

from runtrue.clock import Clock
from runtrue.store import Store, open_store


@dataclass(frozen=True)
class Database:
    """A database that does not exist yet. `shared`: several stores may be opened on it."""

    url: str
    shared: bool
    path: Path | None = None

    async def open(self, clock: Clock) -> Store:
        return await open_store(self.url, clock=clock)


def _file(folder: Path) -> Database:
    return Database(f"sqlite:///{folder / 'runs.db'}", shared=True, path=folder / "runs.db")


DATABASES = {"sqlite-file": _file, "sqlite-memory": lambda _: Database("sqlite://", shared=False)}


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """Every kind of database, for what one store does."""
    return DATABASES[request.param](tmp_path)


@pytest.fixture(params=["sqlite-file"])
def shared_database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """Every kind of database that several processes may share."""
    return DATABASES[request.param](tmp_path)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(database: Database, clock: ManualClock) -> AsyncIterator[Store]:
    store = await database.open(clock)
    yield store
    await store.close()


@pytest.fixture
async def stage(store: Store, clock: ManualClock) -> AsyncIterator[Stage]:
    """A stage on every kind of store. Whatever the test did, no promise may be broken at its end."""
    yield Stage(store, clock)
    await store.sweep()
    assert await store.check() == []


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
async def file_stage(path: Path, clock: ManualClock) -> AsyncIterator[Stage]:
    """A stage on a SQLite file at `path`, for tests that lay hands on the file."""
    store = await open_store(f"sqlite:///{path}", clock=clock)
    yield Stage(store, clock)
    await store.close()


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FaultyConnection]]:
    """Every connection that is opened meanwhile can be told to fail."""
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **kwargs: connect(*args, factory=FaultyConnection, **kwargs))
    yield FaultyConnection
    FaultyConnection.fault = None


@pytest.fixture
async def faulty_stage(faulty: type[FaultyConnection], path: Path, clock: ManualClock) -> AsyncIterator[Stage]:
    """As `file_stage`, on connections that can be told to fail."""
    store = await open_store(f"sqlite:///{path}", clock=clock)
    yield Stage(store, clock)
    await store.close()
