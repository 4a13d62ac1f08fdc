"""A database file, a manual clock, and a step that obeys, for each test."""

from pathlib import Path

import pytest
from tests.engine.acts import Acts
from tests.support.manual_clock import ManualClock


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
async def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def acts() -> Acts:
    return Acts()
