"""That the paths which must stay fast use their index, and take so many statements and no more."""

import dataclasses
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance.stage import INPUT, RESULT, SERVES, step

from runtrue.lifecycle import Status
from runtrue.records import Wait
from runtrue.store.protocol import Finish, NewRun, NewWorker, OpenWait, ParentLink, Recorded, RunEffects
from runtrue.store.sqlite import claiming, journal, schema, starting, sweeping, workers
from runtrue.store.sqlite import store as face
from runtrue.store.statements import load_statements

FOLDER = Path(face.__file__).parent
STATEMENTS = {
    f"{file.stem}.{name}": text for file in sorted(FOLDER.glob("*.sql")) for name, text in load_statements(file).items()
}
WALKS = {
    "claiming.next_priority": "SEARCH runtrue_runs USING INDEX runtrue_runs_claim",
    "claiming.candidates": "SEARCH runtrue_runs USING INDEX runtrue_runs_claim",
    "claiming.first_ready_at": "SEARCH runtrue_runs USING INDEX runtrue_runs_claim",
    "claiming.claim": "SEARCH runtrue_runs USING PRIMARY KEY",
    "journal.advance": "SEARCH runtrue_runs USING PRIMARY KEY",
    "claiming.claimed": "SEARCH r USING PRIMARY KEY",
    "journal.runs": "SEARCH r USING PRIMARY KEY",
    "workers.owned_runs": "SEARCH runtrue_runs USING INDEX runtrue_runs_worker",
    "sweeping.orphans": "SEARCH r USING INDEX runtrue_runs_worker",
    "sweeping.lose_workers": "SEARCH runtrue_workers USING INDEX runtrue_workers_lease",
    "queries.page": "SEARCH r USING COVERING INDEX runtrue_runs_created",
    "queries.page_of_status": "SEARCH r USING INDEX runtrue_runs_status",
    "queries.page_of_workflow": "SEARCH r USING COVERING INDEX runtrue_runs_workflow",
    "queries.count": "SCAN runtrue_runs USING COVERING INDEX runtrue_runs_status",
    "queries.open_holds": "SCAN runtrue_holds USING INDEX runtrue_holds_open",
    "sweeping.overdue": "SEARCH runtrue_runs USING INDEX runtrue_runs_deadline",
    "sweeping.forsaken": "SEARCH w USING INDEX runtrue_waits_moot",
    "waits.parents": "SEARCH w USING INDEX runtrue_waits_child",
    "waits.close_moot": "SEARCH runtrue_waits USING INDEX runtrue_waits_open",
    "waits.open_waits": "SEARCH runtrue_waits USING INDEX runtrue_waits_open",
    "waits.who_waits": "SEARCH w USING INDEX runtrue_waits_open",
    "waits.take_message": "SEARCH runtrue_messages USING INDEX runtrue_messages_kept",
    "commands.send_and_wake": "SEARCH runtrue_waits USING INDEX runtrue_waits_open",
    "queries.children": "SEARCH runtrue_runs USING COVERING INDEX runtrue_runs_parent",
    "fitting.may_fit": "SCAN h USING INDEX runtrue_holds_open",
    "facts.open_holds": "SEARCH runtrue_holds USING INDEX runtrue_holds_run",
    "facts.active_pause": "SEARCH runtrue_pauses USING INDEX runtrue_pauses_active",
    "starting.same_start": "SEARCH r USING INDEX runtrue_runs_key",
}


CHANGES = {"commands", "cancelling", "ends", "journal", "waits"}


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("BEGIN")
    schema.migrate(connection, 1)
    connection.execute("COMMIT")
    yield connection
    connection.close()


def plan(connection: sqlite3.Connection, name: str) -> str:
    statement = STATEMENTS[name]
    count = statement.count("?")
    parameters: object = (None,) * count if count else dict.fromkeys(_names(statement))
    rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)  # type: ignore[arg-type]
    return "\n".join(row[3] for row in rows)


def _names(statement: str) -> set[str]:
    return {word.strip("(),;+-").lstrip(":") for word in statement.replace("(", " ").split() if ":" in word}


@pytest.mark.parametrize("name", WALKS)
def test_a_statement_walks_its_index(connection: sqlite3.Connection, name: str):
    assert WALKS[name] in plan(connection, name)


@pytest.mark.parametrize(
    "name", ["claiming.candidates", "queries.page", "queries.page_of_status", "queries.page_of_workflow"]
)
def test_an_order_comes_from_the_index_and_nothing_is_sorted(connection: sqlite3.Connection, name: str):
    assert "TEMP B-TREE" not in plan(connection, name)


@pytest.mark.parametrize("name", [name for name in STATEMENTS if name.split(".")[0] in CHANGES])
def test_no_change_of_a_run_scans_a_table(connection: sqlite3.Connection, name: str):
    scans = [line for line in plan(connection, name).splitlines() if line.startswith("SCAN runtrue_")]
    assert scans == []


def test_nothing_that_changes_with_every_step_stands_in_an_index(connection: sqlite3.Connection):
    indexed = {
        column
        for (index,) in connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = 'runtrue_runs' AND sql IS NOT NULL"
        )
        for _, _, column in connection.execute(f"PRAGMA index_info({index})")
    }
    assert indexed.isdisjoint(
        {"event_seq", "steps_done", "losses", "history_digest", "updated_at", "wakeups", "children_left"}
    )


