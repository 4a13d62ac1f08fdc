"""What reaches the terminal, the pipe and the file: no colours off a terminal, no tracebacks, no orders to it."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import COMMAND, Runtrue
from tests.cli.making import CLOCK, make, make_held, with_store

import runtrue as rt
from runtrue import demo
from runtrue.lifecycle import HoldKind, Status
from runtrue.store import Store
from runtrue.store.protocol import NewRun


def on_a_terminal(*words: str, **environment: str) -> tuple[int, str]:
    """Run the command with a terminal as its stdout; its exit code and what the terminal got."""
    master, slave = pty.openpty()
    settings = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "160", **environment}
    process = subprocess.Popen([*COMMAND, *words], stdout=slave, stderr=slave, stdin=slave, env=settings)
    os.close(slave)
    shown = b""
    while True:
        try:
            part = os.read(master, 65_536)
        except OSError:  # Linux tells the end of a terminal this way
            break
        if not part:
            break
        shown += part
    os.close(master)
    return process.wait(60), shown.decode()


def test_colours_are_for_terminals_only(command: Runtrue, a_run, database: Path) -> None:
    a_run(Status.FAILED)
    for words, expected in (
        (("run", "list"), 0),
        (("run", "show", "run-failed"), 0),
        (("run", "watch", "run-failed"), 5),
    ):
        told = command(*words)
        assert (told.code, told.err) == (expected, "")
        assert "\x1b" not in told.out
        code, shown = on_a_terminal(*words)
        assert code == expected
        assert "\x1b[" in shown
        assert "run-failed" in shown


@pytest.mark.parametrize("width", [80, 120, 160])
def test_an_id_is_never_broken_and_a_reason_is_shortened_where_the_terminal_is_narrow(
    database: Path, width: int
) -> None:
    ids = [f"019ad5e2-7b1c-7f00-8f2a-3b1c5d7e9f{number}" for number in (10, 11)]

    async def held(store: Store) -> str:
        await make(store, ids[0], Status.FAILED)
        return await make_held(store, ids[1], HoldKind.CODE_MISMATCH)

    hold = with_store(database, held)
    _, shown = on_a_terminal("run", "list", COLUMNS=str(width))
    shown = re.sub(r"\x1b\[[\d;]*m", "", shown)
    _, held_run, failed_run = shown.splitlines()
    assert (held_run.split()[0], failed_run.split()[0]) == (ids[1], ids[0])
    assert all(len(line) <= width for line in shown.splitlines())
    assert "the code does not" in held_run
    assert "…" in held_run
    assert ("started" in shown) == (width == 160), "when it started is what a narrow terminal is spared first"
    _, shown = on_a_terminal("hold", "list", COLUMNS=str(width))
    assert f"{hold}  {ids[1]}  " in shown


def test_a_terminal_without_colours_gets_none(a_run, database: Path) -> None:
    a_run(Status.FAILED)
    for words in (("run", "list"), ("run", "show", "run-failed")):
        _, shown = on_a_terminal(*words, NO_COLOR="1")
        assert "\x1b[3" not in shown


def test_recorded_text_cannot_command_a_terminal(runtrue: Runtrue, database: Path) -> None:
    reason = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnol"
    with_store(database, lambda store: make(store, "a", Status.PENDING))
    assert runtrue("run", "pause", "a", "--reason", reason).code == 0
    for words in (("run", "list"), ("run", "show", "a"), ("run", "events", "a"), ("hold", "list")):
        for form in ("table", "json"):
            told = runtrue(*words, "-o", form)
            assert told.code == 0
            assert not set("\x1b\x07\x9b") & set(told.out)
    for words in (("run", "list"), ("run", "show", "a")):
        _, shown = on_a_terminal(*words)
        assert "\x1b]0;owned" not in shown
        assert "\x1b[2J" not in shown
        assert "\u202e" not in shown
    assert runtrue("run", "show", "a", "-o", "json").json["holds"][0]["reason"] == reason
    assert runtrue("run", "cancel", "a", "--reason", reason).code == 0
    for words in (("run", "wait", "a"), ("run", "watch", "a")):
        assert not set("\x1b\x07\x9b") & set(runtrue(*words).out)


def test_markup_in_recorded_text_is_shown_as_it_is(database: Path) -> None:
    with_store(database, lambda store: make(store, "[red]x[/red]", Status.PENDING))
    _, shown = on_a_terminal("run", "list")
    assert "[red]x[/red]" in shown


def test_a_reader_that_goes_away_is_left_quietly(database: Path) -> None:
    async def many(store):
        await store.start([NewRun(f"run-{n:04}", "fulfil", "1", b"{}", CLOCK.now()) for n in range(1_000)])

    with_store(database, many)
    process = subprocess.Popen(
        [*COMMAND, "run", "list", "--limit", "1000", "-o", "jsonl"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline().startswith(b'{"id": "run-')
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_a_full_disk_is_an_error_not_a_silent_success(database: Path) -> None:
    with_store(database, lambda store: make(store, "a", Status.PENDING))
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*COMMAND, "run", "list"], stdout=full, stderr=subprocess.PIPE, check=False, timeout=60)
    assert done.returncode == 1
    assert b"No space left on device" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("stream", ["1", "2"])
def test_a_stream_that_the_caller_closed_changes_nothing_else(database: Path, stream: str) -> None:
    with_store(database, lambda store: make(store, "a", Status.PENDING))
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {stream}>&-', "sh", *COMMAND, "run", "pause", "a"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("" if stream == "1" else "paused: run a stays where it is until `runtrue run resume a`\n")


def test_the_module_and_the_script_are_the_same_command(here: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "runtrue", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"runtrue, version {rt.__version__}\n"


@pytest.mark.parametrize("words", [(), ("run",), ("nonsense",), ("run", "kill", "x"), ("run", "show"), ("--nonsense",)])
def test_what_is_no_command_is_a_matter_of_usage(runtrue: Runtrue, words: tuple[str, ...]) -> None:
    told = runtrue(*words)
    assert (told.code, told.out) == (2, "")
    assert "Usage: runtrue" in told.err


def test_help_goes_to_stdout_and_names_the_exit_codes(runtrue: Runtrue) -> None:
    told = runtrue("--help")
    assert (told.code, told.err) == (0, "")
    assert "8 the run waits for a person" in " ".join(told.out.split())


def test_the_help_of_the_demo_names_the_database_that_it_takes(runtrue: Runtrue) -> None:
    told = " ".join(runtrue("demo", "--help").out.split())
    assert f"[default: sqlite:///{demo.DATABASE}]" in told
    assert "RUNTRUE_DATABASE_URL" not in told


def test_every_option_of_every_command_is_documented() -> None:
    import click

    from runtrue.cli import root

    def commands(group: click.Group) -> list[click.Command]:
        found: list[click.Command] = []
        for command in group.commands.values():
            found += [command, *(commands(command) if isinstance(command, click.Group) else [])]
        return found

    for command in commands(root):
        assert command.help, command.name
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{command.name} {parameter.name}"
