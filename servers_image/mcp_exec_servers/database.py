"""Demo server: a small trading company's SQLite database, in memory. Values are parameters, never part of the SQL."""

import sqlite3
import threading
from datetime import date, timedelta
from typing import Annotated, Any, Final

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field

from mcp_exec_servers.command import DESTROYS, READS, run, seeded_random

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


MAX_ROWS: Final = 10_000
MAX_STEPS: Final = 200
"""Most steps of a query, in units of 100,000 instructions of SQLite's virtual machine."""

Cell = str | int | float | None
Sql = Annotated[
    str,
    Field(
        min_length=1,
        max_length=20_000,
        description="One statement with placeholders ? or :name, such as `SELECT * FROM orders WHERE id = ?`",
    ),
]
Parameters = Annotated[
    list[Cell] | dict[str, Cell] | None, Field(description="The values: a list for ?, an object for :name")
]

server = MCPServer(
    "database",
    instructions="A trading company's database in SQLite. Tables: categories, suppliers, products, customers, "
    "employees, orders, order_details. Pass values as parameters: SQL with quoted text is refused.",
)
_lock = threading.Lock()


class Column(BaseModel):
    """A column of a table."""

    name: str
    type: str
    nullable: bool
    primary_key: bool
    references: str | None = Field(default=None, description="TABLE.COLUMN of a foreign key")


class Table(BaseModel):
    """A table."""

    name: str
    rows: int
    columns: list[Column]


class Change(BaseModel):
    """Result of a statement."""

    changed: int = Field(description="Number of changed rows")
    last_id: int | None = Field(default=None, description="The id of the row inserted last")


class Database:
    """Connection to the database; only one call may use it at a time."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._connection.row_factory = sqlite3.Row
        fill(self._connection)
        self._connection.execute("PRAGMA foreign_keys = ON")
        self._steps = 0
        self._connection.set_progress_handler(self._step, 100_000)

    def _step(self) -> bool:
        self._steps += 1
        return self._steps > MAX_STEPS

    def run(self, sql: str, parameters: list[Cell] | dict[str, Cell] | None, *, writes: bool) -> sqlite3.Cursor:
        """Run one statement. Raises ToolError with SQLite's error."""
        _refuse_text(sql)
        self._steps = 0
        self._connection.execute(f"PRAGMA query_only = {'OFF' if writes else 'ON'}")
        self._connection.set_authorizer(_authorize)
        try:
            return self._connection.execute(sql, parameters or ())
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise ToolError(f"{error}") from error
        finally:
            self._connection.set_authorizer(None)

    def fetch(self, sql: str, parameters: list[Cell] | dict[str, Cell] | None) -> list[dict[str, Cell]]:
        """Return the rows of a query. Raises ToolError."""
        cursor = self.run(sql, parameters, writes=False)
        try:
            rows = cursor.fetchmany(MAX_ROWS + 1)
        except sqlite3.Error as error:
            raise ToolError(f"{error}") from error
        if len(rows) > MAX_ROWS:
            raise ToolError(f"the query returns more than {MAX_ROWS} rows: use LIMIT")
        return [dict(row) for row in rows]

    def list_tables(self) -> list[Table]:
        """Return all tables with their columns."""
        query = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1"
        return [_describe_table(self._connection, row["name"]) for row in self._connection.execute(query).fetchall()]


def _describe_table(connection: sqlite3.Connection, name: str) -> Table:
    targets = {
        row["from"]: f"{row['table']}.{row['to']}" for row in connection.execute(f"PRAGMA foreign_key_list({name})")
    }
    columns = [
        Column(
            name=row["name"],
            type=row["type"],
            nullable=not row["notnull"],
            primary_key=bool(row["pk"]),
            references=targets.get(row["name"]),
        )
        for row in connection.execute(f"PRAGMA table_info({name})")
    ]
    # the name comes from sqlite_master, not from a caller
    rows = connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
    return Table(name=name, rows=rows, columns=columns)


def _refuse_text(sql: str) -> None:
    if "'" in sql or '"' in sql:
        raise ToolError("quoted text in SQL is refused: write ? in its place and pass the value in parameters")


def _authorize(action: int, _argument: str | None, function: str | None, *_: Any) -> int:
    """Deny access to files, pragmas and the schema."""
    allowed = (
        sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE,
        sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE,
    )  # fmt: skip
    if action == sqlite3.SQLITE_FUNCTION and function in ("load_extension", "randomblob", "zeroblob"):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in allowed else sqlite3.SQLITE_DENY


_database = Database()


@server.tool(annotations=READS)
def list_tables() -> list[Table]:
    """List the tables with their columns and numbers of rows."""
    with _lock:
        return _database.list_tables()


@server.tool(annotations=READS)
def query(sql: Sql, parameters: Parameters = None) -> list[dict[str, Cell]]:
    """Run a SELECT and return its rows as objects, at most 10,000."""
    with _lock:
        return _database.fetch(sql, parameters)


@server.tool(annotations=DESTROYS)
def execute(sql: Sql, parameters: Parameters = None) -> Change:
    """Run an INSERT, UPDATE or DELETE and return how many rows it changed."""
    with _lock:
        cursor = _database.run(sql, parameters, writes=True)
        return Change(changed=max(cursor.rowcount, 0), last_id=cursor.lastrowid)


if __name__ == "__main__":
    run(server)
