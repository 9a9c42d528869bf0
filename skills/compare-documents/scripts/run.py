"""Comparison of two texts."""

import difflib
from collections import Counter

_MAX_LINES = 50_000
_MAX_PAIRS = 5_000_000
"""Pairs of equal lines that are compared exactly. Beyond, frequent lines do not count as a match of their own."""
_WIDTH = 300


def run(old: str, new: str, context: int = 2, max_lines: int = 200) -> dict:
    """Return the similarity of two texts (0 to 1), the numbers of changed lines, and a unified diff.

    Each text may have 50,000 lines. `complete` says whether the diff has all changes.

    Args:
        old: the older text.
        new: the newer text.
        context: equal lines that the diff shows around a change.
        max_lines: maximum number of lines of the diff; each is cut after 300 characters.
    """
    before, after = old.splitlines(), new.splitlines()
    if max(len(before), len(after)) > _MAX_LINES:
        raise ValueError(f"a text has {max(len(before), len(after))} lines; at most {_MAX_LINES} can be compared")
    counts = Counter(after)
    pairs = sum(number * counts[line] for line, number in Counter(before).items())
    matcher = difflib.SequenceMatcher(a=before, b=after, autojunk=pairs > _MAX_PAIRS)
    changes = {"added": 0, "removed": 0, "changed": 0}
    for tag, first, last, start, end in matcher.get_opcodes():
        if tag != "equal":
            both = min(last - first, end - start)
            changes["changed"] += both
            changes["removed"] += last - first - both
            changes["added"] += end - start - both
    lines = _format(matcher, before, after, context)
    return {
        "similarity": round(matcher.ratio(), 3),
        **changes,
        "diff": "\n".join(line[:_WIDTH] for line in lines[:max_lines]),
        "complete": len(lines) <= max_lines and all(len(line) <= _WIDTH for line in lines),
    }


def _format(matcher: difflib.SequenceMatcher, before: list[str], after: list[str], context: int) -> list[str]:
    """Return the lines of a unified diff, from the comparison that was made already."""
    lines: list[str] = []
    for group in matcher.get_grouped_opcodes(context):
        (_, first, _, start, _), (_, _, last, _, end) = group[0], group[-1]
        lines.append(f"@@ -{first + 1},{last - first} +{start + 1},{end - start} @@")
        for tag, i, j, k, m in group:
            if tag == "equal":
                lines += [f" {line}" for line in before[i:j]]
            else:
                lines += [f"-{line}" for line in before[i:j]]
                lines += [f"+{line}" for line in after[k:m]]
    return lines
