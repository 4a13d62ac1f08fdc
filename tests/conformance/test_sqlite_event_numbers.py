"""The numbers of a run's events."""

import sqlite3
from pathlib import Path

import pytest
from tests.conformance.hands import without_triggers
from tests.conformance.stage import Stage


async def test_no_two_events_of_a_run_have_one_number(file_stage: Stage, path: Path):
    await file_stage.start()
    columns = "run_id, seq, at, type, data"
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        without_triggers(path, f"INSERT INTO runtrue_events ({columns}) SELECT {columns} FROM runtrue_events")
