"""Calls of tools as guides to code execution print them, run in a real sandbox.

The names that differ from such guides are in docs/agents/names.md.
"""

import json
from pathlib import Path

import pytest

from mcp_exec_tools.catalog import Catalog
from mcp_exec_tools.wrappers import build_files, format_catalog

CATALOGS = Path(__file__).parents[3] / "servers" / "catalogs"
SERVERS = ("context7", "expenses", "github", "sheets", "slack", "supabase", "trips", "weather")
USERS = [{"id": number, "email": f"user{number}@example.com", "amount": 90 + number} for number in range(30)]
ORDERS = [{"Order": number, "Status": "pending" if number % 4 == 0 else "done"} for number in range(10_000)]


def read_catalog(server):
    """Read a catalog. Supabase's is that of a server for one project, which takes no `project_id`."""
    tools = json.loads((CATALOGS / f"{server}.json").read_text())["tools"]
    for tool in tools if server == "supabase" else ():
        schema = tool["inputSchema"]
        schema.get("properties", {}).pop("project_id", None)
        schema["required"] = [name for name in schema.get("required", ()) if name != "project_id"]
    return Catalog.from_tools(server, tools)


def wrap_rows(rows):
    return {
        "result": f"Rows within <untrusted-data-7f>.\n\n<untrusted-data-7f>\n{json.dumps(rows)}\n</untrusted-data-7f>"
    }


ANSWERS = {
    "context7.query-docs": "Row level security restricts rows.",
    "context7.resolve-library-id": "- Context7-compatible library ID: /supabase/supabase-js",
    "github.create_issue": {"number": 7, "html_url": "https://github.example/7"},
    "github.search_repositories": {"total_count": 1, "items": [{"name": "flask"}]},
    "sheets.get_sheet": ORDERS,
    "slack.get_channel_history": [{"text": "build started"}, {"text": "deployment complete: v2"}],
    "supabase.execute_sql": wrap_rows(USERS),
    "supabase.list_migrations": {"migrations": [{"version": "1", "name": "init"}, {"version": "2", "name": "users"}]},
    "supabase.list_tables": {"tables": [{"name": "users"}, {"name": "orders"}]},
    "trips.calculate_gas_cost": 300.5,
    "trips.find_rv_parks": [{"name": "Pine Flat", "cost": 40.0}, {"name": "Mesa View", "cost": 25.0}],
    "trips.plan_trip": {"distance": 1500.0, "waypoints": ["Reno", "Bend"]},
    "weather.get_weather": {"temperature": 21},
    "expenses.get_expenses": USERS,
}


def put_wrappers(sandbox, broker, *, language):
    """Give a sandbox the wrappers of all servers of the listings, and a broker results for them."""
    catalogs = [read_catalog(server) for server in SERVERS]
    files = {**build_files(catalogs, language=language), "catalog.json": format_catalog(catalogs)}
    assert sandbox.client.put("/v1/wrappers", json={"hash": "h", "files": files}).status_code == 200
    for name, value in ANSWERS.items():
        broker.tools[name] = lambda call, value=value: call.value(value)


@pytest.fixture
def guided(sandbox, broker):
    """A sandbox with the wrappers of all servers of the listings, and a broker with results for them."""
    put_wrappers(sandbox, broker, language="python")
    for name in ("github__search_repositories", "github__create_issue"):
        broker.tools[f"mcp__{name}"] = broker.tools[name.replace("__", ".")]
    return sandbox


PYTHON = """
import asyncio, os
from client import call_mcp_tool
from servers.expenses import get_expenses
from servers.sheets import get_sheet
from servers.slack import get_channel_history
from servers.supabase import execute_sql
from servers.trips import calculate_gas_cost, find_rv_parks, plan_trip
from servers.weather import get_weather
from tool_discovery import search_tools

seen = {}
rows = await execute_sql('''
    SELECT id, amount FROM costs
    WHERE amount > 100
''')
seen["sql"] = [len(rows), sum(row["amount"] for row in rows), rows[:1]]
found = await call_mcp_tool('mcp__github__search_repositories', {'query': 'python stars:>1000'}, dict)
seen["repositories"] = ['total_count' in found, 'items' in found]
seen["issue"] = await call_mcp_tool(
    'mcp__github__create_issue', {'owner': 'acme', 'repo': 'shop', 'title': 'Broken cart'}, dict
)
seen["sheet"] = len([row for row in await get_sheet({'sheetId': 'orders'}) if row["Status"] == "pending"])
trip = await plan_trip({'origin': 'Denver', 'destination': 'Boise'})
parks = await find_rv_parks({'locations': trip['waypoints']})
gas = await calculate_gas_cost({'distance': trip['distance']})
seen["trip"] = gas + sum(park['cost'] for park in parks)
done = False
while not done:
    done = any('deployment complete' in message['text'] for message in await get_channel_history({'channel': 'C042'}))
    if not done:
        await asyncio.sleep(5)
seen["weather"] = await get_weather({'location': 'Oslo'})
seen["expenses"] = len([row for row in await get_expenses(user_id='u-42') if row['amount'] > 100])
levels = {level: search_tools(query="create_issue", detail_level=level)[0]
          for level in ("name_only", "with_description", "full")}
seen["levels"] = ["description" in levels["name_only"], "input_schema" in levels["with_description"],
                  "input_schema" in levels["full"], levels["with_description"]["import"]]
seen["names"] = [tool["server"] for tool in search_tools(query="github", detail_level="name_only", limit=10)]
seen["folders"] = "create_issue.py" in os.listdir("servers/github")
seen
"""


