"""Constants shared by several processes, and the enumerations that the command line reads without a library."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, Literal, Self, get_args

Language = Literal["python", "typescript"]
"""Language of the code that a sandbox runs."""
LANGUAGES: Final[tuple[Language, ...]] = get_args(Language)
DEFAULT_LANGUAGE: Final[Language] = "python"
"""Language of a pool that names none."""


def find_language(name: object) -> Language | None:
    """Return the language of that name, or None."""
    return next((each for each in LANGUAGES if each == name), None)


SOURCE_ENDINGS: Final[Mapping[Language, str]] = {"python": ".py", "typescript": ".ts"}
"""Ending of the names of files with code."""

GROUP: Final = "mcp-exec.dev"
VERSION: Final = "v1beta1"
"""Version of all kinds: the only one that the API server serves and stores."""
FORMER_VERSION: Final = "v1alpha1"
"""Version that was stored before. An API server keeps it until the definitions are deleted."""
API_VERSION: Final = f"{GROUP}/{VERSION}"

EXECUTIONS: Final = "codeexecutions"
POOLS: Final = "sandboxpools"
TOOL_SERVERS: Final = "toolservers"
SESSIONS: Final = "sandboxsessions"
SKILLS: Final = "skills"
ROLLOUTS: Final = "executionrollouts"

MANAGED_BY: Final = "mcp-exec"
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
LABEL_NAME: Final = "app.kubernetes.io/name"
LABEL_COMPONENT: Final = "app.kubernetes.io/component"
LABEL_INSTANCE: Final = "app.kubernetes.io/instance"
LABEL_POOL: Final = f"{GROUP}/pool"
LABEL_STATE: Final = f"{GROUP}/state"
LABEL_TEMPLATE: Final = f"{GROUP}/template"
LABEL_EXECUTION: Final = f"{GROUP}/execution"
LABEL_CALLER: Final = f"{GROUP}/caller"
ANNOTATION_CALLER: Final = LABEL_CALLER
"""Annotation of what a caller created through the gateway: its whole name, of which the label has only a part if the
name is no label value."""
ANNOTATION_CREATED_BY: Final = f"{GROUP}/created-by"
"""Annotation of what was created past the gateway: username of the account. Admission policies write and protect it."""
ACCOUNT_PREFIX: Final = "k8s/"
"""Prefix of a caller that is an account of Kubernetes. No label of a caller contains it: labels allow no slash."""
LABEL_CONVERSATION: Final = f"{GROUP}/conversation"
"""Label of an execution: conversation that it is part of."""
LABEL_USE_CASE: Final = f"{GROUP}/use-case"
"""Label of an execution: filtering, workflow, polling or other."""
LABEL_MCP_REQUEST: Final = f"{GROUP}/mcp-request"
"""Digest of the MCP session and request that created an execution. A later request cancels it by this digest."""
LABEL_OWNER: Final = f"{GROUP}/owner"
"""Label of a sandbox pod: digest of the only owner whose executions it serves. It is written before the first."""
LABEL_SESSION: Final = f"{GROUP}/session"
"""Label of a sandbox pod that is kept: name of its SandboxSession."""
LABEL_TOOL_SERVER: Final = f"{GROUP}/tool-server"
LABEL_SKILL: Final = f"{GROUP}/skill"
"""Label of a Skill object: name of the skill."""
ANNOTATION_RELEASE_VERSION: Final = f"{GROUP}/release-version"
"""Annotation of a CustomResourceDefinition: release that it was written by."""
LABEL_RELEASE: Final = f"{GROUP}/release"
"""Label of a Namespace: the release that serves it, and whose admission policies apply in it."""
LABEL_SHIPPED: Final = f"{GROUP}/shipped"
"""Label of a Skill object that the release brings. It selects; a proof says whether it is true."""
SANDBOX_NAME: Final = "mcp-exec-sandbox"
SANDBOX_CONTAINER: Final = "sandbox"

SUPERVISOR_PORT: Final = 8700
GATEWAY_PORT: Final = 8080
GATEWAY_METRICS_PORT: Final = 8085
GATEWAY_AUDIENCE: Final = "mcp-exec"
"""Audience of ServiceAccount tokens for the gateway. Not the API server's, which would accept the same token."""
OPERATOR_PORT: Final = 8081
BROKER_PORT: Final = 8082
BROKER_CONTROL_PORT: Final = 8084
"""Health, metrics and the control interface for operator and gateway; sandboxes cannot reach it."""
BRIDGE_PORT: Final = 8083
"""Port of a stdio server's pod for the broker's connections."""

