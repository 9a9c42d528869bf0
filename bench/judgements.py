"""Whether a task of the token benchmark succeeded: by its answer, or by what it left on the servers."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

STALE = (1193, 1183, 1173, 1163, 1153, 1143)
NOTED = ("Ana Ruiz", "Bo Chen", "Checkout", "Billing")
_DAYS = ("2026-10-01", "2026-10-31")


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What a task must have done. Code calls tools as any code does."""

    answer: Sequence[str] = ()
    """Patterns that the answer must have; numbers have no thousands separators."""
    before: str = ""
    """Code that takes back what an earlier run of the task left."""
    after: str = ""
    """Code whose result is whether the task's work is done. Its variable `before` has the result of `before`."""

    def accepts(self, answer: str) -> bool:
        """Return whether an answer has all that it must have."""
        text = re.sub(r"(?<=\d)[,\u202f ](?=\d{3}(?!\d))", "", answer)
        return all(re.search(pattern, text, re.IGNORECASE | re.DOTALL) for pattern in self.answer)


def convert_time(now: datetime) -> str:
    """Return a pattern of the time in Tokyo if it is 16:30 in Berlin on this day."""
    then = now.astimezone(ZoneInfo("Europe/Berlin")).replace(hour=16, minute=30).astimezone(ZoneInfo("Asia/Tokyo"))
    return f"{then:%H:%M}|{then:%I:%M} ?[ap]m".replace("|0", "|0?")


JUDGEMENTS = {
    "one small call": Judgement(answer=["20\\.9"]),
    "no tool needed": Judgement(answer=["conflict"]),
    "convert a time": Judgement(answer=[convert_time(datetime.now(UTC))]),
    "plan a journey": Judgement(answer=["Flagstaff", "Las Vegas", "Boise", r"574\.(78|8)|575\b"]),
    "large expenses of a year": Judgement(
        answer=[rf"\b{amount}" for amount in
                ("712.28", "775.14", "840.78", "893.57", "869.63", "804.77", "726.6", "869.8")]
    ),
    "orders by status": Judgement(
        answer=[rf"\b{value}" for value in
                ("62\\b", "704\\b", "44\\b", "190\\b", "82314.71", "869772.62", "50550.96", "238544.72")]
    ),
    "sales by country in SQL": Judgement(
        answer=["Portugal.*(UK|United Kingdom).*(USA|United States).*Germany.*Norway"]
    ),
    # an earlier deployment of the same version is no longer among the newest messages
    "wait for a deployment": Judgement(
        answer=["complete|done|finished"],
        before="from servers.slack import post_message\n\nfor number in range(5):\n"
        '    await post_message(channel="#deployments", text=f"note {number}")',
    ),
    "report expenses to a channel": Judgement(
        before="from servers.slack import get_channel_history\n"
        'len(await get_channel_history(channel="#general", limit=1000))',
        after=f"""\
from collections import Counter
from servers.expenses import get_expenses
from servers.slack import get_channel_history

messages = await get_channel_history(channel="#general", limit=1000)
text = " ".join(message["text"] for message in messages[: len(messages) - before]).replace(",", "")
totals = [
    total
    for who in ("u-42", "u-43", "u-44")
    for total in sum(
        (Counter({{row["category"]: row["amount"]}})
         for row in await get_expenses(user_id=who, since="{_DAYS[0]}", until="{_DAYS[1]}")), Counter()
    ).values()
]
bool(totals) and all(f"{{total:.2f}}".rstrip("0").rstrip(".") in text for total in totals)
""",
    ),
    "correct a wrong query": Judgement(answer=[r"\b(no|none|0|zero)\b"]),
    "one section of a long document": Judgement(
        answer=["Sandboxes and callers against stored files", "Workspaces on the user.s machine"]
    ),
    "hottest of eleven cities": Judgement(answer=["Mumbai.*Cairo.*Phoenix"]),
    "triage old issues": Judgement(
        before=f"""\
from servers.github_official import issue_write

for number in {STALE}:
    await issue_write(method="update", owner="octo", repo="site", issue_number=number, state="open")
""",
        after=f"""\
from servers.github_official import list_issues

found = await list_issues(owner="octo", repo="site", state="CLOSED", perPage=100)
sorted(issue["number"] for issue in found["issues"]) == sorted({STALE})
""",
    ),
    "commits by author": Judgement(
        answer=[rf"{name}\D*{count}\b" for name, count in
                (("Bo Chen", 25), ("Ana Ruiz", 25), ("Carla Meyer", 5), ("Dan Okoye", 5))]
    ),
    "copy a file to a sheet": Judgement(
        before="""\
from client import ToolError
from servers.sheets import get_sheet

try:
    count = len(await get_sheet(sheet_id="readings", limit=10_000))
except ToolError:
    count = 0
count
""",
        after="from servers.sheets import get_sheet\n"
        'len(await get_sheet(sheet_id="readings", limit=10_000)) == before + 80',
    ),
    "remember notes": Judgement(
        before=f"from servers.memory import delete_entities\n\nawait delete_entities(entityNames={list(NOTED)})",
        after=f"""\
from servers.memory import read_graph

known = {{each["name"]: each["observations"] for each in (await read_graph())["entities"]}}
all(len(known.get(name, ())) >= 2 for name in {NOTED})
""",
    ),
    "advice on a project": Judgement(answer=["sessions", "audit"]),
}  # fmt: skip
"""By the name of the task."""
