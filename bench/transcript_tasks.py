"""Tasks of the token benchmark: what a model says and calls in both arms. `record_transcripts.py` adds the results.

Arguments that depend on earlier results are functions of the list of those results.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Results = list[Any]
Arguments = Mapping[str, Any] | Callable[[Results], Mapping[str, Any]]
DirectTurn = Sequence[tuple[str, Arguments]] | Callable[[Results], Sequence[tuple[str, Arguments]]]
"""Calls of one message, as SERVER.TOOL and arguments."""
CODE = "code"


@dataclass(frozen=True, kw_only=True)
class BenchTask:
    """One task: the turns of both arms and the answer."""

    name: str
    kind: str
    prompt: str
    servers: tuple[str, ...]
    direct: Sequence[DirectTurn]
    code: Sequence[tuple[str, str | int | None]]
    """Uses by turn: a query with the number of tools to list, or the full schema of a tool (0), or CODE and code."""
    answer: str


def each_city(cities: Sequence[str]) -> list[tuple[str, Arguments]]:
    """Return a call for the weather of each city."""
    return [("weather.get_weather", {"location": city}) for city in cities]


CITIES = (
    "Berlin",
    "Cairo",
    "Denver",
    "London",
    "Mumbai",
    "New York",
    "Phoenix",
    "Portland",
    "Seattle",
    "Sydney",
    "Tokyo",
)
PEOPLE = ("u-42", "u-43", "u-44")
NOTES = [
    ("Ana Ruiz", "person", ["leads the platform team", "prefers short messages", "works from Lisbon"]),
    ("Bo Chen", "person", ["owns the billing service", "is on call in odd weeks"]),
    ("Checkout", "service", ["written in Go", "depends on Billing", "has an error budget of 0.1 %"]),
    ("Billing", "service", ["written in Python", "runs in two regions"]),
]
ENTITIES = [{"name": name, "entityType": kind, "observations": said} for name, kind, said in NOTES]


def rows_of_file(text: str) -> list[dict[str, Any]]:
    """Return the rows of a CSV file with headings."""
    head, *lines = text.strip().splitlines()
    return [dict(zip(head.split(","), line.split(","), strict=True)) for line in lines]


TASKS = [
    BenchTask(
        name="one small call",
        kind="single call",
        prompt="What is the weather in Sydney right now?",
        servers=("weather",),
        direct=[[("weather.get_weather", {"location": "Sydney"})]],
        code=[
            ("weather of a city now", 3),
            (CODE, 'from servers.weather import get_weather\n\nawait get_weather(location="Sydney")'),
        ],
        answer="It is 20.9 degrees Celsius in Sydney and partly cloudy, with wind of 36.3 km/h.",
    ),
    BenchTask(
        name="no tool needed",
        kind="lookup that needs no code",
        prompt="What does the HTTP status 409 mean, in one sentence?",
        servers=(),
        direct=[],
        code=[],
        answer="409 Conflict means that the request conflicts with the current state of the resource, for "
        "example because "
        "someone else changed it in the meantime.",
    ),
    BenchTask(
        name="convert a time",
        kind="lookup that needs no code",
        prompt="It is 16:30 in Berlin. What time is that in Tokyo?",
        servers=("time",),
        direct=[
            [("time.convert_time", {"source_timezone": "Europe/Berlin", "time": "16:30",
              "target_timezone": "Asia/Tokyo"})]
        ],
        code=[
            ("convert a time between time zones", 3),
            (CODE, "from servers.time import convert_time\n\nawait convert_time(\n"
             '    source_timezone="Europe/Berlin", time="16:30", target_timezone="Asia/Tokyo"\n)'),
        ],
        answer="That is 00:30 on the next day in Tokyo.",
    ),
    BenchTask(
        name="plan a journey",
        kind="chain",
        prompt="Plan a trip by camper from Phoenix to Seattle: the stops, the cheapest park under 60 dollars at "
        "each stop, "
        "and the cost of fuel at 9 miles per gallon.",
        servers=("trips",),
        direct=[
            [("trips.plan_trip", {"origin": "Phoenix", "destination": "Seattle"})],
            [("trips.find_rv_parks", lambda found: {"locations": found[0]["waypoints"], "max_cost": 60})],
            [("trips.calculate_gas_cost", lambda found: {"distance": found[0]["distance"], "miles_per_gallon": 9})],
        ],
        code=[
            ("plan a trip, find parks, cost of fuel", 5),
            ("trips.plan_trip", 0),
            ("trips.find_rv_parks", 0),
            (CODE, """\
