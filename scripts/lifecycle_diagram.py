"""Write docs/lifecycle.md from the table in runtrue.lifecycle; with --check, only tell whether it is up to date."""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from runtrue.lifecycle import MOVES, OWNED, TABLE, TERMINAL, Answer, Cell, Command, Status, refusal, targets

PAGE = Path(__file__).resolve().parent.parent / "docs" / "lifecycle.md"

MEANINGS = {
    Status.PENDING: "Nobody has it. A worker may claim it from its `ready_at` on.",
    Status.RUNNING: "A worker executes it.",
    Status.WAITING: "Nobody has it. It goes on by itself when its timer is due, a message comes, or a child ends.",
    Status.PAUSING: "A pause was asked. A worker still has it and stops at the next boundary between two steps.",
    Status.PAUSED: "It stands still, for a reason that is written down (a hold), and can be resumed.",
    Status.CANCELLING: "A cancel was asked. A worker still has it; no further step starts.",
    Status.COMPLETED: "The function returned.",
    Status.FAILED: "An exception left the function, or a person answered a hold with `fail`.",
    Status.CANCELLED: "It was cancelled, terminated, or raised `CancelRun`.",
}

INTRODUCTION = """\
# The life of a run

This page is generated from `src/runtrue/lifecycle.py` by `make lifecycle`; do not edit it. The guards of the database,
its triggers, the answers of the verbs and `available_actions` are made from the same table, so they cannot disagree
with it or with each other.
"""


def page() -> str:
    """The whole page as it should be."""
    return "\n".join([INTRODUCTION, *_statuses(), *_diagram(), *_commands(), *_moves()])


def _statuses() -> Iterator[str]:
    yield "## Statuses\n"
    yield from _table(
        ("status", "meaning", "owned by a worker", "final"),
        ((f"`{s}`", MEANINGS[s], _tick(s in OWNED), _tick(s in TERMINAL)) for s in Status),
    )


def _diagram() -> Iterator[str]:
    labels: dict[tuple[Status, Status], list[str]] = {}
    for name in [*(command.value for command in Command), *MOVES]:
        for leaving, reached in targets(name).items():
            for to in reached:
                labels.setdefault((leaving, to), []).append(name)
    yield "## Diagram\n"
    yield "Every change of status that exists. The triggers of the database refuse all others.\n"
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield "    [*] --> pending: start"
    for leaving in Status:
        for to in Status:
            if (leaving, to) in labels:
                yield f"    {leaving} --> {to}: {', '.join(labels[leaving, to])}"
    yield from (f"    {status} --> [*]" for status in Status if status in TERMINAL)
    yield "```\n"


def _commands() -> Iterator[str]:
    yield "## What a command does in each status\n"
    yield "**done**: it is so when the answer arrives. **requested**: it is recorded, and happens at the next boundary"
    yield "between two steps. **refused**: nothing was changed.\n"
    for command in Command:
        yield f"### {command}\n"
        yield from _table(
            ("status", "answer", "leads to", "remark"),
            (
                (f"`{status}`", found.answer.value, _target(found), _remark(command, status, found))
                for status, found in TABLE[command].items()
            ),
        )


def _moves() -> Iterator[str]:
    yield "## What the engine does\n"
    yield from _table(
        ("move", "from", "to", "when"),
        (
            (f"`{move.name}`", f"`{leaving}`", " or ".join(f"`{to}`" for to in reached), move.meaning)
            for move in MOVES.values()
            for leaving, reached in move.targets.items()
        ),
    )


def _target(found: Cell) -> str:
    if found.answer is Answer.REFUSED:
        return ""
    return f"`{found.to}`" if found.to else "(stays)"


def _remark(command: Command, status: Status, found: Cell) -> str:
    return refusal(command, status) or found.note


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield _line(head)
    yield _line(["---"] * len(head))
    yield from (_line(row) for row in rows)
    yield ""


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _tick(value: bool) -> str:
    return "yes" if value else ""


def main() -> int:
    """Write the page, or check it. 0 where it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if the page is stale")
    wanted = page()
    if not parser.parse_args().check:
        PAGE.write_text(wanted, encoding="utf-8")
        return 0
    if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == wanted:
        return 0
    print(f"{PAGE.name} does not fit the table in lifecycle.py; type: make lifecycle", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
