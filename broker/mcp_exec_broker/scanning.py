"""What is looked for in what goes to servers and comes back."""

from dataclasses import dataclass
from typing import Any

from mcp_exec_api.toolserver import Scan
from mcp_exec_broker.vault import Vault


@dataclass(frozen=True, kw_only=True)
class Scanned:
    """JSON, as it may go on."""

    value: Any
    found: dict[str, int]
    """How many of each kind were found, such as `GitHub Token` and `EMAIL`; never what."""


class Scanner:
    """Looks for secrets and personal data; made once a process."""

    async def arguments(self, value: Any, scan: Scan, vault: Vault) -> Scanned:
        """Arguments as they go to the server, with tokens put back where the scan says so (after the look).

        Raises Failure: SecretFound, PersonalDataFound. Large ones are scanned in a thread.
        """
        raise NotImplementedError

    async def result(self, value: Any, scan: Scan, vault: Vault) -> Scanned:
        """A result as it goes into the sandbox. Raises Failure like `arguments`."""
        raise NotImplementedError

    def redacted(self, value: Any, *, limit: int = 2048) -> str:
        """JSON text for audit and approvals: secrets and personal data always redacted, bounded in characters."""
        raise NotImplementedError
