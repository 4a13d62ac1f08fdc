"""What the demo shows: lines with the time of each fact and, on a terminal, a live bar below them."""

from datetime import UTC, datetime, timedelta
from textwrap import wrap

from rich import progress as bars
from rich.console import Console
from rich.text import Text

from runtrue.clock import MICROSECOND
from runtrue.lifecycle import TERMINAL, Status
from runtrue.records import Event, Progress, RunRecord

WIDTH_OFF_TERMINAL = 100
WIDTH_MIN = 40
_INDENT = " " * len("20:43:07.125  worker  ")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Screen:
    """Prints lines; off a terminal without colours and without the bar."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._progress = bars.Progress(
            bars.TextColumn("{task.description}"),
            bars.BarColumn(),
            bars.MofNCompleteColumn(),
            bars.TextColumn("{task.fields[note]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._seen: tuple[str, Status, Progress] | None = None
        self._quarter = ("", 0)
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
        width = (self.console.width if self.console.is_terminal else WIDTH_OFF_TERMINAL) - len(_INDENT)
        first, *others = wrap(text, max(width, WIDTH_MIN), break_long_words=False, break_on_hyphens=False) or [""]
        self.console.print(Text.assemble(f"{clock_time(at)}  ", (f"{who:<7} ", "cyan"), first))
        for line in others:
            self.console.print(Text(f"{_INDENT}{line}"))

    def verdict(self, *, holds: bool, text: str) -> None:
        """One line of the account at the end."""
        mark = ("  true   ", "green") if holds else ("  FALSE  ", "bold red")
        self.console.print(Text.assemble(mark, text))

    def progress(self, at: int, label: str, run: RunRecord) -> None:
        """Show how far the run is, as its row says: a bar on a terminal, elsewhere a line at each quarter."""
        told = run.progress
        if told is None or told.done is None or not told.total or (label, run.status, told) == self._seen:
            return
        self._seen = (label, run.status, told)
        self._progress.update(
            self._bar,
            description=f"{label} {run.status.value}",
            completed=told.done,
            total=told.total,
            note=told.note,
            visible=run.status not in TERMINAL,
            refresh=True,
        )
        quarter = (label, int(4 * told.done / told.total))
        if not self.console.is_terminal and quarter > self._quarter:
            self.fact(at, label, f"progress {told.done:g} of {told.total:g}: {told.note}")
            self._quarter = quarter

    def no_progress(self) -> None:
        """Hide the bar: there is no run to watch."""
        self._progress.update(self._bar, visible=False, refresh=True)


def clock_time(at: int) -> str:
    """A recorded time as the clock on the wall: `20:43:07.125`."""
    return (_EPOCH + timedelta(microseconds=at)).astimezone().strftime("%H:%M:%S.%f")[:-3]


def event_text(event: Event) -> str:
    """An event in one line: its number, what happened and what was recorded with it."""
    return f"#{event.seq:<3} {_happening(event)}"


_LABELS = {"attempt": "run attempt"}
_LEFT_OUT = frozenset({"hold_id", "pause_id", "losses"})


def _happening(event: Event) -> str:
    told = dict(event.data)
    match event.type:
        case "step" if told["kind"] == "step":
            seconds = (event.at - int(str(told["started_at"]))) / MICROSECOND
            word = "failed for good" if told.get("failed") else "recorded"
            tried = f", attempt {told['attempt']}" if told["attempt"] != 1 else ""
            return f"{word}: {told['name']}{tried}, {seconds:.2f} s"
        case "attempt_failed":
            again = clock_time(int(str(told["next_at"])))
            return f"attempt {told['attempt']} of {told['name']} failed, the next at {again}"
        case "step":
            return f"recorded: {told['kind']}"
        case _:
            texts = [
                f"{name.removesuffix('_at')} at {clock_time(value)}"
                if name.endswith("_at") and isinstance(value, int)
                else f"{_LABELS.get(name, name)} {value}"
                for name, value in told.items()
                # Shown is what tells the story: a time other than the event's own, and why a worker was lost.
                if value not in (None, "", event.at) and (name != "cause" or event.type == "worker_lost")
                if name not in _LEFT_OUT
            ]
            return event.type.replace("_", " ") + (f": {', '.join(texts)}" if texts else "")
