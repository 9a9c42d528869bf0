"""Pods of a benchmark's own, in a namespace of its own that no NetworkPolicy of the release covers.

A peer answers as a sandbox does. A machine that is no node of the cluster reaches neither pods nor Services; there a
load pod runs the benchmark instead. It has the operator's image, which contains the libraries, and few rights.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness import NAMESPACE, RELEASE, SYSTEM, BenchCluster
from waits import within

from mcp_exec_api.constants import GROUP
from mcp_exec_common.kube.client import resource_path
from mcp_exec_common.kube.objects import Object

RESULT: Final = "result"
"""ConfigMap with the load pod's figures."""
PERSON: Final = "BENCH_PERSON"
"""Variable of the load pod with the token of a person."""
_ACCOUNT: Final = "bench"
_START_SECONDS: Final = 120
_RBAC: Final = "rbac.authorization.k8s.io"
_FOLDER: Final = "/bench"
_ISOLATION: Final = ("MCP_EXEC_FORBIDDEN_ADDRESSES", "MCP_EXEC_ANSWERING_ADDRESS")
"""Variables for a sandbox's check that a NetworkPolicy covers it. The peer has none."""
_TOKEN: Final = "MCP_EXEC_TOKEN_SHA256"
_POD_FIELDS: Final = (
    "dnsConfig", "dnsPolicy", "enableServiceLinks", "imagePullSecrets", "nodeSelector", "runtimeClassName",
    "securityContext", "tolerations",
)  # fmt: skip
_CONTAINER_FIELDS: Final = ("env", "image", "imagePullPolicy", "resources", "securityContext", "workingDir")
_CONFINED: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_RIGHTS: Final[dict[bool, list[Object]]] = {
    True: [
        {"apiGroups": [GROUP], "resources": ["codeexecutions"], "verbs": ["create", "list", "watch"]},
        {"apiGroups": [GROUP], "resources": ["codeexecutions/status"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
    ],
    False: [
        {"apiGroups": [GROUP], "resources": ["sandboxpools"], "verbs": ["get", "patch"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    ],
}
"""Rights of the load pod in its own namespace, and in the served one."""


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A pod that answers `GET /healthz` as a sandbox does."""

    address: str
    node: str


def peer_manifest(like: Object, *, token_sha256: str = "") -> Object:
    """Build a pod with image, runtime, limits and volumes of a sandbox, that is in no pool.

    It obeys the token with this digest, or nobody.
    """
    spec, container = like["spec"], like["spec"]["containers"][0]
    # the mount of a token, if there is one, is of a volume that the copy lacks
    volumes = [volume for volume in spec["volumes"] if "emptyDir" in volume]
    names = {volume["name"] for volume in volumes}
    kept = {name: container[name] for name in _CONTAINER_FIELDS if name in container}
    kept["env"] = [each for each in container["env"] if each["name"] not in _ISOLATION]
    if token_sha256:
        kept["env"] = [each for each in kept["env"] if each["name"] != _TOKEN]
        kept["env"].append({"name": _TOKEN, "value": token_sha256})
    kept["volumeMounts"] = [mount for mount in container.get("volumeMounts", []) if mount["name"] in names]
    return {
        "metadata": {"name": "peer"},
        "spec": {
            **{name: spec[name] for name in _POD_FIELDS if name in spec},
            "serviceAccountName": _ACCOUNT,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "restartPolicy": "Never",
            "volumes": volumes,
            "containers": [{"name": "peer", **kept}],
        },
    }


def load_manifest(image: str, *, arguments: Sequence[str], gateway: str) -> Object:
    """Build the pod that runs a benchmark. The API key, and a token if there is one, come from a Secret."""
    key = {"secretKeyRef": {"name": "key", "key": "api-key"}}
    token = {"secretKeyRef": {"name": "key", "key": "token", "optional": True}}
    return {
        "metadata": {"name": "load"},
        "spec": {
            "serviceAccountName": _ACCOUNT,
            "terminationGracePeriodSeconds": 0,
            "restartPolicy": "Never",
            "volumes": [{"name": "program", "configMap": {"name": "program"}}],
            "containers": [
                {
                    "name": "load",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["python3", *arguments],
                    "workingDir": _FOLDER,
                    "env": [
                        {"name": "BENCH_GATEWAY", "value": gateway},
                        {"name": "BENCH_API_KEY", "valueFrom": key},
                        {"name": PERSON, "valueFrom": token},
                        {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
                    ],
                    "securityContext": _CONFINED,
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "volumeMounts": [{"name": "program", "mountPath": _FOLDER}],
                }
            ],
        },
    }


def role_manifests(name: str, *, own: bool) -> tuple[Object, Object]:
    """Build the load pod's Role and its binding, for its own namespace or for the served one."""
    subject = {"kind": "ServiceAccount", "name": _ACCOUNT, "namespace": name}
    metadata = {"metadata": {"name": name}}
    binding = {"roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": name}, "subjects": [subject]}
    return metadata | {"rules": _RIGHTS[own]}, metadata | binding


@asynccontextmanager
async def own_namespace(bench: BenchCluster) -> AsyncIterator[str]:
    """Create a namespace with an account for the pods, and delete it afterwards."""
    made = await bench.kube.create(resource_path("namespaces"), {"metadata": {"generateName": "bench-"}})
    name: str = made["metadata"]["name"]
    try:
        await bench.kube.create(resource_path("serviceaccounts", namespace=name), {"metadata": {"name": _ACCOUNT}})
        yield name
    finally:
        await bench.kube.delete(resource_path("namespaces", name=name))


async def run_peer(bench: BenchCluster, namespace: str, *, pool: str, token_sha256: str = "") -> Peer:
    """Start a peer like the pool's sandboxes, and return it once it runs."""
    pods, _ = await bench.kube.list(resource_path("pods", namespace=NAMESPACE), selector=f"{GROUP}/pool={pool}")
    if not pods:
        raise SystemExit(f"pool {pool} has no sandboxes: its pods are what the floor is measured with")
    path = resource_path("pods", namespace=namespace)
    await bench.kube.create(path, peer_manifest(pods[0], token_sha256=token_sha256))
    found = await _wait_for(bench, f"{path}/peer", "Running")
    return Peer(address=found["status"]["podIP"], node=found["spec"]["nodeName"])


def is_own(address: str) -> bool:
    """Return whether an address is one of this machine's. Nothing is sent."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


async def is_node(bench: BenchCluster) -> bool:
    """Return whether this machine is a node, which reaches Services and pods by their addresses.

    A connection would not show it: on some networks a proxy accepts those to any address.
    """
    nodes, _ = await bench.kube.list(resource_path("nodes"))
    addresses = (each for node in nodes for each in node["status"].get("addresses") or [])
    return any(is_own(each["address"]) for each in addresses if each["type"] == "InternalIP")


async def run_inside(
    bench: BenchCluster,
    namespace: str,
    *,
    programs: Sequence[Path],
    arguments: Sequence[str],
    seconds: float,
    token: str = "",
) -> tuple[dict[str, Any], str]:
    """Run the first of the programs in a pod, perhaps with the token of a person.

    Return the figures that it has stored, and the pod's node.
    """
    operator = resource_path("deployments", namespace=SYSTEM, name=f"{RELEASE}-operator", group="apps/v1")
    image = (await bench.kube.get(operator))["spec"]["template"]["spec"]["containers"][0]["image"]
    data = {path.name: path.read_text() for path in programs}
    key = bench.headers["Authorization"].removeprefix("Bearer ")
    for kind, body in (
        ("configmaps", {"metadata": {"name": "program"}, "data": data}),
        (
            "secrets",
            {"metadata": {"name": "key"}, "stringData": {"api-key": key} | ({"token": token} if token else {})},
        ),
    ):
        await bench.kube.create(resource_path(kind, namespace=namespace), body)
    served = {kind: resource_path(kind, namespace=NAMESPACE, group=f"{_RBAC}/v1") for kind in ("roles", "rolebindings")}
    for own, place in ((True, namespace), (False, NAMESPACE)):
        for kind, body in zip(("roles", "rolebindings"), role_manifests(namespace, own=own), strict=True):
            await bench.kube.create(resource_path(kind, namespace=place, group=f"{_RBAC}/v1"), body)
    try:
        path = resource_path("pods", namespace=namespace)
        pod = load_manifest(image, arguments=[programs[0].name, *arguments], gateway=bench.gateway)
        await bench.kube.create(path, pod)
        found = await _wait_for(bench, f"{path}/load", "Succeeded", seconds=seconds)
    finally:
        for each in served.values():
            await bench.kube.delete(f"{each}/{namespace}")
    stored = await bench.kube.get(resource_path("configmaps", namespace=namespace, name=RESULT))
    return json.loads(stored["data"]["json"]), found["spec"]["nodeName"]


async def store_result(bench: BenchCluster, namespace: str, figures: dict[str, Any]) -> None:
    """Store the figures of a load pod for the machine that has started it."""
    body = {"metadata": {"name": RESULT}, "data": {"json": json.dumps(figures)}}
    await bench.kube.create(resource_path("configmaps", namespace=namespace), body)


async def _wait_for(bench: BenchCluster, path: str, phase: str, *, seconds: float = _START_SECONDS) -> Object:
    found: Object = {}
    async with within(
        seconds, f"{path.rpartition('/')[2]} to be {phase}", state=lambda: found.get("status", {}).get("phase")
    ):
        while (found := await bench.kube.get(path))["status"].get("phase") != phase:
            if found["status"].get("phase") in ("Failed", "Succeeded"):
                states = [each.get("state") for each in found["status"].get("containerStatuses", [])]
                raise SystemExit(f"the pod {path.rpartition('/')[2]} ended: {json.dumps(states)}")
            await asyncio.sleep(0.5)
    return found
