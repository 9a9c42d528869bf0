"""Features are registered in one place. A gateway without one of them serves the rest, `/mcp` included."""

from typing import Any

import pytest
from fastapi.routing import APIRoute
from mcp import MCPError
from tests.component.gateway.conftest import Gateway, Object, serving
from tests.component.gateway.mcp_client import MODERN, connecting
from tests.support.api_server import FakeApiServer

from mcp_exec_gateway.core.dependencies import Feature
from mcp_exec_gateway.features import FEATURES

CORE_PATHS = {
    "/v1/executions",
    "/v1/executions/{name}",
    "/v1/executions/{name}/events",
    "/v1/stats",
    "/v1/version",
    "/healthz",
    "/readyz",
}


async def run_plainly(gateway: Gateway) -> Any:
    gateway.finish_all()
    answer = await gateway.post()
    assert (answer.status, answer.json["phase"]) == (200, "Succeeded")
    return answer.json


def list_paths(feature: Feature) -> set[str]:
    return {route.path_format for router in feature.routers for route in router.routes if isinstance(route, APIRoute)}


def without(name: str) -> list[Feature]:
    return [feature for each, feature in FEATURES.items() if each != name]


async def test_the_core_alone_runs_code_and_describes_only_its_own_routes(api: FakeApiServer) -> None:
    async with serving(api, features=[]) as gateway:
        run = await run_plainly(gateway)
        assert (await gateway.ask("GET", f"/v1/executions/{run['name']}")).json["output"] == run["output"]
        assert (await gateway.ask("DELETE", f"/v1/executions/{run['name']}")).status == 200
        document = (await gateway.ask("GET", "/openapi.json")).json
        stats = (await gateway.ask("GET", "/v1/stats")).json
    assert set(document["paths"]) == CORE_PATHS
    assert "Workspace" not in document["components"]["schemas"]
    assert stats["sessions"] == {"own": 0, "limit": 0}
    assert "servers" not in stats


@pytest.mark.parametrize("name", FEATURES)
async def test_a_gateway_without_one_feature_serves_the_others(api: FakeApiServer, name: str) -> None:
    async with serving(api, features=without(name)) as gateway:
        assert (await gateway.ask("GET", "/healthz")).status == 200
        assert (await gateway.ask("GET", "/readyz")).status == 200
        await run_plainly(gateway)
        paths = set((await gateway.ask("GET", "/openapi.json")).json["paths"])
        assert (await gateway.ask("GET", "/v1/stats")).status == 200
    others = [path for feature in without(name) for path in list_paths(feature) if not path.startswith("/mcp")]
    assert paths == {*CORE_PATHS, *others}
    assert not paths & list_paths(FEATURES[name])


@pytest.mark.parametrize("name", [name for name in FEATURES if name != "mcp"])
async def test_the_endpoint_runs_code_without_one_of_the_other_features(api: FakeApiServer, name: str) -> None:
    async with serving(api, features=without(name)) as gateway:
        gateway.finish_all(artifacts=[{"id": "a1", "name": "plot.txt", "mediaType": "text/plain", "bytes": 3}])
        async with connecting(gateway.url, MODERN) as client:
            assert "run_code" in [tool.name for tool in (await client.list_tools()).tools]
            result = await client.call_tool("run_code", {"code": "print(1)"})
            resources = await client.list_resources()
    assert result.structured_content["stdout"] == "1\n"
    assert ("artifacts" in result.structured_content) == (name != "files")
    assert resources.resources == []


@pytest.mark.parametrize(
    ("tool", "feature", "arguments"),
    [
        ("read_file", "files", {"workspace": "sales", "path": "a.csv"}),
        ("write_file", "files", {"workspace": "sales", "path": "a.csv", "content": "1"}),
        ("save_skill", "skills", {"name": "double", "description": "Double.", "code": "def run(x): return 2 * x"}),
        ("search_tools", "tools", {"query": "issues"}),
        ("describe_tools", "tools", {"names": ["github.create_issue"]}),
    ],
)
async def test_a_tool_of_the_endpoint_names_the_feature_that_the_gateway_lacks(
    api: FakeApiServer, tool: str, feature: str, arguments: Object
) -> None:
    async with serving(api, features=[FEATURES["mcp"]]) as gateway, connecting(gateway.url, MODERN) as client:
        try:
            said = str(await client.call_tool(tool, arguments))
        except MCPError as error:
            said = str(error)
    assert f"this gateway runs without {feature}" in said
