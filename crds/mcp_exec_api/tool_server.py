"""ToolServer: an MCP server whose tools code in sandboxes can call through the broker."""

from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Final, Self

from pydantic import ConfigDict, Field, JsonValue, model_validator

from mcp_exec_api.constants import DEFAULT_APPROVAL_SECONDS, MAX_APPROVAL_SECONDS
from mcp_exec_api.meta import Condition, Image, MicroTime, Model, Quantity
from mcp_exec_api.reasons.server import ServerReason
from mcp_exec_api.sandbox_pool import FreeObject, ImagePullSecret, Resources
from mcp_exec_tools.patterns import NamePatterns

ToolName = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^([A-Za-z0-9_./-]+\*?|\*)$")]
"""Name of one tool at the server, or of several with a `*` at the end: `list_*`."""
SecretName = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
"""Name of a Secret of the same namespace: nothing that could lead elsewhere, as `..` would."""
HeaderName = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")]
VariableName = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class SecretKey(Model):
    """Reference to one value in a Secret of the ToolServer's namespace."""

    name: SecretName
    """Name of the Secret."""
    key: Annotated[str, Field(min_length=1, max_length=253)]
    """Key in the data of the Secret."""


class ValueSource(Model):
    """A value, or a reference to it."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "has(self.value) != has(self.secretKeyRef)",
                    "message": "exactly one of value and secretKeyRef must be set",
                }
            ]
        }
    )

    value: Annotated[str | None, Field(max_length=4096)] = None
    """Value in plain text. Use `secretKeyRef` for credentials."""
    secret_key_ref: SecretKey | None = None
    """Secret that contains the value."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.value is None) == (self.secret_key_ref is None):
            raise ValueError("exactly one of value and secretKeyRef must be set")
        return self


class Header(ValueSource):
    """HTTP header of every request to the server."""

    name: HeaderName
    """Name of the header."""
    prefix: Annotated[str | None, Field(max_length=64)] = None
    """Text before the value, for example `Bearer ` before a token."""


class Variable(ValueSource):
    """Environment variable of a stdio server."""

    name: VariableName
    """Name of the variable. The prefix `MCP_EXEC_` is reserved."""


class UserHeader(Model):
    """HTTP header whose value depends on the user of the execution."""

    name: HeaderName
    """Name of the header."""
    prefix: Annotated[str | None, Field(max_length=64)] = None
    """Text before the value, for example `Bearer ` before a token."""
    secret_name: SecretName
    """Name of a Secret whose keys are users and whose data are their values. A user without a key cannot call the
    server."""


class ClientCredentials(Model):
    """OAuth 2.0 client credentials (RFC 6749, 4.4)."""

    token_url: Annotated[str, Field(max_length=2048, pattern=r"^https?://")]
    """URL of the token endpoint."""
    client_id: SecretKey
    """Client id."""
    client_secret: SecretKey
    """Client secret."""
    scopes: Annotated[list[str], Field(max_length=64)] = Field(default_factory=list)
    """Scopes to request. If empty, the authorization server chooses them."""


class BundleKey(Model):
    """Reference to certificates in a ConfigMap of the ToolServer's namespace."""

    name: SecretName
    """Name of the ConfigMap."""
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
    """Key in the data, for example `ca.crt`."""


class ServerTls(Model):
    """TLS of the connections to the server and its token endpoint."""

    ca_bundle_ref: BundleKey
    """Certificates of authorities in PEM, at most 128 KiB. They are trusted in addition to those of the broker."""


