"""Connections to the API server: watches have their own."""

import asyncio
import json
from contextlib import aclosing
from pathlib import Path

from tests.support.api_server import FakeApiServer
from tests.support.constants import DEADLINE
from tests.support.until import until

from mcp_exec_common.kube.client import KubeClient

PATH = "/api/v1/namespaces/agents/pods"


def write_kubeconfig(folder: Path, url: str) -> Path:
    file = folder / "kubeconfig"
    context = {"cluster": "c", "user": "u"}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "contexts": [{"name": "x", "context": context}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {}}],
    }
    file.write_text(json.dumps(content))
    return file


async def test_more_watches_than_connections_leave_requests_their_own(tmp_path: Path) -> None:
    async with (
        FakeApiServer().running() as api,
        KubeClient.connect(kubeconfig=write_kubeconfig(tmp_path, api.url), connections=2) as kube,
    ):
        api.put(PATH, {"metadata": {"name": "one"}})

        async def watch() -> None:
            async with aclosing(kube.watch(PATH, resource_version="0")) as events:
                async for _ in events:
                    pass

        watches = [asyncio.create_task(watch()) for _ in range(20)]
        await until(lambda: api.count_watches() == 20)
        async with asyncio.timeout(DEADLINE):
            assert (await kube.get(f"{PATH}/one"))["metadata"]["name"] == "one"
        for task in watches:
            task.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
