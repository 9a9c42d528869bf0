"""Tables, page and plot of the token benchmark, from its figures."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "agents" / "savings.md"
ARMS: Final = ("direct, all servers", "direct, needed servers", "code", "hybrid")
_LANGUAGES: Final = {"python": "Python", "typescript": "TypeScript"}
_BLOCK = re.compile(r"(<!-- begin (?P<name>[a-z ]+) -->\n)(?P<text>.*?)(<!-- end -->)", re.DOTALL)
Figures = Mapping[str, Any]


def blocks(figures: Figures) -> dict[str, str]:
    """Return the generated parts of the page by name, as the benchmark prints them."""
    tasks, prices = figures["tasks"], figures["prices"]
    return {
        "setting": _setting(figures),
        "tokens": _task_table(tasks, lambda arm: arm["tokens"], "{:,}"),
        "money": _task_table(tasks, lambda arm: arm["money"]["cached"], "{:.1f}"),
        "pricings": _pricing_table(tasks, prices),
        "winners": _winners(tasks),
        "modes": _mode_table(tasks),
        "levels": _level_table(figures["levels"]),
        "sizes": _size_table(figures["sizes"]),
        "languages": _language_table(figures["languages"]),
        "live": live_table(figures["live"]),
        "published": _published_table(figures["published"]),
        "reported": _reported_table(figures["reported"]),
        "rules": _rule_table(figures["rules"]),
        "changes": _change_table(figures["rules"]),
        "estimate": _estimate_table(figures["estimate"]),
    }


def fill_page(page: str, figures: Figures) -> str:
    """Return the page with its generated parts. Raises KeyError for a part that does not exist."""
    found = blocks(figures)
    return _BLOCK.sub(lambda match: f"{match[1]}\n{found[match['name']]}\n\n{match[4]}", page)


def prose(page: str) -> str:
    """Return the page without its generated parts."""
    return _BLOCK.sub("", page)


def live_line(run: Figures) -> str:
    """Return one run of a task with a real model as a line."""
    verdict = "succeeded" if run["succeeded"] else f"FAILED {run['error']}".strip()
    tokens = f"{run['input']:,} ({run['cached']:,} cached) + {run['output']:,} tokens"
    return f"{run['task']}, {run['arm']}: {run['turns']} turns, {tokens}, {run['seconds']} s: {verdict}"


def live_table(live: Figures | None) -> str:
    """Return what both arms cost with a real model, or that nobody has run it."""
    if live is None:
        return "Not run yet."
    rows = [
        [arm, f"{each['succeeded']} of {each['runs']}", f"{each['input']:,}", f"{each['output']:,}",
         f"{each['money']:,.1f}", each["turns"], each["seconds"]]
        for arm, each in live["arms"].items()
    ]  # fmt: skip
    failed = [f"{run['task']} ({run['arm']})" for run in live["runs"] if not run["succeeded"]]
    prices = "{:g} and {:g}".format(*live["prices"])
    head = ["arm", "succeeded", "input", "output", "thousandths of a dollar", "turns", "median seconds"]
    return "\n".join([
        f"{live['date']}, {live['model']}, {prices} dollars for a million tokens of input and output.",
        f"Failed: {', '.join(failed) or 'none'}.", "", _markdown(head, rows),
    ])  # fmt: skip


def draw(figures: Figures, path: Path) -> None:
    """Draw the tokens of each task by arm, on a logarithmic axis."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    tasks = sorted(figures["tasks"], key=lambda task: task["arms"][ARMS[0]]["tokens"])
    figure, axes = pyplot.subplots(figsize=(10, 7.5), layout="constrained")
    styles = (("#9c2f2f", "o"), ("#d99058", "s"), ("#2f5d9c", "D"), ("#3a8f5c", "x"))
    for arm, (color, marker) in zip(ARMS, styles, strict=True):
        sizes = [task["arms"][arm]["tokens"] for task in tasks]
        axes.scatter(sizes, range(len(tasks)), color=color, marker=marker, label=arm, s=45, zorder=3)
    axes.set_yticks(range(len(tasks)), [task["task"] for task in tasks])
    axes.set_xscale("log")
    axes.set_xlabel("tokens of all requests and answers of the task, without caching (logarithmic)")
    axes.grid(axis="both", color="#dddddd", zorder=0)
    figure.legend(loc="outside lower center", ncols=len(ARMS))
    axes.set_title("Tokens of recorded transcripts by arm")
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


