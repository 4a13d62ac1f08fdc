"""A database file and a manual clock for each test."""

from pathlib import Path

import pytest
from tests.support.manual_clock import ManualClock


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
async def clock() -> ManualClock:
    return ManualClock()
