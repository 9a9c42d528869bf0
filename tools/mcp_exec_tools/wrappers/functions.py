"""Functions that a server's package has: one for each tool, and those that overlays add. They are in no language."""

import keyword
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from mcp_exec_tools.catalog import Catalog, Tool
from mcp_exec_tools.names import camel_case, identifier, snake_case
from mcp_exec_tools.overlays import Additions, ComposedFunction, Overlay, apply_overlays
from mcp_exec_tools.schemas.parameters import Parameters, read_parameters
from mcp_exec_tools.wrappers.text import split_description
from mcp_exec_tools.wrappers.types import Kind, TypeBuilder, pascal_case

_ALIAS: Final = 50
_SPELLED: Final = 100
"""Longest name of a parameter that has other spellings."""


@dataclass(frozen=True, kw_only=True)
class WrapperFunction:
    """Function that calls one tool."""

    server: str
    """The server's name in calls."""
    tool: Tool
    function: str
    aliases: tuple[str, ...] = ()
    """The function's camelCase names: `executeSql` and `executeSQL`, without those that are taken."""
    fixed_arguments: Mapping[str, str] = field(default_factory=dict)
    """Arguments that the function adds to each call."""
    other_spellings: Mapping[str, str] = field(default_factory=dict)
    """The parameter's name by another one that users know."""
    result_format: str | None = None
    """Name of the format of the result that the sandbox reads, see `mcp_exec_tools.overlays.read_result`."""

    @property
    def names(self) -> list[str]:
        """The names that the function's module defines, types first."""
        return [self.input, self.response, *self.aliases, self.function]

    @property
    def input(self) -> str:
        """The type of the arguments."""
        return f"{pascal_case(self.function)}Input"

    @property
    def response(self) -> str:
        """The type of the result."""
        return f"{pascal_case(self.function)}Response"

    @cached_property
    def parameters(self) -> Parameters:
        """The tool's parameters."""
        return read_parameters(self.tool.input_schema)

    def build_types(self, *, reserved: Collection[str], measure: Callable[[Kind], int]) -> TypeBuilder:
        """Return the definitions of the arguments and the result, see `TypeBuilder`."""
        types = TypeBuilder(self.input, self.response, reserved=reserved, measure=measure)
        types.define_arguments(self.input, self.parameters, doc=f"Arguments of `{self.function}`.")
        types.define(self.response, self.tool.returned_schema or {}, doc=f"Result of `{self.function}`.")
        return types

    def list_spellings(self, code_names: Mapping[str, str]) -> dict[str, str]:
        """Return the parameter's name by each alternative spelling that is unambiguous, and by its name in code."""
        own = self.parameters.schemas
        spellings: dict[str, str | None] = {}
        for name in own:
            for spelling in {identifier(name), snake_case(name), camel_case(name)} if len(name) <= _SPELLED else ():
                spellings[spelling] = None if spellings.get(spelling, name) != name else name
        known = {spelling: name for spelling, name in self.other_spellings.items() if name in own} | spellings
        known |= {code_name: name for name, code_name in code_names.items()}
        return {spelling: name for spelling, name in sorted(known.items()) if name is not None and spelling not in own}


@dataclass(frozen=True, kw_only=True)
class ServerFunctions:
    """All functions of one server's package."""

    server: str
    functions: tuple[WrapperFunction, ...]
    composed: Mapping[str, ComposedFunction]
    composed_aliases: Mapping[str, tuple[str, ...]]
    """The camelCase names of each composed function."""

    @cached_property
    def aliases(self) -> Mapping[str, tuple[str, ...]]:
        """The camelCase names of each function."""
        return {each.function: each.aliases for each in self.functions} | dict(self.composed_aliases)

    @cached_property
    def summaries(self) -> dict[str, str]:
        """The first line of each function's description, ordered by name."""
        found = {each.function: split_description(each.tool.description, each.function)[0] for each in self.functions}
        found |= {name: function.summary for name, function in self.composed.items()}
        return dict(sorted(found.items()))

    @cached_property
    def exports(self) -> dict[str, list[str]]:
        """The names that the package has from each module, ordered by module. The first of two counts."""
        exports = {each.function: each.names for each in self.functions}
        exports |= {name: [name, *aliases] for name, aliases in self.composed_aliases.items()}
        taken: set[str] = set()
        for function, names in sorted(exports.items()):
            exports[function] = sorted((name for name in dict.fromkeys(names) if name not in taken), key=sort_key)
            taken.update(names)
        return dict(sorted(exports.items()))


def list_functions(catalog: Catalog, overlays: Iterable[Overlay], *, language: str) -> ServerFunctions:
    """Return the functions of a server's package, without composed ones that have no source in the language."""
    added = apply_overlays(overlays, catalog)
    composed = {name: function for name, function in added.composed.items() if language in function.sources}
    functions = {tool.function: tool for tool in added.catalog.tools}
    functions |= {name: function.tool for name, function in added.functions.items()}
    spelled = choose_aliases(added)
    return ServerFunctions(
        server=catalog.server,
        functions=tuple(
            WrapperFunction(
                server=catalog.server,
                tool=tool,
                function=function,
                aliases=spelled[function],
                fixed_arguments=added.functions[function].arguments if function in added.functions else {},
                other_spellings=added.spellings.get(tool.name, {}),
                result_format=added.result_formats.get(tool.name),
            )
            for function, tool in functions.items()
        ),
        composed=composed,
        composed_aliases={name: spelled[name] for name in composed},
    )


def choose_aliases(added: Additions) -> dict[str, tuple[str, ...]]:
    """Return the camelCase names of each function of a server's package."""
    tools = {tool.function: tool.name for tool in added.catalog.tools}
    names = {name: name for name in (*added.functions, *added.composed)}
    # a name that an overlay adds has precedence over another spelling of a tool
    spelled = choose_camel_names(tools, reserved=names)
    taken = {*tools, *(alias for aliases in spelled.values() for alias in aliases)}
    return spelled | choose_camel_names(names, reserved=taken)


def choose_camel_names(functions: Mapping[str, str], *, reserved: Iterable[str] = ()) -> dict[str, tuple[str, ...]]:
    """Return the camelCase names of functions that nothing else has, given the tool's name of each function.

    A name with an initialism has two: `executeSql` and `executeSQL`.
    """
    camel_names: dict[str, tuple[str, ...]] = dict.fromkeys(functions, ())
    taken = {*functions, *reserved}
    for initialisms in (False, True):  # a plain name has precedence over another function's name in capitals
        for function, name in sorted(functions.items(), key=lambda item: (camel_case(item[1]) != item[1], item)):
            camel = camel_case(name, initialisms=initialisms)
            if len(camel) <= _ALIAS and camel not in taken and camel.isidentifier() and not keyword.iskeyword(camel):
                camel_names[function] += (camel,)
                taken.add(camel)
    return camel_names


def sort_key(name: str) -> tuple[int, str]:
    """Return the key that sorts names as a linter expects: constants, types, functions."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name.lstrip("_")[:1].isupper() else 2), name
