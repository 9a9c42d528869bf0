"""The demo servers, for clients in this process, over stdio and over HTTP."""

import asyncio
import importlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import CallToolResult, TextContent
from tests.support.pace import paced

SERVERS = ("calculator", "weather", "database", "sheets", "slack", "expenses", "trips", "probe")
DEADLINE = paced(30)
ROOT = Path(__file__).parents[3]
ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", "")}


@asynccontextmanager
async def client_of(name: str) -> AsyncIterator[Client]:
    module = importlib.reload(importlib.import_module(f"mcp_exec_servers.{name}"))
    async with Client(module.server) as client:
        yield client


async def value(client: Client, tool: str, /, **arguments: Any) -> Any:
    """Return a tool's structured value. Raises AssertionError with the text of its error."""
    result = await client.call_tool(tool, arguments)
    assert isinstance(result, CallToolResult)
    if result.is_error:
        raise AssertionError("".join(block.text for block in result.content if isinstance(block, TextContent)))
    content: Any = result.structured_content
    return content["result"] if isinstance(content, dict) and set(content) == {"result"} else content


@pytest.mark.parametrize("name", SERVERS)
async def test_every_tool_says_what_it_does_takes_returns_and_changes(name: str) -> None:
    async with client_of(name) as client:
        tools = (await client.list_tools()).tools
        assert client.instructions
    assert tools
    for tool in tools:
        assert tool.description, tool.name
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is not None
        Draft202012Validator.check_schema(tool.input_schema)
        if (name, tool.name) != ("probe", "image"):
            assert tool.output_schema, tool.name
            Draft202012Validator.check_schema(tool.output_schema)


def test_the_committed_catalogs_are_those_of_the_demo_servers() -> None:
    command = [sys.executable, "hack/catalogs", "--check"]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE)
    assert (checked.returncode, checked.stdout) == (0, ""), checked.stdout + checked.stderr


async def test_the_calculator_works_expressions_out_and_refuses_what_is_not_arithmetic() -> None:
    async with client_of("calculator") as client:
        assert await value(client, "evaluate", expression="(1 + 2) * sqrt(16) - -4 // 2") == 14
        assert await value(client, "multiply", a=6, b=7) == 42
        for bad in (
            "__import__('os')",
            "1 / 0",
            "9**9**9",
            "(lambda: 1)()",
            "1 +",
            "min()",
            "x.y",
            "True",
            "(-1) ** 0.5",
        ):
            with pytest.raises(AssertionError, match=r"arithmetic|zero|number|expression|large"):
                await value(client, "evaluate", expression=bad)


async def test_the_weather_is_the_same_whenever_it_is_asked_for() -> None:
    async with client_of("weather") as client:
        first = await value(client, "get_weather", location="Sydney")
        assert first == await value(client, "get_weather", location="sydney, Australia")
        assert (await value(client, "get_forecast", location="Sydney", days=3))[0] == first
        with pytest.raises(AssertionError, match="known locations: Berlin"):
            await value(client, "get_weather", location="Atlantis")


async def test_the_database_takes_values_as_parameters_alone() -> None:
    async with client_of("database") as client:
        tables = {table["name"]: table for table in await value(client, "list_tables")}
        assert tables["orders"]["rows"] == 240
        assert [c["references"] for c in tables["products"]["columns"] if c["references"]] == [
            "suppliers.id",
            "categories.id",
        ]
        rows = await value(client, "query", sql="SELECT company FROM customers WHERE id = ?", parameters=["AMBER"])
        assert rows == [{"company": "Amber Deli"}]
        named = "SELECT count(*) AS n FROM orders WHERE freight > :least"
        assert (await value(client, "query", sql=named, parameters={"least": 0}))[0]["n"] == 240
        refused = {
            "SELECT * FROM customers WHERE id = 'AMBER'": "quoted text",
            "SELECT 1; SELECT 2": "one statement",
            "DELETE FROM orders": "readonly",
            "ATTACH DATABASE ? AS other": "not authorized",
            "PRAGMA query_only = OFF": "not authorized",
            "SELECT load_extension(?)": "not authorized",
            "SELECT absent FROM orders": "no such column",
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n": "interrupted",
        }
        for sql, reason in refused.items():
            with pytest.raises(AssertionError, match=reason):
                await value(client, "query", sql=sql, parameters=["x"] if "?" in sql else None)


