"""Values that databases, JSON and encoders stumble over, at every border of a run: kept, or refused by name.

Whatever becomes of them, the run comes to its end and the worker goes on.
"""

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.engine.running import finished, opened

import runtrue as rt
from runtrue.lifecycle import Status


class Odd:
    """Nothing knows how to write this."""

    def __str__(self) -> str:
        raise RuntimeError("not even as text")

    __repr__ = __str__


@dataclass
class Everything:
    text: str
    raw: bytes
    at: datetime
    number: int


@dataclass(frozen=True)
class Probe:
    """A value, the type that its place is annotated with, and the refusal; None if it is kept as it is."""

    value: Any
    type: Any
    refusal: str | None = None


def lists_in_lists(depth: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(depth):
        made = [made]
    return made


PROBES = {
    "a NUL in a text": Probe("a\0b", str),
    "a NUL in a key": Probe({"a\0b": 1}, dict[str, int]),
    "half of a character": Probe("\udc80", str, "NotEncodable"),
    "half of a character in a key": Probe({"\ud800": 1}, dict[str, int], "NotEncodable"),
    "not a number": Probe(math.nan, float, "NotEncodable"),
    "no end": Probe([1.5, -math.inf], list[float], "NotEncodable"),
    "a large integer": Probe(2**70, int),
    "large integers as anything": Probe([2**70, -(2**200)], Any),
    "bytes": Probe(b"\x00\xff", bytes),
    "bytes as anything": Probe(b"\x00\xff", Any, "NotEncodable"),
    "a time": Probe(datetime(2026, 1, 1, 12, tzinfo=UTC), datetime),
    "a time as anything": Probe(datetime(2026, 1, 1, 12, tzinfo=UTC), Any, "NotEncodable"),
    "all at once": Probe(Everything("\0", b"\0", datetime(1970, 1, 1, tzinfo=UTC), 2**64), Everything),
    "what cannot be written": Probe(Odd(), Any, "NotEncodable"),
    "lists in lists": Probe(lists_in_lists(100_000), Any, "NotEncodable"),
    "fifty megabytes": Probe("x" * 50_000_000, str, "PayloadTooLarge"),
}


@dataclass
class Borders:
    """An App whose workflows take and give values of the probe's type."""

    app: rt.App
    value: Any
    topic: rt.Topic[Any]
    workflows: dict[str, Any]

    async def ends(self, name: str, *args: Any) -> Any:
        """Start this workflow; its result."""
        return await finished(await self.app.start(self.workflows[name], *args))


@asynccontextmanager
async def borders(database: Path, probe: Probe) -> AsyncIterator[Borders]:
    kind, value, topic = probe.type, probe.value, rt.Topic[Any]("odd", probe.type)

    @rt.workflow
    async def takes(given: kind) -> kind:  # type: ignore[valid-type]
        return given

    @rt.workflow
    async def gives() -> kind:  # type: ignore[valid-type]
        return value

    @rt.step
    async def makes() -> kind:  # type: ignore[valid-type]
        return value

    @rt.workflow
    async def gives_what_a_step_made() -> kind:  # type: ignore[valid-type]
        return await makes()

    @rt.workflow
    async def starts_a_child() -> kind:  # type: ignore[valid-type]
        return await takes(value)

    @rt.workflow
    async def receives() -> kind:  # type: ignore[valid-type]
        return await rt.receive(topic)

    @rt.workflow
    async def sends(run_id: str) -> None:
        await rt.send(run_id, topic, value)

    @rt.workflow
    async def publishes() -> None:
        rt.publish("odd", value)

    @rt.workflow
    async def goes_on() -> str:
        return "the worker goes on"

    workflows = [goes_on, takes, gives, gives_what_a_step_made, starts_a_child, receives, sends, publishes]
    async with opened(database, *workflows) as app:
        yield Borders(app, value, topic, {workflow.name: workflow for workflow in workflows})
        assert await finished(await app.start(goes_on)) == "the worker goes on"


async def as_input(at: Borders) -> Any:
    return await at.ends("takes", at.value)


async def as_result(at: Borders) -> Any:
    return await at.ends("gives")


async def as_result_of_a_step(at: Borders) -> Any:
    return await at.ends("gives_what_a_step_made")


async def as_input_of_a_child(at: Borders) -> Any:
    return await at.ends("starts_a_child")


async def as_a_message(at: Borders) -> Any:
    run = await at.app.start(at.workflows["receives"])
    try:
        await run.send(at.topic, at.value)
    except rt.CodecError:
        await run.cancel()
        raise
    return await finished(run)


async def as_a_message_between_runs(at: Borders) -> Any:
    run = await at.app.start(at.workflows["receives"])
    try:
        await at.ends("sends", run.id)
    except rt.RunFailed:
        await run.cancel()
        raise
    return await finished(run)


BORDERS = [as_input, as_result, as_result_of_a_step, as_input_of_a_child, as_a_message, as_a_message_between_runs]


@pytest.mark.parametrize("border", BORDERS, ids=lambda border: border.__name__)
@pytest.mark.parametrize("probe", PROBES.values(), ids=PROBES)
async def test_an_odd_value_is_kept_as_it_is_or_refused_by_name(
    database: Path, probe: Probe, border: Callable[[Borders], Awaitable[Any]]
):
    async with borders(database, probe) as at:
        if probe.refusal is None:
            assert await border(at) == probe.value
        else:
            with pytest.raises((rt.CodecError, rt.RunFailed)) as refused:
                await border(at)
            assert probe.refusal in f"{type(refused.value).__name__} {refused.value}"
        counted = await at.app.store.count_runs()
        assert set(counted) <= {Status.COMPLETED, Status.FAILED, Status.CANCELLED}, "no run is stuck"


@pytest.mark.parametrize("probe", PROBES.values(), ids=PROBES)
async def test_an_odd_value_is_published_as_json_shows_it_or_refused_by_name(database: Path, probe: Probe):
    async with borders(database, probe) as at:
        run = await at.app.start(at.workflows["publishes"])
        ended = await run.wait(timeout=30)
        if ended.status is Status.FAILED:
            assert ended.error is not None
            assert ended.error.type.rpartition(".")[2] in {"NotEncodable", "PayloadTooLarge"}
            assert "the published value odd" in ended.error.message
        else:
            assert probe.refusal is None or probe.type is Any, "its own class says how to write it"
            await run.published("odd")


# ---------------------------------------------------------------- in errors
class Declared(Exception):
    pass


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "another"])
@pytest.mark.parametrize("where", ["step", "workflow"])
@pytest.mark.parametrize("probe", PROBES.values(), ids=PROBES)
async def test_an_error_that_holds_an_odd_value_ends_the_run_as_failed_and_is_readable(
    database: Path, probe: Probe, where: str, declared: bool
):
    kind = Declared if declared else ValueError
    raises = (Declared,) if declared else ()

    def fail() -> None:
        raise kind(probe.value)

    @rt.step(raises=raises)
    async def fails() -> None:
        fail()

    @rt.workflow(raises=raises)
    async def flow() -> None:
        if where == "step":
            await fails()
        fail()

    async with opened(database, flow) as app:
        run = await app.start(flow)
        with pytest.raises(rt.RunFailed) as failed:
            await finished(run)
        assert failed.value.error.type
        assert len(failed.value.error.message) < 50_000
        str(failed.value).encode()
        assert (await run.info()).error == failed.value.error
