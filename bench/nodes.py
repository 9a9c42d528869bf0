"""Simulated nodes: registers them, runs the pods that the scheduler binds to them, and answers as their supervisors.

A pod has an address of its own from 127.0.0.0/8, so what talks to it must be a process of this machine's host network.
Nodes have the label and the taint mcp-exec.dev/simulated: what does not ask for them stays away. All is taken back at
the end (SIGINT or SIGTERM), and what an earlier run left behind at the start.

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
    running_status,
    token_digest_of,
)
from supervisors import Supervisors

from mcp_exec_api.meta import micro_time, now
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import Reflector

log = logging.getLogger("nodes")

WORKERS = 16
"""Writes under way at the same time."""
HEARTBEAT_SECONDS = 10.0
STATUS_EVERY = 24
"""Heartbeats between two reports of a node's conditions."""
BOUND = "spec.nodeName!="
"""Field selector of pods that the scheduler has placed."""

Job = Callable[[], Awaitable[object]]


def seconds_time() -> str:
    """This moment as Kubernetes writes a Time."""
    return now().strftime("%Y-%m-%dT%H:%M:%SZ")


def pod_path(pod: Object) -> str:
    """The path of a pod's object."""
    return resource_path("pods", namespace=pod["metadata"]["namespace"], name=pod["metadata"]["name"])


def lease_path(name: str | None = None) -> str:
    """The path of a node's Lease, or of all."""
    return resource_path("leases", namespace=LEASES, name=name, group=LEASE_GROUP)


async def all_of(jobs: Iterable[Job]) -> None:
    """Does them all, so many at a time. Raises the first error."""
    waiting = list(jobs)

    async def work() -> None:
        while waiting:
            await waiting.pop()()

    await asyncio.gather(*(work() for _ in range(WORKERS)))


@dataclass(kw_only=True)
class Nodes:
    """The nodes of one run, as one kubelet for them all."""

    kube: KubeClient
    supervisors: Supervisors
    count: int
    pods_per_node: int
    start_seconds: float
    """How long a pod takes to start."""
    names: frozenset[str] = frozenset()
    """Names of the nodes."""
    _addresses: dict[str, str] = field(default_factory=dict)
    """Addresses of the pods that were seen, by their uids."""
    _ending: set[str] = field(default_factory=set)
    """Pods that are being deleted, by their uids."""
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    _jobs: "asyncio.Queue[Job]" = field(default_factory=asyncio.Queue)

    async def register(self) -> None:
        """Makes the nodes and waits until the cluster counts them in."""
        names = [node_name(number) for number in range(self.count)]
        self.names = frozenset(names)
        moment = seconds_time()
        bodies = [node_object(name, pods=self.pods_per_node, moment=moment) for name in names]
        await all_of([lambda body=body: self.kube.create(resource_path("nodes"), body) for body in bodies])  # type: ignore[misc]
        leases = [lease_object(name, moment=micro_time(now())) for name in names]
        await all_of([lambda body=body: self.kube.create(lease_path(), body) for body in leases])  # type: ignore[misc]
        async with asyncio.timeout(60):
            while True:
                found, _ = await self.kube.list(resource_path("nodes"), selector=SELECTOR)
                # the control plane takes the taint not-ready away once it has seen a node's heartbeat
                if all(len(node["spec"].get("taints") or ()) == 1 for node in found):
                    return
                await asyncio.sleep(0.5)

    async def run(self) -> None:
        """Heartbeats and pods, until it is cancelled."""
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
        """What became of a pod on any node: one of ours is started, or ended."""
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
            if self.start_seconds:
                asyncio.get_running_loop().call_later(
                    self.start_seconds, self._jobs.put_nowait, lambda: self._start(pod)
                )
            else:
                self._jobs.put_nowait(lambda: self._start(pod))

    async def _start(self, pod: Object) -> None:
        """Like a kubelet's last report of a pod that starts: it runs, and it is ready."""
        uid = pod["metadata"]["uid"]
        if (address := self._addresses.get(uid)) is None or uid in self._ending:
            return
        self.supervisors.add(address, token_sha256=token_digest_of(pod))
        status = running_status(pod, address=address, moment=seconds_time())
        await self.kube.patch(pod_path(pod) + "/status", {"metadata": {"uid": uid}, "status": status})

    async def _end(self, pod: Object) -> None:
        """Like a kubelet's last word: the containers have ended, the object may go."""
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
                if error.code not in (404, 409):  # it is gone, or another one has its name
                    log.warning("%s; tried again", error)
                    asyncio.get_running_loop().call_later(1.0, self._jobs.put_nowait, job)

    async def _beat(self) -> None:
        """The heartbeat of each node in turn, spread over the time that there is for all."""
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
    """Deletes all simulated nodes, and the pods on them without asking anybody."""
    nodes, _ = await kube.list(resource_path("nodes"), selector=SELECTOR)
    leases, _ = await kube.list(lease_path(), selector=SELECTOR)
    names = {node["metadata"]["name"] for node in nodes}
    if names:
        pods, _ = await kube.list(resource_path("pods"), fields=BOUND)
        paths = [pod_path(pod) for pod in pods if pod["spec"]["nodeName"] in names]
        await all_of([lambda path=path: kube.delete(path, grace_seconds=0) for path in paths])  # type: ignore[misc]
    paths = [lease_path(lease["metadata"]["name"]) for lease in leases]
    paths += [resource_path("nodes", name=name) for name in names]
    await all_of([lambda path=path: kube.delete(path) for path in paths])  # type: ignore[misc]


async def simulate(options: argparse.Namespace) -> None:
    """Runs until SIGINT or SIGTERM; says `ready` once the nodes are."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    supervisors = Supervisors(run_seconds=options.run_seconds)
    async with KubeClient.connect(kubeconfig=Path(os.environ["KUBECONFIG"])) as kube:
        server = await supervisors.serve(port=options.port)  # one simulation at a time has it
        await clean(kube)
        nodes = Nodes(
            kube=kube,
            supervisors=supervisors,
            count=options.count,
            pods_per_node=options.pods_per_node,
            start_seconds=options.start_seconds,
        )
        try:
            await nodes.register()
            running = asyncio.ensure_future(nodes.run())
            stopping = asyncio.ensure_future(stop.wait())
            print("ready", flush=True)
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            running.cancel()
            await asyncio.wait({running})
            if not running.cancelled() and (error := running.exception()) is not None:
                raise error
        finally:
            server.close()
            await clean(kube)


def main() -> None:
    """The command."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=50, help="nodes (default: 50)")
    options.add_argument("--pods-per-node", type=int, default=250, help="room on each (default: 250)")
    options.add_argument("--start-seconds", type=float, default=0.0, help="how long a pod takes to start (default: 0)")
    options.add_argument("--run-seconds", type=float, default=0.002, help="how long code runs (default: 0.002)")
    options.add_argument("--port", type=int, default=8700, help="the supervisors' port (default: 8700)")
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(message)s")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(simulate(options.parse_args()))


if __name__ == "__main__":
    main()
