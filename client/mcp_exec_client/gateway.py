"""HTTP client of the gateway, for a caller with an API key."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Self

import aiohttp

_TIMEOUT_SECONDS: Final = 10.0
_MARGIN_SECONDS: Final = 10.0
"""Time that a request may take beyond its `wait`."""


@dataclass(frozen=True)
class GatewayResponse:
    """Status and JSON of a response."""

    status: int
    data: dict[str, Any]
    """The members of the JSON object. A JSON list is under `items`; without JSON it is empty."""

    @property
    def error(self) -> str:
        """Status and detail of a response that reports an error."""
        return f"{self.status}: {self.data.get('detail') or self.data or 'no JSON'}"

    @property
    def items(self) -> list[dict[str, Any]]:
        """The objects of a list."""
        return [item for item in self.data.get("items") or [] if isinstance(item, dict)]


class GatewayUnreachable(Exception):
    """No response from the gateway."""


@dataclass(frozen=True, kw_only=True)
class GatewayClient:
    """Client of one gateway."""

    url: str
    namespace: str | None
    """Namespace of executions; None means the key's own."""
    session: aiohttp.ClientSession

    @classmethod
    @asynccontextmanager
    async def connect(cls, *, url: str, key: str | None, namespace: str | None = None) -> AsyncIterator[Self]:
        """Yield a client of the gateway at `url`, whose session is closed at the end of the context."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with aiohttp.ClientSession(headers=headers) as session:
            yield cls(url=url.rstrip("/"), namespace=namespace, session=session)

    async def request(self, method: str, path: str, *, body: object = None, **query: str) -> GatewayResponse:
        """Send a request and return the response, whatever its status. Raises GatewayUnreachable."""
        if self.namespace and path.startswith("/v1/"):
            query["namespace"] = self.namespace
        timeout = aiohttp.ClientTimeout(total=float(query.get("wait", _TIMEOUT_SECONDS)) + _MARGIN_SECONDS)
        try:
            async with self.session.request(
                method, self.url + path, params=query, json=body, timeout=timeout, allow_redirects=False
            ) as response:
                return GatewayResponse(response.status, await _parse_json(response))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise GatewayUnreachable(f"{method} {self.url}{path}: {error or 'no response in time'}") from error


async def _parse_json(response: aiohttp.ClientResponse) -> dict[str, Any]:
    try:
        data = await response.json(content_type=None)
    except ValueError:
        return {}
    if isinstance(data, list):
        return {"items": data}
    return data if isinstance(data, dict) else {}
