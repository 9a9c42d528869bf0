"""Statistics of a namespace: what its callers can use and what is in use."""

from tests.component.gateway.conftest import KEY, OTHER_KEY, SBP, SECRETS, Gateway, key_entry, keys_secret, pool
from tests.support.api_server import FakeApiServer
from tests.support.until import until

from mcp_exec_api.wire.stats import NamespaceStats


async def test_pools_have_their_limits_and_their_pods(gateway: Gateway, api: FakeApiServer) -> None:
    big = pool("big", 120)
    big["spec"] |= {
        "resources": {"limits": {"memory": "2Gi", "cpu": "1500m"}},
        "runtimeClassName": "gvisor",
        "maxPods": 7,
        "maxQueued": 70,
    }
    api.put(SBP, big | {"status": {"warm": 3, "busy": 2, "starting": 1, "queued": 4}})
    pools = gateway.dependencies.pools
    await until(lambda: pools.find("agents", "big") is not None)
    answer = await gateway.ask("GET", "/v1/stats")
    assert answer.status == 200
    NamespaceStats.model_validate_json(answer.text)
    assert [each["name"] for each in answer.json["pools"]] == ["big", "default", "long"]
    assert answer.json["pools"][0] == {
        "name": "big",
        "language": "python",
        "memoryBytes": 2 * 2**30,
        "cpus": 1.5,
        "runtime": "gvisor",
        "maxTimeoutSeconds": 120,
        "maxPods": 7,
        "warm": 3,
        "starting": 1,
        "busy": 2,
        "queued": 4,
        "maxQueued": 70,
    }
    assert answer.json["pools"][1]["memoryBytes"] == 768 * 2**20


async def test_a_caller_sees_own_executions_and_limits_and_its_pools_alone(
    gateway: Gateway, api: FakeApiServer
) -> None:
    limits = {"pools": ["long"], "maxConcurrent": 5, "tools": ["github.*"]}
    keys = {"team-a": key_entry(KEY), "team-c": key_entry(OTHER_KEY, **limits)}
    api.put(SECRETS, keys_secret(**keys))
    await until(lambda: (found := gateway.dependencies.keys.find(OTHER_KEY)) is not None and found.name == "team-c")
    for number in range(3):
        await gateway.post(query="?wait=0", headers={"Idempotency-Key": str(number)})
    await gateway.post({"code": "1", "poolRef": {"name": "long"}}, "?wait=0", key=OTHER_KEY)
    index = gateway.dependencies.index
    await until(lambda: index.count_all_active("agents") == 4)
    stats = (await gateway.ask("GET", "/v1/stats", key=OTHER_KEY)).json
    assert (stats["caller"], stats["namespace"], stats["limits"]) == ("team-c", "agents", limits)
    assert stats["executions"] == {"active": 4, "own": 1}
    assert [each["name"] for each in stats["pools"]] == ["long"]
    assert "servers" not in stats
    gateway.finish(next(iter(gateway.executions)))
    await until(lambda: index.count_all_active("agents") == 3)
    assert (await gateway.ask("GET", "/v1/stats")).json["executions"] == {"active": 3, "own": 2}


async def test_statistics_cost_the_api_server_nothing(gateway: Gateway, api: FakeApiServer) -> None:
    asked = len(api.seen)
    assert (await gateway.ask("GET", "/v1/stats")).status == 200
    assert [seen for seen in api.seen[asked:] if "watch" not in seen.query] == []


async def test_pools_list_python_and_libraries_of_their_image(gateway: Gateway, api: FakeApiServer) -> None:
    pandas = {"name": "pandas", "version": "2.3.1", "imports": ["pandas"]}
    api.put(SBP, pool("data", 120) | {"status": {"python": "3.13.5", "libraries": [pandas]}})
    api.put(SBP, pool("odd", 120) | {"status": {"python": "3.13.5", "libraries": [{"name": 3}]}})
    pools = gateway.dependencies.pools
    await until(lambda: pools.find("agents", "odd") is not None)
    answer = await gateway.ask("GET", "/v1/stats")
    NamespaceStats.model_validate_json(answer.text)
    found = {each["name"]: (each.get("python"), each.get("libraries")) for each in answer.json["pools"]}
    assert found == {"data": ("3.13.5", [pandas]), "odd": (None, None), "default": (None, None), "long": (None, None)}
