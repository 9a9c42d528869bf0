"""Requests about one kind of object: paths, the namespace, and results that are checked."""

from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel

from mcp_exec_client.errors import NotFound
from mcp_exec_client.transport import HttpReply, Transport
from mcp_exec_client.types import parse_reply

Parsed = TypeVar("Parsed", bound=BaseModel)


@dataclass(frozen=True, kw_only=True)
class RequestChannel:
    """Requests of one client."""

    transport: Transport
    namespace: str | None

    def query(self, **params: str | None) -> dict[str, str | None]:
        """Return the parameters of a request, with the namespace."""
        return {**params, "namespace": self.namespace}

    async def send(
        self, method: str, path: str, *, query: dict[str, str | None] | None = None, **more: Any
    ) -> HttpReply:
        """Send a request with JSON, if any, and return the response. Raises McpExecError."""
        return await self.transport.request(method, path, query=self.query(**(query or {})), **more)

    async def fetch(
        self, result: type[Parsed], method: str, path: str, *, query: dict[str, str | None] | None = None, **more: Any
    ) -> Parsed:
        """Send a request and return its result. Raises McpExecError."""
        return parse_reply(result, await self.send(method, path, query=query, **more))


def quote_segment(name: str) -> str:
    """Return a name as a part of a path. Raises NotFound for a name that would be another path."""
    if name in ("", ".", ".."):
        raise NotFound(f"nothing has the name {name!r}", kind="not-found", status=404)
    return quote(name, safe="")
