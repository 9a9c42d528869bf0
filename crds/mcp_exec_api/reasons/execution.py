"""Reasons for the phase of an execution."""

from enum import Flag, auto
from typing import Self

from mcp_exec_api.meta import OpenEnum


class ReasonTrait(Flag):
    """Further facts about a reason."""

    SANDBOX = auto()
    """A sandbox may report it as the reason of a failure."""
    FAULT = auto()
    """It may be the fault of the pool: neither the code's own error, nor the node's."""
    FILES = auto()
    """A sandbox may report it as the reason why a workspace was not saved."""
    CODE = auto()
    """The code chose this end itself."""


_NO_TRAITS = ReasonTrait(0)


class Reason(OpenEnum):
    """Reason for the phase of an execution, with its meaning and a remedy for the person who reads it.

    `make generate` writes the table of docs/kubectl/troubleshooting.md from here; `mcp-exec doctor` prints remedies.
    """

    meaning: str
    remedy: str
    traits: ReasonTrait

    def __new__(cls, value: str, meaning: str = "", remedy: str = "", traits: ReasonTrait = _NO_TRAITS) -> Self:
        """Create a member that equals its value and has a meaning, a remedy and traits."""
        member = str.__new__(cls, value)
        member._value_, member.meaning, member.remedy, member.traits = value, meaning, remedy, traits
        return member

    @property
    def is_clean(self) -> bool:
        """Whether the code ended by itself and within its limits, so that its interpreter lives."""
        return self is Reason.NONE or ReasonTrait.CODE in self.traits

    NONE = ""
    NOT_OBSERVED = (
        "NotObserved",
        "no operator has seen it yet, which takes well under a second; if it stays, its namespace is not served",
        "use a served namespace, or add this one to the chart's `namespaces` (docs/platform/teams.md); else "
        "check that the operator runs",
    )
    AWAITING_APPROVAL = (
        "AwaitingApproval",
        "a tool call waits for an approval; the clock of `timeoutSeconds` stands still",
        "decide on the call in `status.approvals`: kubectl patch, `mcp-exec approve`, or the gateway's "
        "`POST /v1/executions/NAME/approvals/ID`",
    )
    USER_ERROR = (
        "UserError",
        "the code raised an exception; `error` has its type, message, line and traceback",
        "correct the code; `error` has the line",
        ReasonTrait.SANDBOX | ReasonTrait.CODE,
    )
    EXIT_CODE = (
        "ExitCode",
        "the code called `sys.exit` with a code other than 0",
        "let the code run to its end, or call sys.exit(0)",
        ReasonTrait.SANDBOX | ReasonTrait.CODE,
    )
    RUNNER_DIED = (
        "RunnerDied",
        "the interpreter exited: `os._exit`, a stack overflow, or a crash of native code",
        "look for os._exit and endless recursion in the code, and for native modules that crash",
        ReasonTrait.SANDBOX | ReasonTrait.FAULT,
    )
    OUT_OF_MEMORY = (
        "OutOfMemory",
        "a MemoryError, the sandbox's memory limit, or the kernel's OOM killer",
        "keep less data in memory, or raise the pool's `resources.limits.memory`",
        ReasonTrait.SANDBOX | ReasonTrait.FAULT,
    )
    PROCESS_LIMIT = (
        "ProcessLimit",
        "more processes or threads than allowed",
        "start fewer processes and threads, or raise the pool's `maxProcesses`",
        ReasonTrait.SANDBOX | ReasonTrait.FAULT,
    )
    STORAGE_LIMIT = (
        "StorageLimit",
        "more bytes in files than allowed",
        "write less, or raise the pool's `workspaceSize`",
        ReasonTrait.SANDBOX,
    )
    OUTPUT_LIMIT = (
        "OutputLimit",
        "far more output than is kept",
        "print a summary instead of all rows",
        ReasonTrait.SANDBOX,
    )
    ISOLATION_LOST = (
        "IsolationLost",
        "the sandbox could reach an address that its NetworkPolicy forbids, so its code was ended at once",
        "look for a deleted or changed NetworkPolicy, or for one that allows more: kubectl get networkpolicies; check "
        "the network plugin",
        ReasonTrait.SANDBOX,
    )
    TIMEOUT = (
        "Timeout",
        "`timeoutSeconds` expired; the output is kept, and if only threads of the code still ran, its result and files",
        "raise `timeoutSeconds`, at most to the pool's `maxTimeoutSeconds`, or do less in one run",
    )
    CANCELLED = (
        "Cancelled",
        "`cancelRequested`, `DELETE`, or a client that disconnected while it waited",
        "send `onDisconnect=continue` if the client may disconnect while it waits",
    )
    SANDBOX_LOST = (
        "SandboxLost",
        "the pod vanished while the code ran or may have run",
        "run it again if its tools allow that, since it may have run; kubectl get events shows why",
        ReasonTrait.FAULT,
    )
    SUPERVISOR_DIED = (
        "SupervisorDied",
        "the first process of the sandbox exited, and the pod with it",
        "raise the pool's `resources.limits.memory`; if it happens again, report a bug",
        ReasonTrait.FAULT,
    )
    STREAM_BROKEN = (
        "StreamBroken",
        "the connection to the sandbox broke and was not restored within 6 seconds, although the pod exists",
        "check that NetworkPolicies allow the operator to connect to sandboxes",
        ReasonTrait.FAULT,
    )
    NODE_LOST = (
        "NodeLost",
        "the node is not ready or gone, and the sandbox did not answer two requests in a row",
        "check the node: kubectl get nodes; run it again if its tools allow that",
    )
    EVICTED = (
        "Evicted",
        "the pod had to leave its node: evicted by the kubelet, drained, preempted or tainted",
        "check the node's disk and memory; run it again if its tools allow that",
    )
    SESSION_LOST = (
        "SessionLost",
        "the session's interpreter and files are gone, and this execution, which did not run, reports it",
        "run it again: the next execution starts the session afresh, so first run what prepares it; `kubectl get sbs` "
        "and docs/services/sessions.md have the cause",
    )
    SESSION_BUSY = (
        "SessionBusy",
        "another execution runs in the session; the execution waits, or fails if `maxQueued` wait already",
        "wait for the execution before, use another session, or raise the session's `maxQueued`",
    )
    SESSION_LIMIT = (
        "SessionLimit",
        "the owner, or the namespace, has as many sessions as the operator allows",
        "end a session that is not needed: kubectl delete sandboxsession NAME; or raise the chart's "
        "`operator.sessions`",
    )
    REJECTED = (
        "Rejected",
        "the spec is invalid or was changed, the pool refuses such code, or the session is another owner's",
        "correct the field or the line that the message names",
    )
    POOL_NOT_FOUND = (
        "PoolNotFound",
        "the namespace has no pool of that name",
        "name a pool that exists: kubectl get sandboxpools",
    )
    LANGUAGE_NOT_OFFERED = (
        "LanguageNotOffered",
        "the pool runs another language than that of the execution",
        "name a pool of this language: the message lists the pools, as `kubectl get sandboxpools -o wide` does",
    )
    LANGUAGE_NOT_CHECKED = (
        "LanguageNotChecked",
        "the pool checks code before it runs, and there are no rules for the language of this code",
        "use a pool whose `codeCheck.mode` is Off",
    )
    POOL_UNAVAILABLE = (
        "PoolUnavailable",
        "no pod became ready in time, or the pool's spec is invalid",
        "wait until pods are ready, or raise `warm.min`; kubectl describe sandboxpool shows the condition Ready",
    )
    POOL_AT_CAPACITY = (
        "PoolAtCapacity",
        "the pool has `maxPods` pods",
        "raise the pool's `maxPods`, or run fewer executions at once; if the message names idle sessions, delete some "
        "or lower their `idleTimeoutSeconds`",
    )
    QUEUE_FULL = (
        "QueueFull",
        "the pool's queue already holds `maxQueued` executions",
        "retry after `Retry-After`; raise the pool's `maxPods` or `maxQueued`",
    )
    QUOTA_EXCEEDED = (
        "QuotaExceeded",
        "a ResourceQuota of the namespace refuses another pod",
        "raise the namespace's ResourceQuota, or the chart's `quota`, or lower the pool's `maxPods`",
    )
    LIMIT_RANGE_EXCEEDED = (
        "LimitRangeExceeded",
        "a LimitRange of the namespace refuses the pool's pods",
        "change the pool's `resources` to the bounds that the message names, or the chart's `limitRange`",
    )
    RUNTIME_CLASS_NOT_FOUND = (
        "RuntimeClassNotFound",
        "the pool's RuntimeClass does not exist",
        "install the RuntimeClass, or change the pool's `runtimeClassName`",
    )
    IMAGE_PULL_FAILED = (
        "ImagePullFailed",
        "the sandbox image cannot be pulled",
        "correct the pool's `image` or `imagePullSecrets`; the message has the registry's error",
    )
    UNSCHEDULABLE = (
        "Unschedulable",
        "no node has room for a pod, or none fits it",
        "add nodes, or check the pool's `resources.requests`, `nodeSelector` and `tolerations`",
    )
    POD_REFUSED = (
        "PodRefused",
        "the API server refuses the pool's pods",
        "follow the API server's message; usually the cause is Pod Security or an admission webhook",
    )
    POD_CHANGED = (
        "PodChanged",
        "an admission webhook changed the pool's pods in fields that confine or watch a sandbox, so they are not used",
        "exclude the namespace or the pods from the webhook; the pool's `Ready` condition names the fields",
    )
    BROKER_UNAVAILABLE = (
        "BrokerUnavailable",
        "the execution names tools, and the broker has no pod",
        "check the broker: kubectl get pods,endpointslices in the release's namespace",
    )
    WORKSPACE_BUSY = (
        "WorkspaceBusy",
        "another execution writes to the workspace, and this one waits for it, or could not wait any longer",
        "run them one after the other; use `mode: Read` for what only reads, or another workspace",
    )
    WORKSPACE_CONFLICT = (
        "WorkspaceConflict",
        "the workspace got a newer version while the code ran, so this run's changes were not saved; the phase is that "
        "of the code, and its output is complete",
        "run it again; do not write to a workspace by other means while an execution has it",
        ReasonTrait.FILES,
    )
    WORKSPACE_TOO_LARGE = (
        "WorkspaceTooLarge",
        "the files exceed the workspace's quota, or are too many or too large, so they were not saved; the phase is "
        "that of the code, and its output is complete",
        "delete files that are not needed, or raise the workspace's quota",
        ReasonTrait.FILES,
    )
    WORKSPACE_UNAVAILABLE = (
        "WorkspaceUnavailable",
        "the broker did not deliver the workspace's files, and the code did not run; or it did not save them, and the "
        "phase is that of the code; or there is no workspace of this name to read",
        "check the name, and the broker and its storage; run it again",
        ReasonTrait.FILES | ReasonTrait.SANDBOX,
    )
    POD_FAILED = (
        "PodFailed",
        "the pool's pods exit before they are ready",
        "read the message; usually the cluster enforces no NetworkPolicy",
    )
    PREIMPORT_FAILED = (
        "PreimportFailed",
        "the pool's pods exit before they are ready, because a module of the pool's `preimport` can't be imported",
        "add the module to the pool's image, or remove it from `preimport` (docs/platform/images.md)",
    )
    PROTOCOL_MISMATCH = (
        "ProtocolMismatch",
        "the pool's image speaks no version of the protocol that the operator speaks: it is of a release before the "
        "previous one, or of a later one; the message has the versions of both",
        "build the pool's image on the sandbox image of the operator's release (docs/platform/images.md)",
    )


