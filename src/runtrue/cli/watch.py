"""`runtrue run watch`: a run as it goes on. A live picture on a terminal, one line for each change elsewhere."""

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from runtrue.cli.describe import Described, describe
from runtrue.cli.exits import wait_code
from runtrue.cli.groups import run
from runtrue.cli.options import asynchronous, connected, database_option, run_argument
from runtrue.cli.queries import all_events
from runtrue.cli.tables import event_line, progress_text
from runtrue.cli.text import STATUS_STYLES, clean, local_text, local_time_of_day, on_terminal, say
from runtrue.cli.waiting import rows
from runtrue.cli.wording import end_text
from runtrue.explain import span_text
from runtrue.lifecycle import TERMINAL
from runtrue.records import Event, InFlight, RunRecord
from runtrue.service import Service

if TYPE_CHECKING:
    from rich.console import RenderableType

EVENTS_SHOWN = 12
BAR_WIDTH = 40


@run.command("watch")
@run_argument
@database_option
@asynchronous
async def watch(*, run_id: str) -> int:
    """Follow a run until it has ended.

    Or until Ctrl-C. Watching changes nothing.

    Exit codes: 0 it completed; 5 it failed; 6 it was cancelled.
    """
    async with connected() as service:
        if on_terminal():
            await _picture(service, run_id)
        else:
            await _lines(service, run_id)
        ended = await service.get(run_id)
        say(end_text(ended))
    return wait_code(ended.status)


async def _lines(service: Service, run_id: str) -> None:
    """One line for each event, each progress, and each step that the worker reports as still running."""
    seen = 0
    told: set[tuple[object, ...]] = set()
    async with aclosing(rows(service, run_id)) as changes:
        async for row in changes:
            for event in await all_events(service, run_id, seen):
                say(event_line(event))
                seen = event.seq
            for at, text, mark in _standing(row, await service.in_flight(row)):
                if mark not in told:
                    say(f"{local_time_of_day(at)}        {text}")
                    told.add(mark)
            sys.stdout.flush()  # a pipe's reader is not to wait until the buffer is full
            if row.status in TERMINAL and seen >= row.event_seq:
                return


def _standing(row: RunRecord, in_flight: Sequence[InFlight]) -> Iterator[tuple[int, str, tuple[object, ...]]]:
    """What goes on between two events: since when, in words, and what makes it another."""
    if row.progress is not None:
        yield row.progress.at, f"progress: {progress_text(row.progress)}", ("progress", row.progress.at)
    for step in in_flight:
        name, number, since = step.step, step.attempt, step.since
        yield since, f"step {name} is running (attempt {number})", ("step", name, number, since)


async def _picture(service: Service, run_id: str) -> None:
    from rich.live import Live

    latest: deque[Event] = deque(maxlen=EVENTS_SHOWN)
    seen = 0
    with Live(auto_refresh=False) as live:
        async with aclosing(rows(service, run_id)) as changes:
            async for row in changes:
                found = await all_events(service, run_id, seen)
                latest.extend(found)
                seen = found[-1].seq if found else seen
                (described,) = await describe(service, [row], time_text=local_text)
                live.update(_drawn(described, latest, service.clock.now()), refresh=True)
                if row.status in TERMINAL and seen >= row.event_seq:
                    return


def _drawn(described: Described, latest: deque[Event], now: int) -> "RenderableType":
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    row = described.run
    until = row.finished_at if row.finished_at is not None else now
    parts: list[RenderableType] = [
        Text.assemble(
            (f"{row.workflow}@{row.version} ", "bold"),
            clean(row.id),
            "  ",
            (row.status.value, STATUS_STYLES.get(row.status.value, "")),
            f"  {row.steps_done} calls recorded, {span_text(until - row.created_at)}",
        )
    ]
    if described.why:
        parts.append(Text(clean(described.why), style="dim"))
    if row.progress is not None:
        line = Table.grid(padding=(0, 1))
        cells: list[RenderableType] = [Text(clean(progress_text(row.progress)))]
        if row.progress.total and row.progress.done is not None:
            cells.insert(0, ProgressBar(total=row.progress.total, completed=row.progress.done, width=BAR_WIDTH))
        line.add_row(*cells)
        parts.append(line)
    parts += [Text(clean(event_line(event)), no_wrap=True, overflow="ellipsis") for event in latest]
    return Group(*parts)
