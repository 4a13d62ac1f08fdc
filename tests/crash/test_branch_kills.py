"""Workers killed with SIGKILL among branches: what one of them has recorded stands, and a race has one winner."""

import random
from collections import defaultdict
from pathlib import Path

import pytest
from tests.support import branches
from tests.support.flows import Effect
from tests.support.stage import Stage
from tests.support.waiting import CLOCK, moment

from runtrue import codec
from runtrue.records import StepRecord

LEASE = 2
LATENCY_SECONDS_MAX = 0.03


async def test_branches_survive_kills_at_random_moments(stage: Stage, chance: random.Random):
    await _survive(stage, chance, kills=6)


@pytest.mark.prove
async def test_branches_survive_two_hundred_kills_at_random_moments(stage: Stage, chance: random.Random):
    hits = await _survive(stage, chance, kills=200)
    assert hits > 100, f"most kills should hit steps in flight, {hits} steps were hit"


async def _survive(stage: Stage, chance: random.Random, *, kills: int) -> int:
    """Two workers are there at any time; one of them is killed again and again. Returns how many steps were hit."""
    module = branches.__name__
    workers = [await stage.worker(lease=LEASE, module=module), await stage.worker(lease=LEASE, module=module)]
    killed: set[int] = set()
    run_ids: list[str] = []
    for number in range(kills):
        for _ in range(1 if number else 4):
            run_ids.append(f"run-{len(run_ids)}")
            latencies = [chance.uniform(0, LATENCY_SECONDS_MAX) for _ in range(10)]
            await stage.client.start(branches.fan.options(id=run_ids[-1]), str(stage.folder), latencies)
        await _something_happens(stage, chance)
        victim = workers.pop(chance.randrange(2))
        victim.kill()
        killed.add(victim.pid)
        workers.append(await stage.worker(lease=LEASE, module=module))
    hits = sum([await _assert_sound(stage, run_id, killed) for run_id in run_ids])
    assert await stage.client.service.store.check() == []
    assert [worker.exit_code for worker in workers] == [None, None]
    return hits


async def _something_happens(stage: Stage, chance: random.Random) -> None:
    """Wait for some steps, then for a moment that lies anywhere within one or between two."""
    seen = len(stage.effects())
    wanted = chance.randrange(1, 12)
    deadline = CLOCK.steady() + LEASE
    while len(stage.effects()) < seen + wanted and CLOCK.steady() < deadline:
        await moment(CLOCK.steady() + chance.uniform(0, 0.01))
    await moment(CLOCK.steady() + chance.uniform(0, LATENCY_SECONDS_MAX))


async def _assert_sound(stage: Stage, run_id: str, killed: set[int]) -> int:
    """The run completes with what was recorded, once. Returns how many steps were begun in vain."""
    result = await (await stage.client.get(run_id, branches.fan)).result(timeout=60)
    steps, attempts = await stage.client.service.steps(run_id)
    assert attempts == []
    recorded = _results(steps)
    assert len(set(recorded.values())) == len(recorded)
    assert set(result) <= set(recorded.values()), "the result is made of what is recorded"
    (outcome,) = [step for step in steps if step.kind == "first"]
    winner = codec.decode(outcome.output or b"", int, what="the winner")
    assert _winners(stage.folder, run_id) == {winner}, "the winner is the same on every replay"
    assert f"after-{winner}" in recorded
    assert {f"g{number}" for number in range(5)} <= set(recorded)
    begun: dict[str, list[Effect]] = defaultdict(list)
    for effect in stage.effects(run_id):
        begun[effect.name].append(effect)
    assert set(recorded) <= set(begun)
    for name, effects in begun.items():
        assert len({effect.key for effect in effects}) == 1
        in_vain = effects if name not in recorded else effects[:-1]
        assert {effect.pid for effect in in_vain} <= killed, f"{name} was begun again although nobody was killed"
        assert len({effect.pid for effect in effects}) == len(effects), f"{name} was begun twice by one process"
        if name in recorded:
            maker = int(recorded[name].split(" ")[1])
            assert maker == effects[-1].pid, f"{name} was begun again after it was recorded"
    return sum(len(effects) - 1 for effects in begun.values())


def _results(steps: list[StepRecord]) -> dict[str, str]:
    """The recorded results of steps, by the name that they were called with."""
    results = [codec.decode(step.output or b"", str, what="a result") for step in steps if step.kind == "step"]
    return {result.split(" ")[0]: result for result in results}


def _winners(folder: Path, run_id: str) -> set[int]:
    """All winners that the code of a run has seen."""
    lines = (line.split(" ") for line in (folder / "winners").read_text().splitlines())
    return {int(winner) for found, winner in lines if found == run_id}
