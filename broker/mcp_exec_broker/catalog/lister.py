"""Listing of a server's tools."""

import asyncio
import logging
from dataclasses import dataclass, replace
from time import monotonic
from typing import Final

from mcp import MCPError

from mcp_exec_api.reasons.server import ServerReason
from mcp_exec_broker.access.policy import is_visible
from mcp_exec_broker.catalog.entry import ToolListing
from mcp_exec_broker.catalog.inferred_outputs import OutputInference, add_inferred_output
from mcp_exec_broker.upstream.credentials import CredentialsMissing, UserUnknown
from mcp_exec_broker.upstream.errors import ConnectionLost, ServerUnavailable, SessionError, SessionExpired
from mcp_exec_broker.upstream.http_transport import parse_reason
from mcp_exec_broker.upstream.redaction import redact_excerpt, redact_json, redact_text
from mcp_exec_broker.upstream.servers import ToolServer
from mcp_exec_broker.upstream.session import ListedTools, UpstreamSession
from mcp_exec_broker.upstream.session_pool import SessionPool
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_tools.catalog import Catalog

log = logging.getLogger(__name__)

MIN_LIFETIME: Final = 5.0
"""Seconds from one listing to the next, at least."""
_MAX_LIFETIME: Final = 86_400.0
_REFUSALS: Final = frozenset(
    {
        ServerReason.UNAUTHORIZED,
        ServerReason.PROTOCOL_ERROR,
        ServerReason.SERVER_ERROR,
        ServerReason.WRONG_PATH,
        ServerReason.REDIRECTED,
        ServerReason.NOT_MCP,
    }
)
"""Reasons with which a server may refuse requests on behalf of nobody."""


@dataclass(kw_only=True, eq=False)
class ToolLister:
    """Lists tools through the sessions of the pool."""

    sessions: SessionPool
    inference: OutputInference
    timeout_seconds: float = 15.0

    async def list_shared(self, server: ToolServer) -> tuple[UpstreamSession, ToolListing]:
        """List the tools without a user, or as one of the server's users if it refuses that.

        Names and schemas are shared thereby; each call uses the credentials of its own user. Raises ServerUnavailable.
        """
        try:
            return await self.list_tools(server, None)
        except ServerUnavailable as error:
            user = await self._find_user(server) if error.reason in _REFUSALS else None
            if user is None:
                raise
            try:
                return await self.list_tools(server, user)
            except UserUnknown:
                raise error from None

    async def list_tools(self, server: ToolServer, user: str | None) -> tuple[UpstreamSession, ToolListing]:
        """List the tools on behalf of a user, or of nobody. Raises ServerUnavailable and UserUnknown."""
        session: UpstreamSession | None = None
        try:
            async with asyncio.timeout(self.timeout_seconds):
                session = await self.sessions.get_session(server, user)
                try:
                    tools = await session.list_tools()
                except (SessionExpired, ConnectionLost):
                    session = await self.sessions.get_session(server, user)
                    tools = await session.list_tools()
            return session, self._build_listing(server, session, tools, uses_user_credentials=user is not None)
        except TimeoutError:
            message = f"its tools were not listed within {self.timeout_seconds:g} s"
            raise ServerUnavailable(ServerReason.TIMEOUT, message) from None
        except MCPError as error:
            text = redact_excerpt(error.message, session.secrets if session else (), max_chars=500)
            reason = parse_reason(error.error.data) or ServerReason.PROTOCOL_ERROR
            raise ServerUnavailable(reason, f"tools/list: {text}") from None
        except (ValueError, OverflowError) as error:
            raise ServerUnavailable(ServerReason.PROTOCOL_ERROR, f"tools/list: {error}") from None
        except (ServerUnavailable, UserUnknown):
            raise
        except SessionError as error:
            known = session.failure if session else None
            raise ServerUnavailable(known.reason if known else ServerReason.CONNECTION_LOST, str(error)) from None
        except Exception as error:  # an answer of one server must not end the listing of the others
            log.warning("tools/list failed", extra={"server": "/".join(server.key), "error": type(error).__name__})
            message = "tools/list: its answer can't be used; the broker's log has the kind of error"
            raise ServerUnavailable(ServerReason.PROTOCOL_ERROR, message) from None

    def add_inferred_outputs(self, listing: ToolListing, key: ObjectKey) -> ToolListing:
        """Return the listing with the inferred output schemas of a server."""
        schemas = self.inference.get_schemas(key)
        if not schemas:
            return listing
        tools = tuple(add_inferred_output(tool, schemas) for tool in listing.catalog.tools)
        return replace(listing, catalog=Catalog(server=listing.catalog.server, tools=tools))

    async def _find_user(self, server: ToolServer) -> str | None:
        spec = server.spec
        if spec is None or not spec.user_headers:
            return None
        users: set[str] | None = None
        for header in spec.user_headers:
            try:
                keys = set(await self.sessions.secrets.get_data(server.namespace, header.secret_name))
            except CredentialsMissing:
                return None
            users = keys if users is None else users & keys
        return min((user for user in users or () if not user.startswith("base64-")), default=None)

    def _build_listing(
        self, server: ToolServer, session: UpstreamSession, listed: ListedTools, *, uses_user_credentials: bool
    ) -> ToolListing:
        spec = session.route.spec
        visible = [tool for tool in redact_json(listed.tools, session.secrets) if is_visible(spec, tool["name"])]
        catalog = Catalog.from_tools(server.name, visible)
        lifetime = min(max(listed.ttl_seconds or spec.refresh_seconds, MIN_LIFETIME), _MAX_LIFETIME)
        listing = ToolListing(
            catalog=catalog,
            declared={tool.name: tool.output_schema for tool in catalog.tools},
            expires=monotonic() + lifetime,
            is_public=listed.is_public,
            uses_user_credentials=uses_user_credentials,
            size=listed.size,
            omitted=tuple(replace(entry, name=redact_text(entry.name, session.secrets)) for entry in listed.omitted),
            omitted_count=listed.omitted_count,
        )
        return self.add_inferred_outputs(listing, server.key)


def read_identity(session: UpstreamSession) -> str:
    """Return name and version that the server states, empty if the session has ended."""
    info = session.client.server_info if not session.has_ended else None
    return redact_excerpt(f"{info.name} {info.version}", session.secrets, max_chars=200) if info is not None else ""
