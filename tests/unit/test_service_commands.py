"""What the service adds to a command on its way to the store."""

from typing import Any

import pytest
from tests.support.manual_clock import ManualClock

from runtrue.errors import NotFound
from runtrue.service import Service
from runtrue.store import open_store
from runtrue.store.protocol import CommandReply, CommandRequest


class Listener:
    """A real store; it keeps the commands that it is given."""

    def __init__(self, store: Any) -> None:
        self.asked: list[CommandRequest] = []
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def command(self, request: CommandRequest) -> CommandReply:
        self.asked.append(request)
        return await self._store.command(request)


@pytest.mark.parametrize("verb", ["pause", "resume", "cancel", "terminate"])
async def test_a_command_is_given_no_more_time_than_its_caller_waits(verb: str):
    clock = ManualClock()
    store = Listener(await open_store("sqlite://", clock=clock))
    service = Service(store, clock, "anna")  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(NotFound):
            await getattr(service, verb)("r")
    assert [0 < asked.not_after - clock.now() <= 2_000_000 for asked in store.asked] == [True, True]
    assert len({asked.request_id for asked in store.asked}) == 2, "each command is one of its own"
    await store.close()
