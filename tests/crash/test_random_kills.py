"""Workers killed with SIGKILL at drawn moments: what was recorded stands, what was in flight is done again."""

import random
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from tests.support import flows
from tests.support.histories import assert_sound
from tests.support.stage import Stage
from tests.support.waiting import CLOCK, moment

STEPS = 50
LEASE = 2


async def test_runs_of_fifty_steps_survive_kills_at_random_moments(stage: Stage, chance: random.Random):
    await _survive(stage, chance, kills=10)


@pytest.mark.prove
async def test_runs_of_fifty_steps_survive_two_hundred_kills_at_random_moments(stage: Stage, chance: random.Random):
    hits = await _survive(stage, chance, kills=200)
    assert hits > 100, f"most kills should hit steps in flight, {hits} steps were hit"


async def test_workers_killed_while_they_open_a_new_file_leave_one_that_can_be_opened(
    tmp_path: Path, chance: random.Random
):
    stage = Stage(tmp_path)
    for _ in range(4):
        process, _ = stage.spawn("tests.support.flows", LEASE, 10, {})
        await moment(CLOCK.steady() + chance.uniform(0.2, 0.6))
        process.kill()
        process.wait()
    async with stage.client:
        try:
            run = await stage.start("a", "b")
            await stage.worker()
            assert await run.result(timeout=45) == ["a", "b"]
            await assert_sound(stage.client, "run")
        finally:
            stage.end_workers()


async def _survive(stage: Stage, chance: random.Random, *, kills: int) -> int:
    """Two workers are there at any time; one of them is killed again and again. Returns how many steps were hit."""
    workers = [await stage.worker(lease=LEASE), await stage.worker(lease=LEASE)]
    killed: set[int] = set()
    run_ids: list[str] = []
    for number in range(kills):
        # A new run for each kill, and a few to begin with, so that there is always something to hit.
        for _ in range(1 if number else 4):
            run_ids.append(f"run-{len(run_ids)}")
            await stage.client.start(flows.walk.options(id=run_ids[-1]), str(stage.folder), STEPS)
        await _something_happens(stage, chance)
        victim = workers.pop(chance.randrange(2))
        victim.kill()
        killed.add(victim.pid)
        workers.append(await stage.worker(lease=LEASE))
    for run_id in run_ids:
        assert await (await stage.client.get(run_id, flows.walk)).result(timeout=60) == STEPS
    hits = _assert_nothing_was_done_in_vain(stage, killed)
    await assert_sound(stage.client, *run_ids)
    assert [worker.exit_code for worker in workers] == [None, None]
    return hits


async def _something_happens(stage: Stage, chance: random.Random) -> None:
    """Wait for some steps, then for a moment that lies anywhere within one."""
    seen = len(stage.effects())
    wanted = chance.randrange(1, 40)
    deadline = CLOCK.steady() + LEASE
    while len(stage.effects()) < seen + wanted and CLOCK.steady() < deadline:
        await moment(CLOCK.steady() + chance.uniform(0, 0.01))


def _assert_nothing_was_done_in_vain(stage: Stage, killed: set[int]) -> int:
    """A step is begun once, and once more for each kill that hit it in flight."""
    begun: Counter[tuple[str, str]] = Counter()
    last_begun: dict[tuple[str, int], str] = {}
    keys: dict[tuple[str, str], set[str]] = defaultdict(set)
    for effect in stage.effects():
        begun[effect.run_id, effect.name] += 1
        keys[effect.run_id, effect.name].add(effect.key)
        last_begun[effect.run_id, effect.pid] = effect.name
    hit = Counter((run_id, name) for (run_id, pid), name in last_begun.items() if pid in killed)
    too_often = {step: times for step, times in begun.items() if times > 1 + hit[step]}
    assert not too_often, f"steps begun more often than kills explain: {too_often}"
    assert all(len(used) == 1 for used in keys.values())
    return sum(times - 1 for times in begun.values())
