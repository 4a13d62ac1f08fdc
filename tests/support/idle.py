"""A worker process that serves nothing of what the tests start: it only sweeps."""

import runtrue as rt


@rt.workflow
async def never_started() -> None:
    """No test starts this."""


app = rt.App(workflows=[never_started])
