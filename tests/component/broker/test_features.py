"""The broker without each of its features: tool calls go on, and no security duty ends silently."""

import logging
import os
import re
from pathlib import Path

import pytest
from hack.reference.metrics import build_page
from tests.component.broker.conftest import running
from tests.component.broker.servers import serving, toolbox
from tests.support.api_server import FakeApiServer
from tests.support.processes import environment

from mcp_exec_broker import features
from mcp_exec_broker.__main__ import main
from mcp_exec_broker.core.feature import OpenFeature
from mcp_exec_broker.features import FEATURES

UNSCANNED = {"secretsInArguments": "Off", "secretsInResults": "Off"}
"""The scan of a ToolServer that needs no scanner."""
MISSING_SCANNER = "this broker has no scanner"


def without(name: str) -> dict[str, OpenFeature]:
    return {each: feature for each, feature in FEATURES.items() if each != name}


def test_each_folder_is_a_registered_feature() -> None:
    folders = {path.parent.name for path in Path(features.__file__).parent.glob("*/__init__.py")}
    assert FEATURES.keys() == folders


@pytest.mark.parametrize("name", FEATURES)
async def test_tools_are_called_without_each_feature(api: FakeApiServer, tmp_path: Path, name: str) -> None:
    async with running(api, tmp_path, features=without(name)) as world, serving(toolbox()) as box:
        world.add("box", url=box.url, scan=UNSCANNED)
        await world.listed("box")
        assert (await world.call("box.add", a=1, b=2))["value"] == 3
        assert (await world.ask("DELETE", "/v1/executions/uid-1"))[1]["toolCalls"]["total"] == 1
        assert (await world.ask("GET", "/readyz"))[0] == 200


async def test_every_metric_that_a_broker_serves_is_on_the_reference_page(api: FakeApiServer, tmp_path: Path) -> None:
    volumes = {"files_folder": tmp_path / "files", "records_file": tmp_path / "records.sqlite"}
    async with running(api, tmp_path, **volumes) as world:
        _, text = await world.ask("GET", "/metrics")
    served = set(re.findall(r"^# TYPE (mcp_exec_\w+?)(?<!_created) ", text, re.MULTILINE))
    assert served - set(re.findall(r"^\| `(\w+)`", build_page().partition("## Broker")[2], re.MULTILINE)) == set()
    assert "mcp_exec_broker_records_failures_total" in served


async def test_without_records_each_call_still_has_its_audit_lines(
    api: FakeApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mcp_exec.audit")
    async with running(api, tmp_path, features=without("records")) as world, serving(toolbox()) as box:
        world.add("box", url=box.url)
        await world.listed("box")
        await world.call("box.add", a=1, b=2)
        await world.call("box.nothing")
    events = [record.getMessage() for record in caplog.records if record.name == "mcp_exec.audit"]
    assert [event.partition(",")[0] for event in events] == [
        '{"event": "tool call started"',
        '{"event": "tool call ended"',
    ] * 2
    assert "the audit has log lines only" in caplog.text
    assert not (tmp_path / "audit.sqlite").exists()


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("records", "MCP_EXEC_AUDIT_FILE", "audit.sqlite"),
        ("records", "MCP_EXEC_RECORDS_FILE", "records.sqlite"),
        ("records", "MCP_EXEC_RECORDS_DATABASE_FILE", "url"),
        ("files", "MCP_EXEC_FILES_FOLDER", "files"),
        ("files", "MCP_EXEC_FILES_BUCKET", "bucket"),
    ],
)
def test_a_setting_of_a_missing_feature_ends_the_process(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    setting: str,
    value: str,
) -> None:
    monkeypatch.delitem(FEATURES, name)
    monkeypatch.setattr(os, "environ", environment(tmp_path, "http://api.invalid", **{setting: value}))
    assert main() == 2
    assert f"{setting}: this broker lacks the feature {name}" in capsys.readouterr().err.splitlines()


async def test_without_scanning_no_call_travels_that_is_to_be_scanned(
    api: FakeApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(api, tmp_path, features=without("scanning")) as world, serving(toolbox()) as box:
        for number, field in enumerate(("secretsInArguments", "secretsInResults")):
            world.add(f"box{number}", url=box.url, scan=UNSCANNED | {field: "Redact"})
        for number, field in enumerate(("personalInArguments", "personalInResults"), 2):
            world.add(f"box{number}", url=box.url, scan=UNSCANNED | {field: "Tokenize"})
        for number in range(4):
            await world.listed(f"box{number}")
            answer = await world.call(f"box{number}.add", a=1, b=2)
            assert (answer["kind"], answer["reason"]) == ("ToolDenied", "DeniedByPolicy")
            assert MISSING_SCANNER in answer["message"]
        assert box.calls == []
    assert "those that ToolServers require to be scanned are denied" in caplog.text


async def test_without_scanning_audit_and_approvals_show_no_arguments(api: FakeApiServer, tmp_path: Path) -> None:
    async with running(api, tmp_path, features=without("scanning")) as world, serving(toolbox()) as box:
        world.add("box", url=box.url, scan=UNSCANNED, policy={"rules": [{"tools": ["echo"], "action": "Approve"}]})
        await world.listed("box")
        answer = await world.call("box.echo", value="jane@example.com")
        assert MISSING_SCANNER in answer["message"]
        await world.call("box.add", a=1, b=2)
        records = (await world.ask("GET", "/v1/audit"))[1]["items"]
        assert {record["arguments"] for record in records} == {f"(not shown: {MISSING_SCANNER})"}
