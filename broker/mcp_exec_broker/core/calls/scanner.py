"""The scan of arguments and results, as a feature does it, and what happens without one."""

from typing import Any, Protocol

from mcp_exec_api.tool_server import PersonalDataAction, Scan, SecretAction
from mcp_exec_broker.core.errors import ErrorReason, build_denial

_WITHHELD = "(not shown: this broker has no scanner)"


class AccountScanner(Protocol):
    """Scans the calls of one execution, or those of one caller that share tokens."""

    def detokenize(self, value: Any) -> Any:
        """Return the JSON value with all known tokens in its texts replaced by their values."""

    def check_tokens(self, text: str) -> None:
        """Raise ToolCallError (UnknownToken) if arguments, as JSON text and detokenized, still contain a token."""

    async def scan_arguments(self, value: Any, scan: Scan, *, size: int) -> Any:
        """Return arguments of about `size` bytes as they go to the server. Raises ToolCallError."""

    async def scan_result(self, value: Any, scan: Scan, *, size: int = 0) -> Any:
        """Return a result of about `size` bytes as it goes to the caller. Raises ToolCallError."""


class CallScanner(Protocol):
    """Scans what tools receive and return, and what audit and approvals show of it."""

    def open_account(self, account: str) -> AccountScanner:
        """Return the scanner of an account's calls, given by the id that its tokens belong to."""

    def redact_json(self, value: Any) -> str:
        """Return JSON text for the audit log, bounded and without secrets and personal data."""

    def redact_message(self, text: str) -> str:
        """Return a foreign text, such as an error, without secrets and personal data."""

    async def redact_value(self, value: Any, *, size: int) -> Any:
        """Return a JSON value of `size` bytes without secrets and personal data. Raises ToolCallError."""


class NoScanner:
    """Stands in for a missing scanner: shows nothing, and denies calls that need a scan, before they travel."""

    def open_account(self, account: str) -> AccountScanner:
        """Return itself: there are no tokens."""
        return self

    def detokenize(self, value: Any) -> Any:
        """Return the value."""
        return value

    def check_tokens(self, text: str) -> None:
        """Accept all texts."""

    async def scan_arguments(self, value: Any, scan: Scan, *, size: int) -> Any:
        """Return the arguments. Raises ToolCallError (DeniedByPolicy) if arguments or results are to be scanned."""
        secrets = (scan.secrets_in_arguments, scan.secrets_in_results)
        personal = (scan.personal_in_arguments, scan.personal_in_results)
        if {*secrets} != {SecretAction.OFF} or {*personal} != {PersonalDataAction.OFF}:
            raise _deny("spec.scan of the ToolServer requires a scan")
        return value

    async def scan_result(self, value: Any, scan: Scan, *, size: int = 0) -> Any:
        """Return the result, which needs no scan: otherwise the call was denied."""
        return value

    def redact_json(self, value: Any) -> str:
        """Return a text that stands for the value."""
        return _WITHHELD

    def redact_message(self, text: str) -> str:
        """Return a text that stands for the message."""
        return _WITHHELD

    async def redact_value(self, value: Any, *, size: int) -> Any:
        """Raise ToolCallError (DeniedByPolicy): no approver may see what was not scanned."""
        raise _deny("an approval shows only arguments that were scanned")


def _deny(cause: str) -> Exception:
    return build_denial(ErrorReason.DENIED_BY_POLICY, f"{cause}, and this broker has no scanner")
