"""A clock that tests move by hand: the one of runtrue.testing."""

from runtrue.testing._clock import BEGINNING, BREATH_SECONDS, ManualClock

__all__ = ["BEGINNING", "BREATH_SECONDS", "ManualClock"]
