"""The tables of reasons in the documentation, generated from the types."""

from pathlib import Path
from typing import Final

from mcp_exec_api.reasons.execution import Reason
from mcp_exec_api.reasons.server import ServerReason
from mcp_exec_api.reasons.session import SessionReason

_BEGIN: Final = "<!-- reasons: begin -->"
_END: Final = "<!-- reasons: end -->"


def update_page(page: Path) -> str:
    """Return docs/kubectl/troubleshooting.md with the table of an execution's reasons between its markers."""
    return _update(page, [reason for reason in Reason if reason is not Reason.NONE])


def update_servers_page(page: Path) -> str:
    """Return docs/platform/tool-servers.md with the table of a ToolServer's reasons between its markers."""
    return _update(page, list(ServerReason))


def update_sessions_page(page: Path) -> str:
    """Return docs/services/sessions.md with the table of a session's reasons between its markers."""
    return _update(page, [reason for reason in SessionReason if reason is not SessionReason.NONE])


def _update(page: Path, reasons: list[Reason] | list[ServerReason] | list[SessionReason]) -> str:
    text = page.read_text()
    rows = [f"| `{reason}` | {reason.meaning} | {reason.remedy} |" for reason in reasons]
    table = "\n".join([_BEGIN, "| reason | what happened | what to do |", "|---|---|---|", *rows, _END])
    return text[: text.index(_BEGIN)] + table + text[text.index(_END) + len(_END) :]