MAX_CODE_BYTES: Final = 256 * 1024
MAX_CONTEXT_BYTES: Final = 256 * 1024
DEFAULT_MAX_TIMEOUT_SECONDS: Final = 300
"""Default of a pool's `maxTimeoutSeconds`."""
MAX_TIMEOUT_SECONDS: Final = 3600
"""Longest time that any pool may allow code to run."""
MAX_APPROVAL_SECONDS: Final = 3600
"""Longest time that the calls of one execution may wait for approvals, in all. Their pod is held meanwhile."""
DEFAULT_APPROVAL_SECONDS: Final = 600
MAX_OUTPUT_BYTES: Final = 256 * 1024
DEFAULT_MAX_STORED: Final = 2_000
"""Executions of a namespace, finished ones included, until operator and gateway make room or refuse more."""
DEFAULT_MAX_STORED_BYTES: Final = 256 * 1024 * 1024
"""Bytes of a namespace's executions in the API server: an eighth of etcd's default quota."""
MAX_TOOL_CALLS: Final = 10_000
MAX_WRAPPERS_BYTES: Final = 16 * 1024 * 1024
"""Maximum bytes of wrappers in a sandbox."""
DEFAULT_MAX_QUEUED: Final = 1000
"""Default of a pool's `maxQueued`."""
MAX_SESSION_NAME: Final = 50
"""Characters of a session's name. With the suffix of its owner it is still a label's value."""
DEFAULT_SESSION_IDLE_SECONDS: Final = 900
DEFAULT_SESSION_AGE_SECONDS: Final = 8 * 3600
MAX_SESSION_AGE_SECONDS: Final = 7 * 24 * 3600
DEFAULT_SESSION_QUEUED: Final = 16
MAX_SESSION_QUEUED: Final = 1000

IDEMPOTENCY_META: Final = f"{GROUP}/idempotency-key"
"""Member of an MCP request's `_meta` that makes a repetition safe, like the header Idempotency-Key of REST."""

ANNOTATION_SERVED: Final = f"{GROUP}/served-namespaces"
"""Annotation of the operators' Lease: namespaces that the release serves or served, and has not cleaned up."""
ANNOTATION_SEAL: Final = f"{GROUP}/seal"
"""Annotation of a sandbox pod: proof that an operator created this pod, with its uid and image, and verified it."""
ANNOTATION_OWNER_SEAL: Final = f"{GROUP}/owner-seal"
"""Annotation of a sandbox pod: proof that an operator wrote the label of its owner."""
ANNOTATION_CALLER_PROOF: Final = f"{GROUP}/caller-proof"
"""Annotation of an execution: proof that the gateway wrote its caller; set by the gateway."""
ANNOTATION_LIMITED_TOOLS: Final = f"{GROUP}/limited-tools"
"""Annotation of an execution whose caller's API key may use some tools only; set by the gateway. Notes of such an
execution name no server that it did not name."""
ANNOTATION_CREATED: Final = f"{GROUP}/created-at"
"""Annotation of an execution: creation time with microseconds, which creationTimestamp lacks; set by the gateway."""

LENIENT: Final[dict[str, bool]] = {"lenient": True}
"""Context of a validation that accepts values of an OpenEnum that only a newer version has."""


class OpenEnum(StrEnum):
    """Base of enumerations that later versions may extend. Unknown values are rejected, unless the context is LENIENT.

    An unknown value then becomes a member that the class does not list.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Return the schema of the enumeration with the exception for readers of newer versions."""
        from pydantic_core import core_schema

        return core_schema.with_info_wrap_validator_function(cls._read, handler(source))

    @classmethod
    def _read(cls, value: Any, handler: Any, info: Any) -> Any:
        try:
            return handler(value)
        except ValueError:  # pydantic's own error
            if info.context is not LENIENT or not isinstance(value, str):
                raise
            member: Self = cls._new_member_(cls, value)  # type: ignore[attr-defined] # the class's own __new__
            member._name_ = member._value_ = value
            return member


class Phase(StrEnum):
    """Phase of an execution."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    TIMED_OUT = "TimedOut"
    CANCELLED = "Cancelled"

    @property
    def finished(self) -> bool:
        """Whether the phase is final."""
        return self not in (Phase.PENDING, Phase.RUNNING)


class SkillState(OpenEnum):
    """State of a version of a skill."""

    DRAFT = "Draft"
    """Only executions of its author can use it."""
    APPROVED = "Approved"
    """All executions of the namespace can use it."""
    DEPRECATED = "Deprecated"
    """Approved once. Only executions that name its version can use it."""


UsageGrouping = Literal["use-case", "caller", "tool", "arm", "day", "model"]
"""By what usage is grouped. An arm is ROLLOUT/ARM, a day is one of UTC, a tool is SERVER.TOOL."""
