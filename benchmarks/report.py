"""Figures of several rounds, as a table for people and as JSON for programs."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

RATE_TO_COMPARE = "steps/s"
MARK = "<!-- What follows is written by `python -m benchmarks --page`. -->"


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * int(percent) // 100) - 1)]


@dataclass(slots=True)
class Row:
    """One work by one subject with one setting: for each figure a value a round."""

    work: str
    setting: str
    subject: str
    figures: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def add(self, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self.figures.setdefault(name, []).append(value)


def compare(rows: Sequence[Row], yardstick: str) -> None:
    """Give each row of a work that `yardstick` did too its share of that rate, round by round."""
    floors = {(row.work, row.setting): row.figures.get(RATE_TO_COMPARE) for row in rows if row.subject == yardstick}
    for row in rows:
        floor, rates = floors.get((row.work, row.setting)), row.figures.get(RATE_TO_COMPARE)
        if floor and rates and row.subject != yardstick:
            row.figures["÷ floor"] = [rate / least for rate, least in zip(rates, floor, strict=True)]


def as_markdown(rows: Sequence[Row]) -> str:
    """A table for each work: median, and lowest to highest in brackets."""
    parts: list[str] = []
    for work in dict.fromkeys(row.work for row in rows):
        of_work = [row for row in rows if row.work == work]
        names = list(dict.fromkeys(name for row in of_work for name in row.figures))
        lines = [["", *names]]
        lines += [
            [f"{row.subject}, {row.setting}".strip(", "), *(_cell(row.figures.get(name)) for name in names)]
            for row in of_work
        ]
        parts.append(f"### {work}\n\n{_table(lines)}")
    return "\n\n".join(parts) + "\n"


def _cell(values: Sequence[float] | None) -> str:
    if not values:
        return "–"
    middle, lowest, highest = _short(statistics.median(values)), _short(min(values)), _short(max(values))
    return middle if lowest == highest else f"{middle} ({lowest}–{highest})"


def _short(value: float) -> str:
    """Three digits that count, and whole numbers above that."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _table(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    padded = [
        "| "
        + " | ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))])
        + " |"
        for line in lines
    ]
    rule = "|" + "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])]) + "|"
    return "\n".join([padded[0], rule, *padded[1:]])


def write(folder: Path, name: str, about: Mapping[str, object], rows: Sequence[Row]) -> Path:
    """Write NAME.json and NAME.md into `folder`; the path of the latter."""
    folder.mkdir(parents=True, exist_ok=True)
    measured = [
        {
            "work": row.work,
            "setting": row.setting,
            "subject": row.subject,
            "figures": {
                name: {"median": statistics.median(values), "rounds": values} for name, values in row.figures.items()
            },
        }
        for row in rows
    ]
    text = json.dumps({**about, "measured": measured}, indent=1, ensure_ascii=False)
    (folder / f"{name}.json").write_text(text + "\n")
    page = folder / f"{name}.md"
    page.write_text(f"# Measured on {about['date']}\n\n{_told(about, rows)}")
    return page


def write_into(page: Path, about: Mapping[str, object], rows: Sequence[Row]) -> None:
    """Put the figures into `page` in place of all that follows the line MARK. Raises ValueError if it has none."""
    text = page.read_text()
    if MARK not in text:
        raise ValueError(f"{page} has no line {MARK!r} that the figures could follow")
    page.write_text(f"{text.split(MARK)[0]}{MARK}\n\n{_told(about, rows)}")


def _told(about: Mapping[str, object], rows: Sequence[Row]) -> str:
    facts = "\n".join(f"- {key}: {value}" for key, value in about.items())
    return f"{facts}\n\n{as_markdown(rows)}"
