"""What a person sees of a task: steps, output of code, and approvals, on standard error."""

import asyncio
import sys
from typing import TYPE_CHECKING, Final

from mcp_exec_client.cli.terminal import escape_line, print_note

if TYPE_CHECKING:
    from mcp_exec_client.agent import AgentEvent, ApprovalAnswer, ApprovalQuestion, OnApproval

_WIDTH: Final = 100


async def print_event(event: "AgentEvent") -> None:
    """Print a step, or a line of output that the code writes."""
    from mcp_exec_client.agent import AgentStep, RunEvent, TextDropped
    from mcp_exec_client.events import TextEvent

    if isinstance(event, AgentStep):
        first, *more = event.text.strip().splitlines() or [""]
        text = first[:_WIDTH] + (f" ... ({len(more)} more lines)" if more else "")
        took = f"{event.milliseconds:.0f} ms" if event.milliseconds else ""
        print_note(f"{'!' if event.failed else ' '} {event.kind:<9} {took:>8}  {text}")
    elif isinstance(event, RunEvent) and isinstance(event.event, TextEvent):
        for line in event.event.text.splitlines():
            print_note(f"  | {line}")
    elif isinstance(event, TextDropped):
        print_note(f"! {event.reason}; the request is sent again")


def find_on_approval() -> "OnApproval | None":
    """Return the question to the person at the terminal, or None if there is none: then somebody else decides."""
    return _ask if sys.stdin.isatty() and sys.stderr.isatty() else None


async def _ask(question: "ApprovalQuestion") -> "ApprovalAnswer":
    note = "" if question.arguments_complete else " (not all arguments)"
    sys.stderr.write(f"  approve {escape_line(question.tool)} {escape_line(question.arguments)}{note}? [y/N] ")
    sys.stderr.flush()
    answer = await asyncio.to_thread(sys.stdin.readline)
    return answer.strip().lower() in ("y", "yes")
