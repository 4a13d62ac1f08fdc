"""A workflow that hears many messages, for worker processes."""

import runtrue as rt


@rt.workflow
async def hears(count: int) -> list[int]:
    return [await rt.receive("note", int) for _ in range(count)]


app = rt.App(workflows=[hears])
