"""Ten thousand rows stay in the sandbox; five lines and one number leave it."""

rows = [{"id": number, "amount": (number * 7919) % 1000, "paid": number % 3 == 0} for number in range(10_000)]
due = [row for row in rows if row["amount"] > 990 and not row["paid"]]
for row in sorted(due, key=lambda row: (-row["amount"], row["id"]))[:5]:
    print(f"{row['id']:>5} {row['amount']:>4}")
{"rows": len(rows), "due": len(due)}
