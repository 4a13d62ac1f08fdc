"""A message whose branch was stopped before it could make use of it."""

from pathlib import Path

from tests.engine.looking import until_open
from tests.engine.running import Gate, audit, finished, opened, reaches
from tests.support.waiting import until

import runtrue as rt

topic = rt.Topic("notes", int)


async def test_a_message_that_came_to_a_branch_just_before_a_pause_goes_back_if_the_branch_loses(database: Path):
    gate, used = Gate(), []

    @rt.step
    async def use(note: int) -> int:
        used.append(note)
        return note

    @rt.step
    async def other() -> int:
        await gate.pass_through()
        return 1

    async def item() -> int:
        return await use(await rt.receive(topic))

    @rt.workflow
    async def race() -> list[int | None]:
        winner, value = await rt.first(item(), other())
        return [winner, value, await rt.receive(topic, timeout=5, default=None)]

    async with opened(database, race) as app:
        run = await app.start(race)
        await gate.reached()
        await until_open(app, run, "notes")
        await run.pause()
        await run.send(topic, 7)

        async def received() -> bool:
            return any(message.received_at is not None for message in await app.service.messages(run.id))

        await until(received, "the renewal has brought the message to the branch")
        gate.open()
        await reaches(run, "paused")
        await run.resume()
        assert await finished(run) == [1, 1, 7]
        assert used == []
        await audit(app, run)
