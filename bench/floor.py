"""The requests of an execution that any design with an object per execution makes, by a bare client.

The pods are bound to a node that does not exist, and no scheduler and no kubelet takes them.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from harness import TimedExecution
from latency import manifest
from objects import running_status
from processes import daemons
from simulated import wait_until_gone
from waits import within

from mcp_exec_api.meta import now
from mcp_exec_common.kube.client import KubeClient, custom_resource_path, resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object

NAMESPACE: Final = "bench-floor"
NODE: Final = "bench-floor"
END_SECONDS: Final = 300.0
FloorExecution = Coroutine[Any, Any, TimedExecution]


def pod_object(name: str) -> Object:
    """Build a pod of one container that no scheduler takes."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "schedulerName": "none",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "sandbox", "image": "localhost/simulated:1"}],
        },
    }


@dataclass(kw_only=True)
class Floor:
    """A namespace that no operator serves."""

    kube: KubeClient
    namespace: str = NAMESPACE
    _rest: set[asyncio.Task[None]] = field(default_factory=set)
    _sent: int = 0

    @property
    def pids(self) -> Mapping[str, int]:
        """The processes of the control plane, and this one."""
        return {"load generator": os.getpid(), **daemons()}

    async def send(self, number: int, due: float, *, with_pod: bool) -> TimedExecution:
        """Make the requests of one execution, and return its time from `due` on the performance counter."""
        self._sent += 1
        name, problem = f"floor-{self._sent}", ""
        collection = custom_resource_path("codeexecutions", namespace=NAMESPACE)
        try:
            await self.kube.create(collection, manifest(name, NAMESPACE))
            for phase in ("Running", "Succeeded"):
                await self.kube.patch(f"{collection}/{name}/status", {"status": {"phase": phase}})
        except (ApiError, OSError, TimeoutError) as error:
            problem = f"{type(error).__name__} {error}"
        elapsed = (time.perf_counter() - due) * 1000
        rest = asyncio.create_task(self._finish(name, with_pod=with_pod))
        self._rest.add(rest)
        rest.add_done_callback(self._rest.discard)
        return TimedExecution(milliseconds=elapsed, answer={}, problem=problem)

    async def _finish(self, name: str, *, with_pod: bool) -> None:
        """Replace the pod, and delete the object."""
        if with_pod:
            pods = resource_path("pods", namespace=NAMESPACE)
            pod = await self.kube.create(pods, pod_object(name))
            target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
            await self.kube.create(f"{pods}/{name}/binding", binding)
            status = running_status(pod, address="127.0.0.1", moment=now().strftime("%Y-%m-%dT%H:%M:%SZ"))
            await self.kube.patch(f"{pods}/{name}/status", {"status": status})
            await self.kube.delete(f"{pods}/{name}", grace_seconds=0)
        await self.kube.delete(custom_resource_path("codeexecutions", namespace=NAMESPACE, name=name))

    async def settle(self) -> None:
        """Wait until all requests of earlier executions have ended. Raises the error of one that failed."""
        async with within(END_SECONDS, "the end of the floor's requests", state=lambda: len(self._rest)):
            await asyncio.gather(*self._rest)


@asynccontextmanager
async def floor_running() -> AsyncIterator[Floor]:
    """Make the namespace, and delete it at the end."""
    async with KubeClient.connect(kubeconfig=Path(os.environ["KUBECONFIG"]), connections=0) as kube:
        await remove(kube)
        await kube.create(resource_path("namespaces"), {"metadata": {"name": NAMESPACE}})
        try:
            await wait_for_account(kube)
            floor = Floor(kube=kube)
            yield floor
            await floor.settle()
        finally:
            await remove(kube)


async def wait_for_account(kube: KubeClient) -> None:
    """Return when pods can be created: they need the ServiceAccount that a controller makes."""
    account = resource_path("serviceaccounts", namespace=NAMESPACE, name="default")
    async with within(60, f"the ServiceAccount of the namespace {NAMESPACE}"):
        while True:
            if await kube.find(account) is not None:
                return
            await asyncio.sleep(0.1)


async def remove(kube: KubeClient) -> None:
    """Delete the namespace, also one of an earlier run, and wait until it is gone."""
    await kube.delete(resource_path("namespaces", name=NAMESPACE))
    await wait_until_gone(kube, NAMESPACE, seconds=END_SECONDS)
