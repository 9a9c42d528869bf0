"""One request to the endpoint, as the tools see it, and its cancellation by a notification.

The notification may reach another replica than the request. Revisions with sessions cancel a request by its id. Each
execution is labelled with a digest of the request's caller, session and id, so every replica finds it. A direct call
has no execution: only the replica that makes it finds it. In revision 2026-07-28 a client cancels a request by closing
its connection.

Clients also send the notification when they give up waiting. The reason that they state separates the two: such a
client may ask again.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final, Literal

from mcp.server.context import ServerRequestContext
from mcp_types import CallToolResult, RequestId, TextContent
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request

from mcp_exec_api.code_execution import UseCase
from mcp_exec_api.constants import DEFAULT_LANGUAGE, EXECUTIONS, LABEL_MCP_REQUEST, Language
from mcp_exec_api.meta import FieldError, ToolPattern, field_errors
from mcp_exec_common.kube.client import custom_resource_path
from mcp_exec_gateway.core.auth.callers import Caller, InsufficientScope, Verb
from mcp_exec_gateway.core.auth.rules import SCOPE_RUN, SCOPE_TOOLS
from mcp_exec_gateway.core.dependencies import Dependencies
from mcp_exec_gateway.core.executions.limits import narrow_tools
from mcp_exec_gateway.core.http.access_log import get_trace
from mcp_exec_gateway.core.http.limits import Reservation
from mcp_exec_gateway.core.http.problems import HttpProblem, invalid, invalid_field
from mcp_exec_gateway.core.pools import DEFAULT_POOL, describe_pool
from mcp_exec_gateway.features.mcp.abandoned_runs import AbandonedRuns, Departure
from mcp_exec_gateway.features.mcp.budget import DEFAULT_TOKENS, MAX_TOKENS, MIN_TOKENS, TokenBudget
from mcp_exec_gateway.features.mcp.sdk import as_request_id
from mcp_exec_gateway.features.mcp.transport.messages import RpcMessage, Session
from mcp_exec_gateway.features.mcp.transport.response import Exchange
from mcp_exec_gateway.features.tools.direct import RunningCalls

Mode = Literal["code", "direct", "hybrid"]
HEADER_PREFIX: Final = "mcp-exec-"
MAX_PATTERNS: Final = 32
"""Patterns of tools in a URL."""
_DIGEST_CHARACTERS: Final = 40
_GAVE_UP: Final = re.compile(r"\btimed?[ -]?out\b", re.IGNORECASE)
"""Reason of a client that waited for as long as it waits, as the SDKs for Python and TypeScript state it."""
_MAX_REASON: Final = 500


class McpOptions(BaseModel):
    """Parameters of one request to the endpoint."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=False)

    mode: Mode = "code"
    """Tools that the endpoint offers: `code` has `run_code`, `search_tools` and `describe_tools`; `direct` has the
    tools of all servers; `hybrid` has those of `code`, and of the others those that ToolServers mark as cheap."""
    namespace: Annotated[str | None, Field(min_length=1, max_length=63)] = None
    """Namespace of executions and tools; by default the caller's own."""
    pool: Annotated[str | None, Field(min_length=1, max_length=63)] = None
    """Pool of executions; by default the pool named `default`, or another one if it does not run the language."""
    tools: Annotated[tuple[ToolPattern, ...] | None, Field(max_length=MAX_PATTERNS)] = None
    """Tools that code may call and that searches show, as at most 32 patterns with commas between them; by default all
    that the caller may use."""
    user: Annotated[str | None, Field(min_length=1, max_length=253)] = None
    """User on whose behalf the code runs."""
    conversation: Annotated[str | None, Field(min_length=1, max_length=63)] = None
    """Conversation that the executions are part of."""
    use_case: Annotated[UseCase | None, Field(alias="useCase")] = None
    """What the executions are for."""
    max_tokens: Annotated[int, Field(ge=MIN_TOKENS, le=MAX_TOKENS, alias="maxTokens")] = DEFAULT_TOKENS
    """Tokens of one result, as the gateway estimates them: of what is longer, head and tail."""
    structured: bool = True
    """Whether results have structured content, which some clients show to models in place of the text, as JSON."""
    on_disconnect: Annotated[Literal["cancel", "continue"] | None, Field(alias="onDisconnect")] = None
    """What happens to a running execution if the client disconnects. By default it continues in the revisions with
    sessions: their clients reconnect, and cancel with a notification. In revision 2026-07-28 it is cancelled if the
    client does not call again."""

    @property
    def budget(self) -> TokenBudget:
        """How large a result may be."""
        return TokenBudget(tokens=self.max_tokens)


