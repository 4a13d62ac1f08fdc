"""A database file, a manual clock, and a working folder of its own for each test."""

from pathlib import Path

import pytest
from tests.support.manual_clock import ManualClock


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
async def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path
