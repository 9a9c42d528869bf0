"""Annotations by which replicas find the run that a repeated call belongs to.

Digests are keyed, so that nobody can name another's call. Who may write annotations can only offer runs, and a run is
used for a call only if the gateway's proof says that the call's caller created it.
"""

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from mcp_exec_api.code_execution import spec_digest
from mcp_exec_api.constants import GROUP
from mcp_exec_common.kube.objects import Object
from mcp_exec_gateway.auth.callers import Caller

ANNOTATION_CALL: Final = f"{GROUP}/call"
"""Annotation of an execution: digest of the call that it answers, and of the session, if the client has one."""
ANNOTATION_UNDELIVERED: Final = f"{GROUP}/undelivered"
"""Annotation of an execution whose client left without the answer: a mark, or who has followed it since."""

_KEY_PREFIX: Final = b"mcp-exec calls:"
_SESSION_CHARACTERS: Final = 16
_CALL: Final = re.compile(rf"([0-9a-f]{{64}})(?:\.([0-9a-f]{{{_SESSION_CHARACTERS}}}))?")
_HOLDER: Final = re.compile(r"taken\.(\d{13})\.[0-9a-f]{16}")
_MARK: Final = re.compile(r"([0-9a-f]{64})\.(\d{13})(\.cancelled)?")


@dataclass(frozen=True, kw_only=True)
class CallIdentity:
    """One call: what it runs for whom, and the client's session."""

    digest: str
    session: str = ""
    """Digest of the session's id; empty if the client has none."""

    @classmethod
    def create(
        cls, spec: Mapping[str, Any], *, key: bytes, caller: Caller, conversation: str, session_id: str | None
    ) -> Self:
        """Return the call that runs this spec. `key` is the release's. A description changes nothing."""
        fixed = {name: value for name, value in spec.items() if name != "description"}
        content = json.dumps((caller.namespace, caller.name, conversation, spec_digest(fixed)))
        digest = hmac.new(_KEY_PREFIX + key, content.encode(), hashlib.sha256).hexdigest()
        session = hashlib.sha256(session_id.encode()).hexdigest()[:_SESSION_CHARACTERS] if session_id else ""
        return cls(digest=digest, session=session)

    @classmethod
    def read(cls, metadata: Mapping[str, Any]) -> Self | None:
        """Return the call that an execution answers, or None if it answers none that can be repeated."""
        match = _CALL.fullmatch(_read_annotation(metadata, ANNOTATION_CALL))
        return cls(digest=match[1], session=match[2] or "") if match else None

    def __str__(self) -> str:
        return f"{self.digest}.{self.session}" if self.session else self.digest


@dataclass(frozen=True, kw_only=True)
class Mark:
    """What says that the client of a run left without the answer."""

    digest: str
    """Digest of the call; zeros if it is unknown."""
    milliseconds: int
    """When it left, since 1970."""
    cancelled: bool = False
    """Whether the run was cancelled because its client had left."""

    @classmethod
    def read(cls, metadata: Mapping[str, Any]) -> Self | None:
        """Return the mark of an execution, or None if it has none."""
        match = _MARK.fullmatch(_read_annotation(metadata, ANNOTATION_UNDELIVERED))
        return cls(digest=match[1], milliseconds=int(match[2]), cancelled=bool(match[3])) if match else None

    def __str__(self) -> str:
        return f"{self.digest}.{self.milliseconds:013}" + (".cancelled" if self.cancelled else "")


UNKNOWN_DIGEST: Final = "0" * 64


def create_holder(milliseconds: int) -> str:
    """Return a new value of ANNOTATION_UNDELIVERED for a request that follows a run after its first client."""
    return f"taken.{milliseconds:013}.{secrets.token_hex(8)}"


def read_holder_since(metadata: Mapping[str, Any]) -> float | None:
    """Return the seconds from 1970 at which the present holder took the run, or None if there is no such holder."""
    match = _HOLDER.fullmatch(_read_annotation(metadata, ANNOTATION_UNDELIVERED))
    return int(match[1]) / 1000 if match else None


def read_holder(execution: Object) -> str:
    """Return what ANNOTATION_UNDELIVERED says; empty if only the request that created the run has followed it."""
    return _read_annotation(execution["metadata"], ANNOTATION_UNDELIVERED)


def _read_annotation(metadata: Mapping[str, Any], name: str) -> str:
    return str((metadata.get("annotations") or {}).get(name) or "")
