"""Text for people: local times, words that cannot command a terminal, tables on a terminal and off it."""

import shlex
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import click

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

FOLDED_WIDTH_MIN = 16
ROOMY_WIDTH = 40
"""For so much of its widest column a table does without the expendable ones."""
GAP_WIDTH = 2
_IDS = frozenset({"id", "run"})
"""The columns whose text is for copying."""

STATUS_STYLES = {
    "running": "cyan",
    "waiting": "blue",
    "pausing": "yellow",
    "paused": "yellow",
    "cancelling": "magenta",
    "completed": "green",
    "failed": "red",
    "cancelled": "magenta",
}

# Control characters (a recorded error may hold an escape sequence), those that turn the direction of writing, and lone
# surrogates are shown, never obeyed.
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xD800, 0xE000))
_SHOWN = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _CONTROLS}
_IN_LINE = {**_SHOWN, ord("\n"): " ", ord("\t"): " "}
_IN_BLOCK = {code: shown for code, shown in _SHOWN.items() if code not in (ord("\n"), ord("\t"))}


def clean(text: str, *, lines: bool = False) -> str:
    """`text` with its control characters made visible; on one line unless `lines`."""
    return text.translate(_IN_BLOCK if lines else _IN_LINE)


def local_text(at: int) -> str:
    """A recorded time as this machine's local time with its offset; the bare number where no calendar has it."""
    try:
        moment = (_EPOCH + timedelta(microseconds=at)).astimezone()
    except (OverflowError, ValueError, OSError):  # beyond the year 9999, or beyond what the system's calendar knows
        return str(at)
    return moment.isoformat(sep=" ", timespec="seconds")


def local_time_of_day(at: int) -> str:
    """As local_text, without the date, to the millisecond: for lines that follow each other."""
    try:
        return (_EPOCH + timedelta(microseconds=at)).astimezone().time().isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):  # as in local_text
        return str(at)


def say(text: str, *, lines: bool = False) -> None:
    """Data for people, on stdout."""
    click.echo(clean(text, lines=lines))


def note(text: str) -> None:
    """All that is not data, on stderr."""
    click.echo(clean(text, lines=True), err=True)


def on_terminal() -> bool:
    """Whether stdout is a terminal: only then there are colours and live pictures."""
    return sys.stdout.isatty()


def to_type(*words: str) -> str:
    """A command that the reader can type as it stands, on the same database as this one."""
    context = click.get_current_context(silent=True)
    database: object = context.find_root().obj if context is not None else None
    named = ["--database", database] if isinstance(database, str) else []
    return shlex.join(["runtrue", *words, *named])


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    status_column: str = "",
    expendable: Sequence[str] = (),
) -> None:
    """A table: with colours and fitted on a terminal, plain aligned columns elsewhere.

    An id stays on one line, so that it can be copied. On a terminal that is too narrow the `expendable` columns are
    left out one by one, then a reason is shortened; off it nothing is.
    """
    cleaned = [[clean(cell) or "-" for cell in row] for row in rows]
    if on_terminal():
        _print_rich_table(columns, cleaned, status_column, expendable)
        return
    widths = [max(len(row[index]) for row in [columns, *cleaned]) for index in range(len(columns))]
    for row in [columns, *cleaned]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """One `name  value` a line; further lines of a value are indented to it. Empty values are left out."""
    shown = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        first, *others = clean(value, lines=True).splitlines() or [""]
        click.echo(f"{click.style(name.ljust(width), bold=True)}  {_coloured(name, first)}")
        for line in others:
            click.echo(f"{' ' * width}  {line}")


def _coloured(name: str, value: str) -> str:
    style = STATUS_STYLES.get(value) if name == "status" else None
    return click.style(value, fg=style) if style else value


def _print_rich_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], status_column: str, expendable: Sequence[str]
) -> None:
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    widths = {column: max(map(cell_len, (column, *cells))) for column, *cells in zip(columns, *rows, strict=True)}
    # Where all but the widest column fit, that one alone gives way.
    widest = max((column for column in columns if column not in {*_IDS, *expendable}), key=widths.__getitem__)

    def left() -> int:
        return console.width - sum(widths.values()) + widths[widest] - GAP_WIDTH * (len(widths) - 1)

    for column in expendable:
        if left() < min(widths[widest], ROOMY_WIDTH):
            del widths[column]
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP_WIDTH, 0, 0))
    for column, width in widths.items():
        if column in _IDS:
            table.add_column(column, no_wrap=True, min_width=width)
        elif column == "why":
            table.add_column(column, no_wrap=True, overflow="ellipsis", width=min(width, max(left(), FOLDED_WIDTH_MIN)))
        else:
            table.add_column(column, no_wrap=left() >= FOLDED_WIDTH_MIN and column != widest, overflow="fold")
    for row in rows:
        cells = {column: cell for column, cell in zip(columns, row, strict=True) if column in widths}
        styles = {status_column: STATUS_STYLES.get(cells.get(status_column, ""), "")}
        table.add_row(*(Text(cell, style=styles.get(column, "")) for column, cell in cells.items()))
    console.print(table)
