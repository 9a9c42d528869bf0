"""Parameters and headers of requests. Unknown and repeated query parameters are rejected: they are usually typos."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Final, Literal
from urllib.parse import unquote_to_bytes

from fastapi import Header, Query
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError
from starlette.requests import Request

from mcp_exec_api.code_execution import Phase, UseCase
from mcp_exec_api.skill import SkillState
from mcp_exec_gateway.core.http.problems import invalid_field
from mcp_exec_tools.search.index import DEFAULT_LIMIT, MAX_LIMIT, MAX_QUERY, DetailLevel

DEFAULT_WAIT_SECONDS: Final = 30.0
_IDEMPOTENCY_KEY: Final = re.compile(r"[\x20-\x7e]{1,255}")
_HOST: Final = re.compile(r"[A-Za-z0-9.:_\[\]-]{1,255}")
_SCHEMES: Final = ("http", "https")


class NamespaceQuery(BaseModel):
    """Parameters of every route with a caller."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    namespace: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Namespace of the request; the default is the caller's own. An API key works in its own only.",
        ),
    ] = None


InNamespace = Annotated[NamespaceQuery, Query()]
"""Type of the parameter of a route that has no others."""


class OwnerQuery(NamespaceQuery):
    """Parameters of routes about what a caller owns."""

    user: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=253,
            description="User whose sessions and workspaces are meant: those of executions with this `user`. By "
            "default those without a user; lists of sessions have all.",
        ),
    ] = None


class ReadFilesQuery(OwnerQuery):
    """Parameters of reading files of a workspace."""

    version: Annotated[int | None, Field(ge=1, description="Version to read; the newest by default.")] = None


class ListFilesQuery(ReadFilesQuery):
    """Parameters of listing the files of a workspace."""

    prefix: Annotated[str, Field(max_length=1024, description="Only files whose path begins so.")] = ""
    after: Annotated[str, Field(max_length=1024, description="The `next` of the previous page.")] = ""
    limit: Annotated[int, Field(ge=1, le=1000, description="Maximum number of files on a page.")] = 1000


class ReadArchiveQuery(ReadFilesQuery):
    """Parameters of reading a workspace as an archive."""

    prefix: Annotated[str, Field(max_length=1024, description="Only files whose path begins so.")] = ""


class PutFileQuery(OwnerQuery):
    """Parameters of writing a file."""

    executable: Annotated[bool, Field(description="Whether the file can be executed.")] = False


class PutArchiveQuery(OwnerQuery):
    """Parameters of writing the files of an archive."""

    replace: Annotated[bool, Field(description="Remove all files that the archive does not have.")] = False


class ArtifactsQuery(NamespaceQuery):
    """Parameters of listing an execution's artifacts."""

    link_seconds: Annotated[
        int, Field(alias="linkSeconds", ge=1, le=24 * 3600, description="Seconds for which the links work.")
    ] = 900


