"""Authorities of servers that name a bundle: TLS contexts by the ConfigMaps that ToolServers refer to."""

import asyncio
import logging
import ssl
from dataclasses import dataclass, field
from hashlib import sha256
from math import inf
from time import monotonic
from typing import Final

from cachetools import LRUCache

from mcp_exec_api.reasons.server import ServerReason
from mcp_exec_api.tool_server import BundleKey
from mcp_exec_broker.core.upstream.credentials import READ_SECONDS, CredentialsMissing
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.process.company_network import CompanyNetwork
from mcp_exec_common.process.outgoing import build_client_tls

log = logging.getLogger(__name__)

_MAX_BYTES: Final = 128 * 1024
_MAX_CONTEXTS: Final = 256


@dataclass(kw_only=True)
class Authorities:
    """What a server's certificate is verified by."""

    version: str = ""
    """Digest of all bundles."""
    context: ssl.SSLContext | None = None
    read_at: float = -inf
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(kw_only=True, eq=False)
class BundleCache:
    """Cache of the bundles. Each is read again after a few seconds, and its context is the same until it changes."""

    kube: KubeClient
    network: CompanyNetwork
    """What the broker trusts for all servers."""
    fresh_seconds: float
    _cached: LRUCache[tuple[str, str, str], Authorities] = field(default_factory=lambda: LRUCache(_MAX_CONTEXTS))

    async def get_authorities(self, namespace: str, reference: BundleKey) -> Authorities:
        """Return the authorities of a bundle. Raises CredentialsMissing."""
        key = namespace, reference.name, reference.key
        if (found := self._cached.get(key)) is None:
            found = self._cached[key] = Authorities()
        async with found.lock:
            if found.read_at + self.fresh_seconds < monotonic():
                await self._read(found, namespace, reference)
        return found

    async def _read(self, found: Authorities, namespace: str, reference: BundleKey) -> None:
        place = f"ConfigMap {reference.name}"
        try:
            async with asyncio.timeout(READ_SECONDS):
                item = await self.kube.get(resource_path("configmaps", namespace=namespace, name=reference.name))
        except (ApiError, TimeoutError) as error:
            if isinstance(error, ApiError) and error.code == 404:
                raise CredentialsMissing(ServerReason.BUNDLE_NOT_FOUND, f"there is no {place}") from None
            if found.context is None:
                raise CredentialsMissing(ServerReason.BUNDLE_UNREADABLE, f"{place} can't be read: {error}") from None
            # the last bundle stays in use while the API server is unavailable
            log.warning("cannot read a bundle again: %s", error, extra={"namespace": namespace, "name": reference.name})
            found.read_at = monotonic()
            return
        text = (item.get("data") or {}).get(reference.key)
        if not isinstance(text, str):
            raise CredentialsMissing(ServerReason.BUNDLE_NOT_FOUND, f"{place} has no key {reference.key}")
        if len(text.encode(errors="replace")) > _MAX_BYTES:
            problem = f"key {reference.key} of {place} has more than {_MAX_BYTES} bytes"
            raise CredentialsMissing(ServerReason.BUNDLE_UNREADABLE, problem)
        bundles = *self.network.bundles, text
        version = sha256("\0".join(bundles).encode(errors="replace")).hexdigest()
        if found.context is None or version != found.version:
            try:
                found.context = await asyncio.to_thread(build_client_tls, *bundles)
            except ValueError as error:
                problem = f"key {reference.key} of {place} {error}"
                raise CredentialsMissing(ServerReason.BUNDLE_UNREADABLE, problem) from None
            found.version = version
        found.read_at = monotonic()
