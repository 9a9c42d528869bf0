"""Tables of what the control plane's time goes into: the knee, profiles, an execution's timeline, rates by core."""

from typing import Final

from figures import Results, Row, Rows, read_load, read_processor

LEAST_SHARE: Final = 4.0
"""Percentage of a process's time below which an activity has no row of its own."""
REST: Final = "all else"
_LAUNCHES: Final = "a sandbox is created and Ready, cold; no code; closed loop of 600"
PUBLISHED: Final[Rows] = {
    "agent-sandbox, PR 1251": {
        "what": "a claim gets a warm sandbox and is Ready; no code; 2 s later it is deleted", "rate": 45, "cores": 16,
        "p50": 92, "p99": 376, "by core": 2.8,
    },
    "agent-sandbox, PR 1264, 16 cores": {
        "what": _LAUNCHES, "rate": 91, "cores": 16, "by core": 5.7, "server": 102, "by used core": 9.8,
    },
    "agent-sandbox, PR 1264, 8 cores, saturated": {
        "what": _LAUNCHES, "rate": 60, "cores": 8, "by core": 7.5, "server": 95, "by used core": 10.5,
    },
}  # fmt: skip
"""Rates of kubernetes-sigs/agent-sandbox; `server` is 9.25 cores at 91/s and 5.7 at 60/s, from the same texts."""
_WRITERS: Final = {"admin": "scheduler, controllers and nodes, or of the floor's client"}
_MODES: Final = {
    "single": ("mcp-exec", "a request gets a warm sandbox, runs code and has its output; the pod is replaced"),
    "reuse": ("mcp-exec with reuse", "the same, in a pod of the same user that is cleaned"),
}
_KNEES: Final = {"single": "single use", "reuse": "with reuse", "session": "in sessions"}


def read_knee(results: Results) -> Rows:
    """Return rows with a field for each side: the rate of each mode, then what else is known of single use."""
    rows: Rows = {}
    for mode, label in _KNEES.items():
        if (both := results["knee"].get(mode)) is not None:
            rates = {side: both[side]["knee"]["rate"] for side in ("floor", "mcp-exec")}
            rows[f"executions/s, {label}"] = {**rates, "ratio": both["ratio"]}
    for side in ("floor", "mcp-exec"):
        knee = results["knee"]["single"][side]["knee"]
        found = {
            "p50, ms": knee["p50"], "p99, ms": knee["p99"],
            **{f"{part}, processor ms": value for part, value in knee["processor ms"].items()},
            **{f"writes of {_WRITERS.get(user, user)}": value for user, value in knee["writes"].items()},
        }  # fmt: skip
        for label, value in found.items():
            rows.setdefault(label, {})[side] = value
    return rows


def read_profiles(results: Results) -> Rows:
    """Return share and milliseconds of each activity with at least LEAST_SHARE percent, by process."""
    rows: Rows = {}
    for view, found in results["profiles"]["views"].items():
        shown = {name: row for name, row in found.items() if row["share"] >= LEAST_SHARE and name != "other"}
        rest = [row for name, row in found.items() if name not in shown]
        rows |= {f"{view}: {name}": dict(row) for name, row in shown.items()}
        rows[f"{view}: {REST}"] = {
            field: round(sum(row[field] for row in rest), digits) for field, digits in (("share", 1), ("ms", 2))
        }
    return rows


def read_timeline(results: Results) -> Rows:
    """Return a row for each stage, with fields for each number of clients."""
    rows: Rows = {}
    for at_once, level in results["timeline"]["concurrency"].items():
        for stage, figures in level["stages"].items():
            rows.setdefault(stage, {}).update({f"{name} of {at_once}": value for name, value in figures.items()})
    return rows


def read_cores(results: Results) -> Rows:
    """Return rates under steady load, divided by all cores of the machine and by what the API server used."""
    loads, cores = results["sustained"], results["sustained"]["machine"]["cores"]
    server: Row = read_processor(results)["API server"]
    rows: Rows = {}
    for mode, (label, what) in _MODES.items():
        found = loads[mode]
        milliseconds, rate = server[mode], found["rate"]
        rows[f"{label}, {rate:g}/s"] = {
            "what": what, "rate": rate, "cores": cores, **{name: read_load(found)[name] for name in ("p50", "p99")},
            "by core": round(rate / cores, 1), "server": milliseconds, "by used core": round(1000 / milliseconds, 1),
        }  # fmt: skip
    return rows
