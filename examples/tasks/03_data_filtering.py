"""03: ten thousand rows come from a spreadsheet, and five of them leave the sandbox."""

from saving import run_task

CODE = """
from servers.sheets import get_sheet

rows = await get_sheet({"sheetId": "abc123"})
pending = [row for row in rows if row["Status"] == "pending"]
print(f"{len(pending)} of {len(rows)} orders are pending; the largest:")
for row in sorted(pending, key=lambda row: -row["Amount"])[:5]:
    print(f"{row['OrderId']} {row['Customer']:<14} {row['Amount']:>8.2f}")
"""


def task(client):
    return [client.run(CODE, tools=["sheets.get_sheet"], use_case="filtering")]


if __name__ == "__main__":
    run_task(task)
