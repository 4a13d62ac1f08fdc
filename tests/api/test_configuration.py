"""Where the database setting comes from, and how it may be written."""

from pathlib import Path

import pytest

import runtrue as rt
from runtrue.config import location, resolve_database


def write(here: Path, text: str) -> None:
    (here / "pyproject.toml").write_text(text, encoding="utf-8")


def test_the_nearest_word_wins(here: Path, monkeypatch: pytest.MonkeyPatch):
    assert resolve_database().value == "sqlite:///runtrue.db"
    assert resolve_database().source == "default"
    write(here, '[tool.runtrue]\ndatabase = "project.db"\n')
    assert resolve_database().value == "sqlite:///project.db"
    assert resolve_database().source == "[tool.runtrue] in pyproject.toml"
    monkeypatch.setenv("RUNTRUE_DATABASE_URL", "sqlite:///environment.db")
    assert resolve_database().source == "RUNTRUE_DATABASE_URL"
    assert resolve_database(argument="argument.db").source == "the program's own setting"
    assert resolve_database(flag="flag.db", argument="argument.db").source == "--database"
    assert resolve_database(flag="flag.db", argument="argument.db").value == "sqlite:///flag.db"


async def test_a_client_without_a_database_follows_the_same_order(here: Path, monkeypatch: pytest.MonkeyPatch):
    async with rt.Client() as client:
        assert client.database.value == "sqlite:///runtrue.db"
    assert (here / "runtrue.db").exists()
    monkeypatch.setenv("RUNTRUE_DATABASE_URL", "elsewhere.db")
    async with rt.Client():
        assert (here / "elsewhere.db").exists()


def test_an_empty_variable_is_as_good_as_none(here: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RUNTRUE_DATABASE_URL", "")
    assert resolve_database().source == "default"


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("runs.db", "sqlite:///runs.db"),
        ("/var/lib/runs.db", "sqlite:////var/lib/runs.db"),
        (Path("a/b.db"), "sqlite:///a/b.db"),
        (":memory:", "sqlite://"),
        ("sqlite://", "sqlite://"),
        ("sqlite:////abs.db", "sqlite:////abs.db"),
        ("odd name?#.db", "sqlite:///odd name?#.db"),
    ],
    ids=str,
)
def test_a_database_is_a_url_or_a_path(given: str | Path, url: str):
    assert resolve_database(argument=given).value == url


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("postgres://host/db", "postgres:// is no database that runtrue knows; use sqlite:///FILE or a path"),
        ("mysql://host/db", "mysql:// is no database"),
        ("", "the database is empty text"),
    ],
)
def test_what_can_be_no_database_is_refused(given: str, message: str):
    with pytest.raises(rt.ConfigurationError, match=message):
        resolve_database(argument=given)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.runtrue]\ndatabase = 7\n", "must be text"),
        ("[tool]\nruntrue = 7\n", "must be a table"),
        ("tool = 7\n", "must be a table"),
        ("[tool.runtrue\n", "cannot be read"),
    ],
)
def test_a_project_file_that_says_it_wrongly_is_refused_with_the_reason(here: Path, text: str, message: str):
    write(here, text)
    with pytest.raises(rt.ConfigurationError, match=message):
        resolve_database()


def test_a_project_file_without_our_table_says_nothing(here: Path):
    write(here, '[project]\nname = "x"\n')
    assert resolve_database().source == "default"


def test_the_location_is_told_absolute(here: Path):
    assert location("sqlite:///runs.db") == str(here / "runs.db")
    assert location("sqlite:////var/runs.db") == "/var/runs.db"
    assert location("sqlite://") == "memory, gone with the process"
