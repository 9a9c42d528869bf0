"""Simulated nodes: registers them, runs the pods that the scheduler binds to them, and answers as their supervisors.

Each pod has its own address from 127.0.0.0/8, so only processes in this machine's host network can reach it. Nodes
have the label and the taint mcp-exec.dev/simulated, which keeps other pods away. All objects are removed at the end
(SIGINT or SIGTERM), and those of an earlier run at the start.

    KUBECONFIG=... python bench/nodes.py --count 50
"""

import argparse
import asyncio
import itertools
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import uvloop
from objects import (
    LEASE_GROUP,
    LEASES,
    SELECTOR,
    lease_object,
    node_conditions,
    node_name,
    node_object,
    pod_address,
    read_token_digest,
    running_status,
)
from supervisors import SimulatedSupervisors
from waits import within

from mcp_exec_api.meta import micro_time, now
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import Reflector

log = logging.getLogger("nodes")

WORKERS = 16
"""Number of concurrent writes."""
PODS_PER_NODE = 250
HEARTBEAT_SECONDS = 10.0
END_SECONDS = 10.0
"""Limit of the end of all tasks."""
STATUS_EVERY = 24
"""Heartbeats between two reports of a node's conditions."""
BOUND = "spec.nodeName!="
"""Field selector of pods that the scheduler has placed."""

Job = Callable[[], Awaitable[object]]


def seconds_time() -> str:
    """Return the current time in the format of a Kubernetes Time."""
    return now().strftime("%Y-%m-%dT%H:%M:%SZ")


def pod_path(pod: Object) -> str:
    """Return the path of a pod's object."""
    return resource_path("pods", namespace=pod["metadata"]["namespace"], name=pod["metadata"]["name"])


def lease_path(name: str | None = None) -> str:
    """Return the path of a node's Lease, or of all Leases."""
    return resource_path("leases", namespace=LEASES, name=name, group=LEASE_GROUP)


async def run_all(jobs: Iterable[Job]) -> None:
    """Run all jobs, `WORKERS` at a time. Raise the first error."""
    waiting = list(jobs)

    async def work() -> None:
        while waiting:
            await waiting.pop()()

    await asyncio.gather(*(work() for _ in range(WORKERS)))


