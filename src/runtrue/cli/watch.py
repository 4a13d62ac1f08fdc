"""`runtrue run watch`: a run as it goes on. A live picture on a terminal, one line for each change elsewhere."""

from collections import deque
from contextlib import aclosing
from typing import TYPE_CHECKING

from runtrue.cli.describe import Described, describe
from runtrue.cli.exits import Exit
from runtrue.cli.groups import run
from runtrue.cli.options import asynchronous, connected, database_option, run_argument
from runtrue.cli.queries import all_events
from runtrue.cli.tables import event_line, progress_text
from runtrue.cli.text import STATUS_STYLES, clean, local_text, on_terminal, say
from runtrue.cli.waiting import rows
from runtrue.cli.wording import end_text
from runtrue.explain import span_text
from runtrue.lifecycle import TERMINAL
from runtrue.records import Event
from runtrue.service import Service

if TYPE_CHECKING:
    from rich.console import RenderableType

EVENTS_SHOWN = 12


@run.command("watch")
@run_argument
@database_option
@asynchronous
async def watch(*, run_id: str) -> int:
    """Follow a run until it has ended.

    Or until Ctrl-C. Watching changes nothing.
    """
    async with connected() as service:
        if on_terminal():
            await _picture(service, run_id)
        else:
            await _lines(service, run_id)
        say(end_text(await service.get(run_id)))
    return Exit.DONE


async def _lines(service: Service, run_id: str) -> None:
    """One line for each event, and one where the progress or the reason to stand still is another."""
    seen, told = 0, ""
    async with aclosing(rows(service, run_id)) as changes:
        async for row in changes:
            for event in await all_events(service, run_id, seen):
                say(event_line(event))
                seen = event.seq
            if row.status in TERMINAL and seen >= row.event_seq:
                return
            (described,) = await describe(service, [row], time_text=local_text, payloads=False)
            line = _standing(described)
            if line != told:
                say(line)
                told = line


def _standing(described: Described) -> str:
    """What is so now, without what changes by the second."""
    row = described.run
    parts = [row.status.value, progress_text(row.progress)]
    if described.in_flight is not None:
        parts.append(f"step {described.in_flight.step} (attempt {described.in_flight.attempt})")
    return ": ".join(part for part in parts if part)


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
                (described,) = await describe(service, [row], time_text=local_text, payloads=False)
                live.update(_drawn(described, latest, service.clock.now()), refresh=True)
                if row.status in TERMINAL and seen >= row.event_seq:
                    return


def _drawn(described: Described, latest: deque[Event], now: int) -> "RenderableType":
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    row = described.run
    until = row.finished_at if row.finished_at is not None else now
    parts: list[RenderableType] = [
        Text.assemble(
            (f"{row.workflow}@{row.version} ", "bold"),
            clean(row.id),
            "  ",
            (row.status.value, STATUS_STYLES.get(row.status.value, "")),
            f"  {row.steps_done} steps, {span_text(until - row.created_at)}",
        )
    ]
    if described.why:
        parts.append(Text(clean(described.why), style="dim"))
    if row.progress is not None:
        if row.progress.total and row.progress.done is not None:
            parts.append(ProgressBar(total=row.progress.total, completed=row.progress.done, width=40))
        parts.append(Text(clean(progress_text(row.progress))))
    parts += [Text(clean(event_line(event)), no_wrap=True, overflow="ellipsis") for event in latest]
    return Group(*parts)
