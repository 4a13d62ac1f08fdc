"""A run of a TestApp, seen from its test."""

from collections.abc import Callable
from typing import TypeVar

from runtrue.authoring import Duration, Workflow, seconds_of
from runtrue.clock import MICROSECOND
from runtrue.handles import OpenClient, Run, RunHandle, WaitFor
from runtrue.testing._time import Timekeeper

R_co = TypeVar("R_co", covariant=True)


class TimedRunHandle(RunHandle[R_co]):
    """A handle whose `result` moves the clock of the app, and whose `wait` does not."""

    def __init__(
        self,
        client: OpenClient,
        run_id: str,
        workflow: Workflow[..., R_co] | None,
        timekeeper: Callable[[], Timekeeper],
    ) -> None:
        super().__init__(client, run_id, workflow)
        self._timekeeper = timekeeper

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Let time pass until the run has ended, and return what the workflow returned.

        Whenever nothing can happen without time passing, the clock jumps to the moment at which something is due
        next, in whatever run of the app. `timeout` is of that clock. Raises RunFailed, RunCancelled, ResultTimeout; and
        Standstill if the run waits for what no time can bring: a message, a person, a step that does not come back.
        """
        client = self._client
        await client.service.get(self.id, payloads=False)
        give_up_at = None
        if timeout is not None:
            give_up_at = client.clock.now() + round(seconds_of("timeout", timeout) * MICROSECOND)
        await self._timekeeper().until_ended(self.id, give_up_at)
        return await super().result()

    async def wait(self, until: WaitFor = "finished", /, *, timeout: Duration | None = None) -> Run[R_co]:
        """Let the worker do what it can until the run has this status, or has ended otherwise. The clock stands still.

        Raises Standstill if that status cannot be reached without time passing.
        """
        arriving = super().wait(until, timeout=timeout)
        return await self._timekeeper().without_time(self.id, until, arriving)
