"""Time, waiting, randomness and the rules for ids."""

import asyncio
import time
import uuid
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtrue import clock as clock_module
from runtrue import ids
from runtrue.clock import MICROSECOND, SystemClock, wait_for_event
from runtrue.errors import ConfigurationError


class HeldClock:
    """A clock whose sleeps end when the test says so."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.asleep = asyncio.Event()
        self.wake = asyncio.Event()
        self.ended = asyncio.Event()

    def now(self) -> int:
        return 0

    def steady(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        self.asleep.set()
        try:
            await self.wake.wait()
        finally:
            self.ended.set()


# ---------------------------------------------------------------- the clock
def test_now_is_the_wall_time_in_microseconds():
    before, now, after = time.time_ns(), SystemClock().now(), time.time_ns()
    assert before // 1_000 <= now <= after // 1_000
    assert MICROSECOND == 1_000_000


def test_steady_never_goes_back_and_counts_seconds():
    clock = SystemClock()
    readings = [clock.steady() for _ in range(1_000)]
    assert readings == sorted(readings)
    assert 0 <= readings[-1] - readings[0] < 60


def test_steady_reads_the_clock_that_also_runs_while_the_machine_is_suspended():
    expected = {getattr(time, name) for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC_RAW") if hasattr(time, name)}
    assert clock_module._STEADY in expected
    assert clock_module._STEADY != time.CLOCK_MONOTONIC


@pytest.mark.parametrize("seconds", [0, -1.5, 0.0])
async def test_a_sleep_of_zero_or_less_returns_at_once_but_lets_others_run(seconds: float):
    ran = []
    asyncio.get_running_loop().call_soon(ran.append, "other")
    await SystemClock().sleep(seconds)
    assert ran == ["other"]


async def test_waiting_for_an_event_that_is_set_does_not_sleep():
    clock, event = HeldClock(), asyncio.Event()
    event.set()
    assert await wait_for_event(clock, event, 5)
    assert clock.asked == []


async def test_waiting_for_an_event_ends_when_it_is_set_and_the_sleep_is_ended_with_it():
    clock, event = HeldClock(), asyncio.Event()
    waiting = asyncio.ensure_future(wait_for_event(clock, event, 5))
    await clock.asleep.wait()
    event.set()
    assert await waiting
    await clock.ended.wait()
    assert clock.asked == [5]


async def test_waiting_for_an_event_ends_when_the_time_has_passed():
    clock, event = HeldClock(), asyncio.Event()
    waiting = asyncio.ensure_future(wait_for_event(clock, event, 5))
    await clock.asleep.wait()
    clock.wake.set()
    assert not await waiting


async def test_waiting_without_a_bound_waits_for_the_event_alone():
    clock, event = HeldClock(), asyncio.Event()
    waiting = asyncio.ensure_future(wait_for_event(clock, event, None))
    asyncio.get_running_loop().call_soon(event.set)
    assert await waiting
    assert clock.asked == []


async def test_a_waiter_that_is_cancelled_leaves_nothing_running():
    clock, event = HeldClock(), asyncio.Event()
    waiting = asyncio.ensure_future(wait_for_event(clock, event, 5))
    await clock.asleep.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await clock.ended.wait()


# ---------------------------------------------------------------- ids
def test_a_run_id_is_a_uuid_of_version_7_that_holds_its_time():
    now = 1_752_000_000_123_456
    made = uuid.UUID(ids.new_run_id(now))
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert made.int >> 80 == now // 1_000


def test_run_ids_sort_by_the_time_they_were_made():
    times = [0, 1_000, 1_752_000_000_000_000, 1_752_000_000_001_000, 4_000_000_000_000_000]
    made = [ids.new_run_id(now) for now in times]
    assert made == sorted(made)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ids.new_run_id(1_752_000_000_000_000),
        ids.new_worker_id,
        ids.new_request_id,
        ids.new_hold_id,
        ids.new_pause_id,
        ids.random_uuid,
        ids.random_seed,
    ],
)
def test_no_two_ids_are_the_same(make: Callable[[], object]):
    made = {make() for _ in range(5_000)}
    assert len(made) == 5_000


def test_ids_of_each_kind_are_told_apart_by_their_first_letter_and_pass_the_check():
    made = {"w": ids.new_worker_id(), "q": ids.new_request_id(), "h": ids.new_hold_id(), "p": ids.new_pause_id()}
    for letter, value in made.items():
        assert value.startswith(f"{letter}-")
        assert ids.check_id("the id", value) == value


def test_a_random_uuid_is_of_version_4():
    assert ids.random_uuid().version == 4


def test_a_random_seed_has_64_bits():
    assert all(0 <= ids.random_seed() < 2**64 for _ in range(1_000))


def test_jitter_lies_from_one_half_up_to_one_and_a_half_and_is_not_always_the_same():
    drawn = [ids.jitter() for _ in range(5_000)]
    assert min(drawn) >= 0.5
    assert max(drawn) < 1.5
    assert max(drawn) - min(drawn) > 0.5


@pytest.mark.parametrize("value", ["a", "order-42", "Ärger/7 ü", "名前", "🙂", " ", "x" * ids.ID_LENGTH_MAX])
def test_an_id_may_be_any_text_of_1_to_200_characters(value: str):
    assert ids.check_id("the run id", value) == value


@pytest.mark.parametrize("character", ["\0", "\n", "\t", "\x1f", "\x7f", "\x85", "\x9f", "\ud800"])
def test_an_id_with_a_control_character_or_lone_surrogate_is_refused_by_name(character: str):
    with pytest.raises(ConfigurationError, match="the run id") as refused:
        ids.check_id("the run id", f"order{character}42")
    assert ascii(character) in str(refused.value)
    # The message itself can be printed anywhere.
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("length", [0, ids.ID_LENGTH_MAX + 1, 1_000_000])
def test_an_id_that_is_empty_or_too_long_is_refused_with_its_length(length: int):
    with pytest.raises(ConfigurationError, match=f"has {length}$") as refused:
        ids.check_id("the run id", "x" * length)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("value", [None, 42, b"order-42", ["x"], uuid.UUID(int=7)])
def test_an_id_that_is_no_text_is_refused_with_its_type(value: object):
    with pytest.raises(ConfigurationError, match=f"must be text, not {type(value).__name__}"):
        ids.check_id("the run id", value)


@given(st.text(max_size=250))
def test_whatever_passes_the_check_can_be_written_as_utf8_on_one_line(value: str):
    try:
        ids.check_id("the run id", value)
    except ConfigurationError:
        return
    assert value.encode().decode() == value
    assert not set(value) & {"\n", "\r", "\0", "\x85"}
