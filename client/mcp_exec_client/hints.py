"""Advice for each reason; docs/kubectl/troubleshooting.md has the same."""

from typing import Final

from mcp_exec_api.code_execution import Reason

_PODS: Final = "kubectl describe sandboxpool shows its condition Ready"

REASONS: Final = {
    Reason.USER_ERROR: "read `error`: it has the line; the code is to be corrected",
    Reason.EXIT_CODE: "let the code end by itself, or with sys.exit(0)",
    Reason.RUNNER_DIED: "look for os._exit in the code, and for native modules that crash",
    Reason.OUT_OF_MEMORY: "have the code keep less at once, or give the pool more `resources.limits.memory`",
    Reason.PROCESS_LIMIT: "start fewer processes and threads, or raise the pool's `maxProcesses`",
    Reason.STORAGE_LIMIT: "write less, or raise the pool's `workspaceSize`",
    Reason.OUTPUT_LIMIT: "print a summary instead of all rows",
    Reason.TIMEOUT: "raise `timeoutSeconds`, at most to the pool's `maxTimeoutSeconds`, or do less in one run",
    Reason.CANCELLED: "send `onDisconnect=continue` where the client goes away while it waits",
    Reason.SANDBOX_LOST: "run it again if its tools allow that: it may have run; kubectl get events tells of the pod",
    Reason.SUPERVISOR_DIED: "raise the pool's `resources.limits.memory`; if it happens again, report it",
    Reason.STREAM_BROKEN: "look whether NetworkPolicies let the operator reach sandboxes on their port",
    Reason.NODE_LOST: "look at the node: kubectl get nodes; run it again if its tools allow that",
    Reason.EVICTED: "look at the node's disk and memory; run it again if its tools allow that",
    Reason.REJECTED: "correct the field or the line that the message names",
    Reason.POOL_NOT_FOUND: "name a pool that exists: kubectl get sandboxpools",
    Reason.POOL_UNAVAILABLE: "wait for pods to come up, or raise the pool's `warm.min`; " + _PODS,
    Reason.POOL_AT_CAPACITY: "raise the pool's `maxPods`, or send less at once",
    Reason.QUEUE_FULL: "come back after `Retry-After`; raise the pool's `maxPods` or `maxQueued`",
    Reason.QUOTA_EXCEEDED: "raise the namespace's ResourceQuota, or the chart's `quota`, or lower the pool's `maxPods`",
    Reason.RUNTIME_CLASS_NOT_FOUND: "install the RuntimeClass, or change the pool's `runtimeClassName`",
    Reason.IMAGE_PULL_FAILED: "correct the pool's `image` or `imagePullSecrets`; the message has the registry's words",
    Reason.UNSCHEDULABLE: "add nodes, or look at the pool's `resources.requests`, `nodeSelector` and `tolerations`",
    Reason.POD_REFUSED: "do what the API server's message says; mostly it is Pod Security or an admission webhook",
    Reason.BROKER_UNAVAILABLE: "look at the broker: kubectl get pods,endpoints in the release's namespace",
    Reason.POD_FAILED: "read the message: sandboxes say why they end; mostly no NetworkPolicy is enforced",
}
"""By an execution's or a pool's reason."""

SERVERS: Final = {
    "Starting": "wait for its pod",
    "CrashLoop": "read the message: it has the server's last lines",
    "CreateContainerConfigError": "make the Secret and the key that it names",
    "NoServersImage": "set the chart's `servers.image`",
}
"""By a ToolServer's reason, where that is none of REASONS."""

PROBLEMS: Final = {
    "unauthenticated": "check the key: who removed or rotated it? The chart's notes say how to get the first one",
    "forbidden": "use a key of that namespace whose limits allow it",
    "rate-limited": "wait a minute, or raise the key's `requestsPerMinute`",
    "too-many": "wait for executions to end, or raise the key's `maxConcurrent`",
    "queue-full": REASONS[Reason.QUEUE_FULL],
    "invalid": "correct the field that it names",
    "unavailable": "look at the part that it names: kubectl get pods in the release's namespace",
}
"""By the kind of a gateway's problem."""

ELSE: Final = "docs/kubectl/troubleshooting.md has more"


def for_reason(reason: str) -> str:
    """What to do about an execution, a pool or a server with that reason."""
    return {**SERVERS, **{str(each): hint for each, hint in REASONS.items()}}.get(reason, ELSE)
