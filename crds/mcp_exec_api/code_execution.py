"""CodeExecution: one run of an agent's code, with its output in the status."""

import hashlib
import json
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import AfterValidator, ConfigDict, Field, JsonValue, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError, PydanticUndefined, to_jsonable_python

from mcp_exec_api.approvals import Approval, ApprovalDecision
from mcp_exec_api.code_findings import MAX_FINDINGS, MAX_NOTES, Finding, Note
from mcp_exec_api.constants import (
    ANNOTATION_CREATED,
    DEFAULT_APPROVAL_SECONDS,
    MAX_APPROVAL_SECONDS,
    MAX_CODE_BYTES,
    MAX_CONTEXT_BYTES,
    MAX_OUTPUT_BYTES,
    MAX_TIMEOUT_SECONDS,
    MAX_TOOL_CALLS,
    Language,
)
from mcp_exec_api.constants import Phase as Phase
from mcp_exec_api.files import MAX_ARTIFACTS, Artifact, WorkspaceRef, WorkspaceStatus
from mcp_exec_api.meta import Condition, MicroTime, Model, OpenEnum, SessionName, ToolPattern, check_one_line
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_api.skill import MAX_SAVED_SKILLS, MAX_SKILLS_PER_EXECUTION, SkillName, SkillRef, format_run

MUTABLE = frozenset({"cancelRequested", "approvals", "ttlSecondsAfterFinished"})
"""Fields of the spec that can change after creation."""
_ALWAYS_DIGESTED = frozenset({"code", "context", "poolRef", "timeoutSeconds", "limits", "limits.outputBytes"})
"""Fields of the first version, which every digest contains. Later ones are left out if they have their default."""


class Start(OpenEnum):
    """Whether the execution got a warm pod, a new one, one that its owner had used, or the one of its session."""

    WARM = "Warm"
    COLD = "Cold"
    REUSED = "Reused"
    SESSION = "Session"


class Priority(StrEnum):
    """Priority class in the queue."""

    HIGH = "High"
    NORMAL = "Normal"
    LOW = "Low"

    @property
    def rank(self) -> int:
        """Position of the class; 0 is the highest priority."""
        return list(Priority).index(self)


class UseCase(StrEnum):
    """Purpose of an execution: the value of a label."""

    FILTERING = "filtering"
    WORKFLOW = "workflow"
    POLLING = "polling"
    OTHER = "other"


class PoolRef(Model):
    """Reference to a SandboxPool in the namespace of the execution."""

    name: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] = "default"
    """Name of the pool."""


class Limits(Model):
    """Limits of one execution."""

    output_bytes: Annotated[int, Field(ge=1024, le=MAX_OUTPUT_BYTES)] = 65536
    """Maximum bytes kept of stdout, of stderr and of the result, each. Of longer ones, head and tail are kept."""
    tool_calls: Annotated[int, Field(ge=0, le=MAX_TOOL_CALLS)] = 100
    """Maximum number of tool calls of the execution. Further calls are denied."""


def _add_rules(schema: dict[str, JsonValue]) -> None:
    """Add what fields cannot express. `IMMUTABLE` depends on the model, so it is built with its schema."""
    schema["oneOf"] = [{"required": ["code"]}, {"required": ["skillRef"]}]  # Kubernetes before 1.25 has no CEL
    schema["x-kubernetes-validations"] = [
        # CEL cannot compare objects without a schema, so only the operator detects a change of `context`
        *(_immutable_rule(name) for name in IMMUTABLE if name != "context"),
        {
            "rule": "!oldSelf.cancelRequested || self.cancelRequested",
            "message": "spec.cancelRequested cannot be set back to false",
        },
        {
            "rule": "has(self.code) != has(self.skillRef)",
            "message": "exactly one of spec.code and spec.skillRef is needed",
        },
    ]


