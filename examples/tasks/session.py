"""A session: three executions. Variables, imports and functions stay in its pod."""

from saving import run_task

STEPS = (
    """
from servers.sheets import get_sheet
rows = await get_sheet({"sheetId": "abc123"})
len(rows)
""",
    """
def total(status):
    return round(sum(row["Amount"] for row in rows if row["Status"] == status), 2)
by_status = {status: total(status) for status in {row["Status"] for row in rows}}
len(by_status)
""",
    "max(by_status, key=by_status.get), max(by_status.values())",
)


def task(client):
    with client.session() as session:  # without a name: it ends with the block
        return [session.run(code, tools=["sheets.get_sheet"], use_case="workflow") for code in STEPS]


if __name__ == "__main__":
    run_task(task)