@dataclass(kw_only=True)
class SimulatedNodes:
    """The nodes of one run, with one kubelet for all."""

    kube: KubeClient
    supervisors: SimulatedSupervisors
    count: int
    names: frozenset[str] = frozenset()
    """Names of the nodes."""
    _addresses: dict[str, str] = field(default_factory=dict)
    """Addresses of known pods by uid."""
    _ending: set[str] = field(default_factory=set)
    """Uids of pods that are being deleted."""
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    _jobs: "asyncio.Queue[Job]" = field(default_factory=asyncio.Queue)

    async def register(self) -> None:
        """Create the nodes and wait until the cluster has accepted them."""
        names = [node_name(number) for number in range(self.count)]
        self.names = frozenset(names)
        moment = seconds_time()
        bodies = [node_object(name, pods=PODS_PER_NODE, moment=moment) for name in names]
        await run_all([lambda body=body: self.kube.create(resource_path("nodes"), body) for body in bodies])  # type: ignore[misc]
        leases = [lease_object(name, moment=micro_time(now())) for name in names]
        await run_all([lambda body=body: self.kube.create(lease_path(), body) for body in leases])  # type: ignore[misc]
        tainted = [""]
        async with within(60, "the control plane to accept the simulated nodes", state=lambda: f"tainted {tainted}"):
            while True:
                found, _ = await self.kube.list(resource_path("nodes"), selector=SELECTOR)
                # The control plane removes the taint not-ready after a node's first heartbeat.
                tainted = [node["metadata"]["name"] for node in found if len(node["spec"].get("taints") or ()) != 1]
                if not tainted:
                    return
                await asyncio.sleep(0.5)

    async def run(self) -> None:
        """Send heartbeats and run pods until cancelled."""
        pods = Reflector(
            kube=self.kube,
            path=resource_path("pods"),
            fields=BOUND,
            on_change=self.on_pod,
            transform=lambda pod: {
                "metadata": {name: pod["metadata"][name] for name in ("namespace", "name", "uid")},
                "spec": {"nodeName": pod["spec"]["nodeName"]},
            },
        )
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(self.work())
            group.create_task(self._beat())
            group.create_task(pods.run())

    def on_pod(self, pod: Object, deleted: bool) -> None:
        """Observe a pod of any node. Start or end it if its node is simulated."""
        if pod["spec"].get("nodeName") not in self.names:
            return
        uid = pod["metadata"]["uid"]
        if deleted:
            self._ending.discard(uid)
            self.supervisors.remove(self._addresses.pop(uid, ""))
        elif pod["metadata"].get("deletionTimestamp"):
            if uid not in self._ending:
                self._ending.add(uid)
                self._jobs.put_nowait(lambda: self._end(pod))
        elif uid not in self._addresses:
            self._addresses[uid] = pod_address(next(self._numbers))
            self._jobs.put_nowait(lambda: self._start(pod))

    async def _start(self, pod: Object) -> None:
        """Report a pod as running and ready, as a kubelet does."""
        uid = pod["metadata"]["uid"]
        if (address := self._addresses.get(uid)) is None or uid in self._ending:
            return
        self.supervisors.add(address, token_sha256=read_token_digest(pod))
        status = running_status(pod, address=address, moment=seconds_time())
        await self.kube.patch(pod_path(pod) + "/status", {"metadata": {"uid": uid}, "status": status})

    async def _end(self, pod: Object) -> None:
        """Delete a pod's object after its containers have ended, as a kubelet does."""
        uid = pod["metadata"]["uid"]
        self.supervisors.remove(self._addresses.get(uid, ""))
        await self.kube.delete(pod_path(pod), grace_seconds=0, uid=uid)

    async def work(self) -> None:
        """Do the jobs in turn, until it is cancelled."""
        while True:
            job = await self._jobs.get()
            try:
                await job()
            except ApiError as error:
                if error.code not in (404, 409):  # deleted, or replaced by one of the same name
                    log.warning("%s; tried again", error)
                    asyncio.get_running_loop().call_later(1.0, self._jobs.put_nowait, job)

    async def _beat(self) -> None:
        """Send each node's heartbeat in turn, spread over the interval."""
        for turn in itertools.count(1):
            for name in sorted(self.names):
                await asyncio.sleep(HEARTBEAT_SECONDS / len(self.names))
                try:
                    await self.kube.patch(lease_path(name), {"spec": {"renewTime": micro_time(now())}})
                    if turn % STATUS_EVERY == 0:
                        status = {"conditions": node_conditions(seconds_time())}
                        await self.kube.patch(resource_path("nodes", name=name) + "/status", {"status": status})
                except ApiError as error:
                    log.warning("no heartbeat of %s: %s", name, error)


async def clean(kube: KubeClient) -> None:
    """Delete all simulated nodes, and the pods on them without a grace period."""
    nodes, _ = await kube.list(resource_path("nodes"), selector=SELECTOR)
    leases, _ = await kube.list(lease_path(), selector=SELECTOR)
    names = {node["metadata"]["name"] for node in nodes}
    if names:
        pods, _ = await kube.list(resource_path("pods"), fields=BOUND)
        paths = [pod_path(pod) for pod in pods if pod["spec"]["nodeName"] in names]
        await run_all([lambda path=path: kube.delete(path, grace_seconds=0) for path in paths])  # type: ignore[misc]
    paths = [lease_path(lease["metadata"]["name"]) for lease in leases]
    paths += [resource_path("nodes", name=name) for name in names]
    await run_all([lambda path=path: kube.delete(path) for path in paths])  # type: ignore[misc]


async def simulate(options: argparse.Namespace) -> None:
    """Run until SIGINT or SIGTERM. Print `ready` once the nodes are ready."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    supervisors = SimulatedSupervisors()
    async with KubeClient.connect(kubeconfig=Path(os.environ["KUBECONFIG"])) as kube:
        server = await supervisors.serve()  # only one simulation at a time can have the port
        await clean(kube)
        nodes = SimulatedNodes(
            kube=kube,
            supervisors=supervisors,
            count=options.count,
        )
        try:
            await nodes.register()
            running = asyncio.ensure_future(nodes.run())
            stopping = asyncio.ensure_future(stop.wait())
            print("ready", flush=True)
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            running.cancel()
            await asyncio.wait({running}, timeout=END_SECONDS)
            if running.done() and not running.cancelled() and (error := running.exception()) is not None:
                raise error
        finally:
            server.close()
            await clean(kube)


def main() -> None:
    """Run the command."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=50, help="nodes (default: 50)")
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(message)s")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(simulate(options.parse_args()))


if __name__ == "__main__":
    main()
