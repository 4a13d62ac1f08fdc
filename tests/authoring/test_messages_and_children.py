"""Topics, messages and children, awaited and blocking."""

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import pytest
from tests.authoring.fake_engine import in_async_workflow, in_def_workflow

import runtrue as rt
import runtrue.sync
from runtrue.authoring import encode_message


@dataclass
class Note:
    text: str
    day: date


NOTE = Note("hi", date(2026, 1, 31))
BODY = b'{"text":"hi","day":"2026-01-31"}'
notes = rt.Topic("notes", Note)
far = rt.ref("far", int)


# ---------------------------------------------------------------- receive
async def test_receive_waits_for_a_topic_by_its_type_and_timeout():
    with in_async_workflow(receive=NOTE) as runtime:
        assert await rt.receive(notes) == NOTE
        assert await rt.receive("notes", Note, timeout=timedelta(minutes=1)) == NOTE
        assert await rt.receive(notes, timeout=0, default=None) == NOTE
        waits = runtime.made
    with in_def_workflow(receive=NOTE) as runtime:
        assert runtrue.sync.receive(notes) == NOTE
        assert runtrue.sync.receive("notes", Note, timeout=timedelta(minutes=1)) == NOTE
        assert runtrue.sync.receive(notes, timeout=0, default=None) == NOTE
    assert waits == runtime.made == [("receive", "notes", Note, seconds) for seconds in (None, 60.0, 0.0)]


async def test_a_receive_has_its_place_from_the_call_on():
    with in_async_workflow() as runtime:
        calls = [rt.receive(notes), rt.receive(notes, timeout=1, default=3)]
        assert len(runtime.made) == 2
        for call in calls:
            await call


async def test_a_wait_that_gave_up_raises_unless_there_is_a_default():
    late = rt.WaitTimeout("no message of topic notes came")
    with in_async_workflow(receive=late):
        with pytest.raises(rt.WaitTimeout, match="no message"):
            await rt.receive(notes, timeout=1)
        assert await rt.receive(notes, timeout=1, default=None) is None
        assert await rt.receive("notes", Note, timeout=1, default=7) == 7
    with in_def_workflow(receive=late):
        with pytest.raises(rt.WaitTimeout, match="no message"):
            runtrue.sync.receive(notes, timeout=1)
        assert runtrue.sync.receive(notes, timeout=1, default=None) is None
        assert runtrue.sync.receive("notes", Note, timeout=1, default=7) == 7


async def test_a_default_stands_in_for_no_other_error():
    with in_async_workflow(receive=LookupError("gone")), pytest.raises(LookupError):
        await rt.receive(notes, timeout=1, default=None)
    with in_def_workflow(receive=LookupError("gone")), pytest.raises(LookupError):
        runtrue.sync.receive(notes, timeout=1, default=None)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda words: words.receive("notes"), r"say of which type a message of notes is: rt.receive\('notes', str\)"),
        (lambda words: words.receive(notes, Note), "topic notes has its type already; leave the second one out"),
        (lambda words: words.receive(notes, default=3), "default= is what comes when timeout= has passed; give both"),
        (lambda words: words.receive(notes, timeout=-1), "rt.receive: timeout must be from 0 seconds"),
        (lambda words: words.receive(notes, timeout="1"), "rt.receive: timeout must be seconds or a timedelta"),
        (lambda words: words.receive(7, str), "the name of a topic must be text, not int"),
        (lambda words: words.receive("", str), "the name of a topic must have 1 to 200 characters"),
        (lambda words: words.send("", notes, NOTE), "rt.send: the run's id must have 1 to 200 characters"),
        (lambda words: words.send(7, notes, NOTE), "rt.send: the run's id must be text, not int"),
        (lambda words: words.send("x", 7, NOTE), "the name of a topic must be text, not int"),
        (lambda words: words.start_child("far"), r"rt.start_child takes a workflow, or rt.ref\('far'\) where only"),
        (lambda words: words.start_child(print), "rt.start_child takes a workflow, .* not builtin_function_or_method"),
    ],
)
def test_what_can_be_none_is_refused_where_it_is_called(call: Any, message: str):
    with in_async_workflow() as runtime, pytest.raises(rt.ConfigurationError, match=message):
        call(rt)
    with in_def_workflow() as blocking, pytest.raises(rt.ConfigurationError, match=message):
        call(runtrue.sync)
    assert runtime.made == blocking.made == []


