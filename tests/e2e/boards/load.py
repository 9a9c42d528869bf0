"""A load that gives every panel of the boards something to show."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import httpx

from tests.e2e.support import NAMESPACE, Cluster, pool_manifest
from tests.e2e.test_mcp_direct import MODERN, connecting
from tests.e2e.toolservers import Agent, stdio, tool_server

ROUNDS: Final = 14
SERVERS: Final = (
    tool_server("slack", stdio=stdio("python3", "-m", "mcp_exec_servers.slack")),
    tool_server("probe", stdio=stdio("python3", "-m", "mcp_exec_servers.probe"), limits={"callTimeoutSeconds": 3}),
)
TOOLS: Final = ("slack.*", "probe.*")
TOO_LARGE: Final = {"limits": {"cpu": "64", "memory": "64Gi"}}
"""Resources that the LimitRange of a served namespace refuses."""
ROLLOUT: Final = "code-mode"
ROLLOUT_OBJECT: Final = {
    "apiVersion": "mcp-exec.dev/v1beta1",
    "kind": "ExecutionRollout",
    "metadata": {"name": ROLLOUT, "namespace": NAMESPACE},
    "spec": {
        "arms": [{"name": "direct", "mode": "direct"}, {"name": "code", "mode": "code"}],
        "control": "direct",
        "stages": [{"name": "all", "percent": 100, "manual": True}],
        "guards": [{"name": "errors", "metric": "errorRate", "threshold": 0.9}],
    },
}
"""A rollout whose arms are alike, so that no guard ends it."""

PLAIN: Final = "1 + 1"
BUSY: Final = """
kept = [str(number) * 20 for number in range(200_000)]
sum(len(text) % 7 for text in kept for _ in range(8))
"""
WRONG: Final = "raise ValueError('no such row')"
CHAIN: Final = """
import asyncio
from servers.probe import echo
from servers.slack import list_channels
for channel in await list_channels():
    await echo(value=str(channel))
"""
SINGLE: Final = "from servers.probe import echo\nawait echo(value=1)"
FAILING: Final = """
from client import ToolError
from servers.probe import fail
for _ in range(3):
    try:
        await fail(message="busy")
    except ToolError:
        pass
"""
ASKING: Final = """
from client import ToolDenied
from servers.probe import delete_everything
try:
    await delete_everything(confirm=True)
except ToolDenied:
    pass
"""


def produce(agent: Agent, approver: httpx.Client, *, url: str, api_key: str) -> list[dict[str, Any]]:
    """Run all kinds of code in rounds, some at once, and return what came of them."""
    done = []
    with ThreadPoolExecutor(max_workers=5) as threads:
        for number in range(ROUNDS):
            runs = [
                *(threads.submit(agent.run, code) for code in (PLAIN, PLAIN, BUSY, WRONG)),
                threads.submit(agent.run, CHAIN, *TOOLS, useCase="workflow"),
                threads.submit(agent.run, SINGLE, *TOOLS, useCase="other"),
                threads.submit(agent.run, FAILING, *TOOLS, useCase="polling"),
            ]
            report(approver, number)
            if number % 3 == 0:
                decide(agent, approver, "Deny" if number % 2 else "Approve")
                asyncio.run(call_directly(url, api_key))
            done += [run.result() for run in runs]
    return done


def decide(agent: Agent, approver: httpx.Client, decision: str) -> None:
    """Run code that needs an approval, and decide on it."""
    name = agent.start(ASKING, *TOOLS)
    approval = agent.approval(name)
    answer = approver.post(f"/v1/executions/{name}/approvals/{approval['id']}", json={"decision": decision})
    assert answer.status_code == 200, answer.text


async def call_directly(url: str, api_key: str) -> None:
    """Call tools as an MCP client does, without code."""
    async with connecting(url, api_key, MODERN, "mode=direct") as client:
        for _ in range(3):
            listed = await client.call_tool("slack__list_channels", {})
            assert not listed.is_error, json.dumps(listed.structured_content)


def report(client: httpx.Client, number: int) -> None:
    """Report tasks of both modes, as applications do, and outcomes of the arms of the rollout."""
    for mode, tokens in (("direct", 9000), ("code", 3000)):
        usage = {"id": f"{mode}-{number}", "model": "metered", "mode": mode, "turns": 3, "inputTokens": tokens}
        more = {"outputTokens": tokens // 10, "cacheReadTokens": tokens // 3, "counted": "provider"}
        use_case = "workflow" if number % 2 else "filtering"
        answer = client.post("/v1/conversations/load/usage", json=usage | more | {"useCase": use_case})
        assert answer.status_code == 204, answer.text
    for unit in range(10 * number, 10 * number + 10):
        outcome = {"id": f"task-{unit}", "unit": f"unit-{unit}", "success": unit % 9 > 0, "latencyMs": 300 + 40 * unit}
        body = outcome | {"cost": 0.01 * (unit % 5), "rating": 1 + unit % 5}
        answer = client.post(f"/v1/rollouts/{ROLLOUT}/outcomes", json=body)
        assert answer.status_code == 204, answer.text


def refuse_pods(cluster: Cluster, image: str) -> str:
    """Make a pool whose pods the API server refuses, and return its name."""
    cluster.apply(pool_manifest(name="refused", runtime=None, image=image, warm=1, resources=TOO_LARGE))
    return "refused"
