"""`runtrue db migrate|status`, `doctor` and `demo`."""

from runtrue.cli.exits import Exit
from runtrue.cli.groups import db, root
from runtrue.cli.options import (
    asynchronous,
    connected,
    database_flag,
    database_option,
    database_option_with,
    database_setting,
    output_option,
)
from runtrue.cli.text import note, print_pairs, say, to_type
from runtrue.explain import is_alive
from runtrue.jsonform import dumps, schema_body
from runtrue.store.protocol import SchemaStatus


@db.command("migrate")
@output_option("table", "json")
@database_option
@asynchronous
async def migrate(*, output: str) -> int:
    """Make the database, or bring its schema up to date."""
    async with connected(create=True) as service:
        return _print_schema(await service.store.migrate(), output)


@db.command("status")
@output_option("table", "json")
@database_option
@asynchronous
async def status(*, output: str) -> int:
    """Tell which database this is.

    Where it is, which setting named it, and the version of its schema.
    """
    async with connected() as service:
        return _print_schema(await service.store.schema_status(), output)


def _print_schema(found: SchemaStatus, output: str) -> int:
    setting = database_setting()
    if output == "json":
        print(dumps({**schema_body(found), "source": setting.source}))
    else:
        print_pairs(
            (
                ("location", found.location),
                ("named by", setting.source),
                ("database", found.database),
                ("schema", f"version {found.version} of {found.latest}"),
            )
        )
    return Exit.DONE


@root.command()
@output_option("table", "json")
@database_option
@asynchronous
async def doctor(*, output: str) -> int:
    """Look for broken promises and for runs that stand still.

    Exit code 1 if a promise is broken.
    """
    async with connected() as service:
        report = await service.doctor()
        alive = sum(is_alive(worker, service.clock.now()) for worker in report.workers)
    if output == "json":
        body = {
            "findings": [
                {"promise": found.promise, "run_id": found.run_id, "problem": found.problem}
                for found in report.findings
            ],
            "advice": list(report.advice),
            "runs": {status.value: count for status, count in report.counts.items()},
            "workers_alive": alive,
        }
        print(dumps(body))
        return Exit.ERROR if report.findings else Exit.DONE
    counts = ", ".join(f"{count} {status.value}" for status, count in report.counts.items() if count)
    print_pairs((("runs", counts or "none"), ("workers alive", str(alive))))
    for found in report.findings:
        say(f"broken: {found.promise}: run {found.run_id}: {found.problem}")
    for advice in report.advice:
        say(f"advice: {advice}")
    if report.findings:
        note(f"{len(report.findings)} broken promise(s); see `{to_type('run', 'events', 'ID')}`")
        return Exit.ERROR
    say("every promise that can be checked is kept")
    return Exit.DONE


@root.command()
@database_option_with("sqlite:///runtrue-demo.db")
def demo() -> int:
    """See what a run survives, in under a minute.

    A worker killed in the middle, a pause and a cancel, told by the database as they happen.
    """
    from runtrue.demo import run

    return run(database_flag())
