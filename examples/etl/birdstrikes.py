"""A real table through a durable workflow: 10,000 reports of aircraft that hit birds, read, checked, loaded, reported.

    runtrue dev examples/etl/birdstrikes.py        a worker, and in another terminal:
    runtrue run start birdstrikes                  a run of it
    python examples/etl/birdstrikes.py             or both in one process

Every state of the United States in the table is one partition and one step. A step that is repeated, because its
worker was lost after it had written and before that was recorded, writes the same rows again and doubles none. Where
the table comes from stands in DATA.md beside this file.
"""

import asyncio
import csv
import gzip
import hashlib
import io
import json
import sqlite3
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass
from datetime import date
from pathlib import Path

import runtrue as rt

SOURCE = str(Path(__file__).resolve().with_name("birdstrikes.csv.gz"))
DAMAGE = {"None", "Minor", "Medium", "Substantial"}
IN_FLIGHT = {"Approach", "Climb", "Descent"}
TAXI_KNOTS_MAX = 60
REJECTED_SHARE_MAX = 0.1


# ---------------------------------------------------------------- what is passed on and recorded
@dataclass(frozen=True)
class Extract:
    """The table that this run works on. Steps hand on where it is and what it held, not its rows."""

    source: str
    sha256: str
    rows: int
    states: list[str]


@dataclass(frozen=True)
class Checked:
    """How many rows are good, and how many were rejected for which reason."""

    accepted: int
    rejected: dict[str, int]


@dataclass(frozen=True)
class Loaded:
    """One partition in the warehouse."""

    state: str
    rows: int
    cost_dollars: int


@dataclass(frozen=True)
class Report:
    """What the warehouse itself says about this run, read after the last load.

    `rows_stored` counts the rows that this run wrote, `loads` the partitions, `load_executions` how often their steps
    wrote: more than `loads` where a worker was lost in between, and then `rows_stored` must not have grown with it.
    """

    rows_read: int
    rejected: dict[str, int]
    rows_stored: int
    loads: int
    load_executions: int
    cost_dollars: int
    cost_euros: float
    costliest_species: dict[str, int]


class SourceChanged(Exception):
    """The table is not the one that this run began with."""


class RatesUnavailable(Exception):
    """The rates service does not answer now. It may a moment later."""


# ---------------------------------------------------------------- the workflow
@rt.workflow
async def birdstrikes(
    warehouse: str = "birdstrikes.db", source: str = SOURCE, pace_seconds: float = 0.0, settle_seconds: float = 1.0
) -> Report:
    """Load the table into the SQLite file `warehouse`, state by state, and report what is there.

    `pace_seconds` makes each load take at least so long, for people who want to watch. `settle_seconds` is the wait
    before the report. The run is cancelled by itself where more than a tenth of the rows are bad.
    """
    extract = await read(source)
    checked = await validate(extract, warehouse)
    if extract.rows - checked.accepted > REJECTED_SHARE_MAX * extract.rows:
        raise rt.CancelRun(f"only {checked.accepted} of {extract.rows} rows are good; look at rejects in {warehouse}")
    rate = await euros_for_a_dollar()
    for number, state in enumerate(extract.states):
        rt.set_progress(done=number, total=len(extract.states), note=f"loading {state}")
        await load.options(name=f"load {state}")(extract, state, rate, warehouse, pace_seconds)
    rt.set_progress(done=len(extract.states), total=len(extract.states), note="all loaded")
    await rt.sleep(settle_seconds)
    return await report(extract, checked, warehouse)


@rt.step(raises=(OSError,))
async def read(source: str) -> Extract:
    """Find out what is in the table: its digest, its rows, its partitions."""
    content = await asyncio.to_thread(unpack, source)
    rows = parse(content)
    states = sorted({row["Origin State"] for _, row in rows})
    return Extract(source, hashlib.sha256(content).hexdigest(), len(rows), states)


@rt.step(raises=(SourceChanged,))
async def validate(extract: Extract, warehouse: str) -> Checked:
    """Check every row and keep the bad ones, with the reason, in the table `rejects`."""
    rows = await asyncio.to_thread(rows_of, extract)
    bad = [(number, reason, json.dumps(row)) for number, row, reason in checked_rows(rows) if reason]
    await asyncio.to_thread(store_rejects, warehouse, bad)
    return Checked(len(rows) - len(bad), dict(Counter(reason for _, reason, _ in bad)))


@rt.step(retry=rt.Retry(5, first_delay=0.4, retry_on=RatesUnavailable), timeout=10)
async def euros_for_a_dollar() -> float:
    """Ask the rates service, as often as it takes."""
    return ask_rates_service(rt.this_step().attempt)


