"""From words on the command line to the input of a run, or to a message; and to a recorded run."""

import difflib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from runtrue.cli.text import to_type
from runtrue.codec import encode
from runtrue.errors import OutcomeUnknown
from runtrue.explain import is_alive
from runtrue.lifecycle import Status
from runtrue.records import RunRecord, WorkerRecord
from runtrue.service import Service, StartOptions
from runtrue.store.protocol import Started


def read_inputs(texts: Sequence[str]) -> dict[str, object]:
    """The inputs by parameter name: `k=text`, `k:=json`, `@file` or `-` with a JSON object of them.

    Raises click.UsageError for what is none of these, and for a parameter that is given twice.
    """
    if texts.count("-") > 1:
        raise click.UsageError("--input - reads standard input, which can be read once only")
    values: dict[str, object] = {}
    for text in texts:
        found = _object(text) if text == "-" or text.startswith("@") else _pair(text)
        for name, value in found.items():
            if name in values:
                raise click.UsageError(f"input {name!a} is given twice")
            values[name] = value
    return values


def read_value(text: str | None) -> object:
    """The body of a message: text, `:=json`, `@file` or `-` with JSON; null where none is given."""
    if text is None:
        return None
    if text.startswith(":="):
        return _parse(text.removeprefix(":="), f"VALUE {text!a}")
    return _document(text, "VALUE") if text == "-" or text.startswith("@") else text


async def start_run(
    service: Service, workflow: str, version: str | None, values: dict[str, object], options: StartOptions
) -> Started:
    """Start the run. When the answer is lost the message names the id with which asking again starts nothing twice."""
    body = encode(values, what=f"the input of workflow {workflow}")
    try:
        return await service.start(workflow, version, body, options)
    except OutcomeUnknown as error:
        raise OutcomeUnknown(
            f"whether run {options.id} was started is not known ({error}); "
            f"ask again with --id {options.id}, that starts nothing twice"
        ) from error


def unserved_text(run: RunRecord, workers: Sequence[WorkerRecord], now: int) -> str:
    """What to tell whoever started a run that no living worker takes; empty where one does, or where none is alive."""
    if run.status is not Status.PENDING:
        return ""
    served = sorted({name for worker in workers if is_alive(worker, now) for name in worker.serves})
    wanted = f"{run.workflow}@{run.version}"
    if not served or wanted in served:
        return ""
    names = {name.rpartition("@")[0] for name in served}
    near = [] if run.workflow in names else difflib.get_close_matches(run.workflow, sorted(names), n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    return (
        f"no living worker serves {wanted}, only {', '.join(served)}; {meant}"
        f"run {run.id} waits for one that does; `{to_type('run', 'cancel', run.id)}` takes it back"
    )


def _pair(text: str) -> dict[str, object]:
    name, separator, value = text.partition("=")
    if not separator or name in ("", ":"):
        raise click.UsageError(f"--input {text!a}: write name=text, name:=json, @file or - for a JSON object")
    if name.endswith(":"):
        return {name[:-1]: _parse(value, f"--input {name}=")}
    return {name: value}


def _object(text: str) -> dict[str, object]:
    value = _document(text, "--input")
    if not isinstance(value, dict):
        where = "standard input" if text == "-" else f"file {text[1:]}"
        raise click.UsageError(f"--input {text}: {where} must hold a JSON object of the workflow's parameters by name")
    return value  # pyright: ignore[reportUnknownVariableType]


def _document(text: str, option: str) -> object:
    """The JSON in standard input (`-`) or in a file (`@file`)."""
    where = "standard input" if text == "-" else f"file {text[1:]}"
    try:
        body = sys.stdin.buffer.read() if text == "-" else Path(text[1:]).read_bytes()
        decoded = body.decode("utf-8-sig")
    except (OSError, ValueError) as error:  # ValueError: a path with NUL in it, or bytes that are not UTF-8
        raise click.UsageError(f"{option} {text}: cannot read {where}: {error}") from None
    return _parse(decoded, f"{option} {text}: {where}")


def _parse(text: str, where: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"{where} is no JSON: {error}") from None


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is given twice in one object")
    return found


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not in JSON")
