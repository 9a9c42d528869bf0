"""Packages of servers: their files and exported names."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mcp_exec_tools.catalog import Catalog, assign_modules
from mcp_exec_tools.names import camel_case
from mcp_exec_tools.overlays import ComposedFunction, Overlay, apply_overlays, load_shipped
from mcp_exec_tools.wrappers.module import HEADER, WrapperModule, choose_camel_names, split_description
from mcp_exec_tools.wrappers.text import WIDTH, clean_line, format_docstring, format_literal

__all__ = ["HEADER", "build_files", "format_catalog"]


def build_files(
    catalogs: Iterable[Catalog], *, stubs: bool = False, overlays: Mapping[str, Overlay] | None = None
) -> dict[str, str]:
    """Build every file under `servers`, by its path: `github/__init__.py`, `github/create_issue.py`.

    With stubs, the `.pyi` files too. Without overlays, those in this package apply. Each overlay adds its functions to
    the servers that have the tools that it needs.
    """
    ordered = sorted(catalogs, key=lambda catalog: catalog.server)
    modules = assign_modules(ordered)
    applied_overlays = [overlay for _, overlay in sorted((load_shipped() if overlays is None else overlays).items())]
    files: dict[str, str] = {}
    for catalog in ordered:
        for path, text in _build_package(catalog, applied_overlays).files(stubs=stubs).items():
            files[f"{modules[catalog.server]}/{path}"] = text
    return dict(sorted(files.items()))


def format_catalog(catalogs: Iterable[Catalog]) -> str:
    """Format the catalogs as `catalog.json`, which the search in a sandbox reads: servers and tools ordered by name."""
    ordered = sorted(catalogs, key=lambda catalog: catalog.server)
    modules = assign_modules(ordered)
    servers = [
        {
            "server": catalog.server,
            "module": modules[catalog.server],
            "tools": [tool.to_json() for tool in catalog.tools],
        }
        for catalog in ordered
    ]
    return json.dumps({"servers": servers}, sort_keys=True, separators=(",", ":")) + "\n"


@dataclass(frozen=True, kw_only=True)
class _Package:
    server: str
    modules: tuple[WrapperModule, ...]
    composed: Mapping[str, ComposedFunction]

    def files(self, *, stubs: bool) -> dict[str, str]:
        files = {f"{module.function}.py": module.source() for module in self.modules}
        files |= {f"{name}.py": f"{HEADER}\n{function.source}" for name, function in self.composed.items()}
        files["__init__.py"] = self._init()
        if stubs:
            files |= {f"{module.function}.pyi": module.stub() for module in self.modules}
        return files

    def _init(self) -> str:
        summaries = {
            module.function: split_description(module.tool.description, module.function)[0] for module in self.modules
        }
        summaries |= {name: function.summary for name, function in self.composed.items()}
        lines = [clean_line(f"- {name}: {summary}", WIDTH - 4) for name, summary in sorted(summaries.items())]
        docstring = format_docstring(
            f"The MCP server {clean_line(self.server, 60)}: one function per tool, each in its own file.", lines
        )
        exports = {module.function: module.names for module in self.modules}
        exports |= {name: [name, *_camel_names(name)] for name in self.composed}
        imports: list[str] = []
        names: list[str] = []
        for function, exported_names in sorted(exports.items()):
            new = [name for name in dict.fromkeys(exported_names) if name not in names]
            names += new
            imports += _format_import(function, sorted(new, key=_sort_key))
        name_lines = [f"    {format_literal(name)}," for name in sorted(names, key=_sort_key)]
        body = ["__all__ = [", *name_lines, "]"] if name_lines else ["__all__: list[str] = []"]
        return "\n".join([HEADER, *docstring, *(["", *imports] if imports else []), "", *body, ""])


def _build_package(catalog: Catalog, overlays: Iterable[Overlay]) -> _Package:
    tools = {tool.function: tool for tool in catalog.tools}
    aliases, composed = apply_overlays(overlays, tools=[tool.name for tool in catalog.tools], functions=tools)
    by_name = {tool.name: tool for tool in catalog.tools}
    reserved = {camel for name in composed for camel in _camel_names(name)} | set(composed) | set(aliases)
    camels = choose_camel_names({function: tool.name for function, tool in tools.items()})
    reserved |= set(tools)
    modules = [
        WrapperModule(
            server=catalog.server, tool=tool, function=function, camel=_keep_if_free(camels.get(function), reserved)
        )
        for function, tool in tools.items()
    ]
    modules += [
        WrapperModule(
            server=catalog.server,
            tool=by_name[tool],
            function=name,
            camel=_keep_if_free(choose_camel_names({name: name}).get(name), reserved | set(camels.values())),
        )
        for name, tool in aliases.items()
    ]
    return _Package(server=catalog.server, modules=tuple(modules), composed=composed)


def _camel_names(function: str) -> list[str]:
    camel = camel_case(function)
    return [camel] if camel != function else []


def _keep_if_free(name: str | None, taken: set[str]) -> str | None:
    return None if name in taken else name


def _format_import(module: str, names: list[str]) -> list[str]:
    line = f"from .{module} import {', '.join(names)}"
    return [line] if len(line) <= WIDTH else [f"from .{module} import (", *(f"    {name}," for name in names), ")"]


def _sort_key(name: str) -> tuple[int, str]:
    """Return the key that sorts names as a linter expects: constants, types, functions."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name.lstrip("_")[:1].isupper() else 2), name