@rt.step(raises=(SourceChanged,))
async def load(extract: Extract, state: str, rate: float, warehouse: str, pace_seconds: float) -> Loaded:
    """Transform the good rows of one state and write them, all in one transaction of the warehouse."""
    rows = await asyncio.to_thread(rows_of, extract, state)
    strikes = [transform(number, row, rate) for number, row, reason in checked_rows(rows) if not reason]
    step = rt.this_step()
    await asyncio.to_thread(store_strikes, warehouse, strikes, step.idempotency_key, step.run_id, state)
    # Here, after the writing and before its record, is where a crash hurts most: what is written will be written again.
    await asyncio.sleep(pace_seconds)
    return Loaded(state, len(strikes), sum(strike.cost_dollars for strike in strikes))


@rt.step
async def report(extract: Extract, checked: Checked, warehouse: str) -> Report:
    """Ask the warehouse what this run has brought."""
    run_id = rt.this_step().run_id
    rows, dollars, euros = await asyncio.to_thread(stored, warehouse, run_id)
    executions = await asyncio.to_thread(load_executions, warehouse, run_id)
    species = await asyncio.to_thread(costliest_species, warehouse, run_id)
    rt.logger.info("%d rows stored, %d rejected", rows, extract.rows - checked.accepted)
    return Report(
        rows_read=extract.rows,
        rejected=checked.rejected,
        rows_stored=rows,
        loads=len(executions),
        load_executions=sum(executions.values()),
        cost_dollars=dollars,
        cost_euros=euros,
        costliest_species=species,
    )


def ask_rates_service(call: int) -> float:
    """Stands in for a service over the network, which an example cannot count on.

    It is down for the first two calls, as real ones are now and then; the rate that it gives after that is made up.
    """
    if call <= 2:
        raise RatesUnavailable(f"503 Service Unavailable (call {call})")
    return 0.92


# ---------------------------------------------------------------- rows
Row = dict[str, str]
Numbered = tuple[int, Row]


@dataclass(frozen=True)
class Strike:
    """A good row as the warehouse keeps it. `record` is its place in the source, from 1."""

    record: int
    day: date
    state: str
    airport: str
    aircraft: str
    phase: str
    species: str
    damage: str
    speed_knots: int | None
    cost_dollars: int
    cost_euros: float


def unpack(source: str) -> bytes:
    """The content of the compressed table."""
    return gzip.decompress(Path(source).read_bytes())


def parse(content: bytes) -> list[Numbered]:
    """Its rows, each with its place, from 1."""
    return list(enumerate(csv.DictReader(io.StringIO(content.decode(), newline="")), start=1))


def rows_of(extract: Extract, state: str | None = None) -> list[Numbered]:
    """The rows of the table, or of one state. Raises SourceChanged if it is not the table that was read at first."""
    content = unpack(extract.source)
    if hashlib.sha256(content).hexdigest() != extract.sha256:
        raise SourceChanged(f"{extract.source} was changed after this run had read it; start a new run")
    return [(number, row) for number, row in parse(content) if state in (None, row["Origin State"])]


def checked_rows(rows: Iterable[Numbered]) -> Iterator[tuple[int, Row, str]]:
    """Each row with its place and what is wrong with it, empty where nothing is.

    One state by itself gives what the whole table gives, for a report that is entered twice has the same state.
    """
    seen: set[tuple[str, ...]] = set()
    for number, row in rows:
        values = tuple(row.values())
        yield number, row, "the same report as an earlier row" if values in seen else problem(row)
        seen.add(values)


def problem(row: Row) -> str:
    """What is wrong with a row taken by itself, empty where nothing is."""
    speed = row["Speed IAS in knots"]
    try:
        date.fromisoformat(row["Flight Date"])
        repair, _ = int(row["Cost Repair"]), int(row["Cost Total $"])
        knots = int(speed) if speed else None
    except ValueError:
        return "a date or number cannot be read"
    if row["Effect Amount of damage"] not in DAMAGE:
        return "unknown damage code"
    if row["Effect Amount of damage"] == "None" and repair > 0:
        return "a repair was paid, yet no damage reported"
    if knots == 0 and row["Phase of flight"] in IN_FLIGHT:
        return "in flight at 0 knots"
    if knots is not None and knots > TAXI_KNOTS_MAX and row["Phase of flight"] == "Taxi":
        return f"taxiing at more than {TAXI_KNOTS_MAX} knots"
    return ""


