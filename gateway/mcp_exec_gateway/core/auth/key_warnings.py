"""Events about API keys that end, at the Secret that holds them.

The gateway writes them because it is what reads the Secret in every installation, also one that somebody else writes.
It needs the right to create Events in the release's namespace, and none to write Secrets. The name of an Event follows
from the key and the day, so that replicas write each once.
"""

import asyncio
import hashlib
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from typing import Final

from mcp_exec_api.reasons.event import EventReason
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.events import build_event
from mcp_exec_common.kube.objects import Object
from mcp_exec_gateway.core.auth.api_keys import ApiKey, ApiKeyStore

log = logging.getLogger(__name__)

MAX_EVENTS: Final = 50
"""Maximum Events of one day."""


@dataclass(kw_only=True, eq=False)
class KeyWarnings:
    """Writes an Event a day about each API key that ends within 14 days, or has ended in the last 14."""

    kube: KubeClient
    namespace: str
    """The release's namespace."""
    secret: str
    """Name of the Secret with the API keys."""
    keys: ApiKeyStore
    check_seconds: float = 3600.0
    """Seconds between looks at the clock; a change of the Secret is seen at once."""
    _day: date = field(default=date.min, init=False)
    _reported: set[str] = field(default_factory=set, init=False)
    """Names of the Events of this day."""

    async def run(self) -> None:
        """Write Events until cancelled. Errors are logged; what is missing is written at the next look."""
        while True:
            self.keys.changed.clear()
            await self._report_all()
            with suppress(TimeoutError):
                async with asyncio.timeout(self.check_seconds):
                    await self.keys.changed.wait()

    async def _report_all(self) -> None:
        if (today := self.keys.clock().date()) != self._day:
            self._day, self._reported = today, set()
        left = 0
        for key in self.keys.list_ending():
            name = self._name_event(key)
            if name in self._reported:
                continue
            if len(self._reported) >= MAX_EVENTS:
                left += 1
                continue
            try:
                await self.kube.create(resource_path("events", namespace=self.namespace), self._build(key, name))
            except ApiError as error:
                if error.code != 409:  # another replica has written it
                    log.warning("no Event about API key %s was created: %s", key.name, error)
                    return
            self._reported.add(name)
        if left:
            log.warning("%d more API keys end or have ended, and have no Event today", left)

    def _name_event(self, key: ApiKey) -> str:
        digest = hashlib.sha256(f"{self.secret}\0{key.name}\0{self._day}".encode()).hexdigest()
        return f"{self.secret[:200]}.{digest[:16]}"

    def _build(self, key: ApiKey, name: str) -> Object:
        options = f"--release-namespace {self.namespace} --secret {self.secret}"
        remedy = f"`kubectl mcp-exec keys rotate {key.name} {options}` replaces it, and `revoke` removes it"
        event = build_event(
            "Secret",
            key=(self.namespace, self.secret),
            uid=self.keys.secret_uid,
            kind=EventReason.API_KEY_ENDS.type,
            reason=EventReason.API_KEY_ENDS,
            message=f"{self.keys.describe_end(key)}: {remedy}",
            moment=self.keys.clock(),
            api_version="v1",
            component="mcp-exec-gateway",
        )
        return {**event, "metadata": {"name": name, "namespace": self.namespace}}
