"""The packages of servers: which files there are, and what each package gives."""

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
    """Every file under `servers`, by its path: `github/__init__.py`, `github/create_issue.py`; with stubs `.pyi` too.

    Overlays are those that come with the product where none are given; each adds itself where its tools are.
    """
    known = sorted(catalogs, key=lambda catalog: catalog.server)
    modules = assign_modules(known)
    chosen = [each for _, each in sorted((load_shipped() if overlays is None else overlays).items())]
    found: dict[str, str] = {}
    for catalog in known:
        for path, text in _build_package(catalog, chosen).files(stubs=stubs).items():
            found[f"{modules[catalog.server]}/{path}"] = text
    return dict(sorted(found.items()))


def format_catalog(catalogs: Iterable[Catalog]) -> str:
    """The catalogs as `catalog.json`, which the search in a sandbox reads: servers and tools ordered by name."""
    known = sorted(catalogs, key=lambda catalog: catalog.server)
    modules = assign_modules(known)
    servers = [
        {"server": each.server, "module": modules[each.server], "tools": [tool.to_json() for tool in each.tools]}
        for each in known
    ]
    return json.dumps({"servers": servers}, sort_keys=True, separators=(",", ":")) + "\n"


@dataclass(frozen=True, kw_only=True)
class _Package:
    server: str
    modules: tuple[WrapperModule, ...]
    composed: Mapping[str, ComposedFunction]

    def files(self, *, stubs: bool) -> dict[str, str]:
        found = {f"{each.function}.py": each.source() for each in self.modules}
        found |= {f"{name}.py": f"{HEADER}\n{function.source}" for name, function in self.composed.items()}
        found["__init__.py"] = self._init()
        if stubs:
            found |= {f"{each.function}.pyi": each.stub() for each in self.modules}
        return found

    def _init(self) -> str:
        listed = {each.function: split_description(each.tool.description, each.function)[0] for each in self.modules}
        listed |= {name: function.summary for name, function in self.composed.items()}
        lines = [clean_line(f"- {name}: {summary}", WIDTH - 4) for name, summary in sorted(listed.items())]
        about = format_docstring(
            f"The MCP server {clean_line(self.server, 60)}: one function a tool, each in a file of its own.", lines
        )
        given = {each.function: each.names for each in self.modules}
        given |= {name: [name, *_camel_names(name)] for name in self.composed}
        imports: list[str] = []
        names: list[str] = []
        for module, offered in sorted(given.items()):
            new = [name for name in dict.fromkeys(offered) if name not in names]
            names += new
            imports += _format_import(module, sorted(new, key=_sort_key))
        every = [f"    {format_literal(name)}," for name in sorted(names, key=_sort_key)]
        body = ["__all__ = [", *every, "]"] if every else ["__all__: list[str] = []"]
        return "\n".join([HEADER, *about, *(["", *imports] if imports else []), "", *body, ""])


def _build_package(catalog: Catalog, overlays: Iterable[Overlay]) -> _Package:
    tools = {tool.function: tool for tool in catalog.tools}
    aliases, composed = apply_overlays(overlays, tools=[tool.name for tool in catalog.tools], functions=tools)
    by_name = {tool.name: tool for tool in catalog.tools}
    reserved = {camel for name in composed for camel in _camel_names(name)} | set(composed) | set(aliases)
    camels = choose_camel_names({function: tool.name for function, tool in tools.items()})
    reserved |= set(tools)
    modules = [
        WrapperModule(
            server=catalog.server, tool=tool, function=function, camel=_unless_taken(camels.get(function), reserved)
        )
        for function, tool in tools.items()
    ]
    modules += [
        WrapperModule(
            server=catalog.server,
            tool=by_name[tool],
            function=name,
            camel=_unless_taken(choose_camel_names({name: name}).get(name), reserved | set(camels.values())),
        )
        for name, tool in aliases.items()
    ]
    return _Package(server=catalog.server, modules=tuple(modules), composed=composed)


def _camel_names(function: str) -> list[str]:
    camel = camel_case(function)
    return [camel] if camel != function else []


def _unless_taken(name: str | None, taken: set[str]) -> str | None:
    return None if name in taken else name


def _format_import(module: str, names: list[str]) -> list[str]:
    line = f"from .{module} import {', '.join(names)}"
    return [line] if len(line) <= WIDTH else [f"from .{module} import (", *(f"    {name}," for name in names), ")"]


def _sort_key(name: str) -> tuple[int, str]:
    """Constants, types, functions: the order in which a linter wants them."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name.lstrip("_")[:1].isupper() else 2), name
