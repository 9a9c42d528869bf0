"""Code that worked is saved as a skill, and the next execution imports it instead of carrying it again."""

from saving import run_task

SAVE = """
from skills import save_skill

async def run(user: str, over: float) -> dict:
    "Count the expenses of a person over an amount, and add them up."
    from servers.expenses import get_expenses

    rows = [row for row in await get_expenses(user_id=user) if row["amount"] > over]
    return {"count": len(rows), "total": round(sum(row["amount"] for row in rows), 2)}

save_skill("large-expenses", run, "Count the expenses of a person over an amount.", tools=["expenses.get_expenses"])
await run("u-42", 100)
"""
USE = """
from skills.large_expenses import run
[await run(user, 500) for user in ("u-42", "u-7")]
"""


def task(client):
    runs = [client.run(code, tools=["expenses.get_expenses"], use_case="filtering") for code in (SAVE, USE)]
    for version in client.skills.versions("large-expenses"):  # drafts of this caller; a team would approve the skill
        client.skills.delete("large-expenses", version.version)
    return runs


if __name__ == "__main__":
    run_task(task)
