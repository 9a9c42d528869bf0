"""Names in arguments of the MCP endpoint that become parts of paths: a wrong one is the error of the client."""

import logging
from typing import Any
from urllib.parse import quote

import pytest
from mcp_types import INVALID_PARAMS
from tests.component.gateway.conftest import Gateway
from tests.component.gateway.test_artifacts import produce
from tests.component.gateway.test_mcp import message
from tests.support.broker import FakeBroker

from mcp_exec_gateway.features.mcp.resources.addresses import TEMPLATES

Object = dict[str, Any]
NAMES = [
    "a/b",
    "/a",
    "../a",
    "a/../../b",
    "",
    ".",
    "..",
    "A",
    "a b",
    "a\0b",
    "\u00e4",
    "\ud800",
    "x" * 300,
    "a%2Fb",
    "a?b#c",
]
SKILL, WORKSPACE, ARTIFACT, TOOL = (template.uri_template for template in TEMPLATES)


def call(tool: str, **arguments: Any) -> tuple[str, Object]:
    return "tools/call", {"name": tool, "arguments": arguments}


def read(address: str) -> tuple[str, Object]:
    return "resources/read", {"uri": address}


def complete(template: str, variable: str, **known: str) -> tuple[str, Object]:
    reference = {"type": "ref/resource", "uri": template}
    argument = {"name": variable, "value": ""}
    return "completion/complete", {"ref": reference, "argument": argument, "context": {"arguments": known}}


def list_uses(name: str, execution: str) -> dict[str, tuple[str, Object]]:
    """Return a request for each argument that names something."""
    part = quote(name, safe="", errors="replace")
    return {
        "read_file": call("read_file", workspace=name, path="a.txt"),
        "read_file of a folder": call("read_file", workspace=name),
        "write_file": call("write_file", workspace=name, path="a.txt", content="a"),
        "session": call("run_code", code="1", session=name or "/"),
        "workspace": call("run_code", code="1", workspace={"name": name}),
        "run_skill": call("run_skill", name=name),
        "save_skill": call("save_skill", name=name, description="d", code="def run(): pass"),
        "execution of a skill": call("save_skill", name="a", description="d", execution=name or "/"),
        "describe_tools": call("describe_tools", names=[name]),
        "tool": call(name),
        "prompt": ("prompts/get", {"name": name}),
        "task": ("tasks/get", {"taskId": name}),
        "result of a task": ("tasks/result", {"taskId": name}),
        "cancelled task": ("tasks/cancel", {"taskId": name}),
        "skill": read(f"skill://{part}/SKILL.md"),
        "file of a skill": read(f"skill://a/{part}"),
        "workspace as a resource": read(f"workspace://{part}/a.txt"),
        "artifacts": read(f"artifact://{part}/a0"),
        "artifact": read(f"artifact://{execution}/{part}"),
        "server": read(f"tool://{part}/create_issue"),
        "tool as a resource": read(f"tool://github/{part}"),
        "paths of a workspace": complete(WORKSPACE, "path", workspace=name),
        "artifacts of an execution": complete(ARTIFACT, "id", execution=name),
        "tools of a server": complete(TOOL, "tool", server=name or "none"),
        "cursor": ("resources/list", {"cursor": name.replace("/", " ") + "/"}),
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=repr)
async def test_a_name_that_nothing_can_have_is_refused_before_it_becomes_part_of_a_path(
    gateway_with_broker: Gateway, broker: FakeBroker, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    gateway = gateway_with_broker
    execution = await produce(gateway, broker, ("t.csv", "text/csv", b"a,b"))
    broker.asked.clear()
    for use, (method, params) in list_uses(name, execution).items():
        answer = await gateway.ask("POST", "/mcp", json=message(method, **params))
        assert answer.status < 500, use
        body = answer.json
        if "error" in body:
            assert body["error"]["code"] == INVALID_PARAMS, (use, body)
        elif method in ("completion/complete", "resources/list"):
            found = body["result"].get("completion", {}).get("values", body["result"].get("resources"))
            assert found == [], use
        elif method == "tools/call":
            assert body["result"]["isError"], (use, body)
    paths = [path for path, _ in broker.asked if path not in ("/v1/namespaces/agents/catalog", "/v1/workspaces")]
    assert paths == []
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


async def test_a_wrong_name_of_a_workspace_is_refused_in_the_words_of_rest(gateway_with_broker: Gateway) -> None:
    gateway = gateway_with_broker
    words = "it must be lower-case letters, digits and '-', with a letter or digit at both ends"
    rest = await gateway.ask("GET", "/v1/workspaces/Report/files")
    assert (rest.status, rest.json["errors"][0]["message"]) == (422, words)
    for name in ("Report", "a/b"):
        for tool, more in (("read_file", {}), ("write_file", {"path": "a", "content": ""})):
            method, params = call(tool, workspace=name, **more)
            answer = await gateway.ask("POST", "/mcp", json=message(method, **params))
            assert answer.json["result"]["content"][0]["text"] == f"workspace: {words}"


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("run_code", {"code": "'\ud800'"}, "code: it has half of a surrogate pair"),
        ("run_code", {"code": "1", "context": {"x": ["\udfff"]}}, "context.x.0: it has half of a surrogate pair"),
        ("run_skill", {"name": "a", "arguments": {"\ud800": 1}}, "arguments: it has half of a surrogate pair"),
        ("write_file", {"workspace": "w", "path": "a", "content": "\ud800"}, "content: it has half"),
        ("search_tools", {"query": "\ud800"}, "query: it has half"),
        ("write_file", {"workspace": "w", "path": "artifacts/a", "content": "a"}, "path: code has folders of its own"),
    ],
)
async def test_a_text_that_cannot_be_kept_is_an_error_that_names_the_argument(
    gateway_with_broker: Gateway, tool: str, arguments: Object, said: str
) -> None:
    method, params = call(tool, **arguments)
    answer = (await gateway_with_broker.ask("POST", "/mcp", json=message(method, **params))).json
    assert answer["result"]["isError"], answer
    assert answer["result"]["content"][0]["text"].startswith(said)
    assert gateway_with_broker.executions == {}
