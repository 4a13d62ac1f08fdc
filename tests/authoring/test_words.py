"""The words that a workflow says between its steps: what reaches the engine, and where each is refused."""

import logging
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.authoring.fake_engine import INFO, in_async_workflow, in_def_workflow, in_step

import runtrue as rt
import runtrue.sync

WORDS: list[tuple[str, Any]] = [
    ("rt.now", rt.now),
    ("rt.uuid4", rt.uuid4),
    ("rt.random", rt.random),
    ("rt.patched", lambda: rt.patched("new")),
    ("rt.publish", lambda: rt.publish("key", 1)),
]
ASYNC_WORDS: list[tuple[str, Any]] = [
    ("rt.sleep", lambda: rt.sleep(1)),
    ("rt.sleep_until", lambda: rt.sleep_until(datetime.now(UTC))),
    ("rt.receive", lambda: rt.receive("topic", str)),
    ("rt.send", lambda: rt.send("run", "topic", 1)),
    ("rt.gather", rt.gather),
    ("rt.first", rt.first),
    ("rt.map", lambda: rt.map(print, [])),
    ("rt.start_child", lambda: rt.start_child(rt.ref("far"))),
    ("result() of a child", lambda: rt.ChildHandle("x", rt.ref("far")).result()),
    ("send() to a child", lambda: rt.ChildHandle("x", rt.ref("far")).send("topic", 1)),
]
SYNC_WORDS: list[tuple[str, Any]] = [
    ("rt.sleep", lambda: runtrue.sync.sleep(1)),
    ("rt.sleep_until", lambda: runtrue.sync.sleep_until(datetime.now(UTC))),
    ("rt.receive", lambda: runtrue.sync.receive("topic", str)),
    ("rt.send", lambda: runtrue.sync.send("run", "topic", 1)),
    ("rt.gather", runtrue.sync.gather),
    ("rt.first", runtrue.sync.first),
    ("rt.map", lambda: runtrue.sync.map(print, [])),
    ("rt.start_child", lambda: runtrue.sync.start_child(rt.ref("far"))),
    ("result() of a child", lambda: runtrue.sync.SyncChildHandle("x", rt.ref("far")).result()),
    ("send() to a child", lambda: runtrue.sync.SyncChildHandle("x", rt.ref("far")).send("topic", 1)),
]


# ---------------------------------------------------------------- places
@pytest.mark.parametrize(("word", "call"), [*WORDS, *ASYNC_WORDS, *SYNC_WORDS])
def test_a_word_outside_of_a_workflow_is_refused(word: str, call: Any):
    with pytest.raises(rt.WrongPlace) as refused:
        call()
    assert str(refused.value).startswith(f"{word} was called outside of a running workflow")


@pytest.mark.parametrize(("word", "call"), [*WORDS, *ASYNC_WORDS, *SYNC_WORDS])
def test_a_word_inside_a_step_is_refused_with_the_step_named(word: str, call: Any):
    with in_step(), pytest.raises(rt.WrongPlace) as refused:
        call()
    assert str(refused.value).startswith(f"{word} was called inside step work; durable calls belong in the workflow")


@pytest.mark.parametrize(("word", "call"), ASYNC_WORDS)
def test_an_awaited_word_in_a_def_workflow_is_refused_when_it_is_called(word: str, call: Any):
    with in_def_workflow() as runtime, pytest.raises(rt.WrongPlace) as refused:
        call()
    assert str(refused.value).startswith(f"{word} was called in a `def` workflow, where nothing can be awaited")
    assert "`import runtrue.sync as rt` has the same words, blocking" in str(refused.value)
    assert runtime.made == []


@pytest.mark.parametrize(("word", "call"), SYNC_WORDS)
def test_a_blocking_word_in_an_async_workflow_is_refused_when_it_is_called(word: str, call: Any):
    with in_async_workflow() as runtime, pytest.raises(rt.WrongPlace) as refused:
        call()
    assert str(refused.value).startswith(f"{word} of runtrue.sync was called in an `async def` workflow")
    assert "`import runtrue as rt` has the same words, to be awaited" in str(refused.value)
    assert runtime.made == []


