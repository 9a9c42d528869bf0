"""Pairs of words of queries that mean other words, and words that mean nothing there."""

from typing import Final

SAME_PHRASES: Final[dict[str, str]] = {
    "bug report": "issue",
    "feature request": "issue",
    "merge request": "pull request",
    "working copy": "git",
}
"""Words that replace a pair of adjacent words of a query."""

PHRASES: Final[dict[str, str]] = {
    "add": "write down",
    "allowed": "get at",
    "assign": "give to, hand over",
    "branch": "line of, try out",
    "calculate": "work out",
    "cancel": "call off",
    "checkout": "back to, change branch, change over, check out, go back, over to, put back, switch to",
    "commit": "check in, made to",
    "cost": "per month",
    "count": "how many",
    "create": "log a, put together, set up, sign up, spin up",
    "current": "what time",
    "delete": "clean up, for good, get rid, not cut, out of, take away, take back, take down, take out, throw away, "
    "throw out",
    "deploy": "go live, make live",
    "diff": "what changed",
    "divide": "each pay, everyone pay",
    "docs": "api reference, how do",
    "documentation": "api reference",
    "edge": "edge function",
    "edit": "take out",
    "evaluate": "work out",
    "extensions": "turned on",
    "fetch": "web page",
    "fork": "my own, own copy",
    "get": "find out, look up",
    "history": "sum up, what happened",
    "info": "how big, how heavy, how old, last touched",
    "issue": "to do",
    "key": "access token",
    "latest": "up to",
    "list": "directory contents, how many",
    "log": "log out, who changed, who wrote",
    "logs": "what happened",
    "me": "logged in, my account, who am",
    "merge": "bring in, go live, in together, make live",
    "move": "better name, from now, over to",
    "multiple": "at once, in one, one go",
    "pause": "on hold, shut down, to sleep",
    "performance": "speed up",
    "plan": "how far",
    "post": "let know",
    "pull": "against main",
    "push": "in one, one go",
    "query": "how many",
    "read": "look at",
    "rebase": "catch up",
    "relations": "belong together, reports to, works for",
    "reset": "back to, begin again, clean up, put back, roll back, start over, step back",
    "restore": "again to, get back, put back, up again",
    "review": "look over, sign off, signed off",
    "run": "kick off",
    "search": "find out, look through, look up, open source, public code",
    "sequential": "bit by, step by",
    "size": "how big, how heavy, how large",
    "sizes": "disk space, most space",
    "staged": "be committed, would go",
    "status": "green on, modified files, pass on",
    "sub": "part of",
    "subtract": "take away",
    "sum": "add up",
    "switch": "change branch",
    "thread": "follow ups",
    "time": "how late, how long, what day",
    "toggle": "turn off, turn on",
    "trigger": "kick off",
    "trip": "how far",
    "unstaged": "not added, not staged, not yet",
    "update": "bring up, catch up, close it, closed as, from now, set to, to date",
    "write": "write down",
}
"""Pairs of adjacent words of a query, separated by commas, by the word of tools that they mean."""

IGNORED: Final = (
    "a about after again against already also although always am among an and any anybody anyone anything anyway are "
    "around as at awaiting back be because becoming been being believe besides beyond but by came can cannot cant "
    "could couldn current d did didn do does doesn doing don done during each either else enough even ever everything "
    "exactly exist few for from give goes going got had hadn has hasn have haven he hello her here hers hey hi him "
    "himself his how however i if im in into is isn it its just kind least less let like likely little ll lot m many "
    "may mcp me might mine more most much must my myself need never nobody none now of often ok okay on once one only "
    "onto or other others otherwise ought our ours own per perhaps please possible pretty quite rather re really s "
    "same she should since so some somebody somehow someone something soon still stuff such sure t than thanks that "
    "the their them then there these thing things this those though through to too tool tools toward until up us use "
    "used using ve very want was wasn we well were weren what when where whether which while who whom whose will with "
    "without won would wouldn yes you your"
)
"""Words of queries that are ignored, separated by spaces."""

POLITE: Final = "can could i let like me need now please then to want would you"
"""Words before the verb of a request, separated by spaces."""
