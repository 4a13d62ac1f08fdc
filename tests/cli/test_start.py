"""Starting runs: inputs from words, files and standard input; ids and keys; what is refused before a run exists."""

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Runtrue
from tests.cli.making import with_store

from runtrue.errors import OutcomeUnknown
from runtrue.service import Service
from runtrue.store import Store
from runtrue.store.protocol import NewWorker


def started(runtrue: Runtrue, *words: str) -> dict:
    told = runtrue("run", "start", "fulfil", *words, "-o", "json")
    assert told.code == 0, told
    return told.json


def test_a_started_run_is_printed_as_its_row_is(runtrue: Runtrue, database: Path) -> None:
    body = started(runtrue, "--id", "order-42", "--priority", "3", "--tag", "shop=17", "--tag", "eu=yes=no")
    assert (body["id"], body["workflow"], body["version"], body["status"]) == ("order-42", "fulfil", "1", "pending")
    assert (body["priority"], body["tags"]) == (3, {"shop": "17", "eu": "yes=no"})
    assert body["why"] == "no worker serves fulfil@1: none is alive"
    assert body["available_actions"] == ["pause", "cancel", "terminate", "send"]
    assert body["created_at"].endswith("Z")


def test_the_table_goes_to_stdout_and_the_hint_to_stderr(runtrue: Runtrue, database: Path) -> None:
    told = runtrue("run", "start", "fulfil", "--id", "order-42")
    assert told.out.splitlines()[0].split() == ["id", "workflow", "status", "why", "attempt", "started", "age"]
    assert told.out.splitlines()[1].startswith("order-42  fulfil@1  pending")
    assert told.err == "follow it with: runtrue run watch order-42\n"


def test_a_hint_names_the_database_that_the_command_was_given(runtrue: Runtrue, here: Path) -> None:
    runtrue("db", "migrate", "--database", "my runs.db")
    told = runtrue("--database", "my runs.db", "run", "start", "fulfil", "--id", "a b")
    assert told.err == "follow it with: runtrue run watch 'a b' --database 'my runs.db'\n"


def test_only_the_id_for_scripts(runtrue: Runtrue, database: Path) -> None:
    told = runtrue("run", "start", "fulfil", "--id", "order-42", "-o", "id")
    assert (told.out, told.err) == ("order-42\n", "")


def test_inputs_are_text_or_json_by_name(runtrue: Runtrue, database: Path) -> None:
    given = [
        "city=Lyon",
        "empty=",
        "formula=a=b",
        "n:=10",
        "big:=12345678901234567890123",
        'order:={"items": [1.5, null]}',
    ]
    body = started(runtrue, *(word for text in given for word in ("--input", text)))
    assert body["input"] == {
        "city": "Lyon",
        "empty": "",
        "formula": "a=b",
        "n": 10,
        "big": 12345678901234567890123,
        "order": {"items": [1.5, None]},
    }