# ---------------------------------------------------------------- words of both colours
@pytest.fixture(params=[in_async_workflow, in_def_workflow], ids=["async", "def"])
def workflow(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_drawn_values_are_the_engines(workflow: Any):
    with workflow() as runtime:
        assert rt.now() == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
        assert isinstance(rt.uuid4(), UUID)
        assert 0 <= rt.random().random() < 1
    assert runtime.made == [("value", "now"), ("value", "uuid4"), ("value", "random")]


def test_patched_asks_by_the_name_of_the_change(workflow: Any):
    with workflow(patched=True) as runtime:
        assert rt.patched("new-rates") is True
        with pytest.raises(rt.ConfigurationError, match=r"rt.patched: the change must have 1 to 200 characters"):
            rt.patched("")
    assert runtime.made == [("patched", "new-rates")]


def test_progress_and_this_run_work_in_both_colours_and_in_steps(workflow: Any):
    with workflow() as runtime:
        rt.set_progress(done=1, total=2, note="half")
        assert rt.this_run() is INFO
        with pytest.raises(rt.ConfigurationError, match="done must be a number"):
            rt.set_progress(done="1")  # type: ignore[arg-type]
        with pytest.raises(rt.WrongPlace, match=r"rt.this_step was called in a workflow, between its steps"):
            rt.this_step()
    assert runtime.made == [("progress", 1.0, 2.0, "half")]
    with in_step() as step:
        assert rt.this_run() is INFO
        assert rt.this_step() is step


def test_what_the_lifespan_yields_is_found_in_workflows_and_steps(workflow: Any):
    pool = object()
    with workflow(state=pool) as runtime:
        assert rt.state(object) is pool
    assert runtime.made == [("state", object)]
    with in_step(lambda kind: kind(7)):
        assert rt.state(str) == "7"
    with in_step(), pytest.raises(rt.ConfigurationError, match="step work: there is no Path, the App has no lifespan"):
        rt.state(type("Path", (), {}))
    with pytest.raises(rt.WrongPlace, match=r"rt.state was called outside of a running workflow"):
        rt.state(str)


class Turn:
    """No class that can be recorded."""


def test_what_is_published_is_written_by_its_own_class(workflow: Any):
    with workflow() as runtime:
        rt.publish("when", datetime(2026, 1, 1, tzinfo=UTC))
        rt.publish("list", [1, {"a": None}])
        with pytest.raises(rt.NotEncodable, match=r"the published value turn cannot be recorded"):
            rt.publish("turn", Turn())
        with pytest.raises(rt.NotEncodable, match=r"the published value turns cannot be recorded: .*\$\[0\]"):
            rt.publish("turns", [datetime(2026, 1, 1, tzinfo=UTC)])
        with pytest.raises(rt.ConfigurationError, match=r"rt.publish: the key must be text, not int"):
            rt.publish(7, 1)  # type: ignore[arg-type]
    assert runtime.made == [("publish", "when", b'"2026-01-01T00:00:00Z"'), ("publish", "list", b'[1,{"a":null}]')]


def test_the_logger_names_the_run_in_both_colours(workflow: Any, caplog: pytest.LogCaptureFixture):
    with workflow(), caplog.at_level(logging.INFO, "runtrue.run"):
        rt.logger.info("shipped")
    (record,) = caplog.records
    assert (record.run_id, record.workflow, record.step, record.attempt) == ("run-1", "flow", None, 1)  # type: ignore[attr-defined]


# ---------------------------------------------------------------- sleep
async def test_sleeps_reach_the_engine_when_they_are_called():
    when = datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)
    with in_async_workflow() as runtime:
        naps = [rt.sleep(timedelta(minutes=1)), rt.sleep_until(when)]
        assert runtime.made == [("sleep", 60.0), ("sleep_until", 2_000_000)]
        for nap in naps:
            await nap
    with in_def_workflow() as runtime:
        runtrue.sync.sleep(timedelta(minutes=1))
        runtrue.sync.sleep_until(when)
    assert runtime.made == [("sleep", 60.0), ("sleep_until", 2_000_000)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda words: words.sleep(-1), "rt.sleep: the duration must be from 0 seconds"),
        (lambda words: words.sleep("1"), "rt.sleep: the duration must be seconds or a timedelta, not str"),
        (lambda words: words.sleep_until(datetime(2026, 1, 1)), "rt.sleep_until: the time .* has no time zone"),
    ],
)
def test_durations_that_can_be_none_are_refused(call: Any, message: str):
    with in_async_workflow() as runtime, pytest.raises(rt.ConfigurationError, match=message):
        call(rt)
    with in_def_workflow() as blocking, pytest.raises(rt.ConfigurationError, match=message):
        call(runtrue.sync)
    assert runtime.made == blocking.made == []
