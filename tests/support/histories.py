"""Whether what a database tells of its runs can be true."""

import itertools
from collections import Counter
from collections.abc import Sequence

from runtrue import Client
from runtrue.lifecycle import TERMINAL, Status, legal_moves
from runtrue.records import Event

_STATUS_AFTER = {
    "created": Status.PENDING,
    "claimed": Status.RUNNING,
    "waiting": Status.WAITING,
    "pause_requested": Status.PAUSING,
    "paused": Status.PAUSED,
    "cancel_requested": Status.CANCELLING,
    "cancelled": Status.CANCELLED,
    "completed": Status.COMPLETED,
    "failed": Status.FAILED,
    "released": Status.PENDING,
}


def path_of(events: Sequence[Event]) -> list[Status]:
    """The statuses that a run went through, as its events tell."""
    path: list[Status] = []
    for index, event in enumerate(events):
        status = _STATUS_AFTER.get(event.type)
        if event.type == "resumed":
            status = Status.RUNNING if path[-1] is Status.PAUSING else Status.PENDING
        elif event.type == "worker_lost":
            after = next((e for e in events[index + 1 :] if e.type != "hold_opened"), None)
            one_move = after is not None and after.type in {"paused", "cancelled"} and after.at == event.at
            status = None if one_move else Status.PENDING
        if status is not None:
            path.append(status)
    return path


async def events_of(client: Client, run_id: str) -> list[Event]:
    """Everything that happened to a run."""
    handle = await client.get(run_id)
    return [event async for event in handle.events()]


async def assert_sound(client: Client, *run_ids: str, ended: bool = True) -> None:
    """No promise is broken, each history is a legal path, without gaps, and ends once."""
    assert await client.service.store.check() == []
    for run_id in run_ids:
        events = await events_of(client, run_id)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        path = path_of(events)
        illegal = set(itertools.pairwise(path)) - legal_moves()
        assert not illegal, f"run {run_id} went {' > '.join(path)}"
        run = await client.service.get(run_id, payloads=False)
        assert path[-1] is run.status, f"the history of {run_id} ends {path[-1]}, its row says {run.status}"
        assert sum(status in TERMINAL for status in path) == (1 if ended else 0)
        steps, _ = await client.service.steps(run_id)
        places = Counter(step.ordinal for step in steps)
        assert sorted(places) == list(range(len(steps)))
        assert run.steps_done == len(steps)