def test_inputs_come_from_a_file_and_from_standard_input(command: Runtrue, database: Path) -> None:
    (database.parent / "order.json").write_bytes('\ufeff{"city": "Lyon"}'.encode())
    told = command("run", "start", "fulfil", "--input", "@order.json", "--input", "-", "-o", "json", stdin='{"n": 10}')
    assert told.json["input"] == {"city": "Lyon", "n": 10}


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [
        (["city"], "write name=text, name:=json, @file or - for a JSON object"),
        (["=Lyon"], "write name=text, name:=json"),
        ([":=1"], "write name=text, name:=json"),
        ([""], "write name=text, name:=json"),
        (["n:=ten"], "--input n:= is no JSON"),
        (["n:="], "--input n:= is no JSON"),
        (["n:=NaN"], "NaN is not in JSON"),
        (['n:={"a": 1, "a": 2}'], "a name is given twice in one object"),
        (["n:=" + "[" * 100_000], "is no JSON"),
        (["n:=" + "9" * 5_000], "is no JSON"),
        (["n:=1e999"], "the input of workflow fulfil"),
        (["a=1", "a=2"], "input 'a' is given twice"),
        (["-", "-"], "standard input, which can be read once only"),
        (["@nowhere.json"], "cannot read file nowhere.json"),
        (["@."], "cannot read file ."),
        (["@list.json"], "must hold a JSON object of the workflow's parameters by name"),
        (["@latin.json"], "cannot read file latin.json"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_nonsense_input_is_refused_before_a_run_exists(
    runtrue: Runtrue, database: Path, texts: list[str], complaint: str
) -> None:
    (database.parent / "list.json").write_text("[1]")
    (database.parent / "latin.json").write_bytes(b'{"a": "\xe9"}')
    told = runtrue("run", "start", "fulfil", *(word for text in texts for word in ("--input", text)))
    assert (told.code, told.out) == (2, "")
    assert complaint in " ".join(told.err.split())
    assert runtrue("run", "list").err == "no runs yet\n"


@pytest.mark.parametrize(
    "words",
    [
        ("--id", ""),
        ("--id", "x" * 201),
        ("--id", "a\x1b[31mb"),
        ("--key", "line\nbreak"),
        ("--version", ""),
        ("--tag", "novalue"),
        ("--tag", "=x"),
        ("--tag", "x="),
        ("--priority", "high"),
        ("--priority", str(2**64)),
        ("--delay", "soon"),
        ("--delay", "-5"),
        ("--delay", "nan"),
        ("--delay", "99999999d"),
        ("--timeout", "3"),
        ("-o", "xml"),
    ],
    ids=lambda words: " ".join(words)[:30].encode("unicode_escape").decode(),
)
def test_an_option_that_cannot_be_is_a_matter_of_usage(
    runtrue: Runtrue, database: Path, words: tuple[str, str]
) -> None:
    told = runtrue("run", "start", "fulfil", *words)
    assert (told.code, told.out) == (2, "")
    assert "\x1b" not in told.err
    assert runtrue("run", "list").err == "no runs yet\n"


def test_a_delayed_run_says_until_when(runtrue: Runtrue, database: Path) -> None:
    body = started(runtrue, "--delay", "2h")
    assert body["why"].startswith("delayed until ")
    assert body["ready_at"] > body["created_at"]


def test_the_same_start_again_is_the_same_run(runtrue: Runtrue, database: Path) -> None:
    first = runtrue("run", "start", "fulfil", "--key", "mail-7", "--input", "n:=1", "-o", "id")
    again = runtrue("run", "start", "fulfil", "--key", "mail-7", "--input", "n:=1", "-o", "id")
    assert (again.code, again.out) == (0, first.out)
    assert again.err == f"the same start was made before: this is run {first.out.strip()}, nothing new was started\n"


def test_another_input_under_the_same_id_or_key_is_a_conflict(runtrue: Runtrue, database: Path) -> None:
    runtrue("run", "start", "fulfil", "--id", "order-42", "--key", "k", "--input", "n:=1")
    for words, under, what in (
        (("--id", "order-42"), "this id", "id"),
        (("--key", "k"), "key k", "key"),
    ):
        told = runtrue("run", "start", "fulfil", *words, "--input", "n:=2")
        assert (told.code, told.out) == (4, "")
        assert told.err == (
            f"Error: nothing was started: run order-42 was started before under {under} with another input; "
            f"choose another {what}\n"
        )
    told = runtrue("run", "start", "mail", "--id", "order-42")
    assert told.code == 4
    assert told.err == "Error: nothing was started: run order-42 is of another workflow than mail; choose another id\n"


async def serve(store: Store) -> None:
    await store.register_worker(NewWorker("w-1", "here", 1, 1, ["fulfil@2", "mail@1"], 60_000_000))


def test_the_version_is_the_one_that_a_living_worker_serves(runtrue: Runtrue, database: Path) -> None:
    with_store(database, serve)
    assert started(runtrue)["version"] == "2"
    body = started(runtrue, "--version", "1")
    assert body["why"] == "no worker serves fulfil@1, only fulfil@2"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("fulfill",), "no living worker serves fulfill@1, only fulfil@2, mail@1; did you mean fulfil? run r waits"),
        (("tax",), "no living worker serves tax@1, only fulfil@2, mail@1; run r waits"),
        (("fulfil", "--version", "1"), "no living worker serves fulfil@1, only fulfil@2, mail@1; run r waits"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_start_that_no_living_worker_serves_says_what_they_serve(
    runtrue: Runtrue, database: Path, words: tuple[str, ...], told: str
) -> None:
    with_store(database, serve)
    said = runtrue("run", "start", *words, "--id", "r", "-o", "id")
    assert (said.code, said.out) == (0, "r\n")
    assert said.err == f"{told} for one that does; `runtrue run cancel r` takes it back\n"
    assert runtrue("run", "start", "fulfil", "-o", "id").err == ""


def test_a_lost_answer_names_the_id_to_ask_again(
    runtrue: Runtrue, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []

    async def lost(self, workflow, version, encoded, options):
        sent.append(options.id)
        raise OutcomeUnknown("the connection broke during the commit")

    monkeypatch.setattr(Service, "start", lost)
    told = runtrue("run", "start", "fulfil")
    assert told.code == 1
    assert f"ask again with --id {sent[0]}, that starts nothing twice" in told.err


def test_ids_and_texts_of_any_script_go_through_unharmed(command: Runtrue, database: Path) -> None:
    told = command("run", "start", "fulfil", "--id", "заказ-№1", "--input", "name=Zoë 🚀", "-o", "json")
    assert told.json["id"] == "заказ-№1"
    assert told.json["input"] == {"name": "Zoë 🚀"}
    plain = command("run", "list", "-o", "id", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert plain.code == 0
    assert json.loads(f'"{plain.out.strip()}"') == "заказ-№1"
