"""Recording of bench/data/transcripts: their turns, with the results that real servers return.

A transcript of a new task needs no results. The turns, arguments included, are written by hand and stay as they are.

Servers run in this process (the project's demo servers) or as programs of their own (filesystem, git, memory, time),
without a network. Servers that need an account answer with made-up results, and their transcripts are labelled so.
Code runs in this process, in a scope that has the functions of the servers.

    npm install --prefix /tmp/mcp @modelcontextprotocol/server-{filesystem,memory}@2026.8.31
    python bench/record_transcripts.py --npm /tmp/mcp
"""

import argparse
import ast
import asyncio
import contextlib
import importlib
import inspect
import io
import json
import os
import sys
import tempfile
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from stand_ins import make_readings, make_repository, make_up
from transcripts import ARMS, DEMO, FOLDER, ROOT, load_catalogs, load_transcripts

from mcp_exec_broker.core.calls.response import ContentBlocks, PythonValue, parse_value
from mcp_exec_tools.catalog import Catalog
from mcp_exec_tools.search.index import Index

MADE_UP = frozenset({"github-official", "supabase"})
SHOWN = "/data"
"""Path that the transcripts show for the folder of the recording."""


class Recorder:
    """Servers of a recording, and the scope that code runs in."""

    def __init__(self, clients: Mapping[str, Client], folder: Path) -> None:
        self._clients, self._folder = clients, folder
        self._catalogs = load_catalogs()
        self._index = Index([Catalog.from_tools(server, tools) for server, tools in self._catalogs.items()])

    async def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[Any, str, bool]:
        """Return the value, the text for a model, and whether the call failed."""
        server, tool = name.split(".", 1)
        if server in MADE_UP:
            value = make_up(server, tool, arguments)
            return value, _dump(value), False
        sent = json.loads(json.dumps(dict(arguments)).replace(SHOWN + "/", f"{self._folder}/"))
        result = await self._clients[server].call_tool(tool, sent)
        raw = json.loads(result.model_dump_json(by_alias=True, exclude_none=True).replace(str(self._folder), SHOWN))
        schema = next(each for each in self._catalogs[server] if each["name"] == tool).get("outputSchema")
        if raw.get("isError"):
            text = "\n".join(block["text"] for block in raw["content"])
            return None, text, True
        parsed = parse_value(raw, schema, modern=True)
        value = parsed.value if isinstance(parsed, PythonValue) else parsed.structured
        if isinstance(parsed, ContentBlocks):
            raise ValueError(f"{name} returned something else than text")
        has_structure = "structuredContent" in raw
        text = (
            _dump(raw["structuredContent"]) if has_structure else "\n".join(block["text"] for block in raw["content"])
        )
        return value, text, False

    async def renew(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the messages of an arm with the results that its tool uses have now."""
        found: list[dict[str, Any]] = []
        for message in messages:
            uses = [block for block in message["content"] if block["type"] == "tool_use"]
            if not any(block["type"] == "tool_result" for block in message["content"]):
                found.append(dict(message))
            if uses:
                texts = [await self._answer(use["name"], use["input"]) for use in uses]
                results = [
                    {"type": "tool_result", "tool_use_id": use["id"], "content": text}
                    for use, text in zip(uses, texts, strict=True)
                ]
                found.append({"role": "user", "content": results})
        return found

    async def _answer(self, name: str, given: Mapping[str, Any]) -> str:
        if name == "execute_code":
            return await self._execute(given["code"])
        if name == "search_tools":
            return _dump(self._index.search(**given))
        return (await self.call(name.replace("__", ".", 1), given))[1]

    async def _execute(self, code: str) -> str:
        """Run code as the sandbox does: top-level await, and the last expression is the result."""
        tree = ast.parse(code.replace("asyncio.sleep(10)", "asyncio.sleep(0)"))
        if tree.body and isinstance(last := tree.body[-1], ast.Expr) and not _is_print(last):
            tree.body[-1] = ast.Assign([ast.Name("_result", ast.Store())], last.value)
        program = compile(ast.fix_missing_locations(tree), "code", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        scope: dict[str, Any] = {"__name__": "__main__"}
        printed = io.StringIO()
        modules = self._modules()
        sys.modules.update(modules)
        try:
            with contextlib.redirect_stdout(printed):
                done = eval(program, scope)  # the transcripts' own code
                if inspect.isawaitable(done):
                    await done
        except CallFailed as error:
            failure = {"type": "ToolError", "message": str(error)}
            return json.dumps({"phase": "Failed", "reason": "CodeError", "error": failure}, ensure_ascii=False)
        finally:
            for name in modules:
                del sys.modules[name]
        fields: dict[str, Any] = {"phase": "Succeeded"}
        if printed.getvalue():
            fields["stdout"] = printed.getvalue()
        if scope.get("_result") is not None:
            fields["result"] = scope["_result"]
        return json.dumps(fields, ensure_ascii=False)

    def _modules(self) -> dict[str, types.ModuleType]:
        modules = {"servers": types.ModuleType("servers")}
        for server, tools in self._catalogs.items():
            module = types.ModuleType(f"servers.{server.replace('-', '_')}")
            for tool in tools:
                setattr(module, tool["name"].replace("-", "_"), self._function(f"{server}.{tool['name']}"))
            modules[module.__name__] = module
        return modules

    def _function(self, name: str) -> Callable[..., Any]:
        async def call(**arguments: Any) -> Any:
            value, text, failed = await self.call(name, arguments)
            if failed:
                raise CallFailed(f"{name}: {text}")
            return value

        return call


class CallFailed(Exception):
    """Failure of a tool in the code of a transcript."""


def _is_print(statement: ast.Expr) -> bool:
    return isinstance(statement.value, ast.Call) and getattr(statement.value.func, "id", "") == "print"


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def fill(folder: Path) -> None:
    """Make the files and the repository that the tasks read, the same each time."""
    (folder / "security.md").write_text((ROOT / "docs" / "platform" / "security.md").read_text())
    (folder / "readings.csv").write_text(make_readings())
    make_repository(folder / "site")


def list_programs(npm: Path, folder: Path) -> dict[str, StdioServerParameters]:
    """Return the servers that are programs of their own."""
    memory = {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}
    programs = npm / "node_modules" / ".bin"
    return {
        "filesystem": StdioServerParameters(command=str(programs / "mcp-server-filesystem"), args=[str(folder)]),
        "memory": StdioServerParameters(command=str(programs / "mcp-server-memory"), args=[], env=memory),
        "git": StdioServerParameters(command=sys.executable, args=["-m", "mcp_server_git"]),
        "time": StdioServerParameters(command=sys.executable, args=["-m", "mcp_server_time"]),
    }


async def record(npm: Path, *, out: Path, only: str = "") -> None:
    """Record all tasks or one, each arm with servers of its own."""
    for path in sorted(FOLDER.glob("*.json")):
        found = json.loads(path.read_text())
        if only not in ("", found["task"]):
            continue
        for arm in ARMS:
            with tempfile.TemporaryDirectory() as made:
                folder = Path(os.path.realpath(made))  # noqa: ASYNC240 - nothing runs at the same time
                fill(folder)
                programs = list_programs(npm, folder)
                async with contextlib.AsyncExitStack() as stack:
                    clients = {}
                    for server in set(found["servers"]) - MADE_UP:
                        target = load_demo(server) if server in DEMO else programs[server]
                        clients[server] = await stack.enter_async_context(Client(target))
                    found["arms"][arm] = await Recorder(clients, folder).renew(found["arms"][arm])
        (out / path.name).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        print(path.name)


def load_demo(server: str) -> Any:
    """Return a demo server in the state of its start."""
    return importlib.reload(importlib.import_module(f"mcp_exec_servers.{server}")).server


def main() -> None:
    """Record all transcripts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--npm", type=Path, default=Path(), help="folder of the servers installed from npm")
    tasks = [each.task for each in load_transcripts()]
    parser.add_argument("--task", choices=tasks, default="", help="record only this task")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder for the transcripts (default: bench/data)")
    options = parser.parse_args()
    asyncio.run(record(options.npm, out=options.out, only=options.task))


if __name__ == "__main__":
    main()
