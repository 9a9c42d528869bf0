"""`/mcp` as an OAuth protected resource (RFC 9728): where MCP clients get a token.

The gateway issues none itself. The metadata and its address are built by the MCP SDK.
"""

from dataclasses import dataclass
from typing import Final

from fastapi import APIRouter
from mcp.server.auth.handlers.metadata import ProtectedResourceMetadataHandler
from mcp.server.auth.routes import build_resource_metadata_url, cors_middleware
from mcp.shared.auth import ProtectedResourceMetadata
from pydantic import AnyHttpUrl
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mcp_exec_gateway.core.dependencies import get_dependencies
from mcp_exec_gateway.core.http.parameters import find_base_url
from mcp_exec_gateway.core.http.problems import invalid_field

_PATH: Final = "/mcp"
_METADATA: Final = "/.well-known/oauth-protected-resource"
_METHODS: Final = ["GET", "OPTIONS"]


@dataclass(frozen=True, kw_only=True)
class ProtectedResource:
    """The resource `/mcp` and its issuers."""

    issuers: tuple[str, ...]
    public_url: str
    scopes: tuple[str, ...] = ()
    """Scopes that clients ask the issuer for."""

    def describe(self, request: Request) -> ProtectedResourceMetadata:
        """Return the metadata for a client that reached the gateway by this address.

        Raises HttpProblem, a 422, if the client names no address.
        """
        if not (url := self._find_url(request)):
            raise invalid_field("Host", "it is not a host with an optional port")
        issuers = list(self.issuers)
        return ProtectedResourceMetadata.model_validate(
            {
                "resource": url,
                "authorization_servers": issuers,
                "scopes_supported": list(self.scopes) or None,
                "resource_name": "mcp-exec",
            }
        )

    def challenge(self, request: Request, header: str) -> str:
        """Return parameters of `WWW-Authenticate` with metadata and scopes; an empty text for another resource."""
        if request.scope["path"].rstrip("/") != _PATH or not (url := self._find_url(request)):
            return ""
        metadata = f'resource_metadata="{build_resource_metadata_url(AnyHttpUrl(url))}"'
        return f'{metadata}, scope="{" ".join(self.scopes)}"' if self.scopes and "scope=" not in header else metadata

    def _find_url(self, request: Request) -> str:
        base_url = find_base_url(request, public_url=self.public_url)
        return base_url and base_url + _PATH


async def show_metadata(request: Request) -> Response:
    """Return the metadata. Raises HttpProblem: 404 without issuers, 429 for too many requests of one address."""
    dependencies = await get_dependencies(request)
    dependencies.callers.limit_anonymous(request)
    metadata = dependencies.get(ProtectedResource).describe(request)
    return await ProtectedResourceMetadataHandler(metadata).handle(request)


router = APIRouter(include_in_schema=False)
# clients that get no challenge look for the metadata of the host
for path in (_METADATA, _METADATA + "/{path:path}"):
    router.routes.append(Route(path, endpoint=cors_middleware(show_metadata, _METHODS), methods=_METHODS))
