"""Two agents that work together: one collects into files, the other one reports, and they share a workspace.

Each has a conversation of its own, and reads only names and sums of the other's work. The models are scripts, so that
no key is needed; with `AnthropicProvider()` in place of `OfflineProvider(...)` they are real ones.
"""

import asyncio
import os

from mcp_exec_client import AsyncClient
from mcp_exec_client.agent import Agent, OfflineProvider
from saving import run_task

TEAM = f"team-{os.getpid()}"
COLLECT = """
import asyncio, json
from servers.expenses import get_expenses

people = ["u-42", "u-43", "u-44"]
found = await asyncio.gather(*(get_expenses(user_id=who) for who in people))
for who, rows in zip(people, found):
    with open(f"{who}.json", "w") as file:
        json.dump(rows, file)
print(sum(map(len, found)), "rows in", len(people), "files")
"""
REPORT = """
import json, pathlib
from collections import Counter

totals = Counter()
for path in pathlib.Path().glob("u-*.json"):
    for row in json.loads(path.read_text()):
        totals[row["category"]] += row["amount"]
print("largest:", ", ".join(f"{category} {total:.0f}" for category, total in totals.most_common(3)))
"""


def play(code, answer):
    """Return a model that runs one block of code and answers."""
    use = {"type": "tool_use", "id": "", "name": "execute_code", "input": {"code": code}}
    return OfflineProvider([[use], answer])


async def work_together():
    """Let the second agent begin when the first one has answered; a workspace has one writer at a time anyhow."""
    shared = {"user": TEAM, "workspace": TEAM}
    async with AsyncClient() as client:
        collector = Agent(
            client,
            play(COLLECT, "The expenses of the team are in u-*.json."),
            tools=["expenses.get_expenses"],
            conversation=f"{TEAM}-collector",
            **shared,
        )
        reporter = Agent(
            client,
            play(REPORT, "These are the three largest categories."),
            tools=[],  # it needs no tool, only the files
            conversation=f"{TEAM}-reporter",
            **shared,
        )
        handed_over = await collector.run("Collect the expenses of the team.")
        await reporter.run(f"Report the largest categories. {handed_over}")


def task(client):
    try:
        asyncio.run(work_together())
        names = [each.name for role in ("collector", "reporter") for each in client.list(conversation=f"{TEAM}-{role}")]
        return [client.get(name) for name in names]
    finally:
        client.workspaces.delete(TEAM, user=TEAM)


if __name__ == "__main__":
    run_task(task)