class SessionReason(OpenEnum):
    """Reason for the phase of a SandboxSession, with its meaning and a remedy for the person who reads it.

    `make generate` writes the table of docs/services/sessions.md from here.
    """

    meaning: str
    remedy: str

    def __new__(cls, value: str, meaning: str = "", remedy: str = "") -> Self:
        """Create a member that equals its value and has a meaning and a remedy."""
        member = str.__new__(cls, value)
        member._value_, member.meaning, member.remedy = value, meaning, remedy
        return member

    NONE = ""
    NOT_OBSERVED = (
        "NotObserved",
        "no operator has seen it yet, which takes well under a second; if it stays, its namespace is not served",
        "use a served namespace, or add this one to the chart's `namespaces` (docs/platform/teams.md); else "
        "check that the operator runs",
    )
    POD_LOST = (
        "PodLost",
        "its pod ended or was deleted, or does not answer: memory of the container, eviction, a lost node, lost "
        "isolation",
        "the condition `Ready` has the cause; run the executions that prepare the session again",
    )
    INTERPRETER_LOST = (
        "InterpreterLost",
        "its interpreter ended: by `os._exit` or a crash, or because a run did not stop at its time limit, or exceeded "
        "the memory, processes or files that its pool allows",
        "run the executions that prepare the session again; raise the pool's limits if the code needs more",
    )
    POOL_DELETED = (
        "PoolDeleted",
        "its pool was deleted, and its pod with the pool",
        "create the pool again, or delete the session and use another pool",
    )
    KEY_WITHDRAWN = (
        "KeyWithdrawn",
        "the sandbox key that proved its owner or its pod was withdrawn, because it may have leaked",
        "run the executions that prepare the session again: they start it afresh (docs/platform/identities.md)",
    )
    IDLE = (
        "Idle",
        "no execution used it for `idleTimeoutSeconds`",
        "raise `idleTimeoutSeconds`; keep in a workspace what must stay",
    )
    TOO_OLD = (
        "TooOld",
        "`maxAgeSeconds` have passed since it got its pod",
        "raise `maxAgeSeconds`; keep in a workspace what must stay",
    )
    INVALID = (
        "Invalid",
        "its spec is invalid, or its name is not the one that its owner's executions look for",
        "follow the message of the condition `Ready`; an execution that names a session creates it with the right name",
    )