class CodeExecutionSpec(Model):
    """Code to run and how to run it. Only `cancelRequested`, `approvals` and `ttlSecondsAfterFinished` can change."""

    model_config = ConfigDict(json_schema_extra=_add_rules)

    skill_ref: SkillRef | None = None
    """Skill to run instead of code. Its function `run` gets the context's members as its arguments."""
    code: Annotated[
        str, Field(max_length=MAX_CODE_BYTES, validate_default=True, json_schema_extra={"minLength": 1})
    ] = ""
    """Source of a program, at most 256 KiB in UTF-8. Exactly one of `code` and `skillRef` is needed."""
    skills: Annotated[list[SkillName], Field(max_length=MAX_SKILLS_PER_EXECUTION)] = Field(default_factory=list)
    """Skills that the code imports by computed names. Those that it names in `skills.NAME` or `from skills import
    NAME` need not be listed."""
    # one value for server-side apply: the API server would store each of its keys once more, in `managedFields`
    context: Annotated[dict[str, JsonValue], Field(json_schema_extra={"x-kubernetes-map-type": "atomic"})] = Field(
        default_factory=dict
    )
    """Input data as a JSON object, at most 256 KiB. The code has it as the variable `context`, and each key as a
    variable of its own."""
    pool_ref: PoolRef = PoolRef()
    """Pool whose pod runs the code; by default the pool named `default`."""
    language: Language | None = None
    """Language of the code: python or typescript. By default it is that of the pool; a pool of another language refuses
    the execution."""
    timeout_seconds: Annotated[int, Field(ge=1, le=MAX_TIMEOUT_SECONDS)] = 30
    """Wall-clock seconds that the code may run, at most `maxTimeoutSeconds` of the pool. The time while a call waits
    for an approval does not count."""
    approval_timeout_seconds: Annotated[int, Field(ge=0, le=MAX_APPROVAL_SECONDS)] = DEFAULT_APPROVAL_SECONDS
    """Seconds that calls may wait for approvals, all of them together; 10 minutes by default. With 0, calls that need
    an approval are denied."""
    limits: Limits = Limits()
    """Limits of this execution."""
    priority: Priority = Priority.NORMAL
    """Priority in the queue for a pod: High before Normal before Low. Lower classes get a share, so none starves."""
    tools: Annotated[list[ToolPattern], Field(max_length=256)] = Field(default_factory=list)
    """Tools that the code may call, for example `github.create_issue` or `filesystem.*`. By default it may call
    none."""
    user: Annotated[str | None, Field(min_length=1, max_length=253)] = None
    """User on whose behalf the code runs. ToolServers with credentials per user are called with this user's."""
    session: SessionName | None = None
    """Session that the code runs in: variables, imports and files of the owner's earlier executions in it are still
    there. A session that does not exist is created. By default the code runs without one."""
    workspace: WorkspaceRef | None = None
    """Workspace whose files the code has in its working folder. By default the folder is empty and its files are lost
    with the pod."""
    description: Annotated[
        str | None,
        Field(max_length=200, json_schema_extra={"pattern": r"^[^\x00-\x1f\x7f-\x9f]*$"}),
        AfterValidator(check_one_line),
    ] = None
    """What the code is for, for people: one line of at most 200 characters. It has no effect on the run."""
    # the API server stores the default, so that a JSON patch can append to the list
    approvals: Annotated[list[ApprovalDecision], Field(max_length=256)] = []
    """Decisions on tool calls that wait for an approval. The first decision on each call counts."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=30 * 24 * 3600)] = 3600
    """Seconds from its end to its deletion; the default is 1 hour. The operator deletes it after
    7 days at the latest, or after the chart's `operator.maxTtlSeconds`."""
    cancel_requested: bool = False
    """Set to true to cancel the execution. It cannot be set back to false."""

    @field_validator("code")
    @classmethod
    def _code_fits(cls, code: str, info: ValidationInfo) -> str:
        if (info.data.get("skill_ref", code) is None) != bool(code):
            problem = "it cannot be combined with skillRef" if code else "it is required, unless there is a skillRef"
            raise PydanticCustomError("one_source", problem)
        if (size := len(code.encode("utf-8", "surrogatepass"))) > MAX_CODE_BYTES:
            raise ValueError(f"code has {size} bytes; at most {MAX_CODE_BYTES} are allowed")
        return code

    def build_source(self, language: Language) -> str:
        """Return the code to run: `code`, or what calls the referenced skill in this language."""
        return self.code if self.skill_ref is None else format_run(self.skill_ref, language)

    @field_validator("context")
    @classmethod
    def _context_fits(cls, context: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if (size := len(json.dumps(context).encode())) > MAX_CONTEXT_BYTES:
            raise ValueError(f"context has {size} bytes as JSON; at most {MAX_CONTEXT_BYTES} are allowed")
        return context


IMMUTABLE = tuple(str(field.alias) for field in CodeExecutionSpec.model_fields.values() if field.alias not in MUTABLE)
"""Fields of the spec that cannot change after creation, in their order."""


def _immutable_rule(name: str) -> JsonValue:
    field = next(field for field in CodeExecutionSpec.model_fields.values() if field.alias == name)
    same = f"self.{name} == oldSelf.{name}"
    # the schema has no default for them, and CEL fails to compare an absent field
    if not field.is_required() and field.default in (None, "", PydanticUndefined):
        same = f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || {same})"
    return {"rule": same, "message": f"spec.{name} is immutable"}


