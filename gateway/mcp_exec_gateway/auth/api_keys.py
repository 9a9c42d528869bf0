"""API keys: who may call with which, from a Secret that holds their digests.

The Secret is followed by a watch, so a key that is taken out stops within moments. An entry that is malformed is
logged by its name and left out; it never affects the others.
"""

import base64
import hashlib
import hmac
import logging
import re
from dataclasses import dataclass, field
from typing import Annotated, Final

from pydantic import Field, ValidationError

from mcp_exec_api.code_execution import Priority
from mcp_exec_api.meta import Model, ToolPattern, UserPattern, field_errors
from mcp_exec_common.kube.objects import Object

log = logging.getLogger(__name__)

KEY_PREFIX: Final = "mcpx_"
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


class KeyLimits(Model):
    """Bounds of one key; one that is left out does not apply."""

    max_concurrent: Annotated[int | None, Field(ge=1)] = None
    """Executions that may be under way at once, those that wait for a pod included."""
    requests_per_minute: Annotated[int | None, Field(ge=1)] = None
    """Requests of every kind to one replica of the gateway: so many at once, and from then on one each time that its
    share of a minute is over."""
    max_timeout_seconds: Annotated[int | None, Field(ge=1)] = None
    """The longest `timeoutSeconds`."""
    pools: Annotated[list[str] | None, Field(min_length=1)] = None
    """Pools that may be used."""
    max_priority: Priority | None = None
    """The highest `priority`."""
    tools: Annotated[list[ToolPattern] | None, Field(max_length=256)] = None
    """Tools that executions may ask for, and that are found, as patterns such as `github.*`."""
    users: Annotated[list[UserPattern] | None, Field(max_length=256)] = None
    """Users that executions may be for, as patterns such as `team-a/*`; an execution for nobody is always fine."""


class KeyEntry(Model):
    """One entry of the Secret; its name there is the key's name."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """SHA-256 of the key, in hex."""
    namespace: Annotated[str, Field(min_length=1)]
    """The namespace that the key works in."""
    limits: KeyLimits = KeyLimits()
    """Its bounds."""
    approver: bool = False
    """Whether it may decide on tool calls that wait for consent."""


@dataclass(frozen=True, kw_only=True)
class ApiKey:
    """A key that is known."""

    name: str
    entry: KeyEntry


def key_digest(key: str) -> str:
    """What is stored of a key."""
    return hashlib.sha256(key.encode()).hexdigest()


def check_key_name(name: str) -> None:
    """Raises ValueError where a key can't have this name: it becomes a label value and must not look like a user."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name for a key: use up to 63 letters, digits, '-', '_' and '.'")
    if name.startswith("system."):
        raise ValueError(f"{name!r} is no name for a key: names that begin with 'system.' belong to ServiceAccounts")


def parse_keys(secret: Object) -> dict[str, ApiKey]:
    """The keys of a Secret by their digests."""
    found: dict[str, ApiKey] = {}
    for name, encoded in sorted((secret.get("data") or {}).items()):
        try:
            check_key_name(name)
            entry = KeyEntry.model_validate_json(base64.b64decode(encoded or ""), strict=True)
        except ValidationError as error:
            wrong = "; ".join(f"{found.field}: {found.message}" for found in field_errors(error))
            log.warning("API key %s is left out: %s", name, wrong)
        except ValueError as error:
            log.warning("API key %s is left out: %s", name, error)
        else:
            if entry.sha256 in found:
                log.warning("API key %s is left out: it is the same as %s", name, found[entry.sha256].name)
            else:
                found[entry.sha256] = ApiKey(name=name, entry=entry)
    return found


@dataclass(kw_only=True)
class ApiKeys:
    """The keys as they are now. `on_change` is given to a reflector of the Secret."""

    _keys: dict[str, ApiKey] = field(default_factory=dict, init=False)

    def on_change(self, secret: Object, deleted: bool) -> None:
        """Replaces all keys by those of the Secret."""
        self._keys = {} if deleted else parse_keys(secret)
        log.info("API keys: %d in use", len(self._keys))

    def find(self, key: str) -> ApiKey | None:
        """The key, if it is one. Its digest is compared, in a time that does not depend on where it differs."""
        digest = key_digest(key)
        found = self._keys.get(digest)
        return found if found is not None and hmac.compare_digest(found.entry.sha256, digest) else None
