"""What the service adds to a command on its way to the store."""

import pytest
from tests.support.manual_clock import ManualClock

from runtrue.errors import NotFound
from runtrue.service import Service
from runtrue.store.protocol import CommandReply, CommandRequest


class Listener:
    """Stands for a store: keeps what it is asked, and knows no run."""

    def __init__(self) -> None:
        self.asked: list[CommandRequest] = []

    async def command(self, request: CommandRequest) -> CommandReply:
        self.asked.append(request)
        return CommandReply(found=False)


@pytest.mark.parametrize("verb", ["pause", "resume", "cancel", "terminate"])
async def test_a_command_is_given_no_more_time_than_its_caller_waits(verb: str):
    store, clock = Listener(), ManualClock()
    service = Service(store, clock, "anna")  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(NotFound):
            await getattr(service, verb)("r")
    assert [0 < asked.not_after - clock.now() <= 2_000_000 for asked in store.asked] == [True, True]
    assert len({asked.request_id for asked in store.asked}) == 2, "each command is one of its own"