def _optional_defaults(model: type[Model], path: str = "") -> dict[str, JsonValue]:
    """Return the defaults of the fields that a digest leaves out if they have them, as the API server stores them."""
    return {
        str(field.alias): to_jsonable_python(field.get_default(call_default_factory=True), by_alias=True)
        for field in model.model_fields.values()
        if f"{path}{field.alias}" not in _ALWAYS_DIGESTED
    }


_SPEC_DEFAULTS = _optional_defaults(CodeExecutionSpec)
_LIMIT_DEFAULTS = _optional_defaults(Limits, "limits.")


def spec_digest(spec: dict[str, Any]) -> str:
    """Return a digest of the immutable fields of a spec, as the API server stores it, to detect changes.

    A field that was added later is left out if it has its default, so that digests from before stay valid.
    """
    fixed = {name: spec.get(name) for name in IMMUTABLE}
    for name in IMMUTABLE:
        if name in _SPEC_DEFAULTS and fixed[name] in (None, _SPEC_DEFAULTS[name]):
            del fixed[name]
    if isinstance(limits := fixed["limits"], dict):
        fixed["limits"] = {
            name: value
            for name, value in limits.items()
            if name not in _LIMIT_DEFAULTS or value != _LIMIT_DEFAULTS[name]
        }
    return "sha256:" + hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()


class QueuePlace(Model):
    """Place of an execution in the queue for a pod."""

    position: Annotated[int, Field(ge=1)]
    """Position in the queue; 1 is next."""
    of: Annotated[int, Field(ge=1)]
    """Number of executions in the queue."""
    expected_wait_seconds: Annotated[float | None, Field(ge=0)] = None
    """Expected seconds until the execution gets a pod, estimated from recent waits. Not set if unknown."""

    def __str__(self) -> str:
        text = f"position {self.position} of {self.of}"
        seconds = self.expected_wait_seconds
        return text if seconds is None else f"{text}, about {max(seconds, 1):.0f} s"


class Durations(Model):
    """Duration of each stage in milliseconds."""

    queued: float | None = None
    """From creation until the operator claimed a pod."""
    bind: float | None = None
    """The API write that binds the execution to the pod."""
    dispatch: float | None = None
    """From binding until the sandbox started the code."""
    run: float | None = None
    """Run of the code, measured in the sandbox, without the time that a call waited for an approval."""
    approval: float | None = None
    """Time that calls waited for an approval. Not set if none did."""
    collect: float | None = None
    """From the end of the code until the operator had its complete output."""
    total: float | None = None
    """From creation until the end of the execution."""


