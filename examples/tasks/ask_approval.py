"""A call that needs a person: the code waits at the call, an approver decides, and the decision is the answer.

The approver has a key of its own, `$MCP_EXEC_APPROVER_API_KEY`; a person would use `mcp-exec approve` or a form of the
MCP client.
"""

import os
import time

from mcp_exec_client import Client
from saving import run_task

SECONDS = 60
CODE = """
from client import ToolDenied
from servers.announcements import list_channels, post_message

answers = []
for text in ("The release is out.", "Everybody gets a bonus."):
    try:
        await post_message(channel="#general", text=text)
        answers.append(f"posted: {text}")
    except ToolDenied as error:
        answers.append(f"not posted: {text} ({error})")
answers
"""


def find_question(approver, execution, *, decided=""):
    """Return the approval that the execution waits for. The list may still have one that was just decided."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        for pending in approver.pending_approvals().items:
            if pending.execution == execution and pending.id != decided:
                return pending
        time.sleep(0.2)
    raise SystemExit(f"{execution} asked nothing for {SECONDS} seconds")


def task(client):
    if not (key := os.environ.get("MCP_EXEC_APPROVER_API_KEY")):
        raise SystemExit("set MCP_EXEC_APPROVER_API_KEY to a key that may approve; `make examples` does")
    run = client.submit(CODE, tools=["announcements.*"], use_case="workflow")
    with Client(api_key=key) as approver:
        first = find_question(approver, run.name)
        print("asked:", first.tool, first.arguments)
        approver.approve(run.name, first.id, arguments_digest=first.arguments_digest)
        second = find_question(approver, run.name, decided=first.id)
        approver.deny(run.name, second.id, arguments_digest=second.arguments_digest, comment="that is not decided")
    return [client.wait(run.name)]


if __name__ == "__main__":
    run_task(task)
