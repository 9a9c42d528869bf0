"""04: loops, conditions and errors. A person who is over the limit gets a warning in a channel; bad input is caught."""

from saving import run_task

CODE = """
from client import ToolError
from servers.expenses import get_expenses
from servers.slack import post_message

warned, refused = [], []
for user in users:
    try:
        rows = await get_expenses(user_id=user, category="food")
    except ToolError as error:
        refused.append(user)
        continue
    total = sum(row["amount"] for row in rows)
    if total > limit:
        await post_message(channel="C200", text=f"{user} spent {total:.2f} on food")
        warned.append(user)
{"warned": warned, "refused": refused}
"""


def task(client):
    context = {"users": ["u-42", "u-7", ""], "limit": 1000}
    return [client.run(CODE, tools=["expenses.*", "slack.post_message"], context=context, use_case="workflow")]


if __name__ == "__main__":
    run_task(task)
