"""What a type checker knows of methods, children, messages and groups.

python examples/typed/harbour.py
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, assert_type

import runtrue as rt


@dataclass
class Ship:
    """A ship that wants to come in."""

    name: str
    metres: int


@dataclass
class Pilot:
    """Who guides it."""

    name: str


class AgroundError(Exception):
    """The ship sits on the sand."""


class Tide:
    """Where the water stands: a dependency, which the App's lifespan yields."""

    def __init__(self, metres: int) -> None:
        self.metres = metres


pilots = rt.Topic("pilots", Pilot)
weigh_elsewhere = rt.ref("weigh", int)


@rt.step(raises=(AgroundError,))
def sound(ship: Ship) -> int:
    """How much water is under the keel."""
    return rt.state(Tide).metres - ship.metres


@rt.step
async def ring(bell: str, times: int = 1) -> str:
    """Ring a bell."""
    return bell * times


@rt.workflow
def weigh(ship: Ship) -> int:
    """A `def` workflow."""
    return ship.metres * 100


@rt.workflow(raises=(AgroundError,), deadline=timedelta(days=1))
async def tow(ship: Ship) -> str:
    """A child."""
    if await sound.aio(ship) < 0:
        raise AgroundError(ship.name)
    return f"{ship.name} is in"


class Harbour:
    """Its steps and workflows are methods: what they need lives on the instance and is recorded nowhere."""

    def __init__(self, name: str) -> None:
        self.name = name

    @rt.step
    async def signal(self, flag: str) -> str:
        """Show a flag."""
        return f"{self.name}: {flag}"

    @rt.step
    def moor(self, ship: Ship) -> timedelta:
        """Tie the ship up: how long it took."""
        return timedelta(minutes=ship.metres)

    @rt.workflow
    async def enter(self, ship: Ship, *, tugs: int = 1) -> list[str]:
        """All words of an async workflow."""
        assert_type(rt.state(Tide), Tide)
        assert_type(await self.signal("P"), str)
        assert_type(await self.moor.aio(ship), timedelta)
        pilot = await rt.receive(pilots, timeout=timedelta(hours=1))
        assert_type(pilot, Pilot)
        assert_type(await rt.receive("word", str, timeout=0, default=None), str | None)

        flag, water, _ = await rt.gather(self.signal("H"), sound.aio(ship), rt.sleep(0))
        assert_type(flag, str)
        assert_type(water, int)
        won = await rt.first(ring("ding"), sound.aio(ship))
        assert_type(won, tuple[Literal[0], str] | tuple[Literal[1], int])
        assert_type(await rt.map(ring, ["a", "b"], limit=2), list[str])
        assert_type(await rt.map(self.signal, ["a"], key=str), list[str])
        assert_type(await rt.map(weigh, [ship]), list[int])

        assert_type(await weigh.aio(ship), int)
        assert_type(await weigh_elsewhere.aio(ship={"name": ship.name, "metres": ship.metres}), int)
        child = await rt.start_child(tow.options(id=f"tow-{ship.name}", on_parent_cancel="abandon"), ship)
        assert_type(child, rt.ChildHandle[str])
        await child.send(pilots, pilot)
        towed = await child.result()
        assert_type(towed, str)
        try:
            await tow(Ship("the Ark", 900))
        except AgroundError as aground:
            rt.publish("aground", str(aground))
        if rt.patched("whistle"):
            await ring("tuut", times=tugs)
        return [flag, pilot.name, towed]


@asynccontextmanager
async def lifespan() -> AsyncGenerator[Tide, None]:
    """What lives as long as the App is open."""
    yield Tide(12)


app = rt.App("sqlite://", workflows=[Harbour("Ystad").enter, tow, weigh], lifespan=lifespan)


async def main() -> None:
    """Start a method, send it a pilot, wait."""
    async with app:
        run = await app.start(Harbour.enter.options(id="in-1"), Ship("Bore", 9), tugs=2)
        assert_type(run, rt.RunHandle[list[str]])
        await run.send(pilots, Pilot("Ida"))
        print("; ".join(await run.result(timeout=20)))
        assert_type(await run.published("aground"), Any)
        assert await run.published("aground") == "the Ark"


if __name__ == "__main__":
    asyncio.run(main())
