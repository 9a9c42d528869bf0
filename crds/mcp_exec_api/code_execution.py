"""CodeExecution: one run of an agent's code, with its output in `status`."""

import hashlib
import json
from enum import StrEnum
from typing import Annotated, Any

from pydantic import ConfigDict, Field, JsonValue, field_validator

from mcp_exec_api.approvals import Approval, ApprovalDecision
from mcp_exec_api.code_findings import MAX_FINDINGS, Finding
from mcp_exec_api.constants import (
    MAX_CODE_BYTES,
    MAX_CONTEXT_BYTES,
    MAX_OUTPUT_BYTES,
    MAX_TIMEOUT_SECONDS,
    MAX_TOOL_CALLS,
)
from mcp_exec_api.meta import Condition, MicroTime, Model, ToolPattern

IMMUTABLE = ("code", "context", "poolRef", "timeoutSeconds", "limits", "priority", "tools", "user")
"""The spec's fields that never change after creation."""


def _unchanged(name: str) -> JsonValue:
    same = f"self.{name} == oldSelf.{name}"
    if name in ("tools", "user"):  # without a default they may be absent, and CEL fails on a comparison with that
        same = f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || {same})"
    return {"rule": same, "message": f"spec.{name} is immutable"}


# CEL can't compare objects without a schema, so of `context` the operator alone sees that it changed.
IMMUTABLE_RULES: list[JsonValue] = [_unchanged(name) for name in IMMUTABLE if name != "context"]


class Phase(StrEnum):
    """Where an execution is in its life."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    TIMED_OUT = "TimedOut"
    CANCELLED = "Cancelled"

    @property
    def finished(self) -> bool:
        """Whether the phase is one of the four that last."""
        return self not in (Phase.PENDING, Phase.RUNNING)


class Reason(StrEnum):
    """Why an execution waits or ended as it did, where its phase alone does not say it."""

    NONE = ""
    USER_ERROR = "UserError"
    """The code raised an exception."""
    EXIT_CODE = "ExitCode"
    """The code exited with a code other than 0."""
    RUNNER_DIED = "RunnerDied"
    """The interpreter ended by itself, by `os._exit` or a signal."""
    OUT_OF_MEMORY = "OutOfMemory"
    PROCESS_LIMIT = "ProcessLimit"
    STORAGE_LIMIT = "StorageLimit"
    OUTPUT_LIMIT = "OutputLimit"
    TIMEOUT = "Timeout"
    CANCELLED = "Cancelled"
    SANDBOX_LOST = "SandboxLost"
    """The pod vanished while the code ran or may have run."""
    SUPERVISOR_DIED = "SupervisorDied"
    """The sandbox's own first process ended, and the pod with it."""
    STREAM_BROKEN = "StreamBroken"
    """The connection to the sandbox broke and did not come up again, although its pod is there."""
    NODE_LOST = "NodeLost"
    """The pod's node is not ready, or gone, and the sandbox does not answer."""
    EVICTED = "Evicted"
    """The pod had to leave its node: evicted by the kubelet, drained, preempted, or for a taint."""
    REJECTED = "Rejected"
    """The execution can't be run as it is written."""
    POOL_NOT_FOUND = "PoolNotFound"
    POOL_UNAVAILABLE = "PoolUnavailable"
    """No pod of the pool became ready in time."""
    POOL_AT_CAPACITY = "PoolAtCapacity"
    """The pool has as many pods as it may have."""
    QUEUE_FULL = "QueueFull"
    """As many executions as may wait for a pod of the pool do."""
    QUOTA_EXCEEDED = "QuotaExceeded"
    """A ResourceQuota or LimitRange of the namespace refuses another pod."""
    RUNTIME_CLASS_NOT_FOUND = "RuntimeClassNotFound"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    UNSCHEDULABLE = "Unschedulable"
    POD_REFUSED = "PodRefused"
    """The API server refuses the pool's pods, for a reason that the message gives."""
    BROKER_UNAVAILABLE = "BrokerUnavailable"
    """It may call tools, and the broker's Service is not there."""
    POD_FAILED = "PodFailed"
    """The pool's pods end before they are ready."""


class Start(StrEnum):
    """Whether a pod stood ready for the execution or was made for it."""

    WARM = "Warm"
    COLD = "Cold"


class Priority(StrEnum):
    """Who of those that wait for a pod comes first."""

    HIGH = "High"
    NORMAL = "Normal"
    LOW = "Low"

    @property
    def rank(self) -> int:
        """0 for the class that comes first."""
        return list(Priority).index(self)


class PoolRef(Model):
    """A SandboxPool in the execution's namespace."""

    name: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] = "default"
    """The pool's name."""


