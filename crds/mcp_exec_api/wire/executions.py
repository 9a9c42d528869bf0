"""Executions, their approvals and their artifacts."""

import hashlib
import json
import re
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, ValidationError, WithJsonSchema

from mcp_exec_api.approvals import Approval, ApprovalChoice, PendingApproval
from mcp_exec_api.code_execution import CodeExecutionSpec, CodeExecutionStatus, Phase, Start, UseCase
from mcp_exec_api.constants import LABEL_CONVERSATION, LABEL_USE_CASE, Language
from mcp_exec_api.files import Artifact, WorkspaceMode, WorkspaceRef, WorkspaceStatus
from mcp_exec_api.meta import MicroTime, Model
from mcp_exec_api.reasons.execution import Reason

MAX_LABELS: Final = 16
"""Own labels of an execution."""
_WORD: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
"""A label's value that is not empty, or its key without a prefix."""
_WORD_RULE: Final = "1 to 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends"
_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_GENERATED: Final = re.compile(r"exec-[0-9a-hjkmnp-tv-z]{12}")
_MAX_QUOTED: Final = 80
"""Characters of a wrong value that an error quotes."""


def check_label_value(value: str) -> str:
    """Return the value. Raises ValueError if it can't be a label's."""
    if not _WORD.fullmatch(value):
        raise ValueError(f"{_quote(value)} is not allowed: use {_WORD_RULE}")
    return value


def _check_name(name: str) -> str:
    if not _DNS_LABEL.fullmatch(name):
        rule = "use 1 to 63 lower-case letters, digits and '-', with a letter or digit at both ends"
        raise ValueError(f"{_quote(name)} is not allowed: {rule}")
    if _GENERATED.fullmatch(name):
        raise ValueError("names of exec- and 12 characters are generated; choose another one")
    return name


def _check_labels(labels: dict[str, str]) -> dict[str, str]:
    if len(labels) > MAX_LABELS:
        raise ValueError(f"{len(labels)} labels are given; at most {MAX_LABELS} are allowed")
    for key, value in labels.items():
        if not _WORD.fullmatch(key):
            prefix = ", and no prefix such as example.com/" if "/" in key else ""
            raise ValueError(f"the key {_quote(key)} is not allowed: use {_WORD_RULE}{prefix}")
        if value and not _WORD.fullmatch(value):
            raise ValueError(f"the value {_quote(value)} of {key} is not allowed: use {_WORD_RULE}, or nothing")
    return labels


def _quote(text: str) -> str:
    return repr(text[:_MAX_QUOTED]) + ("..." if len(text) > _MAX_QUOTED else "")


LabelValue = Annotated[str, AfterValidator(check_label_value)]
"""A label's value that is not empty."""


class ExecutionMetadata(Model):
    """Name and labels of a new execution."""

    name: Annotated[
        str,
        AfterValidator(_check_name),
        Field(json_schema_extra={"maxLength": 63, "pattern": r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}),
    ] = ""
    """Name of the execution: 1 to 63 lower-case letters, digits and `-`. By default the gateway generates one. If
    another execution has the name, the response is a 409."""
    labels: Annotated[
        dict[str, str], AfterValidator(_check_labels), Field(json_schema_extra={"maxProperties": MAX_LABELS})
    ] = Field(default_factory=dict)
    """Own labels, at most 16, for `labelSelector` in lists. Keys have no prefix, and keys and values are 1 to 63
    letters, digits, `-`, `_` and `.`, with a letter or digit at both ends. A value may be empty."""
    conversation: Annotated[LabelValue, Field(json_schema_extra={"maxLength": 63})] = ""
    """Conversation that the execution is part of, in the form of a label's value. It becomes the label
    `mcp-exec.dev/conversation`."""
    use_case: UseCase | None = None
    """What the execution is for: filtering, workflow, polling or other. It becomes the label
    `mcp-exec.dev/use-case`."""

    def build_labels(self) -> dict[str, str]:
        """Return the labels of the object. Own keys have no prefix, so that none has a meaning for mcp-exec."""
        own = {LABEL_CONVERSATION: self.conversation, LABEL_USE_CASE: self.use_case and str(self.use_case)}
        return {**self.labels, **{key: value for key, value in own.items() if value}}

    def extend_digest(self, digest: str) -> str:
        """Return a digest of the whole request, given that of its spec."""
        given = {name: value for name, value in self.to_api().items() if value}
        if not given:
            return digest
        return "sha256:" + hashlib.sha256(json.dumps([digest, given], sort_keys=True).encode()).hexdigest()


