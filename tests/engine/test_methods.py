"""Steps and workflows on instances: each acts for its own instance, which is recorded nowhere."""

import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.engine.running import finished, opened, reaches, recorded
from tests.support.manual_clock import ManualClock

import runtrue as rt
import runtrue.sync as blocking

SECRET = "hunter2"


class Gateway:
    """Holds what cannot be recorded, and a secret that must not be."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.secret = SECRET
        self.lock = threading.Lock()
        self.charged: list[str] = []

    @rt.step
    async def charge(self, order: str) -> str:
        with self.lock:
            self.charged.append(order)
        return f"{self.name} charged {order}"

    @rt.step(retry=rt.Retry(2, first_delay=0))
    def refund(self, order: str, amount: int = 1) -> str:
        if rt.this_step().attempt == 1:
            raise ConnectionError
        return f"{self.name} refunded {amount} for {order}"


class Shop:
    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway

    @rt.workflow
    async def sell(self, order: str) -> list[str]:
        first = await self.gateway.charge(order)
        await rt.sleep(60)
        both = await rt.gather(self.gateway.charge.options(name="charge again")(order), self.note(order))
        return [first, *both, await self.gateway.refund.aio(order, amount=3)]

    @rt.step
    async def note(self, order: str) -> str:
        return f"{self.gateway.name} noted {order}"

    @rt.workflow
    def sell_blocking(self, order: str) -> list[str]:
        return [
            self.gateway.charge.sync(order),
            self.gateway.refund(order),
            *blocking.map(self.gateway.charge, ["a", "b"]),
            self.child(order),
        ]

    @rt.workflow
    def child(self, order: str) -> str:
        return f"child of {self.gateway.name}: {order}"


async def test_steps_of_an_instance_are_carried_out_by_it_on_every_replay_and_it_is_recorded_nowhere(
    database: Path, clock: ManualClock
):
    gateway = Gateway("visa")
    async with opened(database, Shop(gateway).sell, clock=clock) as app:
        run = await app.start(Shop.sell, "42")
        await reaches(run, "waiting")
        clock.advance(60)
        assert await finished(run) == [
            "visa charged 42",
            "visa charged 42",
            "visa noted 42",
            "visa refunded 3 for 42",
        ]
        assert gateway.charged == ["42", "42"]
        names = [name for name, _ in await recorded(app, run)]
        assert sorted(names) == ["charge", "charge again", "gather", "note", "refund", "sleep"]
        found = await app.service.get(run.id)
        assert found.input is not None
        assert b"42" in found.input
    assert not any(SECRET.encode() in file.read_bytes() for file in database.parent.iterdir())


async def test_another_instance_takes_a_run_on_where_the_first_left_it(database: Path, clock: ManualClock):
    async with opened(database, Shop(Gateway("visa")).sell, clock=clock) as app:
        run = await app.start(Shop.sell, "42")
        await reaches(run, "waiting")
    clock.advance(60)
    async with opened(database, Shop(Gateway("amex")).sell, clock=clock) as app:
        result = await finished(await app.get(run.id))
        assert result[:2] == ["visa charged 42", "amex charged 42"]


async def test_blocking_methods_and_children_on_instances_work_too(database: Path):
    shop = Shop(Gateway("visa"))
    async with opened(database, shop.sell_blocking, shop.child) as app:
        assert await finished(await app.start(shop.sell_blocking, "42")) == [
            "visa charged 42",
            "visa refunded 1 for 42",
            "visa charged a",
            "visa charged b",
            "child of visa: 42",
        ]


@dataclass
class Agent:
    """Two agents are served under two names: what is decorated is the method of the instance."""

    name: str

    @rt.step
    async def think(self, task: str) -> str:
        return f"{self.name} thinks of {task}"

    async def solve(self, task: str) -> str:
        return await self.think(task)


async def test_two_instances_of_one_class_are_served_side_by_side_under_two_names(database: Path):
    ana, otto = (rt.workflow(name=f"solve-{name}")(Agent(name).solve) for name in ("ana", "otto"))
    async with opened(database, ana, otto) as app:
        runs = [await app.start(workflow, "it") for workflow in (ana, otto)] + [await app.start("solve-ana", task="x")]
        assert [await finished(run) for run in runs] == ["ana thinks of it", "otto thinks of it", "ana thinks of x"]
        assert [(await run.info()).workflow for run in runs] == ["solve-ana", "solve-otto", "solve-ana"]


async def test_a_client_without_an_instance_starts_the_workflow_through_its_class(database: Path):
    async with opened(database, Shop(Gateway("visa")).child), rt.Client(database) as client:
        run = await client.start(Shop.child.options(id="order-7"), "7")
        assert await finished(run) == "child of visa: 7"
        assert await finished(await client.get("order-7", Shop.child)) == "child of visa: 7"


async def test_arguments_that_do_not_fit_the_method_are_told_without_self(database: Path):
    async with opened(database, Shop(Gateway("visa")).child) as app:
        with pytest.raises(rt.RuntrueError, match="order") as refused:
            await app.start(Shop.child)  # type: ignore[call-arg]
        assert "self" not in str(refused.value)


class Counter:
    """The lifespan of what a method holds is the author's: here it counts over all runs of the process."""

    def __init__(self) -> None:
        self.count = 0

    @rt.step
    def up(self) -> int:
        self.count += 1
        return self.count

    @rt.workflow
    def flow(self) -> int:
        return self.up() + self.up()


async def test_runs_of_one_instance_share_it(database: Path):
    counter = Counter()
    async with opened(database, counter.flow, slots=1) as app:
        runs = [await app.start(counter.flow) for _ in range(5)]
        assert sum([await finished(run) for run in runs]) == sum(range(1, 11))
        assert counter.count == 10
