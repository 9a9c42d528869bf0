"""The SDK's client at the endpoint of a gateway under test."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from tests.component.gateway.conftest import KEY

MODERN, SESSIONS = "2026-07-28", "2025-11-25"
REVISIONS = (MODERN, SESSIONS)
Revision = Literal["2026-07-28", "2025-11-25"]


@asynccontextmanager
async def connecting(
    url: str,
    revision: str,
    *,
    key: str | None = KEY,
    query: str = "",
    headers: dict[str, str] | None = None,
    verify: ssl.SSLContext | bool = True,
    **options: Any,
) -> AsyncIterator[Client]:
    """Connect to a gateway in one revision."""
    sent = {**({"Authorization": f"Bearer {key}"} if key else {}), **(headers or {})}
    timeout = httpx2.Timeout(30, read=60)
    async with httpx2.AsyncClient(headers=sent, timeout=timeout, verify=verify, trust_env=False) as http:
        transport = streamable_http_client(f"{url}/mcp{query}", http_client=http)
        mode = revision if revision == MODERN else "legacy"
        async with Client(transport, mode=mode, **options) as client:
            yield client
