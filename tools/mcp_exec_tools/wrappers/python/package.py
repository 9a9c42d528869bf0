"""Package of a server in Python: its files and exported names. It imports the module of a tool on first use."""

from dataclasses import dataclass
from itertools import chain

from mcp_exec_tools.wrappers.functions import ServerFunctions, sort_key
from mcp_exec_tools.wrappers.python.module import HEADER, PythonModule
from mcp_exec_tools.wrappers.python.text import format_docstring, format_literal
from mcp_exec_tools.wrappers.text import WIDTH, clean_line

_IMPORTS = ("from typing import Any", "", "from client import load_lazily as _load_lazily")
_LOADER = (
    "",
    "__all__ = [name for names in _NAMES.values() for name in names]",
    "_load = _load_lazily(__name__, _NAMES)",
    "",
    "",
    "def __getattr__(name: str) -> Any:",
    '    """Import the module that has a name, in any spelling, when the name is first used."""',
    "    return _load(name)",
)


@dataclass(frozen=True, kw_only=True)
class PythonPackage:
    """Package of one server."""

    functions: ServerFunctions

    def files(self, *, stubs: bool) -> dict[str, str]:
        """Return the sources, and the stubs if they are asked for, by the file's name."""
        modules = {each.function: PythonModule(wrapper=each) for each in self.functions.functions}
        files = {f"{name}.py": module.source() for name, module in modules.items()}
        for name, function in self.functions.composed.items():
            aliases = [f"{alias} = {name}" for alias in self.functions.composed_aliases[name]]
            body = [HEADER, function.sources["python"].rstrip(), *(["", "", *aliases] if aliases else []), ""]
            files[f"{name}.py"] = "\n".join(body)
        files["__init__.py"] = self._init()
        if stubs:
            files |= {f"{name}.pyi": module.stub() for name, module in modules.items()}
            files["__init__.pyi"] = self._init_stub()
        return files

    def _init_stub(self) -> str:
        exports = self.functions.exports
        imports = [line for function, names in exports.items() for line in _format_import(function, names)]
        exported = [f"    {format_literal(name)}," for name in sorted(chain(*exports.values()), key=sort_key)]
        body = ["__all__ = [", *exported, "]"] if exported else ["__all__: list[str] = []"]
        return "\n".join([HEADER, *imports, *([""] if imports else []), *body, ""])

    def _init(self) -> str:
        lines = [clean_line(f"- {name}: {summary}", WIDTH - 4) for name, summary in self.functions.summaries.items()]
        server = clean_line(self.functions.server, 60)
        docstring = format_docstring(f"The MCP server {server}: one function per tool, each in its own file.", lines)
        table = [line for function, names in self.functions.exports.items() for line in _format_entry(function, names)]
        names = ["_NAMES = {", *table, "}"] if table else ["_NAMES: dict[str, list[str]] = {}"]
        return "\n".join([HEADER, *docstring, "", *_IMPORTS, "", *names, *_LOADER, ""])


def _format_entry(function: str, names: list[str]) -> list[str]:
    """Return the lines of a module's entry in the table of names."""
    key, literals = format_literal(function), [format_literal(name) for name in names]
    line = f"    {key}: [{', '.join(literals)}],"
    return [line] if len(line) <= WIDTH else [f"    {key}: [", *(f"        {each}," for each in literals), "    ],"]


def _format_import(module: str, names: list[str]) -> list[str]:
    line = f"from .{module} import {', '.join(names)}"
    return [line] if len(line) <= WIDTH else [f"from .{module} import (", *(f"    {name}," for name in names), ")"]
