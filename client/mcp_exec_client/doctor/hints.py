"""Hints for the reasons of executions, pools and servers; docs/kubectl/troubleshooting.md has the same."""

from typing import Final

from mcp_exec_api.code_execution import Reason

_DESCRIBE_POOL: Final = "kubectl describe sandboxpool shows its condition Ready"

REASONS: Final = {
    Reason.USER_ERROR: "correct the code; `error` has the line",
    Reason.EXIT_CODE: "let the code run to its end, or call sys.exit(0)",
    Reason.RUNNER_DIED: "look for os._exit in the code, and for native modules that crash",
    Reason.OUT_OF_MEMORY: "keep less data in memory, or raise the pool's `resources.limits.memory`",
    Reason.PROCESS_LIMIT: "start fewer processes and threads, or raise the pool's `maxProcesses`",
    Reason.STORAGE_LIMIT: "write less, or raise the pool's `workspaceSize`",
    Reason.OUTPUT_LIMIT: "print a summary instead of all rows",
    Reason.TIMEOUT: "raise `timeoutSeconds`, at most to the pool's `maxTimeoutSeconds`, or do less in one run",
    Reason.CANCELLED: "send `onDisconnect=continue` if the client may disconnect while it waits",
    Reason.SANDBOX_LOST: "run it again if its tools allow that, since it may have run; kubectl get events shows why",
    Reason.SUPERVISOR_DIED: "raise the pool's `resources.limits.memory`; if it happens again, report a bug",
    Reason.STREAM_BROKEN: "check that NetworkPolicies allow the operator to connect to sandboxes",
    Reason.NODE_LOST: "check the node: kubectl get nodes; run it again if its tools allow that",
    Reason.EVICTED: "check the node's disk and memory; run it again if its tools allow that",
    Reason.REJECTED: "correct the field or the line that the message names",
    Reason.POOL_NOT_FOUND: "name a pool that exists: kubectl get sandboxpools",
    Reason.POOL_UNAVAILABLE: "wait until pods are ready, or raise the pool's `warm.min`; " + _DESCRIBE_POOL,
    Reason.POOL_AT_CAPACITY: "raise the pool's `maxPods`, or run fewer executions at once",
    Reason.QUEUE_FULL: "retry after `Retry-After`; raise the pool's `maxPods` or `maxQueued`",
    Reason.QUOTA_EXCEEDED: "raise the namespace's ResourceQuota, or the chart's `quota`, or lower the pool's `maxPods`",
    Reason.RUNTIME_CLASS_NOT_FOUND: "install the RuntimeClass, or change the pool's `runtimeClassName`",
    Reason.IMAGE_PULL_FAILED: "correct the pool's `image` or `imagePullSecrets`; the message has the registry's error",
    Reason.UNSCHEDULABLE: "add nodes, or check the pool's `resources.requests`, `nodeSelector` and `tolerations`",
    Reason.POD_REFUSED: "follow the API server's message; usually the cause is Pod Security or an admission webhook",
    Reason.BROKER_UNAVAILABLE: "check the broker: kubectl get pods,endpoints in the release's namespace",
    Reason.POD_FAILED: "read the message; usually the cluster enforces no NetworkPolicy",
}
"""Hints by an execution's or a pool's reason."""

SERVERS: Final = {
    "Starting": "wait for its pod",
    "CrashLoop": "read the message, which has the server's last output",
    "CreateContainerConfigError": "create the Secret and the key that the message names",
    "NoServersImage": "set the chart's `servers.image`",
}
"""Hints by a ToolServer's reason, if that is not one of REASONS."""

PROBLEMS: Final[dict[str, str]] = {
    "unauthenticated": "check whether the key was removed or rotated; the chart's notes say how to get the first one",
    "forbidden": "use a key of that namespace whose limits allow it",
    "rate-limited": "wait a minute, or raise the key's `requestsPerMinute`",
    "too-many": "wait until executions have ended, or raise the key's `maxConcurrent`",
    "queue-full": REASONS[Reason.QUEUE_FULL],
    "invalid": "correct the field that the message names",
    "unavailable": "check the component that the message names: kubectl get pods in the release's namespace",
}
"""Hints by the type of a gateway's problem."""

FALLBACK_HINT: Final = "see docs/kubectl/troubleshooting.md"
_BY_REASON: Final[dict[str, str]] = {**SERVERS, **{str(reason): hint for reason, hint in REASONS.items()}}


def hint_for_reason(reason: str) -> str:
    """Return the hint for an execution, a pool or a server with that reason."""
    return _BY_REASON.get(reason, FALLBACK_HINT)