from servers.trips import calculate_gas_cost, find_rv_parks, plan_trip

trip = await plan_trip(origin="Phoenix", destination="Seattle")
parks = await find_rv_parks(locations=trip["waypoints"], max_cost=60)
cheapest = {}
for park in parks:
    if park["location"] not in cheapest or park["cost"] < cheapest[park["location"]]["cost"]:
        cheapest[park["location"]] = park
fuel = await calculate_gas_cost(distance=trip["distance"], miles_per_gallon=9)
print(trip["distance"], trip["hours"], trip["waypoints"], fuel)
for stop in trip["waypoints"]:
    print(stop, cheapest.get(stop, {}).get("name"), cheapest.get(stop, {}).get("cost"))
"""),
        ],
        answer="The route has 1,478 miles and 28.4 hours of driving. Stops: Flagstaff (Mesa View RV Park, 35 "
        "dollars), Las "
        "Vegas (River Bend RV Park, 33 dollars) and Boise (River Bend RV Park, 35 dollars). Fuel costs 574.78 dollars.",
    ),
    BenchTask(
        name="large expenses of a year",
        kind="filter",
        prompt="Which expenses of u-42 in 2026 were above 700 dollars? List date, merchant and amount.",
        servers=("expenses",),
        direct=[[("expenses.get_expenses", {"user_id": "u-42", "since": "2026-01-01", "until": "2026-12-31"})]],
        code=[
            ("expenses of a person", 3),
            ("expenses.get_expenses", 0),
            (CODE, """\
from servers.expenses import get_expenses

rows = await get_expenses(user_id="u-42", since="2026-01-01", until="2026-12-31")
large = [row for row in rows if row["amount"] > 700]
print(len(rows), len(large))
for row in large:
    print(row["date"], row["merchant"], row["amount"])
"""),
        ],
        answer="Eight expenses were above 700 dollars: 2026-01-09 Tire Barn 712.28, 2026-01-14 RV Doctor "
        "775.14, 2026-03-12 "
        "Tire Barn 840.78, 2026-06-03 RV Doctor 893.57, 2026-06-13 Tire Barn 869.63, 2026-07-10 RV Doctor 804.77, "
        "2026-07-30 RV Doctor 726.60, 2026-08-31 Tire Barn 869.80.",
    ),
    BenchTask(
        name="orders by status",
        kind="aggregate",
        prompt="In the sheet of orders, what are the number and the total of the first 1,000 orders by status?",
        servers=("sheets",),
        direct=[[("sheets.list_sheets", {})], [("sheets.get_sheet", {"sheet_id": "abc123", "limit": 1000})]],
        code=[
            ("rows of a sheet", 3),
            ("sheets.get_sheet", 0),
            (CODE, """\
from collections import defaultdict

from servers.sheets import get_sheet, list_sheets

sheets = await list_sheets()
rows = await get_sheet(sheet_id=sheets[0]["id"], limit=1000)
totals = defaultdict(lambda: [0, 0.0])
for row in rows:
    totals[row["Status"]][0] += 1
    totals[row["Status"]][1] += row["Amount"]
for status, (count, amount) in sorted(totals.items()):
    print(status, count, round(amount, 2))