def test_python_listings_run(guided, broker):
    run = guided.run(PYTHON, tools=broker.job)
    assert run.error is None
    assert run.result == {
        "sql": [30, sum(user["amount"] for user in USERS), USERS[:1]],
        "repositories": [True, True],
        "issue": ANSWERS["github.create_issue"],
        "sheet": 2500,
        "trip": 365.5,
        "weather": {"temperature": 21},
        "expenses": 19,
        "levels": [False, False, True, "from servers.github import create_issue"],
        "names": ["github"] * 10,
        "folders": True,
    }
    assert [call.arguments for call in broker.calls if call.tool == "sheets.get_sheet"] == [{"sheet_id": "orders"}]


TYPESCRIPT = """
from servers import context7, github, supabase

tables = await supabase.listTables(["public"])
users = await supabase.executeSQL("SELECT id, email FROM users")
issue = await github.createIssue("acme", "shop", "Users", f"There are {len(users)} users")
docs = await context7.getDocsByName("supabase-js", "RLS")
same = await context7.getLibraryDocs("/supabase/supabase-js", "RLS")
both = await context7.compareLibraries(["supabase-js", "postgrest-js"], "RLS")
migrations = await supabase.listMigrations()
return {
    "tables": [table["name"] for table in tables],
    "emails": [user["email"] for user in users][:2],
    "issue": issue["number"],
    "docs": [len(docs) > 0, docs == same, sorted(both)],
    "lastMigration": migrations[-1]["name"],
    "names": all(callable(function) for function in (
        supabase.applyMigration, supabase.listEdgeFunctions, supabase.deployEdgeFunction, supabase.getAdvisors,
        github.createRepository, github.listIssues, github.createPullRequest, github.getFileContents,
        github.pushFiles, github.searchCode, context7.resolveLibraryId,
    )),
}
"""


RESULT_OF_TYPESCRIPT = {
    "tables": ["users", "orders"],
    "emails": ["user0@example.com", "user1@example.com"],
    "issue": 7,
    "docs": [True, True, ["postgrest-js", "supabase-js"]],
    "lastMigration": "users",
    "names": True,
}


def test_calls_of_typescript_listings_run_as_python(guided, broker):
    run = guided.run(TYPESCRIPT, tools=broker.job)
    assert run.error is None
    assert run.result == RESULT_OF_TYPESCRIPT
    sent = {call.tool: call.arguments for call in broker.calls}
    assert sent["supabase.list_tables"] == {"schemas": ["public"]}
    assert sent["github.create_issue"]["body"] == "There are 30 users"


IN_TYPESCRIPT = """
import { context7, github, supabase } from "servers";

const tables = await supabase.listTables(["public"]);
const users = await supabase.executeSQL("SELECT id, email FROM users");
const issue = await github.createIssue("acme", "shop", "Users", `There are ${users.length} users`);
const docs = await context7.getDocsByName("supabase-js", "RLS");
const same = await context7.getLibraryDocs("/supabase/supabase-js", "RLS");
const both = await context7.compareLibraries(["supabase-js", "postgrest-js"], "RLS");
const migrations = await supabase.listMigrations();
return {
  tables: tables.map(t => t.name),
  emails: users.map(u => u.email).slice(0, 2),
  issue: issue.number,
  docs: [docs.length > 0, docs === same, Object.keys(both).sort()],
  lastMigration: migrations[migrations.length - 1]?.name,
  names: [
    supabase.applyMigration, supabase.listEdgeFunctions, supabase.deployEdgeFunction, supabase.getAdvisors,
    github.createRepository, github.listIssues, github.createPullRequest, github.getFileContents,
    github.pushFiles, github.searchCode, context7.resolveLibraryId,
  ].every(each => typeof each === "function"),
};
"""


def test_typescript_listings_run_as_they_are_printed(typescript, broker):
    typescript.clean()
    put_wrappers(typescript, broker, language="typescript")
    run = typescript.run(IN_TYPESCRIPT, tools=broker.job)
    assert run.error is None
    assert run.result == RESULT_OF_TYPESCRIPT
    sent = {call.tool: call.arguments for call in broker.calls}
    assert sent["supabase.list_tables"] == {"schemas": ["public"]}
    assert sent["github.create_issue"]["body"] == "There are 30 users"


def test_a_github_server_of_five_tools_is_found_by_its_name(sandbox, broker):
    names = ("create_issue", "get_file_contents", "create_pull_request", "push_files", "search_repositories")
    catalogs = [
        Catalog.from_tools("github", [tool.to_json() for tool in read_catalog("github").tools if tool.name in names])
    ]
    files = {**build_files(catalogs), "catalog.json": format_catalog(catalogs)}
    assert sandbox.client.put("/v1/wrappers", json={"hash": "h", "files": files}).status_code == 200
    code = "from tool_discovery import search_tools\nlen(search_tools(query='github', detail_level='name_only'))"
    assert sandbox.run(code, tools=broker.job).result == 5


def test_code_calls_and_finds_tools_without_an_import(guided, broker):
    code = """
found = search_tools(query="create_issue")[0]["name"]
made = await call_mcp_tool("github.create_issue", "acme", "shop", "Bug")
def search_tools():
    return "own"
[found, made["number"], search_tools()]
"""
    assert guided.run(code, tools=broker.job).result == ["create_issue", 7, "own"]
