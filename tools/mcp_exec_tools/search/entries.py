"""Entries of the search index: functions that code can import."""

from dataclasses import dataclass
from typing import Any

from mcp_exec_tools.catalog import SKILLS, Catalog, Schema, Tool
from mcp_exec_tools.overlays import apply_overlays, load_shipped


@dataclass(frozen=True, kw_only=True)
class SearchEntry:
    """Function that can be imported: a tool's or an overlay's."""

    server: str
    module: str
    function: str
    name: str
    """The tool's name, from which the function's name is made."""
    needs: tuple[str, ...]
    """Names of the tools that it calls."""
    description: str
    input_schema: Schema
    output_schema: Schema | None
    added: bool
    """Whether it comes from an overlay."""
    is_skill: bool = False
    """Whether it is the function `run` of a skill."""

    def to_json(self, level: str) -> dict[str, Any]:
        """Return the entry as a search result of a level of detail."""
        result: dict[str, Any] = {"name": self.function, "server": self.server}
        if self.is_skill:
            result["kind"] = "skill"
        if level == "name_only":
            return result
        line = f"from servers.{self.module} import {self.function}"
        if self.is_skill:
            line = f"from {SKILLS}.{self.function} import run"
        result |= {"description": self.description, "import": line}
        if level == "full":
            # Imported if it is needed, not in every idle sandbox.
            from mcp_exec_tools.wrappers.signature import format_signature

            result |= {
                "signature": format_signature(
                    "run" if self.is_skill else self.function, self.input_schema, self.output_schema
                ),
                "input_schema": self.input_schema,
                "output_schema": self.output_schema,
            }
        return result


def list_entries(catalog: Catalog, module: str) -> list[SearchEntry]:
    """List the functions of a server's package, ordered by name."""
    if catalog.has_skills:
        return [_build_skill(tool, module) for tool in catalog.tools]
    added = apply_overlays(load_shipped().values(), catalog)
    functions = [(tool, False) for tool in added.catalog.tools]
    functions += [(function.tool, True) for function in added.functions.values()]
    entries = [
        SearchEntry(
            server=catalog.server,
            module=module,
            function=tool.function,
            name=tool.function if is_added else tool.name,
            needs=(tool.name,),
            description=tool.description,
            input_schema=tool.input_schema,
            output_schema=tool.returned_schema,
            added=is_added,
        )
        for tool, is_added in functions
    ]
    entries += [
        SearchEntry(
            server=catalog.server,
            module=module,
            function=name,
            name=name,
            needs=function.needs,
            description=function.summary,
            input_schema=function.input_schema,
            output_schema=None,
            added=True,
        )
        for name, function in added.composed.items()
    ]
    return sorted(entries, key=lambda entry: entry.name)


def _build_skill(tool: Tool, module: str) -> SearchEntry:
    """Return the entry of a skill, which may be found by all: it needs the tools only when it runs."""
    return SearchEntry(
        server=SKILLS,
        module=module,
        function=tool.name,
        name=tool.name,
        needs=(),
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=None,
        added=False,
        is_skill=True,
    )
