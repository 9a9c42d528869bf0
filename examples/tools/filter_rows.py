"""Ten thousand rows come from a spreadsheet and stay in the sandbox; five of them leave it."""

from servers.sheets import get_sheet

rows = await get_sheet({"sheetId": "abc123"})
pending = [row for row in rows if row["Status"] == "pending"]
print(f"Found {len(pending)} pending orders of {len(rows)}")
for row in sorted(pending, key=lambda row: -row["Amount"])[:5]:
    print(f"{row['OrderId']} {row['Customer']:<14} {row['Amount']:>8.2f}")
{"rows": len(rows), "pending": len(pending)}
