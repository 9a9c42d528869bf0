"""Release on simulated nodes: operator and gateway as processes of this machine, in their own namespace.

They run the same code as the images, with their own service account, so that the API server treats them as in a
cluster. Everything is removed at the end.
"""

import asyncio
import base64
import json
import os
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import aiohttp
from harness import BenchCluster, client, inherit_environment
from objects import LABEL, TOLERATION
from processes import ChildProcess, child, daemons
from tests.support.ports import free_port
from waits import within

from mcp_exec_common.kube.client import KubeClient, custom_resource_path, resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.sandbox_keys import SIGNING_ENTRY

NAMESPACE, POOL, NAME = "bench-nodes", "simulated", "mcp-exec-bench-nodes"
SYSTEM = "bench-nodes-system"
"""Namespace of the Lease and of the API key. It must not be a served one."""
KEY_SECRET = "sandbox-key"
MOUNTED_KEY = "sandbox-key"
"""Folder that the gateway reads, as the kubelet would mount the Secret."""
ACCOUNTS = ("operator", "gateway")
"""Service accounts of the parts with these names. The audit log has each write under its account."""
PACKAGES = ("operator", "gateway", "common", "crds", "tools")
"""Folders of a checkout whose packages operator and gateway import."""
LEASE = {"MCP_EXEC_LEASE_DURATION_SECONDS": "120", "MCP_EXEC_LEASE_RENEW_SECONDS": "110"}
"""A busy machine may renew late, and no benchmark is about failover."""
RBAC = "rbac.authorization.k8s.io/v1"
MAX_PODS = 10_000


@dataclass(kw_only=True)
class SimulatedRelease:
    """The release and its running processes."""

    bench: BenchCluster
    folder: Path
    """Folder of its files and logs."""
    product: Path | None
    """A checkout whose operator and gateway run, instead of those that are installed."""
    stamps: Path | None
    """Folder where operator and gateway write when executions passed them, if they record it (stamps.py)."""
    simulator: ChildProcess
    gateway_port: int
    operator_port: int
    namespaces: tuple[str, ...] = (NAMESPACE,)
    """Served namespaces. A change applies to parts that start after it."""
    gateway: ChildProcess | None = None
    operator: ChildProcess | None = None
    _operator: AsyncExitStack = field(default_factory=AsyncExitStack)
    _gateway: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def pids(self) -> dict[str, int]:
        """All running processes, the cluster's included."""
        parts = {"operator": self.operator, "gateway": self.gateway, "simulator": self.simulator}
        ours = {name: part.pid for name, part in parts.items() if part is not None}
        return {**ours, "load generator": os.getpid(), **daemons()}

    async def start_gateway(self) -> None:
        """Start the gateway and wait until it is ready."""
        environment = self.environment("gateway", port=self.gateway_port, MCP_EXEC_API_KEYS_SECRET=NAME)
        environment["MCP_EXEC_SANDBOX_KEY_FOLDER"] = str(self.folder / MOUNTED_KEY)
        environment["MCP_EXEC_LOG_LEVEL"] = "warning"
        environment["MCP_EXEC_METRICS"] = "false"
        environment["MCP_EXEC_MAX_SESSIONS_PER_CALLER"] = "100"
        environment["MCP_EXEC_DRAIN_SECONDS"] = "0"  # no balancer needs to notice its end
        running = child(self._command("gateway"), environment=environment, log=self.folder / "gateway.log")
        self.gateway = await self._gateway.enter_async_context(running)
        await self.wait_until_ready(self.gateway, self.gateway_port)

    async def stop_gateway(self) -> None:
        """Stop the gateway."""
        await self._gateway.aclose()
        self.gateway = None

    async def start_operator(self, **settings: str) -> None:
        """Start the operator with more variables of its environment, and wait until its first resync."""
        # Always the same holder of the Lease, so that a new operator does not wait for the old one's Lease to expire.
        identity = {"MCP_EXEC_POD_NAME": "operator", "MCP_EXEC_POD_UID": "0", "MCP_EXEC_SANDBOX_KEY_SECRET": KEY_SECRET}
        more = {"MCP_EXEC_LOG_LEVEL": "WARNING", **LEASE, **identity, **settings}
        environment = self.environment("operator", port=self.operator_port, **more)
        running = child(self._command("operator"), environment=environment, log=self.folder / "operator.log")
        self.operator = await self._operator.enter_async_context(running)
        await self.wait_until_ready(self.operator, self.operator_port)

    async def stop_operator(self) -> None:
        """Stop the operator, as a rolling update would."""
        await self._operator.aclose()
        self.operator = None

    def _command(self, part: str) -> list[str]:
        """Return the command that runs the operator or the gateway."""
        if self.stamps is None:
            return [sys.executable, "-m", f"mcp_exec_{part}"]
        return [sys.executable, str(Path(__file__).with_name("stamps.py")), part, str(self.stamps / f"{part}.json")]

    def environment(self, part: str, *, port: int, **more: str) -> dict[str, str]:
        """Build the environment of a part with an account of its name."""
        folders = [] if self.product is None else [str(self.product / name) for name in PACKAGES]
        path = {"PYTHONPATH": os.pathsep.join(folders)} if folders else {}
        return {
            **inherit_environment(),
            **path,
            "MCP_EXEC_NAMESPACES": ",".join(self.namespaces),
            "MCP_EXEC_RELEASE_NAMESPACE": SYSTEM,
            "MCP_EXEC_KUBECONFIG": str(self.folder / f"{part}.kubeconfig"),
            "MCP_EXEC_PORT": str(port),
            # no benchmark is about the deletion of what it has just made
            "MCP_EXEC_MAX_STORED": "1000000",
            "MCP_EXEC_MAX_STORED_BYTES": str(2**40),
            **more,
        }

    async def wait_until_ready(self, part: ChildProcess, port: int, *, seconds: float = 300) -> None:
        """Wait until a part says at this port that it is ready."""
        async with within(seconds, f"{part.log.stem} to be ready", state=part.tail):
            while True:
                part.check()
                try:
                    async with self.bench.session.get(f"http://127.0.0.1:{port}/readyz") as response:
                        if response.status == 200:
                            return
                except aiohttp.ClientConnectionError:
                    pass  # the port is not open yet
                await asyncio.sleep(0.1)


