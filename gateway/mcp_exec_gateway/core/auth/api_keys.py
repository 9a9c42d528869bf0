"""API keys: a Secret holds the digest, the namespace and the limits of each.

A watch follows the Secret, so a revoked key stops within moments. A malformed entry is logged by its name and skipped;
it does not affect the others.
"""

import base64
import hmac
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from pydantic import ValidationError

from mcp_exec_api.meta import explain_errors, now
from mcp_exec_api.wire.stats import KeyLimits
from mcp_exec_common.api_keys import KeyEntry, digest_key
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import Reflector

log = logging.getLogger(__name__)

_RESERVED: Final = ("system.", "k8s.", "oidc.")
"""Beginnings of the labels of ServiceAccounts, of other accounts of Kubernetes, and of people."""
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class ApiKey:
    """An API key that is in use."""

    name: str
    entry: KeyEntry

    @property
    def limits(self) -> KeyLimits:
        """Limits of the API key."""
        return self.entry.limits


def check_key_name(name: str) -> None:
    """Raise ValueError if an API key cannot have this name: it must be a label value and not look like a user's."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"invalid name {name!r}: use up to 63 letters, digits, '-', '_' and '.'")
    if name.startswith(_RESERVED):
        reserved = ", ".join(f"'{prefix}'" for prefix in _RESERVED)
        raise ValueError(f"invalid name {name!r}: names that start with {reserved} are reserved for other callers")


def describe_caller(name: str) -> str:
    """Return a caller's name for messages. Only names of API keys have neither ':' nor '/'."""
    return f"the API key {name}" if _NAME.fullmatch(name) else name


def parse_keys(secret: Object) -> dict[str, ApiKey]:
    """Return the valid API keys of a Secret by their digests."""
    keys: dict[str, ApiKey] = {}
    for name, encoded in sorted((secret.get("data") or {}).items()):
        try:
            check_key_name(name)
            entry = KeyEntry.model_validate_json(base64.b64decode(encoded or ""), strict=True)
        except ValidationError as error:
            log.warning("API key %s is skipped: %s", name, explain_errors(error, KeyEntry))
        except ValueError as error:
            log.warning("API key %s is skipped: %s", name, error)
        else:
            if entry.sha256 in keys:
                log.warning("API key %s is skipped: it is the same key as %s", name, keys[entry.sha256].name)
            else:
                keys[entry.sha256] = ApiKey(name=name, entry=entry)
    return keys


@dataclass(kw_only=True)
class ApiKeyStore:
    """The API keys of the Secret as it is now. A reflector of the Secret calls `on_change`."""

    clock: Callable[[], datetime] = now
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
        log.info("API keys: %d in use", len(self._keys))
        for key in self._keys.values():
            if self._is_expired(key):
                log.warning("API key %s has expired, at %s", key.name, key.entry.expires_at)

    def find(self, key: str) -> ApiKey | None:
        """Return the API key, or None if it is unknown or has expired. Digests are compared in constant time."""
        digest = digest_key(key)
        known = self._keys.get(digest)
        if known is None or not hmac.compare_digest(known.entry.sha256, digest):
            return None
        return None if self._is_expired(known) else known

    def _is_expired(self, key: ApiKey) -> bool:
        return key.entry.expires_at is not None and key.entry.expires_at <= self.clock()


def _strip_secret(secret: Object) -> Object:
    return {"metadata": {name: secret["metadata"].get(name, "") for name in ("namespace", "name")}}
