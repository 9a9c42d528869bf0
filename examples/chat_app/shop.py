"""Ten tools of a shop with invented data. `python3 shop.py` serves them by MCP on standard input and output."""

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

Row = dict[str, Any]
STATES = ("delivered", "pending", "shipped", "delivered", "returned", "pending", "delivered")
COUNTRIES = ("AT", "CH", "DE", "FR", "NL")
NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hal", "Ida", "Jon", "Kim", "Leo")
PRODUCTS: list[Row] = [
    {"sku": f"P{number:02}", "name": name, "category": category, "price": 5.0 + 7 * number, "stock": number * 13 % 40}
    for number, (name, category) in enumerate(
        [("Lamp", "home"), ("Rug", "home"), ("Desk", "office"), ("Chair", "office"), ("Shelf", "home"),
         ("Bag", "travel"), ("Tent", "travel"), ("Stove", "travel"), ("Clock", "home"), ("Pen", "office")]
    )
]  # fmt: skip
CUSTOMERS: list[Row] = [
    {"id": f"C{number:02}", "name": f"{NAMES[number % 12]} {'ABCDE'[number // 12]}.", "country": COUNTRIES[number % 5],
     "since": str(date(2020, 1, 1) + timedelta(days=29 * number))}
    for number in range(60)
]  # fmt: skip
ORDERS: list[Row] = [
    {"id": f"O{number:03}", "customer": CUSTOMERS[number * 7 % 60]["id"], "sku": PRODUCTS[number * 3 % 10]["sku"],
     "quantity": 1 + number % 4, "status": STATES[number % 7],
     "amount": (1 + number % 4) * PRODUCTS[number * 3 % 10]["price"],
     "ordered": str(date(2026, 1, 1) + timedelta(days=number))}
    for number in range(300)
]  # fmt: skip
TICKETS: list[Row] = []
MAX_TICKETS = 1000


def find(rows: list[Row], key: str, value: str) -> Row:
    """Return the row whose key has the value. Raises ValueError."""
    for row in rows:
        if row[key] == value:
            return row
    raise ValueError(f"there is no {key} {value[:50]!r}; such as {rows[0][key]!r}")


def list_orders(status: str = "") -> list[Row]:
    """List orders, oldest first; status is pending, shipped, delivered or returned, empty for all."""
    return [order for order in ORDERS if status in ("", order["status"])]


def get_order(order_id: str) -> Row:
    """Return an order."""
    return find(ORDERS, "id", order_id)


def list_customers(country: str = "") -> list[Row]:
    """List customers; country is a code of two letters, empty for all."""
    return [customer for customer in CUSTOMERS if country in ("", customer["country"])]


def get_customer(customer_id: str) -> Row:
    """Return a customer: name, country and the first order's date."""
    return find(CUSTOMERS, "id", customer_id)


def list_products(category: str = "") -> list[Row]:
    """List products; category is home, office or travel, empty for all."""
    return [product for product in PRODUCTS if category in ("", product["category"])]


def get_product(sku: str) -> Row:
    """Return a product with its price."""
    return find(PRODUCTS, "sku", sku)


def get_stock(sku: str) -> Row:
    """Return how many pieces of a product are in stock."""
    return {"sku": sku, "stock": find(PRODUCTS, "sku", sku)["stock"]}


def track_shipment(order_id: str) -> Row:
    """Return where the shipment of an order is."""
    order = find(ORDERS, "id", order_id)
    return {"order": order_id, "status": order["status"], "carrier": "post"}


def list_returns(customer_id: str) -> list[Row]:
    """List the orders that a customer returned."""
    find(CUSTOMERS, "id", customer_id)
    return [order for order in ORDERS if order["customer"] == customer_id and order["status"] == "returned"]


def open_ticket(customer_id: str, text: str) -> Row:
    """Open a ticket for a customer."""
    find(CUSTOMERS, "id", customer_id)
    if len(TICKETS) >= MAX_TICKETS or len(text) > 2000:
        raise ValueError(f"at most {MAX_TICKETS} tickets of 2000 characters are possible")
    TICKETS.append({"id": f"T{len(TICKETS) + 1}", "customer": customer_id, "text": text})
    return TICKETS[-1]


TOOLS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        list_orders, get_order, list_customers, get_customer, list_products,
        get_product, get_stock, track_shipment, list_returns, open_ticket,
    )
}  # fmt: skip


def serve() -> None:
    """Serve the tools by MCP."""
    from mcp.server import MCPServer

    server = MCPServer("shop")
    for function in TOOLS.values():
        server.tool()(function)
    server.run()


if __name__ == "__main__":
    serve()