def pool_object(*, warm: int, reuse: str = "Never") -> Object:
    """Build the pool, whose pods run on simulated nodes only."""
    return {
        "apiVersion": "mcp-exec.dev/v1beta1",
        "kind": "SandboxPool",
        "metadata": {"name": POOL, "namespace": NAMESPACE},
        "spec": {
            "image": "localhost/simulated:1",
            "nodeSelector": {LABEL: "true"},
            "tolerations": [TOLERATION],
            "warm": {"min": warm},
            "reuse": {"scope": reuse},
            "maxPods": MAX_PODS,
        },
    }


@asynccontextmanager
async def release(
    *, warm: int, nodes: int, reuse: bool = False, product: Path | None = None, stamps: Path | None = None
) -> AsyncIterator[SimulatedRelease]:
    """Run the release with one pool, `simulated`, that keeps `warm` pods warm and, with `reuse`, uses pods again.

    With `product`, operator and gateway are those of that checkout. With `stamps`, a folder, they record there when
    executions passed them.
    """
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mcp-exec-bench-")))
        kube = await stack.enter_async_context(KubeClient.connect(kubeconfig=Path(os.environ["KUBECONFIG"])))
        session = await stack.enter_async_context(client())
        command = [sys.executable, str(Path(__file__).with_name("nodes.py")), "--count", str(nodes)]
        simulator = await stack.enter_async_context(
            child(command, environment=os.environ, log=folder / "simulator.log", end_seconds=120)
        )
        await simulator.wait_for_line("ready")
        await remove(kube)
        stack.push_async_callback(remove, kube)  # before the simulator ends, which ends the pods
        key = await prepare(kube, folder)
        gateway_port, operator_port = free_port(), free_port()
        bench = BenchCluster(
            kube=kube,
            session=session,
            gateway=f"http://127.0.0.1:{gateway_port}",
            headers={"Authorization": f"Bearer {key}"},
            namespace=NAMESPACE,
            operator=f"http://127.0.0.1:{operator_port}",
        )
        made = SimulatedRelease(
            bench=bench,
            folder=folder,
            simulator=simulator,
            gateway_port=gateway_port,
            operator_port=operator_port,
            product=product,
            stamps=stamps,
        )
        stack.push_async_callback(made.stop_gateway)
        await made.start_gateway()
        stack.push_async_callback(made.stop_operator)
        await made.start_operator()
        await kube.create(
            custom_resource_path("sandboxpools", namespace=NAMESPACE),
            pool_object(warm=warm, reuse="Owner" if reuse else "Never"),
        )
        yield made


