"""The one thread that writes: what it was told to leave, and what failed half way."""

import asyncio
import sqlite3
from pathlib import Path

import pytest
from tests.conformance.hands import hands_on
from tests.conformance.stage import Stage

from runtrue.errors import StoreBusy
from runtrue.lifecycle import Command, Status


async def test_all_who_were_told_busy_are_left_undone_those_behind_the_first_too(file_stage: Stage, path: Path):
    names = ("a", "b", "c")
    for name in names:
        await file_stage.start(name)
    with hands_on(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        verbs = (file_stage.verb(Command.CANCEL, name, not_after=2**62) for name in names)
        told = await asyncio.gather(*verbs, return_exceptions=True)
        connection.execute("ROLLBACK")
    assert [type(error) for error in told] == [StoreBusy] * 3
    await file_stage.start("after")
    assert [(await file_stage.run(name)).status for name in names] == [Status.PENDING] * 3


@pytest.mark.parametrize("others", [0, 3])
async def test_a_job_that_fails_half_way_leaves_nothing_of_itself(file_stage: Stage, others: int):
    await file_stage.start()

    def half(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE runtrue_runs SET priority = 9 WHERE id = 'r'")
        raise ValueError("half way")

    beside = [file_stage.start(f"other-{number}") for number in range(others)]
    writer = file_stage.store._writer
    outcome, *rest = await asyncio.gather(writer.run(half), *beside, return_exceptions=True)
    assert str(outcome) == "half way"
    assert rest == [None] * others
    assert (await file_stage.run()).priority == 0
