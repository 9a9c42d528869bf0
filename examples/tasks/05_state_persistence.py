"""05: two executions, hours or pods apart. The second continues with the file that the first wrote to a workspace."""

from saving import run_task

FIRST = """
import json
from servers.expenses import get_expenses

rows = await get_expenses(user_id="u-42")
totals = {}
for row in rows:
    totals[row["category"]] = round(totals.get(row["category"], 0) + row["amount"], 2)
with open("totals.json", "w") as file:
    json.dump(totals, file)
f"{len(rows)} rows in {len(totals)} categories"
"""
SECOND = """
import json

totals = json.load(open("totals.json"))
max(totals.items(), key=lambda item: item[1])
"""


def task(client):
    first = client.run(FIRST, tools=["expenses.get_expenses"], workspace="example-05", use_case="workflow")
    return [first, client.run(SECOND, workspace="example-05", use_case="workflow")]


if __name__ == "__main__":
    run_task(task)
