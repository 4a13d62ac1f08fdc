"""Rows that only a hand can have written, beside runs that are well."""

from pathlib import Path

from tests.conformance.hands import hands_on
from tests.conformance.stage import Stage, receive, step

from runtrue.lifecycle import Command, Status
from runtrue.store.protocol import NEVER, ParkBlocked


async def test_a_run_whose_rows_do_not_fit_each_other_costs_no_other_its_claim(file_stage: Stage, path: Path):
    stage = file_stage
    claimed = await stage.running("odd")
    await stage.record(claimed, step(2))
    reply = await stage.record(claimed, waits=[receive(3)])
    await stage.end(claimed, ParkBlocked(reply.wakeups, NEVER))
    with hands_on(path) as connection:
        # A wait at the place of a step: what meets it would have to be recorded there once more.
        connection.execute(
            "INSERT INTO runtrue_waits (run_id, branch, ordinal, kind, name, subject, opened_at)"
            " VALUES ('odd', '', 2, 'receive', 'topic', 'topic', 1)"
        )
    await stage.verb(Command.SEND, "odd", value="topic", body=b"1")
    await stage.start("well")
    assert {run.run_id for run in await stage.claim()} == {"odd", "well"}
    assert (await stage.run("well")).status is Status.RUNNING