class LinkQuery(BaseModel):
    """Parameters of a link to an artifact, which the gateway wrote."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    uid: Annotated[str, Field(max_length=64)]
    expires: Annotated[int, Field(ge=0, le=2**53)]
    signature: Annotated[str, Field(max_length=64)]


class CreateQuery(NamespaceQuery):
    """Parameters of creating an execution."""

    wait: Annotated[
        float,
        Field(
            ge=0,
            allow_inf_nan=False,
            description="Seconds to wait for the end of the execution. With 0, the response is an immediate 202 with "
            "a `Location`.",
        ),
    ] = DEFAULT_WAIT_SECONDS
    on_disconnect: Annotated[
        Literal["cancel", "continue"],
        Field(
            alias="onDisconnect",
            description="What happens to the execution if the client disconnects while it waits. `cancel` applies "
            "with an Idempotency-Key too; a client that intends to retry sends `continue`.",
        ),
    ] = "cancel"


Include = Literal["code"]
"""Parts of an execution that a response has on request only."""


class GetQuery(NamespaceQuery):
    """Parameters of getting an execution."""

    wait: Annotated[
        float,
        Field(ge=0, allow_inf_nan=False, description="Seconds to wait for the end of an unfinished execution."),
    ] = 0
    include: Annotated[
        Include | None, Field(description="What the response has in addition: `code`, the code of the execution.")
    ] = None


class CancelQuery(NamespaceQuery):
    """Parameters of cancelling or deleting an execution."""

    purge: Annotated[
        bool, Field(description="Delete an execution that has ended, with its artifacts, instead of cancelling it.")
    ] = False


class ListQuery(NamespaceQuery):
    """Parameters of listing executions."""

    label_selector: Annotated[
        str | None,
        Field(
            alias="labelSelector",
            max_length=2048,
            description="Kubernetes label selector, such as `report=weekly,mcp-exec.dev/use-case!=polling`.",
        ),
    ] = None
    phase: Annotated[Phase | None, Field(description="Only executions in this phase.")] = None
    caller: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=512,
            description="Only executions of this caller: the name of an API key or ServiceAccount, or a `caller` of a "
            "response.",
        ),
    ] = None
    conversation: Annotated[
        str | None, Field(min_length=1, max_length=63, description="Only executions of this conversation.")
    ] = None
    use_case: Annotated[UseCase | None, Field(alias="useCase", description="Only executions with this use case.")] = (
        None
    )
    limit: Annotated[int, Field(ge=1, le=500, description="Maximum number of executions on a page.")] = 100
    continue_token: Annotated[
        str | None, Field(alias="continue", max_length=4096, description="The `continue` of the previous page.")
    ] = None


class ApprovalsQuery(NamespaceQuery):
    """Parameters of listing the approvals of a namespace."""

    state: Annotated[
        Literal["pending"],
        Field(
            description="Only pending approvals are listed. Those of one execution, in all states, are at "
            "`/v1/executions/{name}/approvals`."
        ),
    ] = "pending"
    limit: Annotated[int, Field(ge=1, le=500, description="Maximum number of approvals.")] = 100


AsApprover = Annotated[
    bool, Field(alias="asApprover", description="Include drafts of other callers. Only approvers may send true.")
]


class SkillQuery(NamespaceQuery):
    """Parameters of getting a version of a skill."""

    as_approver: AsApprover = False


class SkillsQuery(SkillQuery):
    """Parameters of listing skills."""

    query: Annotated[
        str, Field(max_length=MAX_QUERY, description="What the skills should do; the best come first.")
    ] = ""
    name: Annotated[str | None, Field(max_length=50, description="Only versions of the skill of this name.")] = None
    state: Annotated[SkillState | None, Field(description="Only versions in this state.")] = None
    limit: Annotated[int, Field(ge=1, le=500, description="Maximum number of versions.")] = 100


class RolloutsQuery(NamespaceQuery):
    """Parameters of listing rollouts."""

    limit: Annotated[int, Field(ge=1, le=500, description="Maximum number of rollouts.")] = 100


class EventsQuery(NamespaceQuery):
    """Parameters of following an execution's events."""

    last_event_id: Annotated[
        str | None,
        Field(
            alias="lastEventId",
            description="Id of the last event received, for clients that cannot send `Last-Event-ID`.",
        ),
    ] = None


class SearchQuery(NamespaceQuery):
    """Parameters of a search for tools."""

    query: Annotated[
        str, Field(max_length=MAX_QUERY, description="What the tools should do; an empty query lists all tools.")
    ] = ""
    detail_level: Annotated[DetailLevel, Field(description="Amount of detail for each tool.")] = "name_only"
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT, description="Maximum number of tools.")] = DEFAULT_LIMIT


def _check_range(moment: datetime) -> datetime:
    try:
        moment.astimezone(UTC)
    except OverflowError:
        raise PydanticCustomError("time_range", "the time is before year 1 or after year 9999 in UTC") from None
    return moment


