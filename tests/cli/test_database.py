"""Which database a command works on, and what it says of one that it cannot use."""

import sqlite3
from pathlib import Path

import pytest
from tests.cli.conftest import Runtrue


# ---------------------------------------------------------------- which one
def source(runtrue: Runtrue, *words: str) -> tuple[str, str]:
    body = runtrue(*words, "db", "status", "-o", "json").json
    return Path(body["location"]).name, body["source"]


def test_the_flag_wins_over_the_environment_over_pyproject_over_the_default(
    runtrue: Runtrue, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("runtrue", "project", "variable", "flag"):
        assert runtrue("db", "migrate", "--database", f"sqlite:///{name}.db").code == 0
    assert source(runtrue) == ("runtrue.db", "default")
    (here / "pyproject.toml").write_text('[tool.runtrue]\ndatabase = "sqlite:///project.db"\n')
    assert source(runtrue) == ("project.db", "[tool.runtrue] in pyproject.toml")
    monkeypatch.setenv("RUNTRUE_DATABASE_URL", "sqlite:///variable.db")
    assert source(runtrue) == ("variable.db", "RUNTRUE_DATABASE_URL")
    assert source(runtrue, "--database", "sqlite:///flag.db") == ("flag.db", "--database")


def test_the_flag_may_stand_before_or_after_the_command_and_the_last_one_wins(runtrue: Runtrue, here: Path) -> None:
    for name in ("a.db", "b.db"):
        runtrue("db", "migrate", "--database", name)
    told = runtrue("--database", "a.db", "db", "status", "--database", "b.db", "-o", "json").json
    assert told["location"] == str(here / "b.db")


def test_a_migrated_database_tells_where_it_is_and_its_schema(runtrue: Runtrue, here: Path) -> None:
    told = runtrue("db", "migrate")
    assert told.code == 0
    assert f"location  {here / 'runtrue.db'}\nnamed by  default\n" in told.out
    assert runtrue("db", "migrate").out == told.out
    body = runtrue("db", "status", "-o", "json").json
    assert body["version"] == body["latest"] > 0


# ---------------------------------------------------------------- none that can be used
@pytest.mark.parametrize("words", [("run", "list"), ("run", "start", "fulfil"), ("doctor",), ("db", "status")])
def test_a_missing_file_is_refused_not_made(runtrue: Runtrue, here: Path, words: tuple[str, ...]) -> None:
    told = runtrue(*words)
    assert (told.code, told.out) == (1, "")
    assert str(here / "runtrue.db") in told.err
    assert "start a worker (`runtrue dev MODULE`) or `runtrue db migrate`, which make it" in told.err
    assert list(here.iterdir()) == []


def test_a_folder_is_no_database(runtrue: Runtrue, here: Path) -> None:
    (here / "runtrue.db").mkdir()
    told = runtrue("run", "list")
    assert (told.code, told.out) == (1, "")
    assert "folder" in told.err


def test_a_file_of_another_kind_is_no_database_and_stays_as_it_is(runtrue: Runtrue, here: Path) -> None:
    (here / "runtrue.db").write_text("dear diary" * 1_000)
    for words in (("run", "list"), ("db", "migrate")):
        told = runtrue(*words)
        assert (told.code, told.out) == (1, "")
        assert told.err.startswith("Error: ")
    assert (here / "runtrue.db").read_text() == "dear diary" * 1_000


def test_a_folder_that_is_not_there_is_named(runtrue: Runtrue, here: Path) -> None:
    told = runtrue("db", "migrate", "--database", "sqlite:///nowhere/runs.db")
    assert told.code == 1
    assert str(here / "nowhere") in told.err


@pytest.mark.parametrize("url", ["mysql://x", "", "sqlite://", ":memory:"])
def test_what_can_be_no_database_of_a_command_is_a_matter_of_configuration(
    runtrue: Runtrue, here: Path, url: str
) -> None:
    told = runtrue("run", "start", "fulfil", "--database", url)
    assert (told.code, told.out) == (2, "")
    assert list(here.iterdir()) == []


def test_a_broken_pyproject_is_named(runtrue: Runtrue, here: Path) -> None:
    (here / "pyproject.toml").write_text("[tool.runtrue\n")
    told = runtrue("run", "list")
    assert told.code == 2
    assert f"{here / 'pyproject.toml'} cannot be read" in told.err


def test_a_database_that_somebody_else_locks_is_busy_and_nothing_changed(runtrue: Runtrue, a_run, here: Path) -> None:
    from runtrue.lifecycle import Status

    run_id = a_run(Status.PENDING)
    other = sqlite3.connect(here / "runtrue.db", isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        told = runtrue("run", "pause", run_id)
    finally:
        other.close()
    assert (told.code, told.out) == (1, "")
    assert "nothing was changed" in told.err
    assert runtrue("run", "show", run_id, "-o", "json").json["status"] == "pending"


# ---------------------------------------------------------------- doctor
def test_doctor_finds_nothing_in_a_healthy_database_and_says_what_is_missing(runtrue: Runtrue, a_run) -> None:
    from runtrue.lifecycle import Status

    a_run(Status.PENDING)
    told = runtrue("doctor")
    assert told.code == 0
    assert "every promise that can be checked is kept" in told.out
    assert "advice: runs are pending or waiting and no worker is alive" in told.out
    body = runtrue("doctor", "-o", "json").json
    assert (body["findings"], body["runs"], body["workers_alive"]) == ([], {"pending": 1}, 0)


def test_doctor_names_a_broken_promise_and_the_run(runtrue: Runtrue, a_run, here: Path) -> None:
    from runtrue.lifecycle import Status

    run_id = a_run(Status.PAUSED)
    other = sqlite3.connect(here / "runtrue.db")
    with other:
        # What the triggers refuse, so only a hand that takes them away first can do it.
        other.execute("DROP TRIGGER runtrue_holds_closed")
        other.execute("UPDATE runtrue_holds SET closed_at = 1, closed_by = 'x', outcome = 'resumed'")
    other.close()
    told = runtrue("doctor")
    assert told.code == 1
    assert f"run {run_id}" in told.out
    assert "broken: " in told.out
    assert runtrue("doctor", "-o", "json").code == 1
