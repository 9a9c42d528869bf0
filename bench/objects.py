"""Objects that simulated nodes write: Nodes, their Leases, and the status of a running pod. Pure functions."""

from ipaddress import IPv4Address
from typing import Any, Final

from mcp_exec_common.kube.objects import Object

LABEL: Final = "mcp-exec.dev/simulated"
"""Label and taint of the nodes. The taint keeps other pods away."""
SELECTOR: Final = f"{LABEL}=true"
LEASES: Final = "kube-node-lease"
LEASE_GROUP: Final = "coordination.k8s.io/v1"
TOLERATION: Final = {"key": LABEL, "operator": "Exists", "effect": "NoSchedule"}

_FIRST_ADDRESS: Final = int(IPv4Address("127.1.0.0"))
_ADDRESSES: Final = 2**23


def node_name(number: int) -> str:
    """Return the name of a node."""
    return f"simulated-{number:04}"


def node_object(name: str, *, pods: int, moment: str) -> Object:
    """Build a ready Node with room for `pods` pods. `moment` is RFC 3339 with seconds."""
    room = {"cpu": "1000", "memory": "4Ti", "ephemeral-storage": "4Ti", "pods": str(pods)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {LABEL: "true", "kubernetes.io/hostname": name}},
        "spec": {"taints": [{"key": LABEL, "value": "true", "effect": "NoSchedule"}]},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": node_conditions(moment),
            "addresses": [{"type": "Hostname", "address": name}],
        },
    }


def node_conditions(moment: str) -> list[Object]:
    """Build the conditions of a healthy node."""
    pressures = [("MemoryPressure", "False"), ("DiskPressure", "False"), ("PIDPressure", "False")]
    return [
        {
            "type": kind,
            "status": status,
            "reason": "Simulated",
            "message": "a simulated node",
            "lastHeartbeatTime": moment,
            "lastTransitionTime": moment,
        }
        for kind, status in (("Ready", "True"), *pressures)
    ]


def lease_object(name: str, *, moment: str) -> Object:
    """Build the Lease of a node. `moment` is RFC 3339 with microseconds."""
    return {
        "apiVersion": LEASE_GROUP,
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASES, "labels": {LABEL: "true"}},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": moment},
    }


def pod_address(number: int) -> str:
    """Return the loopback address of pod number `number`. Addresses repeat after eight million."""
    return str(IPv4Address(_FIRST_ADDRESS + number % _ADDRESSES))


def running_status(pod: Object, *, address: str, moment: str) -> Object:
    """Build the status of a pod whose containers all run and are ready. `moment` is RFC 3339 with seconds."""
    before: list[dict[str, Any]] = (pod.get("status") or {}).get("conditions") or []
    kept = [each for each in before if each["type"] == "PodScheduled"]
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": moment}
        for kind in ("Initialized", "ContainersReady", "Ready")
    ]
    return {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": moment,
        "conditions": [*kept, *conditions],
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "simulated",
                "containerID": f"simulated://{pod['metadata']['uid']}",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": moment}},
            }
            for container in pod["spec"]["containers"]
        ],
    }


def read_token_digest(pod: Object) -> str:
    """Return the SHA-256 of the supervisor's token from the pod's environment, or an empty text."""
    for variable in pod["spec"]["containers"][0].get("env") or ():
        if variable["name"] == "MCP_EXEC_TOKEN_SHA256":
            return str(variable.get("value") or "")
    return ""