Moment = Annotated[AwareDatetime, AfterValidator(_check_range)]
"""A time with a zone, which can be written in UTC."""


class AuditQuery(NamespaceQuery):
    """Parameters of listing audit records of tool calls."""

    execution: Annotated[str | None, Field(min_length=1, max_length=253, description="Name of an execution.")] = None
    tool: Annotated[
        str | None, Field(min_length=1, max_length=256, description="A tool as SERVER.TOOL, or a server as SERVER.")
    ] = None
    outcome: Annotated[str | None, Field(min_length=1, max_length=64, description="Outcome of the call.")] = None
    source: Annotated[
        Literal["code", "direct"] | None, Field(description="code: calls of executions. direct: calls of MCP clients.")
    ] = None
    since: Annotated[Moment | None, Field(description="Only calls at or after this time (RFC 3339).")] = None
    until: Annotated[Moment | None, Field(description="Only calls before this time (RFC 3339).")] = None
    limit: Annotated[int, Field(ge=1, le=500, description="Maximum number of records on a page.")] = 100
    cursor: Annotated[str | None, Field(max_length=8192, description="The `next` of the previous page.")] = None


def find_repeated(names: Iterable[str]) -> str | None:
    """Return the first name that repeats an earlier one, or None. Takes linear time: clients choose the names."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def reject_repeated_parameters(request: Request) -> None:
    """Raise HttpProblem if a query parameter is present twice. FastAPI would take the last one."""
    repeated = find_repeated(name for name, _ in request.query_params.multi_items())
    if repeated is not None:
        raise invalid_field(repeated, "the query parameter is present twice; send it once")


def reject_undecodable_url(request: Request) -> None:
    """Raise HttpProblem for a URL that is not UTF-8: the server replaces such bytes, and names would become equal."""
    for field, text in (("path", request.scope.get("raw_path") or b""), ("query", request.scope["query_string"])):
        try:
            unquote_to_bytes(text).decode()
        except UnicodeDecodeError:
            raise invalid_field(field, "the URL is not UTF-8 with percent signs") from None


def is_idempotency_key(key: str) -> bool:
    """Return whether a text can be an Idempotency-Key."""
    return _IDEMPOTENCY_KEY.fullmatch(key) is not None


def _check_idempotency_key(key: str) -> str:
    if not is_idempotency_key(key):
        raise PydanticCustomError("idempotency_key", "1 to 255 printable ASCII characters are allowed")
    return key


IdempotencyKey = Annotated[
    str | None,
    AfterValidator(lambda key: key if key is None else _check_idempotency_key(key)),
    Header(
        alias="Idempotency-Key",
        description="Makes a retry safe: while the execution exists, the same key of the same caller with the same "
        "body refers to that execution. The same key with another body is rejected.",
        json_schema_extra={"minLength": 1, "maxLength": 255, "pattern": r"^[\x20-\x7e]+$"},
    ),
]
LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", description="Id of the last event received.")]
IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        description="ETags in quotation marks: the write takes place only if one is that of the workspace's newest "
        "version, or of the file that is written or deleted. `*`: only if it exists.",
        json_schema_extra={"maxLength": 2000},
    ),
]
IfNoneMatch = Annotated[
    str | None,
    Header(
        alias="If-None-Match",
        description="The write takes place only if the file, or of an archive the workspace, does not exist.",
        json_schema_extra={"enum": ["*"]},
    ),
]


def find_base_url(request: Request, *, public_url: str) -> str:
    """Return the address that the client reached the gateway at, unless a setting names one.

    A client that sends another Host or scheme gets links that work nowhere; nobody else gets them.
    """
    if public_url:
        return public_url.rstrip("/")
    forwarded = request.headers.get("x-forwarded-proto", "").strip().lower()
    scheme = forwarded if forwarded in _SCHEMES else request.url.scheme
    host = request.headers.get("host", "")
    return f"{scheme}://{host}" if _HOST.fullmatch(host) else ""