def _markdown(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def _setting(figures: Figures) -> str:
    prompt, prices, tasks = figures["prompt"], figures["prices"], figures["tasks"]
    definitions = tasks[0]["arms"][ARMS[0]]["definitions"]
    return "\n".join([
        f"- {len(tasks)} tasks, {figures['levels']['tools']} tools, whose definitions have {definitions:,} tokens "
        f"({figures['tokenizer']}).",
        f"- Code mode: a system prompt of {prompt['system prompt']:,} tokens and tools of {prompt['tools']:,}.",
        f"- Prices: {prices['input']:g} US dollars per million input tokens, {prices['output']:g} per million output "
        f"tokens, {prices['write']:g} times the input price for a token",
        f"  that is written to the prompt cache, {prices['read']:g} times for one that is read from it.",
    ])  # fmt: skip


def _best(values: Mapping[str, float]) -> str:
    return min(values, key=lambda arm: values[arm])


def _task_table(tasks: Sequence[Figures], value: Any, pattern: str) -> str:
    rows = []
    for task in tasks:
        values = {arm: value(task["arms"][arm]) for arm in ARMS}
        name = task["task"] + (" *" if task["results"] == "synthesised" else "")
        rows.append([name, task["kind"], *(pattern.format(values[arm]) for arm in ARMS), _best(values)])
    sums = {arm: sum(value(task["arms"][arm]) for task in tasks) for arm in ARMS}
    rows.append(["all tasks", "", *(pattern.format(sums[arm]) for arm in ARMS), _best(sums)])
    return _markdown(["task", "kind", *ARMS, "least"], rows)


def _pricing_table(tasks: Sequence[Figures], prices: Figures) -> str:
    names = {"plain": "no caching", "cached": "caching", "warm": "caching, prompt and definitions cached before"}
    rows = []
    for pricing, name in names.items():
        sums = {arm: sum(task["arms"][arm]["money"][pricing] for task in tasks) for arm in ARMS}
        rows.append([name, *(f"{sums[arm]:,.1f}" for arm in ARMS), *(
            f"{100 * (1 - sums['code'] / sums[arm]):+.0f} %" for arm in ARMS[:2])])  # fmt: skip
    return _markdown(["all tasks, thousandths of a dollar", *ARMS, "code saves of all", "code saves of needed"], rows)


def _winners(tasks: Sequence[Figures]) -> str:
    rows = []
    for against in ARMS[:2]:
        for pricing, name in (("plain", "no caching"), ("cached", "caching"), ("warm", "cached before")):
            won = [
                task["task"]
                for task in tasks
                if task["arms"][against]["money"][pricing] < task["arms"]["code"]["money"][pricing]
            ]
            rows.append([f"{against}, {name}", f"{len(won)} of {len(tasks)}", ", ".join(won) or "none"])
    return _markdown(["cheaper than code", "tasks", "which"], rows)


def _mode_table(tasks: Sequence[Figures]) -> str:
    rows = [
        [task["task"], task["rows"], task["calls"], task["hybrid"]["mode"], task["hybrid"]["rule"],
         *(task["arms"][arm]["turns"] for arm in (ARMS[1], "code"))] for task in tasks
    ]  # fmt: skip
    head = ["task", "rows", "calls", "hybrid's mode", "rule", "turns, direct", "turns, code"]
    return _markdown(head, rows)


def _level_table(levels: Figures) -> str:
    rows = [
        ["names, one a line", levels["names as lines"]],
        ["`search_tools`, `name_only`", levels["name_only"]],
        ["`search_tools`, `with_description`", levels["with_description"]],
        ["`search_tools`, `full` (signature, input and output schema)", levels["full"]],
        ["definitions of direct calls", levels["definitions"]],
    ]
    return _markdown(["for 100 tools", "tokens"], [[name, f"{size:,}"] for name, size in rows])


def _published_table(published: Sequence[Figures]) -> str:
    rows = []
    for each in published:
        direct, code = sum(each["direct"].values()), sum(each["code"].values())
        itemised = [" + ".join(f"{name} {size:,}" for name, size in each[arm].items()) for arm in ("direct", "code")]
        rows.append([each["claim"], f"{direct:,}", f"{code:,}", f"{100 * (1 - code / direct):.1f} %", *itemised])
    return _markdown(["claim", "direct", "code", "less", "direct is", "code is"], rows)


def _size_table(sizes: Sequence[Figures]) -> str:
    rows = [
        [each["tools"], each["demo"], f"{each['definitions']:,}", f"{each['direct']:,}", f"{each['code']:,}",
         *(f"{100 * (1 - each[f'code{kind}'] / each[f'direct{kind}']):.1f} %" for kind in ("", " money"))]
        for each in sizes
    ]  # fmt: skip
    head = ["tools", "of them demo", "definitions", "input, direct", "input, code", "less input", "less money, caching"]
    return _markdown(head, rows)


def _language_table(found: Figures) -> str:
    rows = [
        [each["task"], *(f"{each[part][name]:,}" for part in ("code", "tokens") for name in _LANGUAGES)]
        for each in found["tasks"]
    ]
    sums = [sum(each[part][name] for each in found["tasks"]) for part in ("code", "tokens") for name in _LANGUAGES]
    rows.append(["all tasks", *(f"{each:,}" for each in sums)])
    for part, name in (("prompt", "system prompt"), ("signatures", "signatures of 100 functions")):
        rows.append([name, *(f"{found[part][language]:,}" for language in _LANGUAGES), "", ""])
    titles = _LANGUAGES.values()
    return _markdown(["task", *titles, *(f"whole task, {title}" for title in titles)], rows)


def _reported_table(reported: Sequence[Figures]) -> str:
    rows = [[each["source"], each["read"], each["claim"], f"{each['less']:g} %", each["basis"]] for each in reported]
    return _markdown(["source", "date", "claim", "less", "basis"], rows)


def _rule_table(rules: Figures) -> str:
    rows = []
    for profile, found in rules.items():
        for name in ("default", "best"):
            each = found[name]
            values = ", ".join(f"{rule}={str(value).lower()}" for rule, value in each["rules"].items())
            of = f" of {found['combinations']:,}" if name == "best" else ""
            costs = [f"{each['tokens']:,}", f"{each['cached']:.1f}", f"{each['turns']}"]
            rows.append([f"{profile}: {name}{of}", *costs, f"`{values}`"])
    return _markdown(["profile and rules", "tokens", "thousandths of a dollar, caching", "turns", "values"], rows)


def _change_table(rules: Figures) -> str:
    changes = {profile: found["changes"] for profile, found in rules.items()}
    rows = [["none", *(_describe_total(found["default"]) for found in rules.values())]]
    names = next(iter(changes.values()))
    rows += [[f"`{name}`", *(_describe_total(found[name]) for found in changes.values())] for name in names]
    return _markdown(["one changed rule: thousandths of a dollar, caching", *changes], rows)


def _describe_total(found: Figures) -> str:
    return f"{found['cached']:.1f}, {found['turns']} turns"


def _estimate_table(errors: Mapping[str, Figures]) -> str:
    columns = list(next(iter(errors.values())))
    return _markdown(["kind of text", *columns], [[kind, *each.values()] for kind, each in errors.items()])
