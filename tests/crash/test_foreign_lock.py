"""A foreign program holds SQLite's write lock for long: everybody waits or is told, nothing is lost."""

import pytest
from tests.support.histories import assert_sound
from tests.support.stage import Stage
from tests.support.waiting import CLOCK, SECOND, until

from runtrue import StoreBusy

NAMES = [f"s{n}" for n in range(6)]


async def test_steps_wait_for_a_foreign_writer_and_go_on_under_the_same_lease(stage: Stage):
    stage.say("hold", "s2")
    run = await stage.start(*NAMES)
    worker = await stage.worker(lease=15)
    await stage.begun("s2")
    with stage.write_lock():
        stage.unsay("hold", "s2")
        await until(lambda: "the journal repeats a batch" in worker.log, "the journal was told busy")
    assert await run.result(timeout=45) == NAMES
    assert stage.names() == NAMES
    assert [row.status for row in await stage.rows_of(worker)] == ["alive"]
    assert (await run.info()).attempt == 1
    await assert_sound(stage.client, "run")


async def test_a_worker_that_cannot_renew_stops_executing_and_nothing_is_lost(stage: Stage):
    stage.say("hold", "s2")
    run = await stage.start(*NAMES)
    worker = await stage.worker(lease=1)
    await stage.begun("s2")
    with stage.write_lock():
        stage.unsay("hold", "s2")
        await until(lambda: "could not be renewed" in worker.log, "the renewal was told busy")
        await stage.passed(CLOCK.now() + SECOND)
        assert stage.names() == NAMES[:3], "no step starts that cannot be recorded"
    assert await run.result(timeout=45) == NAMES
    # The result of s2 was lost with the lease; everything else happened once.
    assert stage.names() in ([*NAMES[:3], *NAMES[2:]], NAMES)
    await assert_sound(stage.client, "run")


async def test_a_foreign_reader_that_never_ends_holds_nobody_up(stage: Stage):
    await stage.worker()
    with stage.raw() as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM runtrue_runs").fetchone()
        run = await stage.start(*NAMES)
        assert await run.result(timeout=45) == NAMES
        assert connection.execute("SELECT count(*) FROM runtrue_runs").fetchone() == (0,)
    await assert_sound(stage.client, "run")


async def test_a_process_that_stands_still_within_its_transaction_costs_others_a_wait_and_no_more(stage: Stage):
    """It holds the file lock that writers queue at and the file itself, and everybody is told so in time."""
    stage.say("hold", "s2")
    run = await stage.start(*NAMES)
    worker = await stage.worker(lease=15)
    await stage.begun("s2")
    with stage.file_lock(), stage.write_lock():
        asked = CLOCK.steady()
        with pytest.raises(StoreBusy, match="nothing was changed"):
            await run.cancel()
        assert CLOCK.steady() - asked < 2
        stage.unsay("hold", "s2")
        await until(lambda: "the journal repeats a batch" in worker.log, "the journal was told busy")
    assert await run.result(timeout=45) == NAMES
    assert stage.names() == NAMES
    assert await stage.client.service.commands("run") == []
    await assert_sound(stage.client, "run")
