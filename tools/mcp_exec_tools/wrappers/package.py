"""Packages of servers: their files and exported names. A package imports the module of a tool on first use."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from mcp_exec_tools.catalog import Catalog, assign_modules
from mcp_exec_tools.overlays import ComposedFunction, Overlay, apply_overlays, load_shipped
from mcp_exec_tools.schemas.parameters import Parameters, read_parameters
from mcp_exec_tools.schemas.reading import as_mapping, as_sequence, fits, is_nullable, merge_all_of, resolve_reference
from mcp_exec_tools.wrappers.module import HEADER, WrapperModule, choose_camel_names, split_description
from mcp_exec_tools.wrappers.text import WIDTH, clean_line, format_docstring, format_literal, format_value

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
    # the order of properties is that of positional arguments
    return json.dumps({"servers": servers}, separators=(",", ":")) + "\n"


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
class _Package:
    server: str
    modules: tuple[WrapperModule, ...]
    composed: Mapping[str, ComposedFunction]
    composed_aliases: Mapping[str, tuple[str, ...]]

    def files(self, *, stubs: bool) -> dict[str, str]:
        files = {f"{module.function}.py": module.source() for module in self.modules}
        for name, function in self.composed.items():
            aliases = [f"{alias} = {name}" for alias in self.composed_aliases[name]]
            body = [HEADER, function.source.rstrip(), *(["", "", *aliases] if aliases else []), ""]
            files[f"{name}.py"] = "\n".join(body)
        files["__init__.py"] = self._init()
        if stubs:
            files |= {f"{module.function}.pyi": module.stub() for module in self.modules}
            files["__init__.pyi"] = self._init_stub()
        return files

    def _exports(self) -> dict[str, list[str]]:
        """Return the names that the package has from each module, ordered by module. The first of two counts."""
        exports = {module.function: module.names for module in self.modules}
        exports |= {name: [name, *aliases] for name, aliases in self.composed_aliases.items()}
        taken: set[str] = set()
        for function, names in sorted(exports.items()):
            exports[function] = sorted((name for name in dict.fromkeys(names) if name not in taken), key=_sort_key)
            taken.update(names)
        return dict(sorted(exports.items()))

    def _init_stub(self) -> str:
        exports = self._exports()
        imports = [line for function, names in exports.items() for line in _format_import(function, names)]
        exported = [f"    {format_literal(name)}," for name in sorted(chain(*exports.values()), key=_sort_key)]
        body = ["__all__ = [", *exported, "]"] if exported else ["__all__: list[str] = []"]
        return "\n".join([HEADER, *imports, *([""] if imports else []), *body, ""])

    def _init(self) -> str:
        summaries = {
            module.function: split_description(module.tool.description, module.function)[0] for module in self.modules
        }
        summaries |= {name: function.summary for name, function in self.composed.items()}
        lines = [clean_line(f"- {name}: {summary}", WIDTH - 4) for name, summary in sorted(summaries.items())]
        docstring = format_docstring(
            f"The MCP server {clean_line(self.server, 60)}: one function per tool, each in its own file.", lines
        )
        table = [line for function, names in self._exports().items() for line in _format_entry(function, names)]
        names = ["_NAMES = {", *table, "}"] if table else ["_NAMES: dict[str, list[str]] = {}"]
        return "\n".join([HEADER, *docstring, "", *_IMPORTS, "", *names, *_LOADER, ""])


def _build_package(catalog: Catalog, overlays: Iterable[Overlay]) -> _Package:
    added = apply_overlays(overlays, catalog)
    tools = {tool.function: tool for tool in added.catalog.tools}
    functions = tools | {name: function.tool for name, function in added.functions.items()}
    names = {name: name for name in (*added.functions, *added.composed)}
    # a name that an overlay adds has precedence over another spelling of a tool
    spelled = choose_camel_names({function: tool.name for function, tool in tools.items()}, reserved=names)
    taken = {*tools, *(alias for aliases in spelled.values() for alias in aliases)}
    spelled |= choose_camel_names(names, reserved=taken)
    modules = [
        WrapperModule(
            server=catalog.server,
            tool=tool,
            function=function,
            aliases=spelled[function],
            fixed_arguments=added.functions[function].arguments if function in added.functions else {},
            other_spellings=added.spellings.get(tool.name, {}),
            result_format=added.result_formats.get(tool.name),
        )
        for function, tool in functions.items()
    ]
    composed_aliases = {name: spelled[name] for name in added.composed}
    return _Package(
        server=catalog.server, modules=tuple(modules), composed=added.composed, composed_aliases=composed_aliases
    )


def _format_entry(function: str, names: list[str]) -> list[str]:
    """Return the lines of a module's entry in the table of names."""
    key, literals = format_literal(function), [format_literal(name) for name in names]
    line = f"    {key}: [{', '.join(literals)}],"
    return [line] if len(line) <= WIDTH else [f"    {key}: [", *(f"        {each}," for each in literals), "    ],"]


def _format_import(module: str, names: list[str]) -> list[str]:
    line = f"from .{module} import {', '.join(names)}"
    return [line] if len(line) <= WIDTH else [f"from .{module} import (", *(f"    {name}," for name in names), ")"]


