"""Health, metrics, the log and the OpenAPI document."""

import asyncio
import json
import logging
from typing import Any

import jsonschema
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.component.gateway.conftest import Gateway, serving
from tests.component.gateway.mcp_client import SESSIONS, connecting
from tests.support.api_server import FakeApiServer

from mcp_exec_api.wire.version import RELEASE


async def test_health_asks_nobody_who_they_are(gateway: Gateway) -> None:
    for path in ("/healthz", "/readyz", "/openapi.json", "/docs"):
        assert (await gateway.ask("GET", path, key=None)).status == 200


async def test_it_is_not_ready_while_it_stops_and_still_serves(gateway: Gateway) -> None:
    gateway.dependencies.shutdown.draining.set()
    answer = await gateway.ask("GET", "/readyz")
    assert (answer.status, answer.json["status"]) == (503, "stopping")
    assert (await gateway.ask("GET", "/healthz")).status == 200
    served = await gateway.post(query="?wait=0")
    assert (served.status, served.headers["Connection"]) == (202, "close")  # the next request goes elsewhere


async def test_it_is_not_ready_before_it_knows_all_and_says_what_is_missing(gateway: Gateway) -> None:
    reflector = gateway.dependencies.namespaces.reflectors["pools in agents"]
    reflector.synced.clear()
    answer = await gateway.ask("GET", "/readyz")
    assert answer.status == 503
    assert answer.json == {"status": "starting", "missing": ["pools in agents"]}
    refused = await gateway.post()
    assert (refused.status, "pools in agents" in refused.json["detail"]) == (503, True)
    assert gateway.executions == {}


async def test_without_a_secret_no_key_is_good(api: FakeApiServer) -> None:
    async with serving(api, api_keys_secret="") as gateway:
        assert (await gateway.ask("GET", "/readyz")).status == 200
        assert (await gateway.post()).status == 401


async def test_metrics_have_bounded_labels(gateway: Gateway) -> None:
    gateway.finish_all()
    await gateway.post()
    name = (await gateway.post(query="?wait=0")).json["name"]
    await gateway.ask("GET", f"/v1/executions/{name}")
    await gateway.ask("GET", "/v1/executions/exec-nope")
    await gateway.ask("GET", "/some/path/nobody/knows")
    await gateway.ask("PROPFIND", "/v1/executions")
    text = await gateway.read_metrics()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    counted = {
        (s.labels["route"], s.labels["method"], s.labels["code"]): s.value
        for s in samples
        if s.name == "mcp_exec_gateway_requests_total"
    }
    assert counted == {
        ("/v1/executions", "POST", "200"): 1,
        ("/v1/executions", "POST", "202"): 1,
        ("/v1/executions/{name}", "GET", "200"): 1,
        ("/v1/executions/{name}", "GET", "404"): 1,
        ("unknown", "GET", "404"): 1,
        ("/v1/executions", "other", "405"): 1,
    }
    stages = {s.labels["stage"]: s.value for s in samples if s.name == "mcp_exec_gateway_stage_seconds_count"}
    assert (stages["create"], stages["wait"]) == (2, 1)
    assert {s.name: s.value for s in samples if s.name.endswith(("waiters", "open_streams"))} == {
        "mcp_exec_gateway_waiters": 0,
        "mcp_exec_gateway_open_streams": 0,
    }


async def test_the_version_is_the_same_everywhere_and_needs_a_key(gateway: Gateway) -> None:
    assert (await gateway.ask("GET", "/v1/version", key=None)).status == 401
    answer = (await gateway.ask("GET", "/v1/version")).json
    assert (answer["version"], answer["apiVersions"]) == (RELEASE, ["mcp-exec.dev/v1beta1"])
    assert answer["mcpRevisions"][-2:] == ["2025-11-25", "2026-07-28"]
    assert (await gateway.ask("GET", "/openapi.json")).json["info"]["version"] == RELEASE
    assert f'mcp_exec_build_info{{component="gateway",version="{RELEASE}"}} 1.0' in await gateway.read_metrics()
    async with connecting(gateway.url, SESSIONS) as client:
        assert (client.server_info.name, client.server_info.version) == ("mcp-exec", RELEASE)


async def test_each_request_leaves_one_line(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="mcp_exec_gateway.core.http.access_log"):
        made = await gateway.post(query="?wait=0")
        await gateway.ask("GET", "/healthz")
    lines = [record.__dict__ for record in caplog.records if record.name == "mcp_exec_gateway.core.http.access_log"]
    assert len(lines) == 1
    assert {name: lines[0][name] for name in ("method", "path", "caller", "namespace", "execution", "status")} == {
        "method": "POST",
        "path": "/v1/executions",
        "caller": "team-a",
        "namespace": "agents",
        "execution": made.json["name"],
        "status": 202,
    }
    assert lines[0]["ms"] > 0


async def test_a_fault_of_the_gateway_is_a_problem_and_is_logged(
    gateway: Gateway, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise RuntimeError("the disk of node-3 broke")

    monkeypatch.setattr(gateway.dependencies.pools, "find", fail)
    answer = await gateway.post()
    assert (answer.status, answer.json["type"]) == (500, "urn:mcp-exec:problem:internal")
    assert "node-3" not in answer.text
    assert "RuntimeError: the disk of node-3 broke" in caplog.text


async def test_the_document_describes_each_route_with_examples_that_fit(gateway: Gateway) -> None:
    document = (await gateway.ask("GET", "/openapi.json")).json
    checked = 0
    problems = document["components"]["responses"]
    for path, methods in document["paths"].items():
        for operation in methods.values():
            responses = {
                status: problems[response["$ref"].rpartition("/")[2]] if "$ref" in response else response
                for status, response in operation["responses"].items()
            }
            if path.startswith(("/v1/", "/api/v1/")):
                assert operation["security"] == ([] if "/v1/artifacts/" in path else [{"bearer": []}])
                assert responses["422"]["content"].keys() == {"application/problem+json"}
            contents = [operation.get("requestBody", {}), *responses.values()]
            for kind, content in [pair for each in contents for pair in each.get("content", {}).items()]:
                examples = [shown["value"] for shown in content.get("examples", {}).values()]
                examples += [content["example"]] if "example" in content else []
                for example in examples if "json" in kind else ():
                    schema = {**content["schema"], "components": document["components"]}
                    jsonschema.Draft202012Validator(schema).validate(example)
                    checked += 1
    assert checked >= 30
    assert not {"cancelRequested", "approvals"} & document["components"]["schemas"]["NewExecution"]["properties"].keys()
    assert "HTTPValidationError" not in json.dumps(document)
    examples = document["paths"]["/v1/executions"]["post"]["requestBody"]["content"]["application/json"]["examples"]
    answers = await asyncio.gather(*(gateway.post(shown["value"], "?wait=0") for shown in examples.values()))
    assert {answer.status for answer in answers} == {202}