class Limits(Model):
    """Bounds of one execution, within those of its pool."""

    output_bytes: Annotated[int, Field(ge=1024, le=MAX_OUTPUT_BYTES)] = 65536
    """Bytes that are kept of each of stdout, stderr and the result; of more, head and tail are kept."""
    tool_calls: Annotated[int, Field(ge=0, le=MAX_TOOL_CALLS)] = 100
    """Tool calls that the code may make in all; one more is denied."""


class CodeExecutionSpec(Model):
    """What to run. Immutable but for `cancelRequested` and `ttlSecondsAfterFinished`."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                *IMMUTABLE_RULES,
                {
                    "rule": "!oldSelf.cancelRequested || self.cancelRequested",
                    "message": "spec.cancelRequested can't become false again",
                },
            ]
        }
    )

    code: Annotated[str, Field(min_length=1, max_length=MAX_CODE_BYTES)]
    """Python source, at most 256 KiB of UTF-8."""
    context: dict[str, JsonValue] = Field(default_factory=dict)
    """A JSON object, at most 256 KiB: `context` in the code, and each key a variable; data and user ids travel here."""
    pool_ref: PoolRef = PoolRef()
    """The pool whose pod runs the code."""
    timeout_seconds: Annotated[int, Field(ge=1, le=MAX_TIMEOUT_SECONDS)] = 30
    """Wall-clock seconds that the code may run, at most the pool's `maxTimeoutSeconds`."""
    limits: Limits = Limits()
    """Bounds of this execution."""
    tools: Annotated[list[ToolPattern], Field(max_length=256)] = Field(default_factory=list)
    """Tools that the code may call, such as `github.create_issue` and `filesystem.*`; none are allowed by default."""
    user: Annotated[str | None, Field(min_length=1, max_length=253)] = None
    """On whose behalf it runs: servers with credentials for each user are called with theirs."""
    approvals: Annotated[list[ApprovalDecision], Field(max_length=256)] = Field(default_factory=list)
    """What was decided on tool calls that wait; the first decision on each counts."""
    priority: Priority = Priority.NORMAL
    """Who comes first where executions wait for a pod: High before Normal before Low, and no class is starved."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=30 * 24 * 3600)] = 3600
    """Seconds after its end at which the execution is deleted."""
    cancel_requested: bool = False
    """Ends the execution when it becomes true; it can't become false again."""

    @field_validator("code")
    @classmethod
    def _code_fits(cls, code: str) -> str:
        if (size := len(code.encode("utf-8", "surrogatepass"))) > MAX_CODE_BYTES:
            raise ValueError(f"code has {size} bytes, allowed are {MAX_CODE_BYTES}")
        return code

    @field_validator("context")
    @classmethod
    def _context_fits(cls, context: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if (size := len(json.dumps(context).encode())) > MAX_CONTEXT_BYTES:
            raise ValueError(f"context has {size} bytes as JSON, allowed are {MAX_CONTEXT_BYTES}")
        return context


def spec_digest(spec: dict[str, Any]) -> str:
    """A digest of a spec's immutable part as the API server holds it: it tells a changed spec from its original."""
    fixed = {name: spec.get(name) for name in IMMUTABLE}
    # digests that are stored from before there were these fields stay true
    if fixed["priority"] in (None, Priority.NORMAL):
        del fixed["priority"]
    for name in ("tools", "user"):
        if not fixed[name]:
            del fixed[name]
    if isinstance(limits := fixed["limits"], dict) and limits.get("toolCalls") == Limits().tool_calls:
        fixed["limits"] = {key: value for key, value in limits.items() if key != "toolCalls"}
    return "sha256:" + hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()


class QueuePlace(Model):
    """Where an execution stands among those that wait for a pod."""

    position: Annotated[int, Field(ge=1)]
    """How many pods have to be given out until it has one, by who waits now."""
    of: Annotated[int, Field(ge=1)]
    """How many wait."""
    expected_wait_seconds: Annotated[float | None, Field(ge=0)] = None
    """Seconds until then, by how fast those that waited got a pod lately; not set where that is not known."""

    def __str__(self) -> str:
        text = f"position {self.position} of {self.of}"
        seconds = self.expected_wait_seconds
        return text if seconds is None else f"{text}, about {max(seconds, 1):.0f} s"


class Durations(Model):
    """Milliseconds by stage."""

    queued: float | None = None
    """From its creation until the operator had a pod for it."""
    bind: float | None = None
    """The write that binds it to the pod."""
    dispatch: float | None = None
    """From there until the sandbox said that the code runs."""
    run: float | None = None
    """The code itself, measured in the sandbox."""
    collect: float | None = None
    """From the code's end until the operator had all of its output."""
    total: float | None = None
    """From creation to the end."""


class Output(Model):
    """What the code wrote and returned, bounded."""

    stdout: str = ""
    """Standard output, UTF-8; of too much, the middle is cut and the cut says how much."""
    stderr: str = ""
    """Standard error, likewise."""
    result: JsonValue = Field(default=None)
    """The returned value, last expression or variable `result`, as JSON where it can be, else its bounded repr."""
    stdout_bytes: Annotated[int, Field(ge=0)] = 0
    """Bytes written to standard output in all."""
    stderr_bytes: Annotated[int, Field(ge=0)] = 0
    """Bytes written to standard error in all."""
    truncated: bool = False
    """Whether any of the three lost bytes."""


class ExecutionError(Model):
    """Why the code failed."""

    type: str
    """The exception's class, or the limit that ended the run."""
    message: str = ""
    """The exception's message."""
    line: int | None = None
    """The line of the code, from 1, that failed."""
    traceback: str | None = None
    """The traceback, with frames of the code alone."""


class ToolCalls(Model):
    """What tools the code called, as the broker counted."""

    total: Annotated[int, Field(ge=0)] = 0
    """Calls that reached the broker, denied ones too."""
    failed: Annotated[int, Field(ge=0)] = 0
    """Those that ended with an error, denied ones too."""
    by_tool: dict[str, int] = Field(default_factory=dict)
    """Calls by tool; beyond 50 tools the rest are counted under `other`."""
    bytes_in: Annotated[int, Field(ge=0)] = 0
    """Bytes of results that went into the sandbox."""
    bytes_kept: Annotated[int, Field(ge=0)] = 0
    """How many more bytes went in than came out as stdout and result: what a model did not have to read."""
    complete: bool = True
    """False where the broker could not be asked at the end: then some calls may be missing here."""


class CodeExecutionStatus(Model):
    """What became of it. Written by the operator alone."""

    phase: Phase = Phase.PENDING
    """Where it is in its life."""
    reason: Reason = Reason.NONE
    """Why it waits or ended so, where the phase does not say it."""
    spec_digest: str | None = None
    """Digest of the spec's immutable part when it was bound: what ran."""
    conditions: list[Condition] = Field(default_factory=list)
    """Bound (with what pod, or why with none yet), Finished, and SpecUnchanged where somebody tried to change it."""
    queue: QueuePlace | None = None
    """Where it stands, while it waits for a pod; brought up to date every few seconds."""
    start: Start | None = None
    """Warm where a pod stood ready, Cold where one was made."""
    variant: str | None = None
    """The pool's variant that the pod is of, where the pool has variants."""
    pod_name: str | None = None
    """The sandbox pod."""
    node_name: str | None = None
    """The pod's node."""
    created_at: MicroTime | None = None
    """When it was created, or first seen where the API server kept whole seconds only."""
    bound_at: MicroTime | None = None
    """When it got its pod."""
    started_at: MicroTime | None = None
    """When the code began."""
    finished_at: MicroTime | None = None
    """When it ended."""
    duration: str | None = None
    """The total duration for people, such as `12ms` or `30.0s`."""
    durations: Durations | None = None
    """Milliseconds by stage."""
    output: Output | None = None
    """What the code wrote and returned."""
    error: ExecutionError | None = None
    """Why the code failed, where it did."""
    tool_calls: ToolCalls | None = None
    """What tools the code called; not set where it may call none."""
    code_findings: Annotated[list[Finding], Field(max_length=MAX_FINDINGS)] = Field(default_factory=list)
    """What stood out in the code before it ran, where its pool looks: the gravest first."""
    approvals: list[Approval] = Field(default_factory=list)
    """Tool calls that need or needed somebody's consent, the newest 50."""


PRINTER_COLUMNS: list[dict[str, Any]] = [
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    {"name": "Reason", "type": "string", "jsonPath": ".status.reason"},
    {"name": "Pool", "type": "string", "jsonPath": ".spec.poolRef.name"},
    {"name": "Start", "type": "string", "jsonPath": ".status.start"},
    {"name": "Duration", "type": "string", "jsonPath": ".status.duration"},
    {"name": "Tools", "type": "integer", "jsonPath": ".status.toolCalls.total"},
    {"name": "Variant", "type": "string", "jsonPath": ".status.variant", "priority": 1},
    {"name": "Pod", "type": "string", "jsonPath": ".status.podName", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]


def format_duration(milliseconds: float) -> str:
    """A duration for a table's column: `12ms` below a second, else `1.2s`."""
    return f"{milliseconds:.0f}ms" if milliseconds < 999.5 else f"{milliseconds / 1000:.1f}s"
