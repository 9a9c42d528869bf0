"""Artifacts of executions: what the status lists, links to them, and their bytes from the broker."""

import hashlib
import hmac
import json
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

from mcp_exec_api.files import Owner
from mcp_exec_api.meta import micro_time
from mcp_exec_common.broker.attestations import Attestor, drop_claim
from mcp_exec_common.broker.client import BrokerResponse
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_gateway.core.http.problems import HttpProblem
from mcp_exec_gateway.features.files.forwarding import FilesForwarder

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

    keys: SandboxKeys
    """The release's keys."""
    clock: Callable[[], float] = time.time

    def build_path(self, address: ArtifactAddress, *, seconds: int) -> tuple[str, int]:
        """Return path and query of a link, and the time when it expires, in seconds since 1970."""
        expires = int(self.clock()) + seconds
        path = "/".join(quote(part, safe="") for part in (address.namespace, address.execution, address.id))
        query = urlencode(
            {"uid": address.uid, "expires": expires, "signature": self._sign(self.keys.signing, address, expires)}
        )
        return f"{LINK_PATH}/{path}?{query}", expires

    def verify(self, address: ArtifactAddress, *, expires: int, signature: str) -> None:
        """Raise HttpProblem, a 403, unless the link was signed here, or a 410 if it has expired."""
        given, expected = signature.encode(errors="replace"), [self._sign(key, address, expires) for key in self.keys]
        if not any(hmac.compare_digest(given, each.encode()) for each in expected):
            detail = "the link is not valid: it was cut or changed, or another installation signed it"
            raise HttpProblem("forbidden", 403, detail)
        if expires <= self.clock():
            detail = "the link has expired; GET /v1/executions/NAME/artifacts returns new ones"
            raise HttpProblem("expired", 410, detail)

    def _sign(self, key: bytes, address: ArtifactAddress, expires: int) -> str:
        content = json.dumps([address.namespace, address.execution, address.uid, address.id, expires])
        return hmac.new(_KEY_PREFIX + key, content.encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True, kw_only=True)
class ArtifactService:
    """Artifacts as status and broker have them."""

    files: FilesForwarder
    attestor: Attestor
    links: LinkSigner

    def list_views(self, execution: Object, *, base_url: str, seconds: int = DEFAULT_LINK_SECONDS) -> list[Object]:
        """Return an execution's artifacts as responses show them, with links that expire after so many seconds."""
        return [
            {**item, **self._build_link(execution, item["id"], base_url=base_url, seconds=seconds)}
            for item in list_artifacts(execution)
        ]

    def _build_link(self, execution: Object, artifact: str, *, base_url: str, seconds: int) -> dict[str, Any]:
        metadata = execution["metadata"]
        address = ArtifactAddress(
            namespace=metadata["namespace"], execution=metadata["name"], uid=metadata["uid"], id=artifact
        )
        path, expires = self.links.build_path(address, seconds=seconds)
        return {"url": base_url + path, "expiresAt": micro_time(datetime.fromtimestamp(expires, UTC))}

    def find(self, execution: Object, artifact: str) -> Object:
        """Return one artifact as the status has it. Raises HttpProblem, a 404."""
        for item in list_artifacts(execution):
            if item["id"] == artifact:
                return item
        name = execution["metadata"]["name"]
        detail = f"execution {name} has no artifact {artifact[:64]}; GET /v1/executions/{name}/artifacts lists them"
        raise HttpProblem("not-found", 404, detail, execution=name)

    def open(self, execution: Object, artifact: str) -> AbstractAsyncContextManager[BrokerResponse]:
        """Open the bytes of an artifact. Raises HttpProblem: 404, 429, 503."""
        owner, meta = _find_owner(execution, self.attestor), execution["metadata"]
        return self.files.open_content("artifacts", meta["uid"], artifact, owner=owner, execution=meta["name"])

    async def delete_all(self, execution: Object) -> None:
        """Delete the bytes of all artifacts of an execution. Raises HttpProblem: 429, 503."""
        if self.files.client is None:
            return
        owner, meta = _find_owner(execution, self.attestor), execution["metadata"]
        try:
            async with self.files.open("DELETE", "artifacts", meta["uid"], owner=owner, execution=meta["name"]):
                pass
        except HttpProblem as problem:
            if problem.status != 404:  # an installation that stores no files has none
                raise

    async def read(self, execution: Object, artifact: str, *, limit: int) -> bytes | None:
        """Return the bytes of an artifact, or None if there are more than `limit`. Raises HttpProblem."""
        async with self.open(execution, artifact) as content:
            return None if content.size is None or content.size > limit else await content.read(limit=limit)


def list_artifacts(execution: Object) -> list[Object]:
    """Return an execution's artifacts as its status has them."""
    return (execution.get("status") or {}).get("artifacts") or []


def _find_owner(execution: Object, attestor: Attestor) -> Owner:
    caller = attestor.read_caller(execution)
    return Owner(
        namespace=execution["metadata"]["namespace"],
        caller=drop_claim(caller),
        user=(execution.get("spec") or {}).get("user") or "",
    )