"""),
        ],
        answer="Cancelled: 62 orders, 82,314.71. Delivered: 704, 869,772.62. Pending: 44, 50,550.96. Shipped: "
        "190, 238,544.72.",
    ),
    BenchTask(
        name="sales by country in SQL",
        kind="aggregate in the server",
        prompt="Which five countries ordered most, by value, in the trading company's database?",
        servers=("database",),
        direct=[
            [("database.list_tables", {})],
            [("database.query", {"sql": "SELECT c.country, ROUND(SUM(d.unit_price * d.quantity * (1 - "
            "d.discount)), 2) AS "
              "total FROM customers c JOIN orders o ON o.customer_id = c.id JOIN order_details d ON d.order_id = o.id "
              "GROUP BY c.country ORDER BY total DESC LIMIT 5"})],
        ],
        code=[
            ("query the database", 3),
            (CODE, "from servers.database import list_tables\n\nfor table in await list_tables():\n"
             '    print(table["name"], [column["name"] for column in table["columns"]])'),
            (CODE, '''\
from servers.database import query

await query(
    sql="""
    SELECT c.country, ROUND(SUM(d.unit_price * d.quantity * (1 - d.discount)), 2) AS total
    FROM customers c JOIN orders o ON o.customer_id = c.id JOIN order_details d ON d.order_id = o.id
    GROUP BY c.country ORDER BY total DESC LIMIT 5
    """
)
'''),
        ],
        answer="These five countries ordered most, by value: Portugal (83,903.96), UK (64,900.74), USA (41,539.66), "
        "Germany (40,795.81), Norway (39,396.26).",
    ),
    BenchTask(
        name="wait for a deployment",
        kind="polling",
        prompt="Wait until the deployment of web 1.43.0 in #deployments is complete: start it, check every 10 "
        "seconds, then "
        "report when it is done.",
        servers=("slack",),
        direct=[
            [("slack.post_message", {"channel": "#deployments", "text": "deploy web 1.43.0"})],
            *[[("slack.get_channel_history", {"channel": "#deployments", "limit": 5})] for _ in range(4)],
        ],
        code=[
            ("post a message and read a channel", 3),
            (CODE, """\
import asyncio

from servers.slack import get_channel_history, post_message

await post_message(channel="#deployments", text="deploy web 1.43.0")
for attempt in range(60):
    newest = await get_channel_history(channel="#deployments", limit=5)
    if any(message["text"] == "deployment complete: web 1.43.0" for message in newest):
        break
    await asyncio.sleep(10)
print(attempt + 1, newest[0]["user"], newest[0]["text"])
"""),
        ],
        answer="The deployment of web 1.43.0 is complete; deploy-bot announced it at the fourth check.",
    ),
    BenchTask(
        name="report expenses to a channel",
        kind="cross-server",
        prompt="For each of u-42, u-43 and u-44 add up the expenses of October 2026 by category, and post the "
        "totals to "
        "#general.",
        servers=("expenses", "slack"),
        direct=[
            [("expenses.get_expenses", {"user_id": who, "since": "2026-10-01", "until": "2026-10-31"})
             for who in PEOPLE],
            lambda found: [("slack.post_message", {"channel": "#general", "text": _summarize(found)})],
        ],
        code=[
            ("expenses of a person", 3),
            ("expenses.get_expenses", 0),
            ("post a message", 3),
            (CODE, """\
import asyncio
from collections import Counter

from servers.expenses import get_expenses
from servers.slack import post_message

people = ["u-42", "u-43", "u-44"]
found = await asyncio.gather(
    *(get_expenses(user_id=who, since="2026-10-01", until="2026-10-31") for who in people)
)
lines = []
for who, rows in zip(people, found):
    totals = Counter()
    for row in rows:
        totals[row["category"]] += row["amount"]
    lines.append(f"{who}: " + ", ".join(f"{name} {total:.2f}" for name, total in sorted(totals.items())))
