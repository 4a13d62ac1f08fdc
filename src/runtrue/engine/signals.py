"""Control-flow signals of the engine."""


class Unwound(BaseException):
    """Unwinds a workflow whose run is not this worker's any more, or has ended. Not for authors to catch.

    `finally` and `except BaseException` of the workflow may run while it passes; every durable call that they make
    raises it again, and nothing that they return is used.
    """
