"""Package of a server in TypeScript: `mod.js` with all functions, which runs as it is, and the declarations.

The functions are small and in one file, so that an import of a server with many tools neither opens a file for each nor
reads their types.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from mcp_exec_tools.catalog import Tool
from mcp_exec_tools.overlays import ComposedFunction
from mcp_exec_tools.wrappers.functions import ServerFunctions, WrapperFunction
from mcp_exec_tools.wrappers.text import WIDTH, clean_line
from mcp_exec_tools.wrappers.typescript.declaration import HEADER, format_declaration, name_parameters
from mcp_exec_tools.wrappers.typescript.text import (
    declare_name,
    format_comment,
    format_literal,
    format_own_key,
    list_exports,
)

_SELF_TYPES: Final = '// @ts-self-types="./mod.d.ts"'


@dataclass(frozen=True, kw_only=True)
class TypeScriptPackage:
    """Package of one server."""

    functions: ServerFunctions

    def files(self) -> dict[str, str]:
        """Return the files by their names."""
        files = {f"{each.function}.d.ts": format_declaration(each) for each in self.functions.functions}
        for name, function in self.functions.composed.items():
            files[f"{name}.js"] = f"{HEADER}\n{function.sources['typescript'].rstrip()}\n"
            files[f"{name}.d.ts"] = format_declaration(self._describe(name, function))
        return files | {"mod.js": self._module(), "mod.d.ts": self._declarations()}

    def _describe(self, name: str, function: ComposedFunction) -> WrapperFunction:
        tool = Tool(name=name, function=name, description=function.summary, input_schema=function.input_schema)
        aliases = self.functions.aliases[name]
        return WrapperFunction(server=self.functions.server, tool=tool, function=name, aliases=aliases)

    def _module(self) -> str:
        lines = [HEADER, _SELF_TYPES, 'import { callWrapped as $call } from "client";']
        for wrapper in sorted(self.functions.functions, key=lambda each: each.function):
            lines += ["", *_format_function(wrapper), *self._format_exports(wrapper.function)]
        for name in self.functions.composed:
            exported = [_rename(name, each) for each in self._list_exports(name)]
            lines += ["", *_format_export(exported, f' from "./{name}.js"')]
        return "\n".join([*lines, ""])

    def _declarations(self) -> str:
        listed = [clean_line(f"- {name}: {summary}", WIDTH - 4) for name, summary in self.functions.summaries.items()]
        server = clean_line(self.functions.server, 60)
        doc = format_comment(f"The MCP server {server}: one function per tool.", listed)
        types = {each.function: (each.input, each.response) for each in self.functions.functions}
        lines = [HEADER, *doc]
        for name, own in self.functions.exports.items():
            exported = [f"type {each}" for each in own if each in types.get(name, ())] + self._list_exports(name)
            lines += _format_export(exported, f' from "./{name}.d.ts"')
        return "\n".join([*lines, *([] if self.functions.exports else ["export {};"]), ""])

    def _list_exports(self, name: str) -> list[str]:
        """Return the names that a package exports of a function."""
        own = self.functions.exports[name]
        return [
            exported for each in (name, *self.functions.aliases[name]) if each in own for exported in list_exports(each)
        ]

    def _format_exports(self, name: str) -> list[str]:
        """Return the line that exports a function under its other names, if it has others."""
        function = declare_name(name)
        others = [_rename(function, each) for each in self._list_exports(name) if each != function]
        return _format_export(others, "") if others else []


def format_index(modules: Iterable[str]) -> dict[str, str]:
    """Return the files of the package of all servers, by the names of their packages."""
    names = sorted(modules)
    module = [HEADER, _SELF_TYPES, *(f'export * as {name} from "./{name}/mod.js";' for name in names), ""]
    types = [HEADER, *(f'export * as {name} from "./{name}/mod.d.ts";' for name in names), ""]
    return {"mod.js": "\n".join(module), "mod.d.ts": "\n".join(types)}


def _rename(name: str, exported: str) -> str:
    return name if name == exported else f"{name} as {exported}"


def _format_export(names: list[str], source: str) -> list[str]:
    line = f"export {{ {', '.join(names)} }}{source};"
    return [line] if len(line) <= WIDTH else ["export {", *(f"  {name}," for name in names), f"}}{source};"]


def _format_function(wrapper: WrapperFunction) -> list[str]:
    """Return the function's source."""
    required, names = wrapper.parameters.required, name_parameters(wrapper)
    parameters = {name: "{ required: true }" if name in required else "{}" for name in wrapper.parameters.schemas}
    options = {
        "spellings": _format_texts(wrapper.list_spellings(names)),
        "fixed": _format_texts(wrapper.fixed_arguments),
        "resultFormat": format_literal(wrapper.result_format) if wrapper.result_format else "",
        "isOpen": "true" if wrapper.parameters.is_open else "",
    }
    given = _format_object({key: text for key, text in options.items() if text})
    arguments = [format_literal(f"{wrapper.server}.{wrapper.tool.name}"), "values", _format_object(parameters)]
    return [
        f"export function {declare_name(wrapper.function)}(...values) {{",
        f"  return $call({', '.join([*arguments, *([given] if given != '{}' else [])])});",
        "}",
    ]


def _format_texts(texts: Mapping[str, str]) -> str:
    return _format_object({key: format_literal(text) for key, text in texts.items()}) if texts else ""


def _format_object(entries: Mapping[str, str]) -> str:
    return f"{{ {', '.join(f'{format_own_key(key)}: {text}' for key, text in entries.items())} }}" if entries else "{}"
