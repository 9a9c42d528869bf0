"""The table of reasons in docs/kubectl/troubleshooting.md, generated from the type."""

from pathlib import Path
from typing import Final

from mcp_exec_api.reasons import Reason

_BEGIN: Final = "<!-- reasons: begin -->"
_END: Final = "<!-- reasons: end -->"


def update_page(page: Path) -> str:
    """Return the page's text with the table of all reasons between its markers."""
    text = page.read_text()
    rows = [f"| `{reason}` | {reason.meaning} | {reason.remedy} |" for reason in Reason if reason is not Reason.NONE]
    table = "\n".join([_BEGIN, "| reason | what happened | what to do |", "|---|---|---|", *rows, _END])
    return text[: text.index(_BEGIN)] + table + text[text.index(_END) + len(_END) :]
