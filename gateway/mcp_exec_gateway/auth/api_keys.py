"""API keys: a Secret holds the digest, the namespace and the limits of each.

A watch follows the Secret, so a revoked key stops within moments. A malformed entry is logged by its name and skipped;
it does not affect the others.
"""

import base64
import hashlib
import hmac
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Final

from pydantic import AwareDatetime, Field, ValidationError

from mcp_exec_api.code_execution import Priority
from mcp_exec_api.meta import Model, ToolPattern, UserPattern, field_errors, now
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import Reflector
from mcp_exec_tools.patterns import name_matches

log = logging.getLogger(__name__)

KEY_PREFIX: Final = "mcpx_"
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


class KeyLimits(Model):
    """Limits of one API key. A limit that is not set does not apply."""

    max_concurrent: Annotated[int | None, Field(ge=1)] = None
    """Maximum number of unfinished executions, queued ones included."""
    max_stored: Annotated[int | None, Field(ge=1)] = None
    """Maximum number of stored executions, finished ones included until they are deleted: by default that of the
    namespace, which no key exceeds."""
    max_stored_bytes: Annotated[int | None, Field(ge=1)] = None
    """Maximum bytes that the stored executions take in the API server: by default those of the namespace."""
    requests_per_minute: Annotated[int | None, Field(ge=1)] = None
    """Maximum rate of requests of all kinds to one gateway replica: a burst of this size, refilled over a minute."""
    direct_calls_per_minute: Annotated[int | None, Field(ge=1)] = None
    """Maximum rate of tool calls without an execution, by MCP clients, at each replica of the broker: by default
    600."""
    max_waits: Annotated[int | None, Field(ge=1)] = None
    """Maximum number of requests that wait for an execution at the same time, at each gateway replica."""
    max_streams: Annotated[int | None, Field(ge=1)] = None
    """Maximum number of open event streams, at each gateway replica."""
    max_sessions: Annotated[int | None, Field(ge=0)] = None
    """Maximum number of sessions that have a pod or will get one: by default that of the gateway's setting."""
    max_workspaces: Annotated[int | None, Field(ge=0)] = None
    """Maximum number of workspaces for each user: by default that of the broker's setting, which no key exceeds."""
    max_timeout_seconds: Annotated[int | None, Field(ge=1)] = None
    """Maximum `timeoutSeconds` of an execution."""
    pools: Annotated[list[str] | None, Field(min_length=1)] = None
    """Pools that executions may use."""
    max_priority: Priority | None = None
    """Highest `priority` of an execution."""
    tools: Annotated[list[ToolPattern] | None, Field(max_length=256)] = None
    """Tools that executions may call and that searches show, as patterns such as `github.*`."""
    users: Annotated[list[UserPattern] | None, Field(max_length=256)] = None
    """Users that executions may name, as patterns such as `team-a/*`. An execution without a user is always allowed."""
    own: bool | None = None
    """Whether the key sees, cancels, deletes and approves only executions that it created itself, for users that it may
    name: by default true if `users` is set."""

    @property
    def sees_own_only(self) -> bool:
        """Whether the executions of others look as if they did not exist."""
        return self.users is not None if self.own is None else self.own

    def allows_user(self, user: str | None) -> bool:
        """Return whether an execution may name this user, or none."""
        return not user or self.users is None or any(name_matches(pattern, user) for pattern in self.users)


class KeyEntry(Model):
    """One entry of the Secret. Its key in the Secret's data is the API key's name."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """SHA-256 digest of the API key, in lower-case hexadecimal."""
    namespace: Annotated[str, Field(min_length=1)]
    """Namespace of everything that the API key reads and runs."""
    limits: KeyLimits = KeyLimits()
    """Limits of the API key."""
    approver: bool = False
    """Whether the API key may decide on approvals."""
    expires_at: AwareDatetime | None = None
    """Time from which on the key is refused; by default it never expires."""


@dataclass(frozen=True, kw_only=True)
class ApiKey:
    """An API key that is in use."""

    name: str
    entry: KeyEntry

    @property
    def limits(self) -> KeyLimits:
        """Limits of the API key."""
        return self.entry.limits


def digest_key(key: str) -> str:
    """Return the digest that is stored of an API key."""
    return hashlib.sha256(key.encode()).hexdigest()


def check_key_name(name: str) -> None:
    """Raise ValueError if an API key cannot have this name: it must be a label value and not look like a user's."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"invalid name {name!r}: use up to 63 letters, digits, '-', '_' and '.'")
    if name.startswith("system."):
        raise ValueError(f"invalid name {name!r}: names that start with 'system.' are reserved for ServiceAccounts")


def parse_keys(secret: Object) -> dict[str, ApiKey]:
    """Return the valid API keys of a Secret by their digests."""
    keys: dict[str, ApiKey] = {}
    for name, encoded in sorted((secret.get("data") or {}).items()):
        try:
            check_key_name(name)
            entry = KeyEntry.model_validate_json(base64.b64decode(encoded or ""), strict=True)
        except ValidationError as error:
            violations = "; ".join(
                f"{violation.field}: {violation.message}" for violation in field_errors(error, KeyEntry)
            )
            log.warning("API key %s is skipped: %s", name, violations)
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