# ---------------------------------------------------------------- counting
def counted(connection: sqlite3.Connection, work) -> int:
    """How many statements of SQL `work` takes. The triggers are gone, because each would be traced as one more."""
    traced: list[str] = []
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {name}")
    connection.set_trace_callback(traced.append)
    try:
        work()
    finally:
        connection.set_trace_callback(None)
    return len(traced)


def running(connection: sqlite3.Connection, count: int) -> list[RunEffects]:
    starting.start(connection, [NewRun(f"r{number:03}", "flow", "1", INPUT, 0) for number in range(count)], 1)
    workers.register(connection, NewWorker("w", "host", 1, count, [], 10), 1)
    claimed = claiming.claim(connection, "w", SERVES, count, 2)
    return [RunEffects(one.run_id, one.epoch) for one in claimed]


def test_recording_takes_two_statements_a_step_and_one_a_batch(connection: sqlite3.Connection):
    effects = running(connection, 50)
    for effect in effects:
        effect.steps = [step(1)]
    assert counted(connection, lambda: journal.record(connection, "w", effects, 3)) == 1 + 2 * 50


def test_recording_several_steps_of_one_run_passes_the_fence_once(connection: sqlite3.Connection):
    (effect,) = running(connection, 1)
    effect.steps = [step(number) for number in range(1, 21)]
    assert counted(connection, lambda: journal.record(connection, "w", [effect], 3)) == 1 + 1 + 20


def test_finishing_takes_three_statements_a_run_and_two_a_batch(connection: sqlite3.Connection):
    effects = running(connection, 50)
    for effect in effects:
        effect.end = Finish(Status.COMPLETED, RESULT)
    replies = []
    assert counted(connection, lambda: replies.extend(journal.record(connection, "w", effects, 3))) == 3 * 50 + 2
    assert {reply.recorded for reply in replies} == {Recorded.OK}


def test_a_sweep_looks_at_no_finished_run(connection: sqlite3.Connection):
    """However many children, deadlines and waits have ended: the steps of SQLite's own machine stay the same."""
    runs = [NewRun(f"r{number:04}", "flow", "1", INPUT, 0, deadline_at=10**15) for number in range(1_000)]
    links = [ParentLink(run.id, "", 1, cancels=True) for run in runs]
    waits = [OpenWait(Wait("", 1, "child", "flow", f"c-{run.id}", 1)) for run in runs]
    children = [dataclasses.replace(run, id=f"c-{run.id}", parent=link) for run, link in zip(runs, links, strict=True)]
    ticks: list[list[int]] = []
    for born in (([], []), (runs, children)):
        starting.start(connection, [*born[0], *born[1]], 1)
        worker = f"w{len(ticks)}"
        workers.register(connection, NewWorker(worker, "host", 1, 9, [], 10**15), 1)
        claimed = claiming.claim(connection, worker, SERVES, 2_000, 2)
        opening = [
            RunEffects(one.run_id, one.epoch, waits=[wait]) for one, wait in zip(claimed[1_000:], waits, strict=False)
        ]
        assert all(reply.recorded is Recorded.OK for reply in journal.record(connection, worker, opening, 3))
        ends = [RunEffects(one.run_id, one.epoch, end=Finish(Status.FAILED, RESULT)) for one in claimed]
        journal.record(connection, worker, ends, 3)
        ticks.append([])
        connection.set_progress_handler(lambda: ticks[-1].append(1), 1)
        assert sweeping.sweep(connection, 500, 4).runs_cancelled == 0
        connection.set_progress_handler(None, 0)
    assert len(ticks[1]) <= len(ticks[0]) + 20


def test_claiming_takes_two_statements_a_run(connection: sqlite3.Connection):
    starting.start(connection, [NewRun(f"r{number:03}", "flow", "1", INPUT, 0) for number in range(50)], 1)
    workers.register(connection, NewWorker("w", "host", 1, 50, [], 10), 1)
    assert counted(connection, lambda: claiming.claim(connection, "w", SERVES, 50, 2)) <= 5 + 2 * 50


@pytest.mark.parametrize("others", [0, 3_000])
def test_a_claim_looks_at_no_finished_sleeping_or_unserved_run(connection: sqlite3.Connection, others: int):
    """The steps of SQLite's own machine for the claim of one run do not grow with what lies beside it."""
    far = 10**12
    starting.start(connection, [NewRun("mine", "flow", "1", INPUT, 0)], 1)
    starting.start(connection, [NewRun(f"s{number}", "flow", "1", INPUT, far) for number in range(others)], 1)
    starting.start(connection, [NewRun(f"u{number}", "other", "1", INPUT, 0) for number in range(others)], 1)
    workers.register(connection, NewWorker("w", "host", 1, 1, [], 10), 1)
    ticks: list[int] = []
    connection.set_progress_handler(lambda: ticks.append(1), 1)
    assert [claimed.run_id for claimed in claiming.claim(connection, "w", SERVES, 5, 2)] == ["mine"]
    connection.set_progress_handler(None, 0)
    assert len(ticks) < 700