text = "Expenses of October 2026\\n" + "\\n".join(lines)
await post_message(channel="#general", text=text)
print(text)
"""),
        ],
        answer="I posted the totals of October 2026 by category for u-42, u-43 and u-44 to #general.",
    ),
    BenchTask(
        name="correct a wrong query",
        kind="error recovery",
        prompt="How many products of the supplier with id 2 are out of stock, in the trading company's database?",
        servers=("database",),
        direct=[
            [("database.query", {"sql": "SELECT COUNT(*) AS n FROM products WHERE supplier = ? AND stock = 0",
              "parameters": [2]})],
            [("database.list_tables", {})],
            [("database.query", {"sql": "SELECT COUNT(*) AS n FROM products WHERE supplier_id = ? AND "
            "units_in_stock = 0",
              "parameters": [2]})],
        ],
        code=[
            ("query the database", 3),
            (CODE, "from servers.database import query\n\n"
             'await query(sql="SELECT COUNT(*) AS n FROM products WHERE supplier = ? AND stock = 0", parameters=[2])'),
            (CODE, "from servers.database import list_tables\n\n[\n"
             '    [column["name"] for column in table["columns"]] for table in await list_tables()\n'
             '    if table["name"] == "products"\n]'),
            (CODE, "from servers.database import query\n\nawait query(\n"
             '    sql="SELECT COUNT(*) AS n FROM products WHERE supplier_id = ? AND units_in_stock = 0", '
             'parameters=[2]\n)'),
        ],
        answer="No product of that supplier is out of stock.",
    ),
    BenchTask(
        name="one section of a long document",
        kind="long document",
        prompt="Which sections of /data/security.md are about files or workspaces? Give me their "
        "headings and the first sentence of each.",
        servers=("filesystem",),
        direct=[[("filesystem.read_text_file", {"path": "/data/security.md"})]],
        code=[
            ("read a text file", 3),
            (CODE, '''\
import re

from servers.filesystem import read_text_file

found = await read_text_file(path="/data/security.md")
text = found["content"] if isinstance(found, dict) else found
for section in re.split(r"^(?=#+ )", text, flags=re.M):
    head, _, body = section.partition("\\n")
    if re.search(r"file|workspace", head, re.I):
        print(head, "|", re.split(r"(?<=[.:])\\s", " ".join(body.split()))[0][:200])
'''),
        ],
        answer="Two sections are about that: 'Sandboxes and callers against stored files' and 'Workspaces on "
        "the user's "
        "machine'. Both begin with a table of threats, of what stops them, and of the tests.",
    ),
    BenchTask(
        name="hottest of eleven cities",
        kind="fan-out",
        prompt="For each city that the weather server knows, get the weather. Which three are warmest?",
        servers=("weather",),
        direct=[[("weather.list_locations", {})], each_city(CITIES)],
        code=[
            ("weather of a city and all cities", 3),
            (CODE, """\
import asyncio

from servers.weather import get_weather, list_locations

cities = await list_locations()
found = await asyncio.gather(*(get_weather(location=city) for city in cities))
for each in sorted(found, key=lambda each: -each["temperature"])[:3]:
    print(each["location"], each["temperature"])
"""),
        ],
        answer="The warmest three are Mumbai (28.4 degrees), Cairo (26.3) and Phoenix (24.2).",
    ),
    BenchTask(
        name="triage old issues",
        kind="filter and change",
        prompt="Close all open issues of octo/site that have the label stale, without a comment.",
        servers=("github-official",),
        direct=[
            [("github-official.list_issues", {"owner": "octo", "repo": "site", "state": "OPEN", "perPage": 60})],
            lambda found: [
                ("github-official.issue_write", {"method": "update", "owner": "octo", "repo": "site", "state": "closed",
                 "issue_number": issue["number"]})
                for issue in found[0]["issues"] if "stale" in issue["labels"]
            ],
        ],
        code=[
            ("list issues and close an issue", 5),
            ("github-official.list_issues", 0),
            ("issue_write", 0),
            (CODE, """\
import asyncio

from servers.github_official import issue_write, list_issues

