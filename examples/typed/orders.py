"""What a type checker knows of a program of steps and workflows: `make check` reads it strictly, a test runs it.

python examples/typed/orders.py
"""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import assert_type

import runtrue as rt


@dataclass(frozen=True)
class Order:
    """What a customer wants."""

    number: int
    price: Decimal


@dataclass(frozen=True)
class Receipt:
    """What the customer gets."""

    order: Order
    paid_at: datetime


class CardDeclinedError(Exception):
    """The bank said no."""


def is_worth_it(error: Exception) -> bool:
    """Only the network gets better by itself."""
    return isinstance(error, ConnectionError)


@rt.step(
    retry=rt.Retry(5, first_delay=timedelta(milliseconds=10), retry_on=is_worth_it, give_up_on=ValueError),
    timeout=30,
    raises=(CardDeclinedError,),
)
async def charge(order: Order, *, currency: str = "EUR") -> datetime:
    """Charge the card."""
    step = rt.this_step()
    assert_type(step.idempotency_key, str)
    step.progress(done=1, total=2, note=f"charging {order.price} {currency}")
    if order.price > 1_000:
        raise CardDeclinedError(order.number)
    return datetime(2026, 1, 1, tzinfo=UTC)


@rt.step
async def ship(order: Order) -> None:
    """Send it."""


@rt.workflow(version="2")
async def fulfil(order: Order, note: str = "") -> Receipt:
    """Charge, then ship."""
    assert_type(rt.this_run(), rt.RunInfo)
    try:
        paid_at = await charge(order)
    except CardDeclinedError as declined:
        raise rt.CancelRun("the card was declined") from declined
    assert_type(paid_at, datetime)
    assert_type(await charge.options(name="charge:again", retry=3)(order, currency="USD"), datetime)
    assert_type(await ship(order), None)
    await rt.sleep(timedelta(milliseconds=10))
    assert_type(rt.now(), datetime)
    rt.set_progress(done=2, total=2, note=note)
    return Receipt(order, paid_at)


app = rt.App("sqlite://", workflows=[fulfil])


async def main() -> None:
    """Start a run and wait for its receipt."""
    async with app:
        run = await app.start(
            fulfil.options(id="order-42", tags={"team": "red"}), Order(42, Decimal("9.90")), note="hi"
        )
        assert_type(run, rt.RunHandle[Receipt])
        receipt = await run.result(timeout=timedelta(seconds=20))
        assert_type(receipt, Receipt)
        assert_type((await run.info()).output, Receipt | None)
        assert_type(await app.get("order-42", fulfil), rt.RunHandle[Receipt])
        assert_type(await app.run(fulfil, Order(43, Decimal(1))), Receipt)
        declined = await app.start(fulfil, Order(44, Decimal(2_000)))
        try:
            await declined.result()
        except rt.RunCancelled as cancelled:
            print(f"{receipt.order.number} is paid; {cancelled.reason}")


if __name__ == "__main__":
    asyncio.run(main())
