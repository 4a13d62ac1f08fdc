"""ETL: many parts, a few at a time, with retries; some fail, and the report says which.

python examples/typed/soundings.py
"""

import asyncio
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import assert_type

import runtrue as rt


@dataclass(frozen=True)
class Track:
    """One ship's day of depth soundings."""

    day: date
    ship: int


@dataclass
class Charted:
    """What became of a track."""

    track: Track
    metres_max: int


@dataclass
class Chart:
    """The day's chart."""

    metres_max: int
    unreadable: list[str]


@rt.step
def tracks_of(day: date, count: int = 40) -> list[Track]:
    """The tracks that came in."""
    return [Track(day, ship) for ship in range(count)]


@rt.step(
    retry=rt.Retry(3, first_delay=0.01, retry_on=(OSError, TimeoutError)), timeout=60, deadline=timedelta(minutes=5)
)
def read(track: Track, folder: Path = Path("soundings")) -> Charted:
    """Read one; every twentieth is damaged."""
    if track.ship % 20 == 7:
        raise ValueError(f"{folder / str(track.ship)} is damaged")
    return Charted(track, 10 * track.ship)


@rt.step
async def draw(chart: Chart) -> None:
    """Draw the chart."""
    rt.this_step().progress(note=f"{chart.metres_max} m")


@rt.workflow
async def daily_chart(day: date, at_a_time: int = 8) -> Chart:
    """Read all tracks, at most some at a time, and draw what could be read."""
    tracks = await tracks_of.aio(day)
    done = await rt.map(read, tracks, limit=at_a_time, key=lambda track: f"ship-{track.ship}", return_exceptions=True)
    assert_type(done, list[Charted | Exception])
    charted = [result for result in done if isinstance(result, Charted)]
    failed = [result for result in done if isinstance(result, rt.StepFailed)]
    chart = Chart(
        metres_max=max(result.metres_max for result in charted),
        unreadable=[f"{failure.error.type}: {failure.error.message}" for failure in failed],
    )
    await draw(chart)
    if len(failed) > len(tracks) // 2:
        raise RuntimeError(f"{len(failed)} of {len(tracks)} tracks cannot be read")
    return chart


app = rt.App("sqlite://", workflows=[daily_chart], threads=8)


async def main() -> None:
    """One day. A second start with the same key is the same run."""
    async with app:
        day = date(2026, 1, 31)
        once = daily_chart.options(idempotency_key=day.isoformat(), deadline=timedelta(hours=3))
        chart = await app.run(once, day)
        assert_type(chart, Chart)
        again = await app.start(once, day)
        assert await again.result() == chart
        print(f"{chart.metres_max} m; {len(chart.unreadable)} tracks unreadable")


if __name__ == "__main__":
    asyncio.run(main())
