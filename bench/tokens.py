"""Tokens and money of the same tasks by direct tool calls, by code, and by a hybrid agent.

It counts the tokens of recorded transcripts (bench/data/transcripts) by an offline tokenizer. It does not measure
whether a model succeeds: the model's turns are scripted, as a plausible model would write them.
Each request repeats the system prompt, the tool definitions and all earlier messages, as an API without state requires.

    python bench/tokens.py --json tokens.json
    python bench/tokens.py --write    # also docs/agents/savings.md, its plot, and bench/data/savings.json
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import languages
import token_report
import tokenizer
from harness import parser, write_json
from token_costs import INPUT, OUTPUT, READ, WRITE, ArmCost, Count, cost_of, define, dump
from token_rules import HybridAgent, measure, study
from transcripts import DEMO, FOLDER, RECORDED, ROOT, Transcript, load_catalogs, load_transcripts, take_tools

from mcp_exec_client.agent import HybridRules
from mcp_exec_client.agent.code_mode import TOOLS
from mcp_exec_client.agent.direct_mode import SYSTEM_PROMPT
from mcp_exec_tools.catalog import Catalog
from mcp_exec_tools.languages import LANGUAGES
from mcp_exec_tools.prompt import system_prompt
from mcp_exec_tools.search.index import Index
from mcp_exec_tools.text import estimate_tokens

FIGURES = ROOT / "bench" / "data" / "savings.json"
PLOT = ROOT / "docs" / "agents" / "savings.png"
PRICINGS = ("plain", "cached", "warm")
LEVELS = ("name_only", "with_description", "full")
PUBLISHED = ROOT / "bench" / "data" / "published.json"
"""`published`: arithmetic that guides print, by its own assumptions: one request, and no turns of the code arm are
repeated. `reported`: savings of others, with their own tasks and tools, and the date of publication or of reading."""
SIZES = (96, 251, 508)
"""Numbers of tools that others have published a saving for."""


def compare_sizes(count: Count, transcripts: Sequence[Transcript]) -> list[dict[str, Any]]:
    """Return what all tasks cost with other numbers of tools. What a search returned stays as it was recorded."""
    own = load_catalogs()
    catalogs, rows = own | load_catalogs(RECORDED), []
    for number in SIZES:
        taken = take_tools(number, catalogs, transcripts)
        direct = [_cost_direct(count, each, taken) for each in transcripts]
        code = [_cost_code(count, each, taken) for each in transcripts]
        rows.append({
            "tools": number,
            "definitions": direct[0].definitions,
            "demo": sum(len(tools) for server, tools in taken.items() if server in DEMO),
            "direct": sum(cost.input for cost in direct),
            "code": sum(cost.input for cost in code),
            "direct money": round(sum(cost.money("cached") for cost in direct), 1),
            "code money": round(sum(cost.money("cached") for cost in code), 1),
        })  # fmt: skip
    return rows


def compare(count: Count, transcripts: Sequence[Transcript]) -> list[dict[str, Any]]:
    """Return the cost of each task by arm: with the definitions of all servers, and of those that it needs."""
    catalogs = load_catalogs()
    agent, rows = HybridAgent(count, catalogs), []
    for each in transcripts:
        hybrid = agent.run(each, HybridRules(), is_known=False)
        costs = {
            "direct, all servers": _cost_direct(count, each, catalogs),
            "direct, needed servers": _cost_direct(count, each, {name: catalogs[name] for name in each.servers}),
            "code": _cost_code(count, each, catalogs),
            "hybrid": hybrid.cost,
        }
        longest, calls, _ = measure(each)
        rows.append({
            "task": each.task, "kind": each.kind, "results": each.results, "rows": longest, "calls": calls,
            "hybrid": {"mode": hybrid.mode, "rule": hybrid.rule},
            "arms": {name: _describe(cost) for name, cost in costs.items()},
        })  # fmt: skip
    return rows


def _cost_direct(count: Count, transcript: Transcript, catalogs: Mapping[str, list[dict[str, Any]]]) -> ArmCost:
    definitions = [define(server, tool) for server, tools in catalogs.items() for tool in tools]
    return cost_of(count, system=SYSTEM_PROMPT, definitions=definitions, messages=transcript.arms["direct"])


def _cost_code(count: Count, transcript: Transcript, catalogs: Mapping[str, list[dict[str, Any]]]) -> ArmCost:
    return cost_of(count, system=system_prompt(sorted(catalogs)), definitions=TOOLS, messages=transcript.arms["code"])


def compare_languages(count: Count, transcripts: Sequence[Transcript]) -> dict[str, Any]:
    """Return what the tasks cost by code in each language: the code's own tokens, and those of the whole task."""
    catalogs, blocks = load_catalogs(), languages.load_tasks()
    index = Index([Catalog.from_tools(server, tools) for server, tools in catalogs.items()])
    rows = []
    for each in transcripts:
        versions = {"python": each, "typescript": languages.translate(each, blocks[each.task], index)}
        codes = {
            name: sum(count(use["input"]["code"]) for use in _list_code(version)) for name, version in versions.items()
        }
        tokens = {
            name: cost_of(
                count,
                system=system_prompt(sorted(catalogs), language=name),
                definitions=TOOLS,
                messages=version.arms["code"],
            ).tokens
            for name, version in versions.items()
        }
        rows.append({"task": each.task, "code": codes, "tokens": tokens})
    functions = index.search("", limit=1000, detail_level="full")
    signatures = {
        name: sum(
            count(found["signature"]) for found in index.search("", limit=1000, detail_level="full", language=name)
        )
        for name in LANGUAGES
    }
    return {
        "tasks": rows,
        "prompt": {name: count(system_prompt(sorted(catalogs), language=name)) for name in LANGUAGES},
        "signatures": {name: round(100 * size / len(functions)) for name, size in signatures.items()},
    }


