"""Refresh of the namespaces' wrapper bundles, which the broker generates."""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from mcp_exec_api.constants import MAX_WRAPPERS_BYTES
from mcp_exec_common.broker.client import BrokerClient, BrokerError
from mcp_exec_common.util.backoff import delay_after
from mcp_exec_operator.pods.cache import Pod
from mcp_exec_operator.toolservers.wrappers import NamespaceBundle, WrapperBundle, WrapperDistributor

log = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS: Final = 1.0
_LAST_RETRY_SECONDS: Final = 5.0
"""Short, since code that runs before the broker is asked again has no wrappers."""
_GATHER_SECONDS: Final = 0.2
"""Time for which changes of ToolServers are gathered into one request to the broker."""


@dataclass(kw_only=True, eq=False)
class BundleRefresher:
    """Keeps the bundles of all namespaces current and has new ones delivered to warm pods."""

    broker: BrokerClient
    distributor: WrapperDistributor
    refresh_seconds: float
    """Seconds between two requests if no ToolServer changes."""
    warm_pods: Callable[[str], Iterable[Pod]]
    """Returns the warm pods of a namespace."""

    async def run(self, namespace: str) -> None:
        """Keep the bundle of one namespace current, until cancelled."""
        state, failures = self.distributor.bundles[namespace], 0
        while True:
            wait = self.refresh_seconds
            if state.is_needed:
                try:
                    await self._refresh(namespace, state)
                    failures = 0
                except BrokerError as error:
                    failures += 1
                    wait = delay_after(failures, first=_FIRST_RETRY_SECONDS, last=_LAST_RETRY_SECONDS)
                    log.warning("no wrappers for namespace %s: %s", namespace, error, extra={"namespace": namespace})
                state.has_failed = failures > 0
                if not state.wakeup.is_set():
                    state.refreshed.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await state.wakeup.wait()
                    await asyncio.sleep(_GATHER_SECONDS)
            state.wakeup.clear()

    async def _refresh(self, namespace: str, state: NamespaceBundle) -> None:
        """Fetch the bundle and deliver it if it is new. Raises BrokerError."""
        response = await self.broker.get(f"/v1/namespaces/{namespace}/wrappers")
        digest, files = response.get("hash"), response.get("files")
        if not isinstance(digest, str) or not isinstance(files, dict):
            raise BrokerError("the broker's response has no wrappers")
        if state.bundle is not None and state.bundle.hash == digest:
            return
        body = json.dumps({"hash": digest, "files": files}).encode()
        if len(body) > MAX_WRAPPERS_BYTES:
            raise BrokerError(f"the wrappers have {len(body)} bytes, at most {MAX_WRAPPERS_BYTES} are allowed")
        state.bundle = WrapperBundle(hash=digest, body=body)
        log.info("new wrappers", extra={"namespace": namespace, "hash": digest, "files": len(files)})
        for pod in self.warm_pods(namespace):
            self.distributor.deliver(namespace, pod)
