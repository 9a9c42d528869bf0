"""Three servers in one block: orders from a spreadsheet, a file with the report on a server, a line in a channel."""

from saving import run_task

CODE = """
from servers.filesystem import write_file
from servers.sheets import get_sheet
from servers.slack import post_message

rows = await get_sheet({"sheetId": "abc123"})
totals = {}
for row in rows:
    totals[row["Customer"]] = totals.get(row["Customer"], 0) + row["Amount"]
best = sorted(totals.items(), key=lambda item: -item[1])
await write_file(path="/data/customers.csv", content="".join(f"{name},{total:.2f}\\n" for name, total in best))
await post_message(channel="C200", text=f"Best customer: {best[0][0]}")
{"customers": len(best), "best": best[0][0]}
"""


def task(client):
    tools = ["sheets.get_sheet", "filesystem.write_file", "slack.post_message"]
    return [client.run(CODE, tools=tools, use_case="workflow")]


if __name__ == "__main__":
    run_task(task)