class Stdio(Model):
    """A server that uses the stdio transport. The operator runs it in a pod."""

    image: Image
    """Image of the server. It must contain Python 3, which runs the bridge between the broker and the server."""
    image_pull_secrets: Annotated[list[ImagePullSecret], Field(max_length=16)] = Field(default_factory=list)
    """Secrets with credentials of the registries of the server's and the bridge's image."""
    command: Annotated[list[str], Field(min_length=1, max_length=64)]
    """Command of the server with its arguments, for example `["mcp-server-git"]`."""
    env: Annotated[list[Variable], Field(max_length=64)] = Field(default_factory=list)
    """Environment variables of the server."""
    resources: Resources = Resources()
    """Resource limits and requests of the server's container, shared by all its processes."""
    runtime_class_name: Annotated[str | None, Field(max_length=253)] = None
    """RuntimeClass of the pod. If not set, the node's default runtime is used."""
    max_sessions: Annotated[int, Field(ge=1, le=256)] = 16
    """Maximum number of concurrent processes of the server: one per broker replica, and one per user if their
    credentials differ."""
    data_size: Quantity | None = None
    """Size of a writable volume at `/data` in bytes, for example `1Gi`. If not set, only `/tmp` is writable."""
    egress: Annotated[list[FreeObject], Field(max_length=64)] = Field(default_factory=list)
    """Egress rules as in a NetworkPolicy: destinations that the server may reach. By default there are none."""


class Action(StrEnum):
    """Action of a policy on a tool call."""

    ALLOW = "Allow"
    DENY = "Deny"
    APPROVE = "Approve"
    """The call waits for an approval."""


class PolicyRule(Model):
    """Action on calls of some tools."""

    tools: Annotated[list[ToolName], Field(min_length=1, max_length=256)]
    """Tools of the rule, for example `delete_*`."""
    action: Action
    """Allow: the call is made. Deny: the call fails. Approve: the call waits for an approval."""


class Policy(Model):
    """Policy for calls that execution and pool allow. The first rule that matches the tool counts."""

    rules: Annotated[list[PolicyRule], Field(max_length=256)] = Field(default_factory=list)
    """Rules in order of precedence."""
    destructive: Action = Action.APPROVE
    """Action for tools without a rule that the server marks as destructive (`destructiveHint`): Allow, Deny or
    Approve."""
    default: Action = Action.ALLOW
    """Action for all other tools without a rule: Allow, Deny or Approve."""
    approval_timeout_seconds: Annotated[int, Field(ge=1, le=MAX_APPROVAL_SECONDS)] = DEFAULT_APPROVAL_SECONDS
    """Seconds until a call without a decision is denied; 10 minutes by default. `approvalTimeoutSeconds` of the
    execution can shorten it."""

    def find_rule(self, tool: str) -> int | None:
        """Return the number of the first rule that matches a tool, or None."""
        numbers, patterns = self.compiled_rules
        return min((numbers[pattern] for pattern in patterns.find(tool)), default=None)

    @cached_property
    def compiled_rules(self) -> tuple[dict[str, int], NamePatterns]:
        """The first rule's number by pattern, and all patterns, compiled."""
        numbers: dict[str, int] = {}
        for number, rule in enumerate(self.rules):
            for pattern in rule.tools:
                numbers.setdefault(pattern, number)
        return numbers, NamePatterns(numbers)


class SecretAction(StrEnum):
    """Action on a secret that a scan found."""

    OFF = "Off"
    BLOCK = "Block"
    """The call is denied, or its result is withheld."""
    REDACT = "Redact"
    """A marker replaces the value."""


class PersonalDataAction(StrEnum):
    """Action on personal data that a scan found."""

    OFF = "Off"
    BLOCK = "Block"
    REDACT = "Redact"
    TOKENIZE = "Tokenize"
    """A token such as `[EMAIL_1_k3f9x2ab]` replaces the value. A tool that receives the token gets the value."""


class Scan(Model):
    """Scan of arguments and results for secrets and personal data."""

    secrets_in_arguments: SecretAction = SecretAction.BLOCK
    """Action on secrets that the code sends. Off: no scan. Block: the call is denied. Redact: a marker replaces the
    value."""
    secrets_in_results: SecretAction = SecretAction.REDACT
    """Action on secrets in results. Off: no scan. Block: the result is withheld. Redact: a marker replaces the
    value."""
    personal_in_arguments: PersonalDataAction = PersonalDataAction.OFF
    """Action on personal data that the code sends: e-mail addresses and phone, card, bank account and US social
    security numbers. Off, Block, Redact, or Tokenize: a token such as `[EMAIL_1_k3f9x2ab]` replaces the value."""
    personal_in_results: PersonalDataAction = PersonalDataAction.OFF
    """Action on personal data in results: Off, Block, Redact, or Tokenize. Code can pass a token to a tool, which then
    receives the value."""
    untokenize: bool = True
    """Whether tokens in arguments are replaced by the personal data they stand for."""