def test_a_topic_has_a_name_that_can_be_one():
    assert repr(notes) == "<topic notes>"
    assert (notes.name, notes.type) == ("notes", Note)
    with pytest.raises(rt.ConfigurationError, match="the name of a topic"):
        rt.Topic("a\n", str)


# ---------------------------------------------------------------- send
class Handle:
    id = "run-7"


async def test_send_encodes_by_the_topic_and_takes_a_handle_or_an_id():
    with in_async_workflow() as runtime:
        await rt.send(Handle(), notes, NOTE)
        await rt.send("run-8", "notes", NOTE)
    with in_def_workflow() as blocking:
        runtrue.sync.send(Handle(), notes, NOTE)
        runtrue.sync.send("run-8", "notes", NOTE)
    assert runtime.made == blocking.made == [("send", "run-7", "notes", BODY), ("send", "run-8", "notes", BODY)]


def test_a_message_that_does_not_fit_its_topic_is_refused_where_it_is_sent():
    for payload in ({"text": "hi"}, 7, None):
        with in_async_workflow() as runtime, pytest.raises(rt.NotEncodable, match="the message of topic notes cannot"):
            rt.send("run-7", notes, payload)  # type: ignore[arg-type]
        assert runtime.made == []


@pytest.mark.parametrize("payload", [float("nan"), "\ud800", object(), {1: 2}, [NOTE]], ids=repr)
def test_a_message_that_would_not_come_back_is_refused(payload: object):
    with pytest.raises(rt.NotEncodable, match="the message of topic t cannot be recorded"):
        encode_message("t", payload)


@pytest.mark.parametrize("payload", [None, True, 2**70, "a\0b", b"\xff", [1, [2]], NOTE, date(2026, 1, 1)], ids=repr)
def test_a_message_of_a_topic_by_name_is_written_by_its_own_class(payload: object):
    assert encode_message("t", payload)[0] == "t"


# ---------------------------------------------------------------- children
async def test_a_started_child_is_waited_for_and_sent_to_through_its_handle():
    chosen = far.options(id="child-1")
    with in_async_workflow(start_child="child-1", wait_for_child=42) as runtime:
        start = rt.start_child(chosen, n=1)
        assert runtime.made == [("start_child", chosen, (), {"n": 1})]
        child = await start
        assert child.id == "child-1"
        assert repr(child) == "<child run child-1>"
        assert await child.result() == 42
        await child.send(notes, NOTE)
        await rt.send(child, notes, NOTE)
    sent = ("send", "child-1", "notes", BODY)
    expected = [("start_child", chosen, (), {"n": 1}), ("wait_for_child", "child-1", chosen), sent, sent]
    assert runtime.made == expected
    with in_def_workflow(start_child="child-1", wait_for_child=42) as runtime:
        blocking = runtrue.sync.start_child(chosen, n=1)
        assert blocking.id == "child-1"
        assert repr(blocking) == "<child run child-1>"
        assert blocking.result() == 42
        blocking.send(notes, NOTE)
        runtrue.sync.send(blocking, notes, NOTE)
    assert runtime.made == expected


async def test_what_a_child_ends_with_is_raised_where_it_is_waited_for():
    failed = rt.RunFailed("child-1", rt.ErrorInfo("ValueError", "no"))
    with in_async_workflow(start_child="child-1", wait_for_child=failed, call_child=failed):
        child = await rt.start_child(far)
        with pytest.raises(rt.RunFailed, match="run child-1 failed: ValueError: no"):
            await child.result()
        with pytest.raises(rt.RunFailed):
            await far.aio()
    with in_def_workflow(start_child="child-1", wait_for_child=failed, call_child=failed):
        with pytest.raises(rt.RunFailed):
            runtrue.sync.start_child(far).result()
        with pytest.raises(rt.RunFailed):
            far.sync()