def _list_code(transcript: Transcript) -> list[dict[str, Any]]:
    return [use for use in transcript.uses("code") if use["name"] == "execute_code"]


def _describe(cost: ArmCost) -> dict[str, Any]:
    money = {pricing: round(cost.money(pricing), 3) for pricing in PRICINGS}
    return {"definitions": cost.definitions, "turns": cost.turns, "input": cost.input, "output": cost.output,
            "tokens": cost.tokens, "money": money}  # fmt: skip


def measure_levels(count: Count) -> dict[str, Any]:
    """Return what the tools of all catalogs cost by level of detail of a search, for each hundred tools."""
    catalogs = load_catalogs()
    index = Index([Catalog.from_tools(server, tools) for server, tools in catalogs.items()])
    definitions = [define(server, tool) for server, tools in catalogs.items() for tool in tools]
    sizes = {level: count(dump(index.search("", detail_level=level, limit=1000))) for level in LEVELS}
    functions = len(index.search("", limit=1000))
    names = count("\n".join(f"{server}.{tool['name']}" for server, tools in catalogs.items() for tool in tools))
    return {
        "tools": len(definitions),
        "functions": functions,
        "names as lines": round(100 * names / len(definitions)),
        **{level: round(100 * size / functions) for level, size in sizes.items()},
        "definitions": round(100 * count(dump(definitions)) / len(definitions)),
    }


def measure_prompt(count: Count) -> dict[str, Any]:
    """Return the size of what a model that works by code has in each request, and its estimate."""
    prompt, tools = system_prompt(sorted(load_catalogs())), dump(TOOLS)
    return {"system prompt": count(prompt), "tools": count(tools), "estimate": estimate_tokens(prompt + tools)}


def digest_inputs() -> str:
    """Return a digest of the transcripts and catalogs."""
    texts = [path.read_text() for path in sorted(FOLDER.glob("*.json"))]
    inputs = [texts, languages.load_tasks(), load_catalogs(), load_catalogs(RECORDED)]
    return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()


def compute(count: Count) -> dict[str, Any]:
    """Return all figures."""
    transcripts = load_transcripts()
    agent = HybridAgent(count, load_catalogs())
    return {
        "inputs": digest_inputs(),
        "tokenizer": tokenizer.ENCODING,
        "prices": {"input": INPUT, "output": OUTPUT, "write": WRITE, "read": READ},
        "prompt": measure_prompt(count),
        "tasks": compare(count, transcripts),
        "levels": measure_levels(count),
        "sizes": compare_sizes(count, transcripts),
        "languages": compare_languages(count, transcripts),
        "live": json.loads(FIGURES.read_text())["live"],
        **json.loads(PUBLISHED.read_text()),
        "rules": {
            "from the words of the task": study(agent, transcripts, is_known=False),
            "known to the application": study(agent, transcripts, is_known=True),
        },
        "estimate": tokenizer.errors(count),
    }


def main() -> None:
    """Count, print, and write what the options ask for."""
    found = parser(__doc__)
    found.add_argument("--write", action="store_true", help="update the page, its plot and its figures")
    options = found.parse_args()
    figures = compute(tokenizer.load())
    for name, text in token_report.blocks(figures).items():
        print(f"{name}\n\n{text}\n")
    write_json(options.json, figures)
    if options.write:
        FIGURES.write_text(json.dumps(figures, indent=1) + "\n")
        token_report.PAGE.write_text(token_report.fill_page(token_report.PAGE.read_text(), figures))
        token_report.draw(figures, PLOT)


if __name__ == "__main__":
    main()