def fit_client(result: CallToolResult, options: McpOptions) -> CallToolResult:
    """Return a result without structured content, if the client wants none. What has no other content is a text."""
    if options.structured or result.structured_content is None:
        return result
    text = TextContent(text=json.dumps(result.structured_content, ensure_ascii=False))
    return result.model_copy(update={"structured_content": None, "content": result.content or [text]})


_HEADERS: Final = {
    HEADER_PREFIX + "".join(f"-{character.lower()}" if character.isupper() else character for character in name): name
    for name in (field.alias or key for key, field in McpOptions.model_fields.items())
}
"""Parameter of each header."""


def read_options(request: Request) -> McpOptions:
    """Return the parameters of a request. Raises HttpProblem, a 422, if one is unknown, invalid or given twice."""
    given: dict[str, Any] = {}
    for name, value in _list_parameters(request):
        if given.setdefault(name, value) != value:
            raise invalid_field(name, "the URL and a header give different values; send one of them")
    if "tools" in given:
        patterns = given["tools"].split(",", MAX_PATTERNS)
        if len(patterns) > MAX_PATTERNS:
            raise invalid_field("tools", f"at most {MAX_PATTERNS} patterns are allowed; name several tools by a *")
        given["tools"] = [pattern.strip() for pattern in patterns]
    try:
        return McpOptions.model_validate(given)
    except ValidationError as error:
        raise invalid(*map(_explain, field_errors(error))) from None


def read_namespace(request: Request) -> str | None:
    """Return the namespace that a request names in a header; that of the query is read with the caller."""
    return request.headers.get(HEADER_PREFIX + "namespace")


def _list_parameters(request: Request) -> Iterator[tuple[str, str]]:
    yield from request.query_params.items()
    for header, value in request.headers.items():
        if header.startswith(HEADER_PREFIX):
            if header not in _HEADERS:
                raise invalid_field(header, f"unknown header; allowed are {', '.join(_HEADERS)}")
            yield _HEADERS[header], value


def _explain(error: FieldError) -> FieldError:
    if error.field.partition(".")[0] in _HEADERS.values():
        return error
    return FieldError(
        field=error.field, message=f"{error.message}; the endpoint's parameters are {', '.join(_HEADERS.values())}"
    )


@dataclass(frozen=True, kw_only=True)
class Sender:
    """The authenticated sender of one message."""

    http: Request
    dependencies: Dependencies
    caller: Caller
    """Who sent the message, with the right to list; `authorize` checks further rights."""
    options: McpOptions

    @property
    def namespace(self) -> str:
        """Namespace of everything that the message reads and runs."""
        return self.caller.namespace

    @cached_property
    def allowed_tools(self) -> list[str] | None:
        """Patterns of the tools that searches show and code may call: those of the URL within the key's; None for all.

        Raises HttpProblem, as `narrow_tools` does.
        """
        return narrow_tools(self.options.tools, caller=self.caller)

    async def authorize(self, verb: Verb) -> Caller:
        """Return the caller, who may do this as well. Raises HttpProblem: 403."""
        callers = self.dependencies.callers
        try:
            return await callers.authorize(self.caller, verb)
        except InsufficientScope as problem:
            # some clients ask for these scopes only: the next token has to serve the whole stream
            whole = problem.needing(SCOPE_RUN, SCOPE_TOOLS)
            callers.complete_challenge(self.http, whole)
            raise whole from None

    async def may(self, verb: Verb) -> bool:
        """Return whether the caller may do this as well, if need be by a token with another scope."""
        try:
            await self.authorize(verb)
        except InsufficientScope:
            return True
        except HttpProblem:
            return False
        return True

    def describe_pool(self) -> str:
        """Return Python and libraries of the pool that code runs in, in words; empty if they are unknown."""
        return describe_pool(self.options.pool or DEFAULT_POOL, caller=self.caller, pools=self.dependencies.pools)

    def list_languages(self) -> tuple[Language, ...]:
        """Return the languages of the pools that code may run in, that of the first choice first."""
        named, usable = self.options.pool, self.dependencies.pools.list_usable(self.caller)
        found = dict.fromkeys(pool.language for pool in usable if named in (None, pool.name))
        return tuple(found) or (DEFAULT_LANGUAGE,)

    def trace_execution(self, name: str) -> None:
        """Record the execution's name in the access log."""
        get_trace(self.http.scope).execution = name


