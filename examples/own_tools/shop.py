"""Tools of a shop, as an application's own loop has them: plain functions."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Order:
    """One order."""

    id: str
    customer: str
    total: float
    paid: bool


_ORDERS = [
    Order(f"o-{number}", customer=f"c-{number % 7}", total=number * 12.5, paid=number % 3 != 0)
    for number in range(1, 201)
]


async def list_orders(customer: str | None = None) -> list[Order]:
    """List the orders, or those of one customer."""
    return [order for order in _ORDERS if customer in (None, order.customer)]


def get_order(order_id: str) -> Order:
    """Return one order by its id, such as o-17."""
    print("looking up", order_id)  # goes to the server's log
    for order in _ORDERS:
        if order.id == order_id:
            return order
    raise ValueError(f"there is no order {order_id}")


def remind(order_id: str, text: str = "Please pay.") -> str:
    """Send a reminder to the customer of an order that is not paid."""
    order = get_order(order_id)
    return "already paid" if order.paid else f"sent to {order.customer}: {text}"
