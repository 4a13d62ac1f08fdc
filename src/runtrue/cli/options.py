"""What the commands share: their options, the types of their parameters, and the way to the database."""

import asyncio
import functools
import math
import re
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, ParamSpec, TypeVar

import click

from runtrue.client import Client
from runtrue.clock import MICROSECOND
from runtrue.config import Setting, resolve_database
from runtrue.errors import ConfigurationError
from runtrue.jsonform import parse_cursor
from runtrue.service import Service

P = ParamSpec("P")
Function = TypeVar("Function", bound=Callable[..., Any])

SPAN_SECONDS_MAX = 100 * 366 * 86_400.0
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_SPAN = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([smhd]?)", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def span(text: str) -> float:
    """A length of time in seconds: `90`, `1.5`, or with a unit `30s`, `5m`, `2h`, `1d`; at most a hundred years."""
    found = _SPAN.fullmatch(text.strip())
    seconds = float(found[1]) * _UNITS[found[2]] if found else math.inf
    if seconds > SPAN_SECONDS_MAX:
        raise click.BadParameter(
            f"{text!a} is no length of time up to a hundred years; write seconds, or a unit such as 30s, 5m, 2h, 1d"
        )
    return seconds


def moment(text: str) -> datetime | timedelta:
    """A point in time: ISO 8601 (local time where it names no offset), or how long ago, such as `2h`."""
    if _SPAN.fullmatch(text.strip()):
        return timedelta(seconds=span(text))
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError, OSError):  # no such day, or one that the system's calendar does not reach
        raise click.BadParameter(
            f"{text!a} is no time; write 2026-01-31T08:00, 2026-01-31T08:00Z, or how long ago, such as 2h"
        ) from None


def tag(text: str) -> tuple[str, str]:
    """A tag and its value: `customer=17`."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise click.BadParameter(f"{text!a} is no tag; write key=value")
    return key, value


def cursor(text: str) -> tuple[int, str]:
    """Where the next page of a list begins, as the page before it printed."""
    try:
        return parse_cursor(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def recorded_time(at: datetime | timedelta, now: int) -> int:
    """A moment in microseconds since 1970; one that tells how long ago is counted back from `now`."""
    if isinstance(at, timedelta):
        return now - at // timedelta(microseconds=1)
    return (at - _EPOCH) // timedelta(microseconds=1)


def microseconds(seconds: float) -> int:
    """Seconds as the database counts them."""
    return round(seconds * MICROSECOND)


def database_option(function: Function) -> Function:
    """`--database` may stand before the command or after it; the last one wins."""
    return database_option_with("RUNTRUE_DATABASE_URL, else pyproject.toml, else sqlite:///runtrue.db")(function)


def database_option_with(default: str) -> Callable[[Function], Function]:
    """As database_option, for a command that takes another database where none is given."""

    def remember(context: click.Context, _: click.Parameter, value: str | None) -> None:
        if value == "":  # an unset variable of a script must not lead to another database
            raise click.BadParameter("the database is empty text; give a file or a URL such as sqlite:///runs.db")
        if value is not None:
            context.find_root().obj = value

    return click.option(
        "--database",
        metavar="URL",
        expose_value=False,
        callback=remember,
        help=f"The database, such as sqlite:///runs.db  [default: {default}]",
    )


def output_option(*forms: str) -> Callable[[Function], Function]:
    """`-o`, with the forms that this command can print; the first is the default."""
    return click.option(
        "-o", "--output", type=click.Choice(forms), default=forms[0], show_default=True, help="The form of the output."
    )


def run_argument(function: Function) -> Function:
    """The id of a run."""
    return click.argument("run_id", metavar="ID")(function)


def timeout_option(function: Function) -> Function:
    """How long a wait lasts."""
    return click.option("--timeout", type=span, help="Give up the wait after so long (exit code 7); the run goes on.")(
        function
    )


def asynchronous(function: Callable[P, Coroutine[Any, Any, int]]) -> Callable[P, int]:
    """Run a command in an event loop of its own; what it returns is the exit code."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> int:
        return asyncio.run(function(*args, **kwargs))

    return run


def database_flag() -> str | None:
    """What `--database` said, None where it was not given."""
    return click.get_current_context().find_root().obj


def database_setting() -> Setting:
    """The database that this command works on, and which setting said so."""
    setting = resolve_database(database_flag())
    check_lasting(setting)
    return setting


def check_lasting(setting: Setting) -> None:
    """Raise ConfigurationError for a database in memory: what a command does there is gone when it ends."""
    if setting.value == "sqlite://":
        raise ConfigurationError(
            f"the database is in memory ({setting.source}) and gone with this process; "
            "give a file, such as --database runtrue.db"
        )


@asynccontextmanager
async def connected(*, create: bool = False) -> AsyncGenerator[Service]:
    """The service on this command's database. A file that does not exist is refused unless `create`."""
    async with Client(database_setting().value, create=create) as client:
        yield client.service
