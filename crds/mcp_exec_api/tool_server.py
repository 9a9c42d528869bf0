"""ToolServer: an MCP server whose tools the code in sandboxes may call, through the broker."""

from enum import StrEnum
from typing import Annotated, Any, Final, Self

from pydantic import ConfigDict, Field, JsonValue, model_validator

from mcp_exec_api.meta import Condition, MicroTime, Model
from mcp_exec_api.sandbox_pool import FreeObject, ImagePullSecret, Resources

ToolName = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^([A-Za-z0-9_./-]+\*?|\*)$")]
"""A tool's name at the server, or with a star at its end all that begin so."""
HeaderName = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")]
VariableName = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class SecretKey(Model):
    """One value in a Secret of the ToolServer's namespace."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """The Secret's name."""
    key: Annotated[str, Field(min_length=1, max_length=253)]
    """The key in its data."""


class ValueSource(Model):
    """A text, or where to find it."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "has(self.value) != has(self.secretKeyRef)",
                    "message": "one of value and secretKeyRef is needed, and not both",
                }
            ]
        }
    )

    value: Annotated[str | None, Field(max_length=4096)] = None
    """The text itself; never a credential."""
    secret_key_ref: SecretKey | None = None
    """The Secret that has it."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.value is None) == (self.secret_key_ref is None):
            raise ValueError("one of value and secretKeyRef is needed, and not both")
        return self


class Header(ValueSource):
    """An HTTP header of every request to the server."""

    name: HeaderName
    """The header."""
    prefix: Annotated[str | None, Field(max_length=64)] = None
    """What stands before the value, such as `Bearer ` before a token."""


class Variable(ValueSource):
    """An environment variable of a stdio server."""

    name: VariableName
    """The variable."""


class UserHeader(Model):
    """An HTTP header whose value depends on the execution's user."""

    name: HeaderName
    """The header."""
    prefix: Annotated[str | None, Field(max_length=64)] = None
    """What stands before the value."""
    secret_name: Annotated[str, Field(min_length=1, max_length=253)]
    """A Secret whose keys are users; a user that it lacks can't call the server."""


class ClientCredentials(Model):
    """OAuth 2.0 client credentials (RFC 6749, 4.4)."""

    token_url: Annotated[str, Field(max_length=2048, pattern=r"^https?://")]
    """Where tokens are had."""
    client_id: SecretKey
    """The client's id."""
    client_secret: SecretKey
    """The client's secret."""
    scopes: Annotated[list[str], Field(max_length=64)] = Field(default_factory=list)
    """What is asked for."""


class Stdio(Model):
    """A server that speaks over standard input and output: the operator runs it in a pod of its own."""

    image: Annotated[str, Field(min_length=1, max_length=512)]
    """Its image; it needs Python 3 for the bridge, which is put into the pod."""
    image_pull_secrets: Annotated[list[ImagePullSecret], Field(max_length=16)] = Field(default_factory=list)
    """Secrets with credentials of the registries of its image and the bridge's."""
    command: Annotated[list[str], Field(min_length=1, max_length=64)]
    """The server's program and arguments."""
    env: Annotated[list[Variable], Field(max_length=64)] = Field(default_factory=list)
    """Its environment."""
    resources: Resources = Resources()
    """Limits and requests."""
    runtime_class_name: Annotated[str | None, Field(max_length=253)] = None
    """The RuntimeClass of its pod."""
    max_sessions: Annotated[int, Field(ge=1, le=256)] = 16
    """Processes that run at once: one for each broker, and for each user where their credentials differ."""
    data_size: str | None = None
    """Bytes of a writable `/data`; none means that there is none but `/tmp`."""
    egress: Annotated[list[FreeObject], Field(max_length=64)] = Field(default_factory=list)
    """Egress rules as in a NetworkPolicy: what the server itself may reach; nothing by default."""


class Action(StrEnum):
    """What is done with a call."""

    ALLOW = "Allow"
    DENY = "Deny"
    APPROVE = "Approve"
    """It waits for somebody's consent."""


class PolicyRule(Model):
    """What is done with calls of some tools."""

    tools: Annotated[list[ToolName], Field(min_length=1, max_length=256)]
    """The tools."""
    action: Action
    """What is done."""


class Policy(Model):
    """What is done with each call that execution and pool allow. The first rule that names the tool counts."""

    rules: Annotated[list[PolicyRule], Field(max_length=256)] = Field(default_factory=list)
    """Rules, in order."""
    destructive: Action = Action.APPROVE
    """For tools that no rule names and that say of themselves that they destroy (`destructiveHint`)."""
    default: Action = Action.ALLOW
    """For all other tools."""
    approval_timeout_seconds: Annotated[int, Field(ge=1, le=300)] = 120
    """Seconds after which a call that nobody decided on is denied."""


class SecretAction(StrEnum):
    """What is done with a secret that is found."""

    OFF = "Off"
    BLOCK = "Block"
    """The call is denied, or its result withheld."""
    REDACT = "Redact"
    """A mark takes its place."""


class PersonalDataAction(StrEnum):
    """What is done with personal data that is found."""

    OFF = "Off"
    BLOCK = "Block"
    REDACT = "Redact"
    TOKENIZE = "Tokenize"
    """A token such as `[EMAIL_1]` takes its place, and is put back where it is sent to a tool."""


