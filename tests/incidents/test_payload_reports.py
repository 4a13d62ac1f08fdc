"""Values that could not be stored elsewhere, and what became of the run."""

import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.histories import assert_sound
from tests.support.stage import Stage

import runtrue as rt
from runtrue import App, NotEncodable, RunFailed
from runtrue.lifecycle import Status

MEBIBYTE = 1024 * 1024
calls: list[str] = []


class NeedsArguments(Exception):
    """An error that nobody can build from its message alone."""

    def __init__(self, *, code: int, where: str) -> None:
        super().__init__(f"code {code} at {where}")


@rt.step(retry=5)
async def give_back(what: str) -> Any:
    """Five attempts are allowed; a value that cannot be recorded is worth one."""
    calls.append(what)
    match what:
        case "lock":
            return {"ok": 1, "held": [threading.Lock()]}
        case "lambda":
            return lambda: None
        case "huge":
            return "x" * (33 * MEBIBYTE)
        case "surrogate":
            return "\ud800"
        case "nan":
            return float("nan")
        case _:
            return what


@rt.step
async def fail_with(what: str) -> None:
    match what:
        case "nul":
            raise ValueError("a\x00b")
        case "surrogate":
            raise ValueError("\ud800")
        case "huge":
            raise ValueError("x" * (5 * MEBIBYTE))
        case _:
            raise NeedsArguments(code=7, where="the till")


@rt.workflow
async def gives(what: str) -> Any:
    return await give_back(what)


@rt.workflow
async def fails(what: str) -> None:
    await fail_with(what)


@rt.workflow
async def returns_it_all(what: str) -> Any:
    """The step is fine; what the workflow returns cannot be recorded."""
    del what
    await give_back("fine")
    return threading.Lock()


@rt.workflow
async def takes(amount: float, names: list[str]) -> float:
    del names
    return amount


@pytest.fixture
async def app(stage: Stage) -> AsyncIterator[App]:
    calls.clear()
    async with App(stage.database, workflows=[gives, fails, returns_it_all, takes]) as opened:
        yield opened


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("lock", r"give_back.*\$\.held\[0\]"),
        ("lambda", "give_back"),
        ("huge", "give_back.*(32 MiB|larger|cap)"),
        ("surrogate", "give_back.*surrogate"),
        ("nan", "give_back.*nan is no number"),
    ],
)
async def test_a_result_that_cannot_be_recorded_fails_the_run_at_once_and_says_why(
    stage: Stage, app: App, what: str, says: str
):
    run = await app.start(gives.options(id="run"), what)
    with pytest.raises(RunFailed, match=says):
        await run.result(timeout=45)
    assert calls == [what]
    await assert_sound(stage.client, "run")


@pytest.mark.parametrize("what", ["nul", "surrogate", "huge", "arguments"])
async def test_an_error_that_is_hard_to_record_fails_the_run_cleanly(stage: Stage, app: App, what: str):
    run = await app.start(fails.options(id="run"), what)
    with pytest.raises(RunFailed) as failed:
        await run.result(timeout=45)
    assert failed.value.error.type
    info = await run.info()
    assert info.status is Status.FAILED
    assert info.error is not None
    assert info.error.message.isprintable() or what == "huge"
    assert len(info.error.message) < MEBIBYTE
    assert [run.id for run in await app.runs()] == ["run"]
    await assert_sound(stage.client, "run")


async def test_whoever_waits_hears_at_once_that_the_result_of_the_workflow_cannot_be_recorded(stage: Stage, app: App):
    run = await app.start(returns_it_all.options(id="run"), "")
    with pytest.raises(RunFailed, match="result of returns_it_all"):
        await run.result(timeout=45)
    assert await stage.status() is Status.FAILED
    assert (await run.info()).steps_done == 1
    await assert_sound(stage.client, "run")


async def test_an_input_that_cannot_be_recorded_is_refused_by_name_and_nothing_is_started(stage: Stage, app: App):
    with pytest.raises(NotEncodable, match="names"):
        await app.start(takes, 1.0, [threading.Lock()])  # type: ignore[list-item]
    with pytest.raises(NotEncodable, match="amount"):
        await app.start(takes, float("inf"), [])
    assert await app.runs() == []
