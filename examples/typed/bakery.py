"""A cake: steps of both colours at the same time, a sleep, a result.

python examples/typed/bakery.py
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import assert_type

import runtrue as rt


@dataclass
class Cake:
    """What was ordered."""

    flavour: str
    guests: int


@dataclass
class Box:
    """What is handed over."""

    cake: str
    label: str


@rt.step(retry=5, timeout=30)
async def bake(cake: Cake) -> str:
    """An `async def` step runs on the event loop."""
    return f"{cake.flavour} cake for {cake.guests}"


@rt.step
def draw_label(cake: Cake) -> str:
    """A `def` step runs on a thread; in an async workflow it is awaited by `.aio`."""
    return cake.flavour.upper()


@rt.workflow
async def order(cake: Cake) -> Box:
    """Bake and draw at the same time, let it cool, pack."""
    if cake.guests > 500:
        raise rt.CancelRun("the oven is too small")
    baked, label = await rt.gather(bake(cake), draw_label.aio(cake))
    assert_type(baked, str)
    await rt.sleep(timedelta(milliseconds=10))  # or hours: a sleeping run costs no memory
    rt.logger.info("packed %s", label)
    return Box(baked, label)


app = rt.App("sqlite://", workflows=[order])


async def main() -> None:
    """Two orders, one of them too large."""
    async with app:
        run = await app.start(order.options(id="cake-1"), Cake("lemon", 12))
        box = await run.result()
        assert_type(box, Box)
        try:
            await app.run(order, Cake("plum", 1_000))
        except rt.RunCancelled as cancelled:
            print(f"{box.cake} in a box {box.label}; {cancelled.reason}")


if __name__ == "__main__":
    asyncio.run(main())