class TokenUsage(Model):
    """Estimated tokens of the execution's texts. No model's provider counted them."""

    code: Annotated[int, Field(ge=0)] = 0
    """Tokens of the code, which a model wrote."""
    returned: Annotated[int, Field(ge=0)] = 0
    """Tokens of stdout, stderr, result and error in this status, which a model reads."""
    kept: Annotated[int | None, Field(ge=0)] = None
    """Tokens of tool results that stayed in the sandbox. Not set if the execution may call no tools."""
    method: str
    """Name of the method of the estimate. It changes when the numbers of the same execution would."""


class Usage(Model):
    """Resources that the execution used."""

    cpu_seconds: Annotated[float | None, Field(ge=0)] = None
    """CPU time of the code and of all processes that it started, in seconds. The sandbox measures it: in gVisor in
    steps of about 0.01 s. Not set if the run had no end."""
    peak_memory_bytes: Annotated[int | None, Field(ge=0)] = None
    """Highest memory use that the sandbox measured. Short peaks may be missing. Not set if the run had no end."""
    sandbox_seconds: Annotated[float | None, Field(ge=0)] = None
    """Seconds that the execution had its sandbox, from the binding to its end."""
    code_bytes: Annotated[int | None, Field(ge=0)] = None
    """Bytes of the code in UTF-8."""
    tokens: TokenUsage | None = None
    """Estimated tokens of the code and of what a model reads of it. Not set if the execution had no sandbox."""


class Output(Model):
    """Output and result of the code, limited in size."""

    stdout: str = ""
    """Standard output as UTF-8. If it is too long, its middle is replaced by a line with the number of bytes cut."""
    stderr: str = ""
    """Standard error, shortened like stdout."""
    result: JsonValue = Field(default=None)
    """Value that the code returned, its last expression, or its variable `result`: as JSON if possible, otherwise its
    shortened `repr`."""
    stdout_bytes: Annotated[int, Field(ge=0)] = 0
    """Bytes that the code wrote to standard output."""
    stderr_bytes: Annotated[int, Field(ge=0)] = 0
    """Bytes that the code wrote to standard error."""
    truncated: bool = False
    """Whether stdout, stderr or the result was shortened."""


class ExecutionError(Model):
    """Error of an execution."""

    type: str
    """Class of the exception, or the limit that ended the run, for example `OutOfMemory`."""
    message: str = ""
    """Message of the exception."""
    line: int | None = None
    """Line of the code that failed; the first line is 1."""
    traceback: str | None = None
    """Traceback with the frames of the code only."""

    @property
    def summary(self) -> str:
        """Class and message; only the class if the exception has no message, such as `KeyboardInterrupt`."""
        return f"{self.type}: {self.message}" if self.message else self.type


class ToolCalls(Model):
    """Tool calls of the code, counted by the broker."""

    total: Annotated[int, Field(ge=0)] = 0
    """Calls that reached the broker, including denied ones."""
    failed: Annotated[int, Field(ge=0)] = 0
    """Calls that failed, including denied ones."""
    by_tool: dict[str, int] = Field(default_factory=dict)
    """Number of calls by tool. Only 50 tools are listed; calls of further tools are counted as `other`."""
    bytes_in: Annotated[int, Field(ge=0)] = 0
    """Bytes of tool results that the sandbox received."""
    bytes_kept: Annotated[int, Field(ge=0)] = 0
    """`bytesIn` minus the bytes of stdout, stderr, result and error in this status: data that no model has to read."""
    complete: bool = True
    """False if the broker could not be reached at the end. Some calls may then be missing from the counts."""


