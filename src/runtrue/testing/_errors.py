"""What a TestApp raises beside the errors of the runs themselves."""

from runtrue.errors import RuntrueError


class Standstill(RuntrueError):
    """What a test waits for cannot come any more, or not without time passing. The message says what is in the way."""


class ReplayMismatch(RuntrueError):
    """The code of a workflow does not fit the recorded history of a run. The message names both sides."""