@dataclass(frozen=True, kw_only=True)
class McpRequest:
    """One request with everything that serves it."""

    sender: Sender
    exchange: Exchange
    memory: Reservation
    """Memory of the body."""
    version: str
    """The protocol's revision."""
    is_modern: bool
    """Whether the revision has no sessions (2026-07-28)."""
    session: Session | None = None
    """Session of the revisions before; None if the client sent none."""
    elicitation: bool = False
    """Whether the client can show forms to its user."""
    tasks: bool = False
    """Whether the client takes the task of a run in place of its result, as it says in revision 2026-07-28."""

    @property
    def departure(self) -> Departure:
        """What becomes of the execution if the client disconnects."""
        default = Departure.CANCEL_LATER if self.is_modern else Departure.CONTINUE
        return choose_departure(self.sender.options, default=default)


def choose_departure(options: McpOptions, *, default: Departure) -> Departure:
    """Return what becomes of a run whose client has left: what the application decided, or the default."""
    chosen = {"cancel": Departure.CANCEL, "continue": Departure.CONTINUE}.get(options.on_disconnect or "")
    return chosen or default


Context = ServerRequestContext[Any, Any]
"""What the SDK passes to a handler; its `request` is an McpRequest."""


def get_request(context: Context) -> McpRequest:
    """Return the request of a handler's context."""
    request = context.request
    assert isinstance(request, McpRequest)  # noqa: S101 - the endpoint sets it
    return request


def mark_request(request: McpRequest) -> dict[str, str]:
    """Return the label of executions that a request creates; none if the request cannot be cancelled by its id."""
    digest = digest_request(request)
    return {} if digest is None else {LABEL_MCP_REQUEST: digest}


def digest_request(request: McpRequest) -> str | None:
    """Return a digest of a request's caller, session and id, or None if it cannot be cancelled by its id."""
    if request.session is None or request.exchange.request_id is None:
        return None
    return _digest(request.sender, request.session, request.exchange.request_id)


async def cancel_request(sender: Sender, session: Session, message: RpcMessage) -> None:
    """Cancel the direct call or the execution of a request of this session, if it has one that runs.

    An execution whose client gave up waiting is cancelled only if the client does not ask for it again.
    """
    request_id = as_request_id(message.params.get("requestId"))
    if request_id is None:
        return
    digest = _digest(sender, session, request_id)
    if sender.dependencies.get(RunningCalls).cancel(digest):
        return
    selector = f"{LABEL_MCP_REQUEST}={digest}"
    path = custom_resource_path(EXECUTIONS, namespace=sender.namespace)
    dependencies = sender.dependencies
    page = await dependencies.kube.get_table(path, limit=1, token=None, selector=selector)
    for row in page.rows:
        metadata: Any = row.metadata
        if dependencies.attestor.read_listed_caller(metadata) == sender.caller.label:
            sender.trace_execution(metadata["name"])
            key = (sender.namespace, metadata["name"])
            if gave_up(message.params.get("reason")):
                departure = choose_departure(sender.options, default=Departure.CANCEL_LATER)
                await dependencies.get(AbandonedRuns).leave(key, holder=None, departure=departure)
            else:
                await dependencies.executions.request_cancellation(key)


def gave_up(reason: object) -> bool:
    """Return whether the reason of a cancellation is that the client has waited for as long as it waits."""
    return isinstance(reason, str) and _GAVE_UP.search(reason[:_MAX_REASON]) is not None


def _digest(sender: Sender, session: Session, request_id: RequestId) -> str:
    content = (sender.namespace, sender.caller.name, session.id, type(request_id).__name__, str(request_id))
    return hashlib.sha256("\0".join(content).encode()).hexdigest()[:_DIGEST_CHARACTERS]
