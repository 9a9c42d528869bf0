"""API keys: a Secret holds the digest, the namespace and the limits of each.

A watch follows the Secret, so a revoked key stops within moments. A malformed entry is logged by its name and skipped;
it does not affect the others.
"""

import asyncio
import hmac
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from mcp_exec_api.meta import now
from mcp_exec_api.wire.stats import KeyLimits
from mcp_exec_common.api_keys import KEY_NAME, KeyEntry, check_key_name, digest_key
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import Reflector

log = logging.getLogger(__name__)

_SOON: Final = timedelta(days=14)


@dataclass(frozen=True, kw_only=True)
class ApiKey:
    """An API key that is in use."""

    name: str
    entry: KeyEntry
    sha256: str
    expires_at: datetime | None

    @property
    def limits(self) -> KeyLimits:
        """Limits of the API key."""
        return self.entry.limits


def describe_caller(name: str) -> str:
    """Return a caller's name for messages. Only names of API keys have neither ':' nor '/'."""
    return f"the API key {name}" if KEY_NAME.fullmatch(name) else name


def parse_keys(secret: Object) -> dict[str, ApiKey]:
    """Return the valid API keys of a Secret by their digests."""
    keys: dict[str, ApiKey] = {}
    for name, encoded in sorted((secret.get("data") or {}).items()):
        try:
            check_key_name(name)
            entry = KeyEntry.parse(encoded)
        except ValueError as error:
            log.warning("API key %s is skipped: %s", name, error)
        else:
            if entry.sha256 in keys:
                log.warning("API key %s is skipped: it is the same key as %s", name, keys[entry.sha256].name)
                continue
            keys[entry.sha256] = ApiKey(name=name, entry=entry, sha256=entry.sha256, expires_at=entry.expires_at)
            if (former := entry.former) is not None:
                ends = min(filter(None, (former.expires_at, entry.expires_at)))
                replaced = ApiKey(name=name, entry=entry, sha256=former.sha256, expires_at=ends)
                keys.setdefault(former.sha256, replaced)
    return keys


@dataclass(kw_only=True)
class ApiKeyStore:
    """The API keys of the Secret as it is now. A reflector of the Secret calls `on_change`."""

    clock: Callable[[], datetime] = now
    changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set when the Secret has changed. The task that follows it clears it."""
    secret_uid: str = field(default="", init=False)
    _keys: dict[str, ApiKey] = field(default_factory=dict, init=False)

    def build_reflector(self, *, kube: KubeClient, namespace: str, name: str) -> Reflector:
        """Build the reflector of the Secret, which keeps no key data itself."""
        path = resource_path("secrets", namespace=namespace)
        return Reflector(
            kube=kube, path=path, fields=f"metadata.name={name}", on_change=self.on_change, transform=_strip_secret
        )

    def on_change(self, secret: Object, deleted: bool) -> None:
        """Replace all API keys by those of the Secret."""
        self._keys = {} if deleted else parse_keys(secret)
        self.secret_uid = str(secret["metadata"].get("uid", ""))
        self.changed.set()
        log.info("API keys: %d in use", len(self._keys))
        for key in self.list_ending():
            log.warning("%s", self.describe_end(key))

    def list_ending(self) -> list[ApiKey]:
        """Return the keys that end within 14 days, the next one first, and then those that have ended in the last 14.

        A key that a rotation has replaced ends as it should, and is not among them.
        """
        moment = self.clock()
        ending = [
            (abs(ends - moment), key)
            for key in self._keys.values()
            if key.sha256 == key.entry.sha256 and (ends := key.expires_at) is not None and abs(ends - moment) <= _SOON
        ]
        return [key for _, key in sorted(ending, key=lambda each: (self._is_expired(each[1]), each[0]))]

    def describe_end(self, key: ApiKey) -> str:
        """Return a sentence without a full stop about a key that ends."""
        verb = "ended" if self._is_expired(key) else "ends"
        return f"API key {key.name} of namespace {key.entry.namespace} {verb} at {key.expires_at}"

    def find(self, key: str) -> ApiKey | None:
        """Return the API key, or None if it is unknown or has expired. Digests are compared in constant time."""
        digest = digest_key(key)
        known = self._keys.get(digest)
        if known is None or not hmac.compare_digest(known.sha256, digest):
            return None
        return None if self._is_expired(known) else known

    def _is_expired(self, key: ApiKey) -> bool:
        return key.expires_at is not None and key.expires_at <= self.clock()


def _strip_secret(secret: Object) -> Object:
    return {"metadata": {name: secret["metadata"].get(name, "") for name in ("namespace", "name")}}
