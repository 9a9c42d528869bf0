"""One question in two ways: the tool's whole answer returned as a direct call does, and the answer computed in code."""

from saving import measure, run_task

DIRECT = """
from servers.expenses import get_expenses
await get_expenses(user_id="u-42", category="food")
"""
CODE = """
from servers.expenses import get_expenses
rows = await get_expenses(user_id="u-42", category="food")
round(sum(row["amount"] for row in rows), 2)
"""


def task(client):
    direct, code = (client.run(each, tools=["expenses.*"], use_case="filtering") for each in (DIRECT, CODE))
    sums = [measure(client, [run]) for run in (direct, code)]
    print(f"a model reads {sums[0].read_tokens:,} tokens of the whole answer, and {sums[1].read_tokens:,} of the sum")
    return [code]


if __name__ == "__main__":
    run_task(task)