class ServerLimits(Model):
    """Limits on the use of the server. Each replica of the broker applies them to all its calls."""

    call_timeout_seconds: Annotated[float, Field(ge=0.1, le=300)] = 30.0
    """Maximum seconds of one call, without the time it waits for an approval."""
    concurrency: Annotated[int, Field(ge=1, le=1024)] = 16
    """Maximum number of concurrent calls. Further calls wait."""
    calls_per_minute: Annotated[int | None, Field(ge=1)] = None
    """Maximum number of calls per minute. Further calls are denied. If not set, there is no limit."""
    argument_bytes: Annotated[int, Field(ge=1024, le=16 * 1024 * 1024)] = 1024 * 1024
    """Maximum bytes of the arguments of one call; larger ones are an error. The default is 1 MiB."""
    result_bytes: Annotated[int, Field(ge=1024, le=64 * 1024 * 1024)] = 8 * 1024 * 1024
    """Maximum bytes of one result; larger ones are an error. The default is 8 MiB."""


_TRANSPORT_RULES: Final[list[JsonValue]] = [
    {"rule": "has(self.url) != has(self.stdio)", "message": "exactly one of spec.url and spec.stdio must be set"},
    {
        "rule": "has(self.url) || !(has(self.headers) && size(self.headers) > 0"
        " || has(self.userHeaders) && size(self.userHeaders) > 0 || has(self.oauth) || has(self.tls))",
        "message": "spec.headers, spec.userHeaders, spec.oauth and spec.tls are only allowed with spec.url",
    },
]


class ToolServerSpec(Model):
    """Address and credentials of the MCP server, and rules for calls of its tools."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-validations": _TRANSPORT_RULES})

    url: Annotated[str | None, Field(max_length=2048, pattern=r"^https?://")] = None
    """URL of the server's streamable HTTP endpoint. Set either `url` or `stdio`."""
    stdio: Stdio | None = None
    """Container of a server that uses the stdio transport. Set either `url` or `stdio`."""
    headers: Annotated[list[Header], Field(max_length=32)] = Field(default_factory=list)
    """HTTP headers of every request."""
    user_headers: Annotated[list[UserHeader], Field(max_length=8)] = Field(default_factory=list)
    """HTTP headers whose values depend on the user of the execution."""
    oauth: ClientCredentials | None = None
    """OAuth 2.0 client credentials. Their token is sent in the Authorization header."""
    tls: ServerTls | None = None
    """TLS of the connections. By default, the broker trusts public authorities and those of the chart's `caBundle`."""
    allow: Annotated[list[ToolName], Field(max_length=1024)] = Field(default_factory=lambda: ["*"])
    """Tools that are visible to code. By default all are; other tools do not exist for code."""
    deny: Annotated[list[ToolName], Field(max_length=1024)] = Field(default_factory=list)
    """Tools that are hidden from code, even if `allow` contains them."""
    direct: Annotated[list[ToolName], Field(max_length=256)] = Field(default_factory=list)
    """Cheap tools, which MCP clients also call directly in the mode `hybrid`: their results are short, and they are
    rarely called many times or in a chain. By default there are none, and these clients reach all tools by code."""
    policy: Policy = Policy()
    """Policy for calls: allow, deny or ask for an approval."""
    scan: Scan = Scan()
    """Scan of arguments and results for secrets and personal data."""
    limits: ServerLimits = ServerLimits()
    """Limits on the use of the server."""
    refresh_seconds: Annotated[int, Field(ge=5, le=86400)] = 300
    """Seconds between two listings of the tools, if the server does not set them itself."""

    def shows(self, tool: str) -> bool:
        """Return whether code sees the tool at all, by `allow` and `deny`."""
        allow, deny, _ = self.compiled_tools
        return allow.match(tool) and not deny.match(tool)

    def is_direct(self, tool: str) -> bool:
        """Return whether the tool is marked as cheap, for direct calls in the mode `hybrid`."""
        return self.compiled_tools[2].match(tool)

    @cached_property
    def compiled_tools(self) -> tuple[NamePatterns, NamePatterns, NamePatterns]:
        """`allow`, `deny` and `direct`, compiled."""
        return NamePatterns(self.allow), NamePatterns(self.deny), NamePatterns(self.direct)

    @model_validator(mode="after")
    def _has_one_transport(self) -> Self:
        if (self.url is None) == (self.stdio is None):
            raise ValueError("exactly one of url and stdio must be set")
        if self.stdio is not None and (self.headers or self.user_headers or self.oauth or self.tls):
            raise ValueError("headers, userHeaders, oauth and tls are only allowed with url")
        return self


