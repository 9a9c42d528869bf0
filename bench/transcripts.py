"""Transcripts of the same tasks, done by direct calls and by code, and the checks that keep them consistent.

A transcript has the messages of the Messages API. The model's turns are scripted. Results come from the real servers if
`results` is "recorded", else they only have the shape of the server's; `record_transcripts.py` writes them.
"""

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jsonschema import Draft202012Validator

ROOT = Path(__file__).parents[1]
CATALOGS = ROOT / "servers" / "catalogs"
RECORDED = ROOT / "bench" / "data" / "catalogs"
"""Catalogs of public servers that do not ship: `tools/list` of the package that `info` names."""
FOLDER = ROOT / "bench" / "data" / "transcripts"
DEMO = ("calculator", "database", "expenses", "sheets", "slack", "trips", "weather")
"""Servers that were written for demonstrations."""
REPLACED = frozenset({"github"})
"""Catalogs of archived servers, which another one replaces."""
Arm = Literal["direct", "code"]
ARMS: tuple[Arm, ...] = ("direct", "code")
CODE_TOOLS = frozenset({"search_tools", "execute_code"})


@dataclass(frozen=True, kw_only=True, eq=False)
class Transcript:
    """A task and the messages of both arms."""

    task: str
    kind: str
    prompt: str
    servers: tuple[str, ...]
    """Servers that the task needs."""
    results: Literal["recorded", "synthesised", "none"]
    arms: Mapping[Arm, list[dict[str, Any]]]

    def uses(self, arm: Arm) -> Iterator[dict[str, Any]]:
        """Yield the tool uses of an arm."""
        for message in self.arms[arm]:
            if message["role"] == "assistant":
                yield from (block for block in message["content"] if block["type"] == "tool_use")


def load_catalogs(folder: Path = CATALOGS) -> dict[str, list[dict[str, Any]]]:
    """Return the tools of each server of a folder, by default of those whose catalog ships."""
    found = (json.loads(path.read_text()) for path in sorted(folder.glob("*.json")) if path.stem not in REPLACED)
    return {each["server"]: each["tools"] for each in found}


def take_tools(
    number: int, catalogs: Mapping[str, list[dict[str, Any]]], transcripts: Sequence[Transcript]
) -> dict[str, list[dict[str, Any]]]:
    """Return so many tools: those that the transcripts call, then the others in the order of the catalogs.

    Raises ValueError if there are fewer.
    """
    called = {use["name"] for each in transcripts for use in each.uses("direct")}
    named = [(server, tool, f"{server}__{tool['name']}") for server, tools in catalogs.items() for tool in tools]
    if len(named) < number:
        raise ValueError(f"{number} tools are asked for, and the catalogs have {len(named)}")
    chosen = {name for _, _, name in sorted(named, key=lambda each: each[2] not in called)[:number]}
    taken: dict[str, list[dict[str, Any]]] = {}
    for server, tool, name in named:
        if name in chosen:
            taken.setdefault(server, []).append(tool)
    return taken


def load_transcripts(folder: Path = FOLDER) -> list[Transcript]:
    """Return all transcripts, in the order of their files' names."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return [Transcript(**each | {"servers": tuple(each["servers"])}) for each in found]


def find_faults(transcript: Transcript, catalogs: Mapping[str, list[dict[str, Any]]]) -> list[str]:
    """Return what is wrong with a transcript: roles, unanswered uses, unknown tools, arguments, and code."""
    tools = {f"{server}__{tool['name']}": tool for server, found in catalogs.items() for tool in found}
    faults = [fault for arm in ARMS for fault in _find_order_faults(transcript.arms[arm])]
    for use in transcript.uses("direct"):
        tool = tools.get(use["name"])
        if tool is None:
            faults.append(f"there is no tool {use['name']}")
        else:
            faults += [error.message for error in Draft202012Validator(tool["inputSchema"]).iter_errors(use["input"])]
    for use in transcript.uses("code"):
        if use["name"] not in CODE_TOOLS:
            faults.append(f"there is no tool {use['name']}")
        elif use["name"] == "execute_code":
            faults += _find_code_faults(use["input"]["code"], catalogs)
    return faults


def _find_order_faults(messages: list[dict[str, Any]]) -> Iterator[str]:
    for index, message in enumerate(messages):
        if message["role"] != ("assistant" if index % 2 else "user"):
            yield f"message {index} has the role {message['role']}"
    for asked, answered in zip(messages[1::2], messages[2::2], strict=False):
        asks = [block["id"] for block in asked["content"] if block["type"] == "tool_use"]
        if asks != [block["tool_use_id"] for block in answered["content"]]:
            yield f"the uses {asks} are not answered in their order"
    if len(messages) % 2 or any(block["type"] == "tool_use" for block in messages[-1]["content"]):
        yield "the last message is no answer"


def _find_code_faults(code: str, catalogs: Mapping[str, list[dict[str, Any]]]) -> Iterator[str]:
    try:
        tree = compile(code, "code", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError as error:
        yield f"the code does not parse: {error}"
        return
    functions = {
        server.replace("-", "_"): {tool["name"].replace("-", "_") for tool in tools}
        for server, tools in catalogs.items()
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("servers."):
            server = (node.module or "").removeprefix("servers.")
            wrong = {name.name for name in node.names} - functions.get(server, set())
            yield from (f"servers.{server} has no function {name}" for name in sorted(wrong))
