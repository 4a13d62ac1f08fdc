"""What the demo shows: lines with the time of each fact and, on a terminal, a live bar below them."""

from datetime import UTC, datetime, timedelta

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from runtrue.lifecycle import TERMINAL
from runtrue.records import Event, RunRecord

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Screen:
    """Prints lines; off a terminal without colours and without the bar."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._bar = self._progress.add_task("", total=1, note="", visible=False)
        self._progress.start()

    def close(self) -> None:
        """Take the bar away."""
        self._progress.stop()

    def chapter(self, title: str) -> None:
        """What comes next."""
        self.console.print()
        self.console.print(Text(title, style="bold"))

    def note(self, text: str) -> None:
        """A line that explains."""
        self.console.print(Text(text))

    def deed(self, at: int, text: str) -> None:
        """Something that the demo does, at microsecond `at`."""
        self.console.print(Text.assemble(f"{clock_time(at)}  ", (f">> {text}", "bold yellow")))

    def fact(self, at: int, who: str, text: str) -> None:
        """Something that the database says, with the time that it says it happened at."""
        self.console.print(Text.assemble(f"{clock_time(at)}  ", (f"{who:<7} ", "cyan"), text))

    def verdict(self, *, holds: bool, text: str) -> None:
        """One line of the account at the end."""
        mark = ("  true   ", "green") if holds else ("  FALSE  ", "bold red")
        self.console.print(Text.assemble(mark, text))

    def progress(self, label: str, run: RunRecord) -> None:
        """Show how far the run is, as its row says."""
        told = run.progress
        self._progress.update(
            self._bar,
            description=f"{label} {run.status.value}",
            completed=told.done or 0 if told else 0,
            total=told.total if told else None,
            note=told.note if told else "",
            visible=run.status not in TERMINAL,
        )

    def no_progress(self) -> None:
        """Hide the bar: there is no run to watch."""
        self._progress.update(self._bar, visible=False)


def clock_time(at: int) -> str:
    """A recorded time as the clock on the wall: `20:43:07.125`."""
    return (_EPOCH + timedelta(microseconds=at)).astimezone().strftime("%H:%M:%S.%f")[:-3]


def event_text(event: Event) -> str:
    """An event in one line: its number, what happened and what was recorded with it."""
    details = ", ".join(f"{name} {value}" for name, value in event.data.items() if value not in (None, ""))
    return f"#{event.seq:<3} {event.type.replace('_', ' ')}" + (f": {details}" if details else "")