def transform(number: int, row: Row, rate: float) -> Strike:
    """A good row in the form of the warehouse."""
    dollars = int(row["Cost Total $"])
    speed = row["Speed IAS in knots"]
    return Strike(
        record=number,
        day=date.fromisoformat(row["Flight Date"]),
        state=row["Origin State"],
        airport=row["Airport Name"].title(),
        aircraft=row["Aircraft Make Model"],
        phase=row["Phase of flight"].lower(),
        species=row["Wildlife Species"],
        damage=row["Effect Amount of damage"].lower(),
        speed_knots=int(speed) if speed else None,
        cost_dollars=dollars,
        cost_euros=round(dollars * rate, 2),
    )


# ---------------------------------------------------------------- the warehouse, an SQLite file of its own
TABLES = """
CREATE TABLE IF NOT EXISTS strikes (
    record INTEGER PRIMARY KEY, day TEXT, state TEXT, airport TEXT, aircraft TEXT, phase TEXT, species TEXT,
    damage TEXT, speed_knots INTEGER, cost_dollars INTEGER, cost_euros REAL, load_key TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS loads (
    load_key TEXT PRIMARY KEY, run_id TEXT NOT NULL, state TEXT NOT NULL, rows INTEGER NOT NULL,
    executions INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS rejects (record INTEGER PRIMARY KEY, reason TEXT NOT NULL, content TEXT NOT NULL);
"""


@contextmanager
def opened(warehouse: str) -> Generator[sqlite3.Connection, None, None]:
    """The warehouse in one transaction: all of it is written, or nothing."""
    with closing(sqlite3.connect(warehouse, timeout=10)) as connection:
        connection.executescript(TABLES)
        with connection:
            yield connection


def store_rejects(warehouse: str, rejects: list[tuple[int, str, str]]) -> None:
    """Keep what was rejected under its natural key, so that a repeated step keeps it once."""
    with opened(warehouse) as connection:
        connection.executemany(
            "INSERT INTO rejects VALUES (?, ?, ?) ON CONFLICT (record) DO UPDATE SET reason = excluded.reason", rejects
        )


def store_strikes(warehouse: str, strikes: list[Strike], load_key: str, run_id: str, state: str) -> None:
    """Write the rows under their natural key, and note under the step's idempotency key that they were written."""
    with opened(warehouse) as connection:
        connection.executemany(
            "INSERT OR REPLACE INTO strikes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [(strike.record, strike.day.isoformat(), *astuple(strike)[2:], load_key) for strike in strikes],
        )
        connection.execute(
            "INSERT INTO loads VALUES (?, ?, ?, ?, 1) ON CONFLICT (load_key) DO UPDATE SET executions = executions + 1",
            (load_key, run_id, state, len(strikes)),
        )


def stored(warehouse: str, run_id: str) -> tuple[int, int, float]:
    """Rows that the run wrote, with their cost in dollars and euros."""
    with opened(warehouse) as connection:
        rows, dollars, euros = connection.execute(
            "SELECT count(*), coalesce(sum(cost_dollars), 0), coalesce(sum(cost_euros), 0)"
            " FROM strikes JOIN loads USING (load_key) WHERE run_id = ?",
            (run_id,),
        ).fetchone()
        return rows, dollars, round(euros, 2)


def load_executions(warehouse: str, run_id: str) -> dict[str, int]:
    """How often the load of each state was written by this run, in the order of writing."""
    with opened(warehouse) as connection:
        found = connection.execute(
            "SELECT state, executions FROM loads WHERE run_id = ? ORDER BY loads.rowid", (run_id,)
        )
        return dict(found)


def costliest_species(warehouse: str, run_id: str) -> dict[str, int]:
    """The five species that cost most, in dollars."""
    with opened(warehouse) as connection:
        found = connection.execute(
            "SELECT species, sum(cost_dollars) AS cost FROM strikes JOIN loads USING (load_key) WHERE run_id = ?"
            " GROUP BY species ORDER BY cost DESC, species LIMIT 5",
            (run_id,),
        )
        return dict(found)


# ---------------------------------------------------------------- run it
app = rt.App(workflows=[birdstrikes])


async def main() -> None:
    """A worker and one run in this process."""
    async with app:
        run = await app.start(birdstrikes)
        print(f"run {run.id} started")
        done = await run.result()
    print(f"{done.rows_stored} of {done.rows_read} rows stored in birdstrikes.db, state by state in {done.loads} steps")
    for reason, rows in done.rejected.items():
        print(f"  {rows:4} rejected: {reason}")
    print(f"damage: {done.cost_dollars:,} dollars, {done.cost_euros:,.2f} euros")


if __name__ == "__main__":
    asyncio.run(main())
