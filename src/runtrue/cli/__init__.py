"""The command line. Data goes to stdout, all else to stderr; `exits.Exit` lists the exit codes."""

import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from runtrue.cli import processes, queries, upkeep, verbs, watch
from runtrue.cli.exits import Exit, exit_code_of
from runtrue.cli.groups import root
from runtrue.cli.text import note
from runtrue.errors import Refused, RuntrueError

__all__ = ["Exit", "main", "root"]

# Importing the modules puts their commands into the groups.
_COMMANDS = (processes, queries, upkeep, verbs, watch)


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out the command line (`sys.argv` if `arguments` is None) and return the exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        # A terminal or file that cannot show a character gets its number, never an error in the middle of a table.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _carry_out(words)
        sys.stdout.flush()
    except BrokenPipeError:
        _give_up_stdout()
        return Exit.BROKEN_PIPE
    except OSError as error:  # a full disk behind stdout, most likely; the database's own errors are StoreErrors
        _give_up_stdout()
        note(f"Error: {error}")
        return Exit.ERROR
    return code


def _open_closed_streams() -> None:
    """A stream that the caller closed (`>&-`) is None to Python; what is written to it goes nowhere, as asked."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - as long-lived as the process
            setattr(sys, name, nowhere)


def _give_up_stdout() -> None:
    """What is still to be written goes nowhere; Python would try it again at exit, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _carry_out(words: list[str]) -> int:
    try:
        _check_words(words)
        # None leaves it to click: colours on a terminal only.
        with root.make_context("runtrue", words, color=False if os.environ.get("NO_COLOR") else None) as context:
            code: object = root.invoke(context)
            return code if isinstance(code, int) else Exit.DONE
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        note("interrupted")
        return Exit.INTERRUPTED
    except RuntrueError as error:
        note(f"Error: {_sentence(error)}")
        return exit_code_of(error)


def _check_words(words: list[str]) -> None:
    """Refuse what no database can hold: bytes that are no text arrive as lone surrogates."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise click.UsageError(f"{word!a} is not UTF-8 text") from None


def _sentence(error: RuntrueError) -> str:
    if not isinstance(error, Refused):
        return str(error)
    actions = ", ".join(error.available_actions)
    return f"{error}; it can be asked to: {actions}" if actions else str(error)
