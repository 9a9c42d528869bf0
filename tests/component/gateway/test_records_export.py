"""`mcp-exec records export`: JSON Lines and Parquet, complete or not at all."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from tests.component.gateway.commands import call
from tests.component.gateway.conftest import KEY, SANDBOX_KEY, Gateway, serving
from tests.support.api_server import FakeApiServer
from tests.support.broker import SLICES, FakeBroker

from mcp_exec_client import AsyncClient

ROWS = [{"id": str(number), "namespace": "agents", "reason": None, "calls": 1} for number in range(2500)]


@pytest.fixture
def broker() -> FakeBroker:
    made = FakeBroker(key=SANDBOX_KEY)
    made.rows = {"calls": [dict(row) for row in ROWS]}
    return made


@pytest.fixture
async def gateway(api: FakeApiServer, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> Any:
    async with broker.running():
        api.put(SLICES, broker.slice())
        async with serving(api, broker_service="mcp-exec-broker") as made:
            monkeypatch.setenv("MCP_EXEC_GATEWAY", made.url)
            monkeypatch.setenv("MCP_EXEC_API_KEY", KEY)
            yield made


async def test_each_record_is_a_line_of_json(
    gateway: Gateway, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ended = await call(capsys, "records", "export", "calls", "--to", str(tmp_path / "calls.jsonl"))
    assert (ended.code, ended.err) == (0, "")
    assert [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()] == ROWS


async def test_a_parquet_file_has_all_records_with_their_types(
    gateway: Gateway, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "calls.parquet"
    ended = await call(capsys, "records", "export", "calls", "--format", "parquet", "--to", str(path))
    assert (ended.code, ended.err) == (0, "")
    table = pyarrow.parquet.read_table(path)
    assert table.to_pylist() == ROWS
    assert [str(field.type) for field in table.schema] == ["string", "string", "string", "int64"]


async def test_an_empty_table_is_an_empty_parquet_file(
    gateway: Gateway, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "feedback.parquet"
    ended = await call(capsys, "records", "export", "feedback", "--format", "parquet", "--to", str(path))
    assert (ended.code, pyarrow.parquet.read_table(path).num_rows) == (0, 0)


async def test_an_export_that_fails_leaves_the_earlier_file(
    gateway: Gateway, broker: FakeBroker, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "calls.jsonl"
    path.write_text("earlier")
    broker.rows = None
    ended = await call(capsys, "records", "export", "calls", "--to", str(path))
    assert ended.code != 0
    assert "keeps no records" in ended.err
    assert (path.read_text(), os.listdir(tmp_path)) == ("earlier", ["calls.jsonl"])


async def test_parquet_needs_a_file(gateway: Gateway, capsys: pytest.CaptureFixture[str]) -> None:
    ended = await call(capsys, "records", "export", "calls", "--format", "parquet")
    assert (ended.code, ended.err) == (2, "mcp-exec: --format parquet needs --to FILE\n")


async def test_the_client_yields_all_records(gateway: Gateway) -> None:
    async with AsyncClient(gateway.url, api_key=KEY) as client:
        assert [row["id"] async for row in client.records.read("calls")] == [row["id"] for row in ROWS]
