"""Tables and rows of the demo database: a trading company whose data is always the same."""

import sqlite3
from datetime import date, timedelta
from typing import Final

from mcp_exec_servers.command import seeded_random

SCHEMA: Final = """
CREATE TABLE categories (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, description TEXT NOT NULL);
CREATE TABLE suppliers (id INTEGER PRIMARY KEY, company TEXT NOT NULL, city TEXT NOT NULL, country TEXT NOT NULL);
CREATE TABLE products (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, supplier_id INTEGER NOT NULL REFERENCES suppliers (id),
  category_id INTEGER NOT NULL REFERENCES categories (id), unit_price REAL NOT NULL, units_in_stock INTEGER NOT NULL,
  discontinued INTEGER NOT NULL DEFAULT 0);
CREATE TABLE customers (
  id TEXT PRIMARY KEY, company TEXT NOT NULL, contact TEXT NOT NULL, city TEXT NOT NULL, country TEXT NOT NULL);
CREATE TABLE employees (
  id INTEGER PRIMARY KEY, first_name TEXT NOT NULL, last_name TEXT NOT NULL, title TEXT NOT NULL,
  reports_to INTEGER REFERENCES employees (id));
CREATE TABLE orders (
  id INTEGER PRIMARY KEY, customer_id TEXT NOT NULL REFERENCES customers (id),
  employee_id INTEGER NOT NULL REFERENCES employees (id), order_date TEXT NOT NULL,
  shipped_date TEXT, freight REAL NOT NULL);
CREATE TABLE order_details (
  order_id INTEGER NOT NULL REFERENCES orders (id), product_id INTEGER NOT NULL REFERENCES products (id),
  unit_price REAL NOT NULL, quantity INTEGER NOT NULL, discount REAL NOT NULL DEFAULT 0,
  PRIMARY KEY (order_id, product_id));
"""
CATEGORIES: Final = {
    "Beverages": ("Green Tea", "Dark Roast", "Cloudy Cider", "Elderflower Soda"),
    "Condiments": ("Plum Chutney", "Mild Mustard", "Chili Oil"),
    "Confections": ("Marzipan Bar", "Ginger Biscuits", "Toffee Tin"),
    "Dairy": ("Mountain Cheese", "Goat Cheese", "Salted Butter"),
    "Grains": ("Rye Crispbread", "Durum Pasta", "Rolled Oats"),
    "Meat": ("Smoked Ham", "Dry Sausage"),
    "Produce": ("Dried Apricots", "Pickled Beets", "White Beans"),
    "Seafood": ("Pickled Herring", "Smoked Trout", "Mussels in Brine"),
}
PLACES: Final = (("Berlin", "Germany"), ("Lyon", "France"), ("Graz", "Austria"), ("Leeds", "UK"), ("Porto", "Portugal"),
                 ("Bergen", "Norway"), ("Turin", "Italy"), ("Madison", "USA"), ("Osaka", "Japan"))  # fmt: skip
SUPPLIERS: Final = ("Harbour Imports", "Alpine Foods", "Southern Orchard", "Fjord Catch", "Mill & Stone", "Sweet Trade")
CUSTOMERS: Final = (
    "Amber Deli", "Blue Door Cafe", "Central Grocers", "Daily Bread", "Eastside Market", "Four Winds Inn",
    "Golden Spoon", "Hilltop Hotel", "Island Kitchen", "Jasmine House", "Kestrel Catering", "Lantern Bistro",
    "Maple Corner", "North Star Foods", "Old Town Pantry", "Pear Tree Shop", "Quay Restaurant", "Red Barn Store",
    "Silver Birch", "Tall Oak Stores",
)  # fmt: skip
EMPLOYEES: Final = (
    ("Nora", "Winter", "Head of Sales", None), ("Omar", "Haddad", "Sales Manager", 1), ("Ida", "Lund", "Sales", 2),
    ("Pablo", "Reyes", "Sales", 2), ("Wei", "Chen", "Sales", 2), ("Tess", "Moran", "Order Desk", 1),
)  # fmt: skip
ORDERS: Final = 240


def fill(connection: sqlite3.Connection) -> None:
    """Create the tables and their rows."""
    connection.executescript(SCHEMA)
    numbers = seeded_random("northwind")
    connection.execute("BEGIN")
    for number, (category, products) in enumerate(CATEGORIES.items(), start=1):
        description = ", ".join(products[:-1]) + f" and {products[-1]}"
        connection.execute("INSERT INTO categories VALUES (?, ?, ?)", (number, category, description))
    for number, supplier in enumerate(SUPPLIERS, start=1):
        connection.execute("INSERT INTO suppliers VALUES (?, ?, ?, ?)", (number, supplier, *numbers.choice(PLACES)))
    prices = []
    for category_id, products in enumerate(CATEGORIES.values(), start=1):
        for product in products:
            price, stock = round(numbers.uniform(2, 60), 2), numbers.randrange(120)
            prices.append(price)
            row = (len(prices), product, numbers.randint(1, len(SUPPLIERS)), category_id, price, stock, 0)
            connection.execute("INSERT INTO products VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    codes = [name.replace(" ", "")[:5].upper() for name in CUSTOMERS]
    for code, name in zip(codes, CUSTOMERS, strict=True):
        contact = numbers.choice(("A. Meyer", "B. Silva", "C. Novak", "D. Okafor", "E. Tanaka"))
        connection.execute(
            "INSERT INTO customers VALUES (?, ?, ?, ?, ?)", (code, name, contact, *numbers.choice(PLACES))
        )
    for number, employee in enumerate(EMPLOYEES, start=1):
        connection.execute("INSERT INTO employees VALUES (?, ?, ?, ?, ?)", (number, *employee))
    for number in range(ORDERS):
        day = date(2026, 1, 2) + timedelta(days=number * 5 // 4)
        shipped = None if numbers.random() < 0.1 else (day + timedelta(days=numbers.randint(1, 12))).isoformat()
        freight = round(numbers.uniform(3, 80), 2)
        order = (1000 + number, numbers.choice(codes), numbers.randint(3, 6), day.isoformat(), shipped, freight)
        connection.execute("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?)", order)
        for index in numbers.sample(range(len(prices)), numbers.randint(1, 4)):
            quantity, discount = numbers.randint(1, 40), numbers.choice((0, 0, 0, 0.1))
            detail = (1000 + number, index + 1, prices[index], quantity, discount)
            connection.execute("INSERT INTO order_details VALUES (?, ?, ?, ?, ?)", detail)
    connection.execute("COMMIT")
