"""Workflow: a thousand expenses of each person, and only the summary leaves the sandbox."""

from saving import run_task

CODE = """
import asyncio
from servers.expenses import get_expenses

people = await asyncio.gather(*(get_expenses(user_id=user) for user in team))
large = [row for rows in people for row in rows if row["amount"] > 500]
print(f"{len(large)} of {sum(map(len, people))} expenses are over $500")
{user: round(sum(row["amount"] for row in rows), 2) for user, rows in zip(team, people)}
"""


def task(client):
    context = {"team": ["u-1", "u-2", "u-3"]}
    return [client.run(CODE, tools=["expenses.get_expenses"], context=context, use_case="filtering")]


if __name__ == "__main__":
    run_task(task)