def _sort_key(name: str) -> tuple[int, str]:
    """Return the key that sorts names as a linter expects: constants, types, functions."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name.lstrip("_")[:1].isupper() else 2), name


_LONGEST: Final = 1000
"""Parameters are shown without types beyond this length of a signature, and left out beyond twice this length."""
_VALUES, _MEMBERS, _DEPTH, _TYPE = 6, 4, 3, 80
_SCALARS: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


def format_signature(function: str, input_schema: Mapping[str, Any], output_schema: Mapping[str, Any] | None) -> str:
    """Return the call of a function as Python: `get_forecast(location: str, days: int = 7) -> list[dict]`.

    Names are those that code must write. An optional parameter without a default is shown with None, which the broker
    leaves out. What must be passed together is said by the type of the first parameter. `def ` before the signature and
    `: ...` behind it make a definition.
    """
    parameters = read_parameters(input_schema)
    end = f") -> {_format_type(output_schema, output_schema, 0)}" if output_schema else ")"
    pieces, size = [], len(function) + len(end)
    for name, schema in parameters.schemas.items():
        piece = _format_parameter(name, schema, parameters)
        if size + len(piece) > _LONGEST:
            piece = parameters.code_names[name] + ("" if name in parameters.required else "=None")
        size += len(piece) + 2
        if size > 2 * _LONGEST:
            pieces.append(f"**{parameters.choose_name('more')}")
            break
        pieces.append(piece)
    else:
        if parameters.extra is not None:
            kind = _format_type(parameters.extra, input_schema, 0)
            pieces.append(f"**{parameters.choose_name('extra')}: {kind}")
    return f"{function}({', '.join(pieces)}{end}"


def _format_parameter(name: str, schema: object, parameters: Parameters) -> str:
    kind = _format_type(schema, parameters.schema, 0)
    if parameters.rules and name == next(iter(parameters.schemas)):
        kind = f"Annotated[{kind}, {'; '.join(parameters.rules)!r}]"
    default = "" if name in parameters.required else f" = {_format_default(schema)}"
    return f"{parameters.code_names[name]}: {kind}{default}"


def _format_type(schema: object, root: Mapping[str, Any], depth: int) -> str:
    resolved, _ = resolve_reference(as_mapping(schema), root)
    about = merge_all_of(as_mapping(resolved), root)
    kind = _format_plain_type(about, root, depth)
    accepts_null = is_nullable(as_mapping(schema)) or is_nullable(about)
    return f"{kind} | None" if accepts_null and kind not in ("Any", "None") and "| None" not in kind else kind


def _format_plain_type(about: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    options = as_sequence(about.get("anyOf")) or as_sequence(about.get("oneOf"))
    listed = [_list_values(about)] if _list_values(about) else [_list_values(as_mapping(each)) for each in options]
    if listed and all(listed):
        return _format_literals([value for values in listed for value in values])
    kinds = about.get("type")
    if depth > _DEPTH:
        return "Any"
    if options and kinds is None:
        return _join([_format_type(option, root, depth + 1) for option in options[: _MEMBERS + 1]])
    return _join(
        [_format_kind(kind, about, root, depth) for kind in (kinds if isinstance(kinds, list) else [kinds])[:8]]
    )


def _list_values(about: Mapping[str, Any]) -> list[Any]:
    """Return the only values that a schema allows, if it lists them."""
    return [about["const"]] if "const" in about else list(as_sequence(about.get("enum")))


def _format_kind(kind: object, about: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    if kind == "array":
        first = about.get("prefixItems", about.get("items"))
        items = first[: _MEMBERS + 1] if isinstance(first, list) else [first]
        item = _join([_format_type(each, root, depth + 1) for each in items])
        return "list" if item == "Any" else f"list[{item}]"
    if kind == "object":
        values = about.get("additionalProperties")
        if as_mapping(about.get("properties")) or not isinstance(values, Mapping):
            return "dict"
        value = _format_type(values, root, depth + 1)
        return "dict" if value == "Any" else f"dict[str, {value}]"
    return _SCALARS.get(kind, "Any") if isinstance(kind, str) else "Any"


def _format_literals(values: list[Any]) -> str:
    literals = [format_value(value) for value in values[:_VALUES]]
    text = ", ".join(each for each in literals if each is not None) + (", ..." if len(values) > _VALUES else "")
    if None not in literals and len(text) <= _TYPE and text.isprintable():
        return f"Literal[{text}]"
    return _join([_name_type(value) for value in values[:100]])


def _name_type(value: object) -> str:
    for kind in (bool, int, float, str, list, dict):
        if isinstance(value, kind):
            return kind.__name__
    return "None" if value is None else "Any"


def _format_default(parameter: object) -> str:
    about = as_mapping(parameter)
    default = about.get("default")
    if not fits(default, about):
        return "None"
    shown = format_value(default) or "None"
    return shown if len(shown) <= _TYPE and shown.isprintable() else "..."


def _join(types: list[str]) -> str:
    members = dict.fromkeys(types)
    return " | ".join(members) if 0 < len(members) <= _MEMBERS and "Any" not in members else "Any"
