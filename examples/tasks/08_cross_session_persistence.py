"""08: three executions, each in a sandbox of its own. Files of a workspace carry the work from one to the next."""

from saving import run_task

COLLECT = """
import csv
from servers.sheets import get_sheet

rows = await get_sheet({"sheetId": "abc123"})
with open("orders.csv", "w", newline="") as file:
    writer = csv.DictWriter(file, ["Customer", "Amount", "Status"], extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
len(rows)
"""
ANALYZE = """
import csv, json

totals = {}
with open("orders.csv", newline="") as file:
    for row in csv.DictReader(file):
        if row["Status"] != "cancelled":
            totals[row["Customer"]] = totals.get(row["Customer"], 0) + float(row["Amount"])
with open("totals.json", "w") as file:
    json.dump(totals, file)
len(totals)
"""
REPORT = """
import json

with open("totals.json") as file:
    totals = json.load(file)
lines = [f"{name}: {total:.2f}" for name, total in sorted(totals.items(), key=lambda item: -item[1])]
with open("report.md", "w") as file:
    file.write("# Orders by customer\\n\\n" + "\\n".join(lines) + "\\n")
lines[:3]
"""


def task(client):
    first = client.run(COLLECT, tools=["sheets.get_sheet"], workspace="example-08", use_case="workflow")
    others = [client.run(code, workspace="example-08", use_case="workflow") for code in (ANALYZE, REPORT)]
    return [first, *others]


if __name__ == "__main__":
    run_task(task)
