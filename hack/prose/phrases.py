"""What the project does not write, and what it writes instead."""

from typing import Final

PHRASES: Final = {
    r"\banew\b": "write 'again' or name what happens",
    r"\bfor want of\b": "write 'because there is no'",
    r"\b(tells?|told|hears?|heard)\b(?! apart)": "software sends, receives, reads, logs or reports",
    r"\b(no|without a) hand\b": "write 'unattended'",
    r"\bwhat is short\b": "name what is missing",
    r"\bwho waits\b": "name the waiting execution",
    r"\bin vain\b": "write 'without success'",
    r"\bnone the less\b": "write 'nevertheless', or leave it out",
    r"\bbeside\b": "write 'besides', 'next to' or 'in addition to'",
    r"\bwhere (there is|there are|it is|it has|none|nobody|nothing|somebody|no)\b": "a condition starts with 'if'",
    r"\bis no good\b": "write 'is invalid'",
    r"\bof (its|their|his) own accord\b": "write 'automatically'",
    r"\bgive[sn]? out\b|\bhanded out\b|\bput back\b": "a pod is claimed, bound and released",
    r"\bkeepers?\b": "the pool controller",
    r"\bmixtures?\b": "the pool's partitions",
    r"\bbadges?\b": "a grant or a service token",
    r"\bsweeps?\b": "resync",
    r"\bknows? (of|nothing|no)\b": "software has, caches or stores",
}
"""Regular expressions, without regard to case, and the advice for each."""

_PREPOSITIONS: Final = (
    "about|after|against|at|before|by|for|from|in|into|of|on|over|through|to|under|until|with|without|during|between"
)
RATES: Final = {
    rf"\b({_PREPOSITIONS}) which\b": "write a second sentence, or 'that', 'where', 'when'",
    r"\balone\b": "write 'only' before what it limits",
}
"""Regular expressions for what reads like a translation if it is frequent, and the advice for each."""

MAX_RATE: Final = 0.4
"""Occurrences of each of these in 1,000 lines of code and prose. kopf, starlette and the MCP SDK have about 0.3."""

GENERATED: Final = (
    "charts/mcp-exec/crds/",
    "charts/mcp-exec/README.md",
    "charts/mcp-exec/values.yaml",
    "crds/mcp-exec.dev_",
    "docs/reference/",
)
"""Files whose text stands elsewhere."""

KNOWN_WORDS: Final = (
    "aks",
    "dependant",
    "ot",
    "ser",
    "fo",
    "te",
    "nd",
    "hist",
    "unparseable",
    "als",
    "ans",
    "thats",
    "wiat",
    "valeu",
    "gatway",
    "notin",
)
"""Words that codespell would correct and that are right here: names, abbreviations, parts of test data."""