async def prepare(kube: KubeClient, folder: Path) -> str:
    """Create the namespaces, the service accounts with their kubeconfigs, and an API key. Return the key."""
    for namespace in (NAMESPACE, SYSTEM):
        await kube.create(resource_path("namespaces"), {"metadata": {"name": namespace}})
    files = {f"{part}.kubeconfig": json.dumps(await create_account(kube, part)) for part in ACCOUNTS}
    sandbox_key = secrets.token_hex(32)
    (folder / MOUNTED_KEY).mkdir()
    files[f"{MOUNTED_KEY}/{SIGNING_ENTRY}"] = sandbox_key
    for name, text in files.items():
        (folder / name).touch(mode=0o600)
        (folder / name).write_text(text)
    key = "mcpx_" + secrets.token_urlsafe(32)
    entry = json.dumps({"sha256": sha256(key.encode()).hexdigest(), "namespace": NAMESPACE})
    contents = {NAME: {"bench": entry}, KEY_SECRET: {SIGNING_ENTRY: sandbox_key}}
    for name, texts in contents.items():
        data = {each: base64.b64encode(text.encode()).decode() for each, text in texts.items()}
        await kube.create(resource_path("secrets", namespace=SYSTEM), {"metadata": {"name": name}, "data": data})
    return key


async def create_account(kube: KubeClient, name: str) -> dict[str, Any]:
    """Create a service account with all rights, and return its kubeconfig."""
    await kube.create(resource_path("serviceaccounts", namespace=NAMESPACE), {"metadata": {"name": name}})
    binding = {
        "metadata": {"name": f"{NAME}-{name}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
    }
    await kube.create(resource_path("clusterrolebindings", group=RBAC), binding)
    account = resource_path("serviceaccounts", namespace=NAMESPACE, name=name)
    token = await kube.create(account + "/token", {"spec": {"expirationSeconds": 6 * 3600}})
    return build_kubeconfig(kube, token["status"]["token"])


def build_kubeconfig(kube: KubeClient, token: str) -> dict[str, Any]:
    """Build a kubeconfig for the API server of `kube`."""
    assert kube.credentials.ca_file is not None
    authority = base64.b64encode(Path(kube.credentials.ca_file).read_bytes()).decode()
    cluster = {"server": kube.credentials.server, "certificate-authority-data": authority}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": cluster}],
        "users": [{"name": NAME, "user": {"token": token}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME}}],
        "current-context": NAME,
    }


async def remove(kube: KubeClient, *, seconds: float = 600) -> None:
    """Delete everything that `prepare` created, of an earlier run too, and wait until it is gone."""
    for part in ACCOUNTS:
        await kube.delete(resource_path("clusterrolebindings", group=RBAC, name=f"{NAME}-{part}"))
    for namespace in (NAMESPACE, SYSTEM):
        await kube.delete(resource_path("namespaces", name=namespace))
    for namespace in (NAMESPACE, SYSTEM):
        await wait_until_gone(kube, namespace, seconds=seconds)


async def wait_until_gone(kube: KubeClient, namespace: str, *, seconds: float) -> None:
    """Return when a namespace does not exist."""
    async with within(seconds, f"the end of the namespace {namespace}"):
        while True:
            try:
                await kube.get(resource_path("namespaces", name=namespace))
            except ApiError as error:
                if error.code == 404:
                    return
            await asyncio.sleep(0.5)