class SkillUse(Model):
    """Skills of an execution."""

    used: Annotated[list[str], Field(max_length=MAX_SKILLS_PER_EXECUTION)] = Field(default_factory=list)
    """Names of the Skill objects that the execution got."""
    saved: Annotated[list[str], Field(max_length=MAX_SAVED_SKILLS)] = Field(default_factory=list)
    """Names of the Skill objects that `save_skill` in the code created, as drafts."""
    refused: Annotated[list[str], Field(max_length=MAX_SAVED_SKILLS)] = Field(default_factory=list)
    """Why `save_skill` created no draft: one sentence for each refused call."""


class CodeExecutionStatus(Model):
    """State and outcome of the execution. Only the operator writes it."""

    phase: Phase = Phase.PENDING
    """Pending: waits for a pod. Running: bound to a pod. Succeeded, Failed, TimedOut and Cancelled are final."""
    reason: Reason = Reason.NONE
    """Reason for the phase, for example `PoolAtCapacity` while it waits, or `UserError` if the code raised an
    exception. Empty if the phase needs none."""
    spec_digest: str | None = None
    """Digest of the immutable fields of the spec at binding, or at the end of an execution that got no pod. It
    identifies what ran or was refused."""
    conditions: list[Condition] = Field(default_factory=list)
    """Bound: has a pod, or why not yet. Finished: has ended. SpecUnchanged: False if an immutable field was changed."""
    queue: QueuePlace | None = None
    """Place in the queue while it waits for a pod, updated every few seconds."""
    start: Start | None = None
    """Warm: the execution got a warm pod. Cold: a pod was created for it. Reused: it got a pod that its owner had used
    before. Session: it got the pod of its session, with what earlier executions left there."""
    pod_name: str | None = None
    """Name of the sandbox pod."""
    pod_uid: str | None = None
    """Uid of the sandbox pod. Another pod of that name is not the execution's."""
    node_name: str | None = None
    """Name of the pod's node."""
    created_at: MicroTime | None = None
    """Creation time with microseconds, which `metadata.creationTimestamp` lacks: from the gateway, or the time when
    the operator first saw the execution."""
    bound_at: MicroTime | None = None
    """Time when the execution was bound to its pod."""
    started_at: MicroTime | None = None
    """Time when the code started."""
    finished_at: MicroTime | None = None
    """Time when the execution ended."""
    duration: str | None = None
    """Total duration for people, for example `12ms` or `30.0s`."""
    durations: Durations | None = None
    """Duration of each stage in milliseconds."""
    stored_bytes: Annotated[int | None, Field(ge=0)] = None
    """Bytes that the object takes in the API server, at most. It counts against the namespace's `maxStoredBytes`."""
    usage: Usage | None = None
    """Resources that the execution used. Not set if it had no sandbox."""
    output: Output | None = None
    """Output and result of the code."""
    error: ExecutionError | None = None
    """Error, if the execution failed."""
    notes: Annotated[list[Note], Field(max_length=MAX_NOTES)] = Field(default_factory=list)
    """What a reader must know though the code succeeded: values that JSON cannot express, output that was cut, threads
    that were still running, files that were not saved."""
    tool_calls: ToolCalls | None = None
    """Tool calls of the code. Not set if it may call no tools."""
    workspace: WorkspaceStatus | None = None
    """What the run read from its workspace and saved. Not set without a workspace, or if the run had no end."""
    artifacts: Annotated[list[Artifact], Field(max_length=MAX_ARTIFACTS)] = Field(default_factory=list)
    """Files that the run produced for people, in their order; at most 50. They can be fetched while the execution
    exists, at most for the chart's `broker.files.limits.artifactTtlDays`."""
    skills: SkillUse | None = None
    """Skills that the execution got or saved. Not set if there are none."""
    code_findings: Annotated[list[Finding], Field(max_length=MAX_FINDINGS)] = Field(default_factory=list)
    """Findings of the static code check, High before Medium. Empty if the pool does not check code."""
    approvals: list[Approval] = Field(default_factory=list)
    """The newest 50 tool calls that need or needed an approval."""