class Workload(Model):
    """State of a stdio server's pod. The operator writes it."""

    ready: bool
    """Whether the pod accepts connections."""
    address: str | None = None
    """IP address and port of the pod, once it is ready."""
    pod_uid: str | None = None
    """Uid of the pod at this address, which the operator has compared with its Deployment's template. The pod's bridge
    has to prove that it is this one."""
    reason: str | None = None
    """Reason why the pod is not ready, as one CamelCase word, for example `QuotaExceeded`."""
    message: str | None = None
    """Reason why the pod is not ready, as a sentence for people."""


class OmittedTool(Model):
    """A tool that the server lists and code does not see."""

    name: str
    """Its name, cut at 80 characters, with unprintable characters escaped."""
    reason: str
    """The bound that the tool exceeds."""


class ToolServerStatus(Model):
    """State of the server. The broker writes it, except for `workload`, which the operator writes."""

    observed_generation: int | None = None
    """Generation of the spec that this status describes."""
    available: bool | None = None
    """Whether the server answered the last request."""
    protocol_version: str | None = None
    """Revision of MCP that is used with the server, for example `2025-11-25`."""
    server: str | None = None
    """Name and version that the server reports."""
    tools: int | None = None
    """Number of tools that are visible to code."""
    omitted: int | None = None
    """Number of tools that were left out, because they exceed a bound."""
    omitted_tools: list[OmittedTool] = Field(default_factory=list)
    """The first 20 tools that were left out."""
    catalog_hash: str | None = None
    """Hash of the catalog. It changes with every change of a tool."""
    last_sync: MicroTime | None = None
    """Time of the last listing of the tools. While the server is unavailable, the last catalog remains in use."""
    reason: str | None = None
    """Reason why the server is unavailable, as one CamelCase word, for example `NameNotResolved`."""
    message: str | None = None
    """Reason why the server is unavailable, as a sentence for people."""
    inferred_outputs: FreeObject = Field(default_factory=dict)
    """JSON Schemas by tool, inferred from results of tools that declare no output schema."""
    workload: Workload | None = None
    """State of the pod of a stdio server."""
    conditions: list[Condition] = Field(default_factory=list)
    """Available: the server answers. CredentialsFound: all Secrets that the spec refers to exist."""


UNOBSERVED_STATUS: Final[dict[str, Any]] = {
    "reason": str(ServerReason.NOT_OBSERVED),
    "message": ServerReason.NOT_OBSERVED.meaning,
}
"""Status of a ToolServer that no broker has seen: it would be blank in a namespace that is not served."""

SELECTABLE_FIELDS: Final = (".status.available", ".status.reason")
PRINTER_COLUMNS: list[dict[str, Any]] = [
    {"name": "Available", "type": "boolean", "jsonPath": ".status.available"},
    {"name": "Reason", "type": "string", "jsonPath": ".status.reason"},
    {"name": "Tools", "type": "integer", "jsonPath": ".status.tools"},
    {"name": "Protocol", "type": "string", "jsonPath": ".status.protocolVersion"},
    {"name": "Synced", "type": "date", "jsonPath": ".status.lastSync"},
    {"name": "Catalog", "type": "string", "jsonPath": ".status.catalogHash", "priority": 1},
    {"name": "Server", "type": "string", "jsonPath": ".status.server", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]
