"""A scripted model, for a first try without a key, for demonstrations and for tests."""

import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from mcp_exec_client.agent.outcomes import ModelError
from mcp_exec_client.agent.providers.model import (
    Block,
    ModelReply,
    ModelRequest,
    PassText,
    TokenCounts,
    estimate_input,
    estimate_reply,
)

OfflineTurn: TypeAlias = str | list[Block] | Callable[[ModelRequest], "str | list[Block]"]
"""One answer: text, content blocks, or a function that returns one of these."""
_GIVEN: Final = re.compile(r"\b([A-Za-z_]\w{0,63})=(\"[^\"]{0,1000}\"|\S{1,1000})")
_WORD: Final = re.compile(r"[a-z0-9]+")
_MAX_TASK: Final = 10_000
_CODE: Final = """\
import json
from client import call_mcp_tool

answer = await call_mcp_tool(tool, arguments)
text = answer if isinstance(answer, str) else json.dumps(answer, default=str)
print(f"{tool} returned {len(text)} characters; they begin with: {text[:200]}")
"""
_NO_TOOL: Final = "the scripted model: no tool matches the words of the task; name one in them, with NAME=VALUE pairs"


class OfflineProvider:
    """A model whose answers are a script. Nothing is sent to anybody.

    Without a script it follows simple rules: it searches for a tool by the words of the task, calls the best match with
    the task's `name=value` pairs as arguments, by code or directly, and reports the result.
    """

    supports_tools = True

    def __init__(self, script: Sequence[OfflineTurn] | None = None, *, model: str = "offline") -> None:
        self.model: Final = model
        self.requests: Final[list[ModelRequest]] = []
        """Requests so far, for tests."""
        self._script = None if script is None else list(script)

    async def reply(self, request: ModelRequest, *, on_text: PassText) -> ModelReply:
        """Return the next answer of the script. Raises ModelError if there is none."""
        self.requests.append(request)
        if self._script is None:
            turn: OfflineTurn = plan_turn
        elif self._script:
            turn = self._script.pop(0)
        else:
            raise ModelError("the script of the offline model has no further answer")
        answer = turn(request) if callable(turn) else turn
        blocks = [{"type": "text", "text": answer}] if isinstance(answer, str) else answer
        content = [
            {**block, "id": f"toolu_{uuid.uuid4().hex[:16]}"} if block["type"] == "tool_use" else block
            for block in blocks
        ]
        for block in content:
            for part in re.findall(r"\S+\s*|\s+", block.get("text", "")):
                await on_text(part)
        has_uses = any(block["type"] == "tool_use" for block in content)
        tokens = TokenCounts(input=estimate_input(request), output=estimate_reply(content), counted="estimate")
        return ModelReply(content=content, stop="tool_use" if has_uses else "end", tokens=tokens)

    async def count_tokens(self, request: ModelRequest) -> TokenCounts:
        """Return an estimate of the input tokens of a request."""
        return TokenCounts(input=estimate_input(request), counted="estimate")


def plan_turn(request: ModelRequest) -> "str | list[Block]":
    """Return the next answer by simple rules: search, call, report."""
    task, results, by_code = _read_task(request)
    tools = {str(tool["name"]): tool for tool in request.tools}
    if results and results[-1][0] != "search_tools":
        return f"Without a model, a script did this. The result: {_read_output(results[-1][1])}"
    if not results:
        direct = [tool for name, tool in tools.items() if "__" in name and not by_code]
        if best := _find_best(task, direct):
            return [_use(best["name"], _read_arguments(task, best["input_schema"]))]
        if "search_tools" in tools:
            query = " ".join(_GIVEN.sub(" ", task).split())[:200]
            return [_use("search_tools", {"query": query, "detail_level": "full", "limit": 3})]
        raise ModelError(_NO_TOOL)
    return [_use("execute_code", _plan_code(task, results[-1][1]))]


def _plan_code(task: str, found: str) -> dict[str, Any]:
    """Return the input of `execute_code`: a call of the tool that takes most of the task's arguments.

    Without arguments it is the best match. Raises ModelError if there is none, or if it needs arguments.
    """
    try:
        tools = json.loads(found)
    except ValueError:
        tools = []
    fitting = []
    missing = ""
    for place, tool in enumerate(tools if isinstance(tools, list) else []):
        schema = tool.get("input_schema") or {}
        arguments = _read_arguments(task, schema)
        if set(schema.get("required", ())) <= set(arguments):
            call = {"tool": f"{tool['server']}.{tool['name']}", "arguments": arguments}
            fitting.append((len(arguments), -place, call))
        elif place == 0:
            names = [name for name in schema["required"] if name not in arguments]
            missing = f"{tool['server']}.{tool['name']} needs {' '.join(f'{name}=' for name in names)}"
    best = max(fitting, key=lambda each: each[:2], default=None)
    if best is not None and (best[0] or not missing):
        return {"code": _CODE, "context": best[2]}
    raise ModelError(f"the scripted model: {missing} in the task" if missing else _NO_TOOL)


def _read_task(request: ModelRequest) -> tuple[str, list[tuple[str, str]], bool]:
    """Return the newest task, the names of tools used since with their results, and whether notices follow the task.

    A task with notices is done by code, which is never refused.
    """
    names: dict[str, str] = {}
    results: list[tuple[str, str]] = []
    task, by_code = "", False
    for message in request.messages:
        content = message["content"]
        if isinstance(content, str):
            task, results, by_code = content[:_MAX_TASK], [], False
            continue
        texts = [block["text"] for block in content if block["type"] == "text"]
        if message["role"] == "user" and texts:
            task, results, by_code = texts[0][:_MAX_TASK], [], len(texts) > 1
        for block in content:
            if block["type"] == "tool_use":
                names[block["id"]] = block["name"]
            elif block["type"] == "tool_result":
                results.append((names.get(block["tool_use_id"], ""), str(block["content"])))
    return task, results, by_code


def _find_best(task: str, tools: Sequence[Block]) -> Block | None:
    """Return the tool whose name and description share most words with the task, if its parameters are given."""
    words = set(_WORD.findall(_GIVEN.sub(" ", task).lower()))
    scores = []
    for index, tool in enumerate(tools):
        name, text = _split(str(tool["name"])), _split(str(tool.get("description", ""))[:1000])
        schema = tool["input_schema"]
        if set(schema.get("required", ())) <= set(_read_arguments(task, schema)):
            scores.append((4 * len(words & name) + len(words & text), -index))
    score, index = max(scores, default=(0, 0))
    return tools[-index] if score else None


def _split(text: str) -> set[str]:
    return set(_WORD.findall(text.lower().replace("_", " ")))


def _read_arguments(task: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    found = {}
    for name, text in _GIVEN.findall(task):
        if name in known:
            value = text.strip('"') if text.startswith('"') else text.rstrip(",.;?!")
            kind = known[name].get("type") if isinstance(known[name], dict) else None
            found[name] = value if kind == "string" else _parse(value)
    return found


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _read_output(result: str) -> str:
    """Return what code printed, or the result as it is."""
    try:
        value = json.loads(result)
    except ValueError:
        return result[:1000]
    if isinstance(value, dict) and "phase" in value:
        return str(value.get("stdout") or value.get("error") or value.get("result", value["phase"])).strip()[:1000]
    return result[:1000]


def _use(name: str, given: dict[str, Any]) -> Block:
    return {"type": "tool_use", "id": "", "name": name, "input": given}