async def test_the_database_changes_rows_where_it_is_asked_to() -> None:
    async with client_of("database") as client:
        sql = "UPDATE products SET unit_price = ? WHERE id = ?"
        assert (await value(client, "execute", sql=sql, parameters=[9.5, 1]))["changed"] == 1
        rows = await value(client, "query", sql="SELECT unit_price FROM products WHERE id = ?", parameters=[1])
        assert rows == [{"unit_price": 9.5}]
        with pytest.raises(AssertionError, match="not authorized"):
            await value(client, "execute", sql="DROP TABLE products")


async def test_the_sheet_has_ten_thousand_rows_and_takes_more() -> None:
    async with client_of("sheets") as client:
        rows = await value(client, "get_sheet", sheet_id="abc123")
        assert len(rows) == 10_000
        assert set(rows[0]) == {"OrderId", "Customer", "Date", "Amount", "Status"}
        row = {"OrderId": 1, "Status": "pending"}
        assert (await value(client, "append_rows", sheet_id="abc123", rows=[row]))["rows"] == 10_001
        assert await value(client, "get_sheet", sheet_id="abc123", offset=10_000) == [row]
        with pytest.raises(AssertionError, match="no sheet 'other'"):
            await value(client, "get_sheet", sheet_id="other")


async def test_a_deployment_is_announced_after_a_few_looks_and_can_be_started_again() -> None:
    async with client_of("slack") as client:
        for text in (None, "deploy api 2.0"):
            if text:
                await value(client, "post_message", channel="#deployments", text=text)
            looks = [await value(client, "get_channel_history", channel="C123", limit=1) for _ in range(4)]
            found = ["deployment complete" in messages[0]["text"] for messages in looks]
            assert found == [False, False, False, True]
        with pytest.raises(AssertionError, match="channel_not_found"):
            await value(client, "get_channel_history", channel="C999")


async def test_everybody_has_a_thousand_expenses_of_their_own() -> None:
    async with client_of("expenses") as client:
        mine = await value(client, "get_expenses", user_id="u-42")
        assert (len(mine), len({row["id"] for row in mine})) == (1000, 1000)
        assert mine != await value(client, "get_expenses", user_id="u-43")
        october = await value(client, "get_expenses", user_id="u-42", since="2024-10-01", until="2024-10-31")
        assert october == [row for row in mine if row["date"] < "2024-11"]
        with pytest.raises(AssertionError, match="since"):
            await value(client, "get_expenses", user_id="u-42", since="2024-02-31")


async def test_a_trip_is_planned_in_three_steps() -> None:
    async with client_of("trips") as client:
        trip = await value(client, "plan_trip", origin="Phoenix", destination="Seattle")
        assert trip["waypoints"]
        parks = await value(client, "find_rv_parks", locations=trip["waypoints"])
        assert {park["location"] for park in parks} == set(trip["waypoints"])
        cost = await value(client, "calculate_gas_cost", distance=trip["distance"])
        assert cost == round(trip["distance"] * 0.35, 2)
        booking = await value(client, "book_rv_park", park_id=parks[0]["id"], guest="Ada", nights=2)
        assert booking["cost"] == 2 * parks[0]["cost"]
        assert await value(client, "cancel_booking", booking_id=booking["id"]) == booking
        with pytest.raises(AssertionError, match="no booking"):
            await value(client, "cancel_booking", booking_id=booking["id"])


async def test_the_probe_answers_as_it_is_asked_to() -> None:
    async with client_of("probe") as client:
        for sent in (None, 0, "", [], {"a": [1, {"b": None}]}):
            assert await value(client, "echo", value=sent) == sent
        assert len(await value(client, "big", bytes=100_000)) == 100_000
        with pytest.raises(AssertionError, match="on purpose"):
            await value(client, "fail", message="on purpose")
        with pytest.raises(AssertionError, match=r"Error executing tool crash$"):
            await value(client, "crash")
        assert (await client.call_tool("image", {})).content[0].type == "image"
        hints = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
        assert [name for name, hint in hints.items() if hint and hint.destructive_hint] == ["delete_everything"]


async def test_each_runs_over_standard_input_and_output() -> None:
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "mcp_exec_servers.calculator"], env=ENVIRONMENT
    )
    async with asyncio.timeout(DEADLINE), Client(stdio_client(parameters)) as client:
        assert await value(client, "add", a=1, b=2) == 3


async def test_each_runs_over_http_and_sees_the_caller_s_headers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mcp_exec_servers.probe", "--http", str(port)),
        stderr=asyncio.subprocess.PIPE,
        env=ENVIRONMENT,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(DEADLINE):
            while b"running on" not in await process.stderr.readline():
                assert process.returncode is None
            for mode in ("auto", "legacy"):
                async with Client(f"http://127.0.0.1:{port}/mcp", mode=mode) as client:
                    assert (await value(client, "headers"))["host"] == f"127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.communicate()
