"""The ToolServer controller without an API server."""

import asyncio
from typing import Any

from tests.support.pace import paced

from mcp_exec_common.kube.objects import Object
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_operator.core.pods.network_policy import ReleasePods
from mcp_exec_operator.features.tools.controller import ToolServerController
from mcp_exec_operator.features.tools.manifests import BridgeImage

SERVER: Object = {
    "metadata": {"namespace": "agents", "name": "git", "uid": "u-1", "generation": 1},
    "spec": {"stdio": {"image": "example.invalid/git:1", "command": ["mcp-server-git"]}},
}


class HangingApi:
    """Answers status writes and nothing else."""

    def __init__(self) -> None:
        self.statuses: asyncio.Queue[Object] = asyncio.Queue()

    async def get_like(self, manifest: Object) -> Object | None:
        await asyncio.Event().wait()
        return None

    async def patch_status(self, body: Object, status: Object) -> Object:
        self.statuses.put_nowait(status)
        return body | {"status": status}


async def test_a_reconcile_ends_at_its_time_limit_and_the_status_says_so() -> None:
    api: Any = HangingApi()
    controller = ToolServerController(
        api=api,
        keys=SandboxKeys(b"k"),
        release=ReleasePods(namespace="mcp-exec-system"),
        bridge=BridgeImage(image="example.invalid/servers:1"),
        resync_seconds=20,
        reconcile_seconds=0.05,
    )
    controller.observe(SERVER, deleted=False)
    running = asyncio.create_task(controller.run())
    async with asyncio.timeout(paced(10)):
        workload = (await api.statuses.get())["workload"]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert (workload["ready"], workload["reason"]) == (False, "Refused")
    assert workload["message"] == "requests to the API server took longer than 0.05 s"
