"""For the tests of programs: an App whose clock the test moves, and whose worker it may lose."""

from runtrue.testing._app import TestApp
from runtrue.testing._errors import ReplayMismatch, Standstill

__all__ = ["ReplayMismatch", "Standstill", "TestApp"]