UNOBSERVED_STATUS: Final[dict[str, Any]] = {"reason": str(Reason.NOT_OBSERVED)}
"""Status of an execution that no operator has seen: it would be blank in a namespace that is not served."""

SELECTABLE_FIELDS: Final = (
    ".status.phase",
    ".status.reason",
    ".status.podName",
    ".spec.poolRef.name",
    ".spec.session",
    ".spec.user",
    ".spec.workspace.name",
    ".spec.priority",
)
"""At most eight, which is Kubernetes' limit."""
PRINTER_COLUMNS: list[dict[str, Any]] = [
    # operator and gateway list executions as tables of these columns, which leave out code, context and output
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    {"name": "Reason", "type": "string", "jsonPath": ".status.reason"},
    {"name": "Pool", "type": "string", "jsonPath": ".spec.poolRef.name"},
    {"name": "Start", "type": "string", "jsonPath": ".status.start"},
    {"name": "Duration", "type": "string", "jsonPath": ".status.duration"},
    {"name": "Tools", "type": "integer", "jsonPath": ".status.toolCalls.total"},
    {"name": "Spec", "type": "string", "jsonPath": '.status.conditions[?(@.type=="SpecUnchanged")].reason'},
    {"name": "Caller", "type": "string", "jsonPath": r".metadata.annotations.mcp-exec\.dev/caller", "priority": 1},
    {
        "name": "Account",
        "type": "string",
        "jsonPath": r".metadata.annotations.mcp-exec\.dev/created-by",
        "priority": 1,
    },
    {"name": "User", "type": "string", "jsonPath": ".spec.user", "priority": 1},
    {"name": "Description", "type": "string", "jsonPath": ".spec.description", "priority": 1},
    {"name": "Session", "type": "string", "jsonPath": ".spec.session", "priority": 1},
    {"name": "Pod", "type": "string", "jsonPath": ".status.podName", "priority": 1},
    {"name": "Created", "type": "string", "jsonPath": ".status.createdAt", "priority": 1},
    {"name": "Finished", "type": "string", "jsonPath": ".status.finishedAt", "priority": 1},
    {"name": "Bytes", "type": "integer", "jsonPath": ".status.storedBytes", "priority": 1},
    {"name": "TTL", "type": "integer", "jsonPath": ".spec.ttlSecondsAfterFinished", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]


def format_duration(milliseconds: float) -> str:
    """Format a duration for people: `12ms` below one second, otherwise `1.2s`."""
    return f"{milliseconds:.0f}ms" if milliseconds < 999.5 else f"{milliseconds / 1000:.1f}s"


_MAX_CLOCK_SKEW: Final = timedelta(seconds=5)


def read_phase(execution: dict[str, Any]) -> Phase | None:
    """Return the phase: Pending if there is none yet, None if a newer version wrote one that is unknown here."""
    phase = (execution.get("status") or {}).get("phase") or Phase.PENDING
    try:
        return Phase(phase)
    except ValueError:
        return None


def is_finished(execution: dict[str, Any]) -> bool:
    """Return whether the phase is final. An unknown phase is not: only a known one ends waits and frees quota."""
    phase = read_phase(execution)
    return phase is not None and phase.finished


def read_created_at(execution: dict[str, Any]) -> str:
    """Return the RFC 3339 time of creation, with microseconds if a trustworthy source has them.

    The status counts first, then the gateway's annotation if it differs from the API server's whole seconds by less
    than 5 s, because users can write annotations, and then those whole seconds.
    """
    if recorded := (execution.get("status") or {}).get("createdAt"):
        return str(recorded)
    metadata = execution["metadata"]
    coarse = str(metadata.get("creationTimestamp") or "")
    annotated: Any = (metadata.get("annotations") or {}).get(ANNOTATION_CREATED)
    try:
        skew = datetime.fromisoformat(annotated) - datetime.fromisoformat(coarse)
    except (TypeError, ValueError):
        return coarse
    return str(annotated) if abs(skew) < _MAX_CLOCK_SKEW else coarse
