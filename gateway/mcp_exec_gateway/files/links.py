"""Links to artifacts that need no key and expire.

A link is signed with a key derived from the release's, so no replica stores any. It ends with its time or with the
execution, and cannot be withdrawn before.
"""

import hashlib
import hmac
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode

from mcp_exec_gateway.http.problems import HttpProblem

DEFAULT_LINK_SECONDS: Final = 900
MAX_LINK_SECONDS: Final = 24 * 3600
LINK_PATH: Final = "/v1/artifacts"
_KEY_PREFIX: Final = b"mcp-exec artifact links:"


@dataclass(frozen=True, kw_only=True)
class ArtifactAddress:
    """One artifact of one execution; another execution of the same name has another uid."""

    namespace: str
    execution: str
    uid: str
    id: str


@dataclass(frozen=True, kw_only=True)
class LinkSigner:
    """Signs links and verifies them."""

    key: bytes
    """The release's key."""
    clock: Callable[[], float] = time.time

    def build_path(self, address: ArtifactAddress, *, seconds: int) -> tuple[str, int]:
        """Return path and query of a link, and the time at which it expires, in seconds since 1970."""
        expires = int(self.clock()) + seconds
        path = "/".join(quote(part, safe="") for part in (address.namespace, address.execution, address.id))
        query = urlencode({"uid": address.uid, "expires": expires, "signature": self._sign(address, expires)})
        return f"{LINK_PATH}/{path}?{query}", expires

    def verify(self, address: ArtifactAddress, *, expires: int, signature: str) -> None:
        """Raise HttpProblem, a 403, unless the link was signed here, or a 410 if it has expired."""
        if not hmac.compare_digest(signature.encode(errors="replace"), self._sign(address, expires).encode()):
            detail = "the link is not valid: it was cut or changed, or another installation signed it"
            raise HttpProblem("forbidden", 403, detail)
        if expires <= self.clock():
            detail = "the link has expired; GET /v1/executions/NAME/artifacts returns new ones"
            raise HttpProblem("expired", 410, detail)

    def _sign(self, address: ArtifactAddress, expires: int) -> str:
        content = json.dumps([address.namespace, address.execution, address.uid, address.id, expires])
        return hmac.new(_KEY_PREFIX + self.key, content.encode(), hashlib.sha256).hexdigest()
