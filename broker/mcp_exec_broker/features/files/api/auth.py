"""Authenticates sandboxes' requests on files by their grants."""

from collections.abc import Callable, Container
from dataclasses import dataclass, field
from time import time
from typing import Final

from mcp_exec_broker.core.api.calls import is_same_address
from mcp_exec_broker.core.api.verified import VerifiedGrants
from mcp_exec_broker.features.files.requests import FilesRefused
from mcp_exec_broker.features.files.workspace.commit import PendingUploads
from mcp_exec_common.broker.files import FilesGrant, FilesReason
from mcp_exec_common.broker.grants import MAX_FILES_GRANT_SECONDS, GrantError, GrantSigner

_MAX_TOKEN: Final = 8 * 1024
_MAX_CACHED: Final = 4096


@dataclass(kw_only=True, eq=False)
class FilesAuthenticator:
    """Authenticates requests by grants of files, and caches verified grants."""

    signer: GrantSigner
    namespaces: Container[str]
    replica: str
    checks_address: bool
    pending: PendingUploads
    get_waiting_seconds: Callable[[str], float] = lambda uid: 0.0
    """Returns how long calls of an execution have waited for approvals."""
    _verified: VerifiedGrants[FilesGrant] = field(init=False)

    def __post_init__(self) -> None:
        self._verified = VerifiedGrants(keys=self.signer.keys, verify=self._verify, max_size=_MAX_CACHED)

    def authenticate(self, header: str, *, peer: str) -> FilesGrant:
        """Return the grant in an Authorization header that came from an address. Raises FilesRefused."""
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token or len(token) > _MAX_TOKEN:
            raise _refuse("the request has no grant of files: send Authorization: Bearer GRANT")
        grant = self._verified.read(token)
        if grant.expires <= time() and grant.expires + self.get_waiting_seconds(grant.execution) <= time():
            self._verified.discard(token)
            raise _refuse("the grant has expired")
        if self.checks_address and peer != grant.pod_address and not is_same_address(peer, grant.pod_address):
            raise _refuse("the grant belongs to the sandbox at another address")
        self.pending.check_open(grant.execution)
        return grant

    def _verify(self, token: str) -> FilesGrant:
        try:
            grant = self.signer.read(FilesGrant, token)
        except GrantError as error:
            raise _refuse(str(error)) from None
        if self.replica and grant.replica != self.replica:
            raise _refuse("the grant belongs to another replica of the broker")
        if grant.expires > time() + MAX_FILES_GRANT_SECONDS:
            raise _refuse(f"the grant is valid for more than {MAX_FILES_GRANT_SECONDS} s")
        if grant.namespace not in self.namespaces:
            raise _refuse("this broker does not serve the grant's namespace")
        return grant


def _refuse(message: str) -> FilesRefused:
    return FilesRefused(FilesReason.NOT_AUTHENTICATED, message)
