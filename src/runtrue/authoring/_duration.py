"""Durations as an author writes them: seconds or a timedelta."""

import math
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from runtrue.clock import MICROSECOND
from runtrue.errors import ConfigurationError

Duration: TypeAlias = float | timedelta
"""Seconds, or a timedelta."""

SECONDS_MAX = 100 * 366 * 86_400
"""A hundred years: a longer span is a mistake of units."""


def seconds_of(what: str, duration: object) -> float:
    """`duration` in seconds. Raises ConfigurationError if it is no duration, negative, or over a hundred years."""
    if isinstance(duration, timedelta):
        seconds = duration.total_seconds()
    elif isinstance(duration, (int, float)) and not isinstance(duration, bool):
        seconds = float(duration)
    else:
        raise ConfigurationError(f"{what} must be seconds or a timedelta, not {type(duration).__name__}")
    if math.isnan(seconds) or seconds < 0 or seconds > SECONDS_MAX:
        raise ConfigurationError(f"{what} must be from 0 seconds to a hundred years, not {duration!r}")
    return seconds


def microseconds_at(what: str, when: object) -> int:
    """A point in time as microseconds since 1970. Raises ConfigurationError for a datetime without a time zone."""
    if not isinstance(when, datetime):
        raise ConfigurationError(f"{what} must be a datetime, not {type(when).__name__}")
    if when.tzinfo is None or when.utcoffset() is None:
        raise ConfigurationError(
            f"{what} {when.isoformat()} has no time zone; say which, for example datetime.now(UTC)"
        )
    return (when - _EPOCH) // timedelta(microseconds=1)


def datetime_of(microseconds: int) -> datetime:
    """A recorded time as an aware datetime, UTC."""
    return _EPOCH + timedelta(microseconds=microseconds)


def microseconds_of(what: str, duration: object) -> int:
    """`duration` in microseconds."""
    return round(seconds_of(what, duration) * MICROSECOND)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