def _read_workspace(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return WorkspaceRef(name=value)
    except ValidationError as error:
        raise ValueError(f"{_quote(value)} is not allowed: {error.errors()[0]['msg']}") from None


class NewExecution(ExecutionMetadata, CodeExecutionSpec):
    """Body of a request for a new execution: the fields of the spec, and name and labels of the object."""

    workspace: Annotated[
        WorkspaceRef | None,
        BeforeValidator(_read_workspace),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "string", "maxLength": 50},
                    {
                        "type": "object",
                        "properties": {
                            "name": {"type": "string", "maxLength": 50},
                            "mode": {"enum": [mode.value for mode in WorkspaceMode], "default": "Write"},
                        },
                        "required": ["name"],
                        "additionalProperties": False,
                    },
                ],
            }
        ),
    ] = None
    """Workspace whose files the code has: its name, or name and mode. Write saves the changes as a new version, Read
    drops them."""

    def read_metadata(self) -> ExecutionMetadata:
        """Return what is no part of the spec."""
        return ExecutionMetadata.model_construct(
            **{name: getattr(self, name) for name in ExecutionMetadata.model_fields}
        )

    def read_spec(self) -> CodeExecutionSpec:
        """Return the spec."""
        fields = CodeExecutionSpec.model_fields
        return CodeExecutionSpec.model_construct(
            _fields_set=self.model_fields_set & set(fields), **{name: getattr(self, name) for name in fields}
        )


class UsedWorkspace(WorkspaceStatus):
    """The workspace of an execution, what the run read from it and what it saved."""

    name: str
    """Name of the workspace."""
    mode: WorkspaceMode = WorkspaceMode.WRITE
    """Write: changes are saved. Read: they are dropped."""


class Execution(CodeExecutionStatus):
    """One execution: its name and its status."""

    name: str
    """Name of the execution, used in all further requests."""
    namespace: str
    """Namespace of the execution."""
    pool: str
    """Pool of the execution."""
    language: Language | None = None
    """Language of the code, if the execution names one; else it is that of the pool."""
    caller: str | None = None
    """Creator: a caller of the gateway as a label value, or `k8s/USERNAME` for an account that created it with kubectl.
    `claimed:` precedes a name that nothing proves. Not set if nothing names a creator."""
    description: str | None = None
    """What the code is for."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Own labels; not set if there are none."""
    conversation: str | None = None
    """Conversation that the execution is part of."""
    use_case: str | None = None
    """What the execution is for: filtering, workflow, polling or other."""
    session: str | None = None
    """Session that runs the code."""
    workspace: UsedWorkspace | None = None
    """Workspace whose files the code has."""
    code: str | None = None
    """Code of the execution, with `include=code` only."""

    @property
    def finished(self) -> bool:
        """Whether the phase is final."""
        return self.phase.finished

    @property
    def succeeded(self) -> bool:
        """Whether the code ran to its end."""
        return self.phase is Phase.SUCCEEDED

    @property
    def stdout(self) -> str:
        """Standard output; empty before the end."""
        return self.output.stdout if self.output else ""

    @property
    def stderr(self) -> str:
        """Standard error; empty before the end."""
        return self.output.stderr if self.output else ""

    @property
    def result(self) -> JsonValue:
        """Value that the code returned; None before the end."""
        return self.output.result if self.output else None


class ExecutionSummary(Model):
    """One execution in a list, without its output."""

    name: str
    """Name of the execution."""
    namespace: str
    """Namespace of the execution."""
    pool: str
    """Pool of the execution."""
    caller: str | None = None
    """Creator, as in the whole execution."""
    description: str | None = None
    """What the code is for."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Own labels; not set if there are none."""
    conversation: str | None = None
    """Conversation that the execution is part of."""
    use_case: str | None = None
    """What the execution is for: filtering, workflow, polling or other."""
    phase: Phase
    """Phase of the execution."""
    reason: Reason = Reason.NONE
    """Why the execution waits or ended as it did."""
    start: Start | None = None
    """Warm or Cold."""
    pod_name: str | None = None
    """Sandbox pod of the execution."""
    created_at: MicroTime
    """Time of creation."""
    finished_at: MicroTime | None = None
    """Time of the end."""
    duration: str | None = None
    """Total duration, for people."""


class ExecutionList(Model):
    """One page of executions."""

    items: list[ExecutionSummary]
    """Executions of the page."""
    continue_token: Annotated[str | None, Field(alias="continue")] = None
    """Token of the next page; not set on the last page."""


class ApprovalList(Model):
    """An execution's approvals."""

    items: list[Approval]
    """Approvals, oldest first."""


class PendingApprovalList(Model):
    """Pending approvals of a namespace."""

    items: list[PendingApproval]
    """Approvals, newest first."""
    complete: bool
    """False if a replica of the broker did not answer. Approvals of its executions may then be missing."""


class NewDecision(Model):
    """Decision on a pending tool call."""

    decision: ApprovalChoice
    """Approve or Deny."""
    arguments_digest: Annotated[str | None, Field(max_length=71)] = None
    """`argumentsDigest` of the approval that was read. If the call has other arguments, the decision is refused."""
    comment: Annotated[str | None, Field(max_length=1024)] = None
    """Reason for the decision. If the call is denied, the code receives it with the error."""


class LinkedArtifact(Artifact):
    """One artifact of an execution, with a link to it."""

    url: str
    """Link that needs no key until it expires."""
    expires_at: MicroTime
    """The link is refused from this time on."""


class ArtifactList(Model):
    """An execution's artifacts."""

    items: list[LinkedArtifact]
    """Artifacts, in the code's order."""
