"""The stage on which these tests play."""

from tests.support.stage import stage

__all__ = ["stage"]
