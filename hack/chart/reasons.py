"""The tables of reasons and notes in the documentation, generated from the types."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mcp_exec_api.code_findings import NoteKind
from mcp_exec_api.reasons.execution import Reason, SessionReason
from mcp_exec_api.reasons.server import ServerReason

_BEGIN: Final = "<!-- generated: begin -->"
_END: Final = "<!-- generated: end -->"


def update_page(page: Path) -> str:
    """Return docs/kubectl/troubleshooting.md with the table of an execution's reasons between its markers."""
    return _update(page, [reason for reason in Reason if reason is not Reason.NONE])


def update_servers_page(page: Path) -> str:
    """Return docs/platform/tool-servers.md with the table of a ToolServer's reasons between its markers."""
    return _update(page, list(ServerReason))


def update_sessions_page(page: Path) -> str:
    """Return docs/services/sessions.md with the table of a session's reasons between its markers."""
    return _update(page, [reason for reason in SessionReason if reason is not SessionReason.NONE])


def update_notes_page(page: Path) -> str:
    """Return docs/kubectl/executions.md with the table of kinds of notes between its markers."""
    return _replace(
        page, ["| kind | what it says |", "|---|---|", *(f"| `{kind}` | {kind.meaning} |" for kind in NoteKind)]
    )


def _update(page: Path, reasons: Sequence[Reason | ServerReason | SessionReason]) -> str:
    rows = [f"| `{reason}` | {reason.meaning} | {reason.remedy} |" for reason in reasons]
    return _replace(page, ["| reason | what happened | what to do |", "|---|---|---|", *rows])


def _replace(page: Path, rows: list[str]) -> str:
    text = page.read_text()
    table = "\n".join([_BEGIN, *rows, _END])
    return text[: text.index(_BEGIN)] + table + text[text.index(_END) + len(_END) :]