class Scan(Model):
    """What is looked for in what goes to the server and comes back."""

    secrets_in_arguments: SecretAction = SecretAction.BLOCK
    """Credentials that the code sends."""
    secrets_in_results: SecretAction = SecretAction.REDACT
    """Credentials that the server answers."""
    personal_in_arguments: PersonalDataAction = PersonalDataAction.OFF
    """E-mail addresses, phone, card, bank account and social security numbers that the code sends."""
    personal_in_results: PersonalDataAction = PersonalDataAction.OFF
    """The same in what the server answers."""
    untokenize: bool = True
    """Whether tokens that stand for personal data are put back in what is sent to this server."""


class ServerLimits(Model):
    """Bounds on the use of the server, by all executions together where not said otherwise."""

    call_timeout_seconds: Annotated[float, Field(ge=0.1, le=300)] = 30.0
    """Seconds that one call may take, waiting for consent apart."""
    concurrency: Annotated[int, Field(ge=1, le=1024)] = 16
    """Calls at once; more wait."""
    calls_per_minute: Annotated[int | None, Field(ge=1)] = None
    """Calls a minute; more are denied."""
    argument_bytes: Annotated[int, Field(ge=1024, le=16 * 1024 * 1024)] = 1024 * 1024
    """Bytes of one call's arguments."""
    result_bytes: Annotated[int, Field(ge=1024, le=64 * 1024 * 1024)] = 8 * 1024 * 1024
    """Bytes of one result; a larger one is an error."""


_ONE_WAY: Final[list[JsonValue]] = [
    {"rule": "has(self.url) != has(self.stdio)", "message": "one of spec.url and spec.stdio is needed, and not both"},
    {
        "rule": "has(self.url) || !(has(self.headers) && size(self.headers) > 0"
        " || has(self.userHeaders) && size(self.userHeaders) > 0 || has(self.oauth))",
        "message": "spec.headers, spec.userHeaders and spec.oauth need spec.url",
    },
]


class ToolServerSpec(Model):
    """Where the server is, with what credentials it is called, and who may call what."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-validations": _ONE_WAY})

    url: Annotated[str | None, Field(max_length=2048, pattern=r"^https?://")] = None
    """Its streamable HTTP endpoint."""
    stdio: Stdio | None = None
    """How to run it, where it speaks over standard input and output."""
    headers: Annotated[list[Header], Field(max_length=32)] = Field(default_factory=list)
    """Headers of every request."""
    user_headers: Annotated[list[UserHeader], Field(max_length=8)] = Field(default_factory=list)
    """Headers that depend on the execution's user."""
    oauth: ClientCredentials | None = None
    """How a token for the Authorization header is had."""
    allow: Annotated[list[ToolName], Field(max_length=1024)] = Field(default_factory=lambda: ["*"])
    """Tools that code sees; the others do not exist for it."""
    deny: Annotated[list[ToolName], Field(max_length=1024)] = Field(default_factory=list)
    """Tools that it does not see, even where they are allowed above."""
    policy: Policy = Policy()
    """What is done with each call."""
    scan: Scan = Scan()
    """What is looked for in arguments and results."""
    limits: ServerLimits = ServerLimits()
    """Bounds."""
    refresh_seconds: Annotated[int, Field(ge=5, le=86400)] = 300
    """Seconds after which the tools are listed again, where the server says nothing of it."""

    @model_validator(mode="after")
    def _is_one_way(self) -> Self:
        if (self.url is None) == (self.stdio is None):
            raise ValueError("one of url and stdio is needed, and not both")
        if self.stdio is not None and (self.headers or self.user_headers or self.oauth):
            raise ValueError("headers, userHeaders and oauth need url")
        return self


class Workload(Model):
    """How a stdio server's pod is. Written by the operator."""

    ready: bool
    """Whether the pod takes connections."""
    address: str | None = None
    """HOST:PORT of its Service."""
    reason: str | None = None
    """Why it is not ready, as one word."""
    message: str | None = None
    """Why, for people."""


class ToolServerStatus(Model):
    """How the server is. Written by the broker, `workload` by the operator."""

    observed_generation: int | None = None
    """The generation of the spec that the rest speaks of."""
    available: bool | None = None
    """Whether it answered when it was asked last."""
    protocol_version: str | None = None
    """The protocol's revision that is spoken with it."""
    server: str | None = None
    """What it says that it is: name and version."""
    tools: int | None = None
    """How many tools it has that code may see."""
    catalog_hash: str | None = None
    """What tells its tools from other ones."""
    last_sync: MicroTime | None = None
    """When its tools were last listed; the last good list is used while it is not available."""
    reason: str | None = None
    """Why it is not available, as one word."""
    message: str | None = None
    """Why, for people."""
    inferred_outputs: FreeObject = Field(default_factory=dict)
    """JSON Schemas of results, seen and not declared, by tool."""
    workload: Workload | None = None
    """How its pod is, for a stdio server."""
    conditions: list[Condition] = Field(default_factory=list)
    """Available, and CredentialsFound."""


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