found = await list_issues(owner="octo", repo="site", state="OPEN", perPage=60)
stale = [issue["number"] for issue in found["issues"] if "stale" in issue["labels"]]
await asyncio.gather(
    *(issue_write(method="update", owner="octo", repo="site", issue_number=number, state="closed") for number in stale)
)
print(len(found["issues"]), stale)
"""),
        ],
        answer="I closed the issues with the label stale: 1193, 1183, 1173, 1163, 1153, 1143.",
    ),
    BenchTask(
        name="commits by author",
        kind="aggregate",
        prompt="How many of the last 60 commits of the repository at /data/site did each author write?",
        servers=("git",),
        direct=[[("git.git_log", {"repo_path": "/data/site", "max_count": 60})]],
        code=[
            ("log of commits", 3),
            (CODE, """\
import re
from collections import Counter

from servers.git import git_log

log = await git_log(repo_path="/data/site", max_count=60)
text = log if isinstance(log, str) else str(log)
print(Counter(re.findall(r"Author: .*?'?([A-Z][a-z]+ [A-Z][a-z]+)", text)).most_common())
"""),
        ],
        answer="Bo Chen 25, Ana Ruiz 25, Carla Meyer 5, Dan Okoye 5.",
    ),
    BenchTask(
        name="copy a file to a sheet",
        kind="data passed on",
        prompt="Append the rows of /data/readings.csv to the sheet readings.",
        servers=("filesystem", "sheets"),
        direct=[
            [("filesystem.read_text_file", {"path": "/data/readings.csv"})],
            [("sheets.append_rows", lambda found: {
                "sheet_id": "readings", "rows": rows_of_file(found[0]["content"]),
            })],
        ],
        code=[
            ("read a text file", 3),
            ("append rows to a sheet", 3),
            (CODE, """\
import csv
import io

from servers.filesystem import read_text_file
from servers.sheets import append_rows

found = await read_text_file(path="/data/readings.csv")
text = found["content"] if isinstance(found, dict) else found
await append_rows(sheet_id="readings", rows=list(csv.DictReader(io.StringIO(text))))
"""),
        ],
        answer="I appended 80 rows to the sheet readings.",
    ),
    BenchTask(
        name="remember notes",
        kind="single call with large arguments",
        prompt="Remember these: " + " ".join(f"{name} ({kind}) {', '.join(said)}." for name, kind, said in NOTES),
        servers=("memory",),
        direct=[[("memory.create_entities", {"entities": ENTITIES})]],
        code=[
            ("remember entities with observations", 3),
            ("memory.create_entities", 0),
            (CODE, "from servers.memory import create_entities\n\n"
             f"created = await create_entities(entities={ENTITIES!r})\nprint(created)"),
        ],
        answer="I stored two people and two services with what you said about them.",
    ),
    BenchTask(
        name="advice on a project",
        kind="small chain",
        prompt="Which tables of the project shop have no row level security? Check the security advisors of "
        "Supabase, too.",
        servers=("supabase",),
        direct=[
            [("supabase.list_projects", {})],
            [("supabase.get_advisors", {"project_id": "abcdefghijklmnopqrst", "type": "security"}),
             ("supabase.list_tables", {"project_id": "abcdefghijklmnopqrst", "schemas": ["public"], "verbose": False})],
        ],
        code=[
            ("projects, tables and security advisors", 5),
            ("supabase.list_tables", 0),
            (CODE, """\
from servers.supabase import get_advisors, list_projects, list_tables

project = next(each for each in (await list_projects())["projects"] if each["name"] == "shop")
tables = await list_tables(project_id=project["id"], schemas=["public"], verbose=False)
advisors = await get_advisors(project_id=project["id"], type="security")
print([table["name"] for table in tables["tables"] if not table["rls_enabled"]])
print([(each["name"], each["detail"]) for each in advisors["lints"]])
"""),
        ],
        answer="The tables sessions and audit have no row level security. The advisors report the same for both.",
    ),
]  # fmt: skip


def _summarize(found: Results) -> str:
    lines = ["Expenses of October 2026"]
    for who, rows in zip(PEOPLE, found, strict=True):
        totals: dict[str, float] = {}
        for row in rows:
            totals[row["category"]] = totals.get(row["category"], 0) + row["amount"]
        lines.append(f"{who}: " + ", ".join(f"{name} {total:.2f}" for name, total in sorted(totals.items())))
    return "\n".join(lines)
