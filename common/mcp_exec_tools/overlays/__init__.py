"""Overlays: aliases of tools under the names that users know, and functions composed of tools.

An overlay is a folder with an `overlay.json`:

    {"aliases": {"executeSQL": "execute_sql"},
     "functions": {"compare_libraries": {
         "needs": ["resolve-library-id", "query-docs"], "summary": "...", "input_schema": {...}}}}

and the source of each function in `<function>.py.in`. An overlay names no server. It adds an alias or a function to
every server that has the tools that it needs, unless a tool has the same name.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, Self

_SHIPPED: Final = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class ComposedFunction:
    """Function composed of tools."""

    needs: tuple[str, ...]
    """Names of the tools that it calls."""
    summary: str
    input_schema: Mapping[str, Any]
    """JSON Schema of its keyword arguments."""
    source: str


@dataclass(frozen=True, kw_only=True)
class Overlay:
    """Aliases and functions that are added to each server with the needed tools."""

    needs: tuple[str, ...] = ()
    """Names of tools. The overlay applies to a server only if it has all of them."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """The tool's name by alias."""
    functions: Mapping[str, ComposedFunction] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read an overlay from its folder.

        Raises ValueError if the overlay is invalid, and OSError if a file is missing.
        """
        data = json.loads((folder / "overlay.json").read_text(encoding="utf-8"))
        _check_keys(data, {"needs", "aliases", "functions"}, folder)
        names = [*data.get("aliases", {}), *data.get("functions", {})]
        if invalid_names := [name for name in names if not (name.isidentifier() and name.isascii())]:
            raise ValueError(f"{folder}: {invalid_names[0]!r} is not a valid function name")
        if invalid_aliases := [name for name, tool in data.get("aliases", {}).items() if not isinstance(tool, str)]:
            raise ValueError(f"{folder}: the alias {invalid_aliases[0]!r} must map to the name of a tool")
        return cls(
            needs=tuple(data.get("needs", ())),
            aliases=data.get("aliases", {}),
            functions={name: _load_function(name, entry, folder) for name, entry in data.get("functions", {}).items()},
        )


@cache
def load_shipped() -> Mapping[str, Overlay]:
    """Return the overlays in this package, by name."""
    return {path.parent.name: Overlay.load(path.parent) for path in sorted(_SHIPPED.glob("*/overlay.json"))}


def apply_overlays(
    overlays: Iterable[Overlay], *, tools: Iterable[str], functions: Iterable[str]
) -> tuple[dict[str, str], dict[str, ComposedFunction]]:
    """Return the aliases and functions that the overlays add to a server with these tools and functions."""
    present, taken = set(tools), set(functions)
    aliases: dict[str, str] = {}
    composed: dict[str, ComposedFunction] = {}
    for overlay in overlays:
        if not present.issuperset(overlay.needs):
            continue
        for name, tool in sorted(overlay.aliases.items()):
            if tool in present and name not in taken:
                aliases[name] = tool
                taken.add(name)
        for name, function in sorted(overlay.functions.items()):
            if present.issuperset(function.needs) and name not in taken:
                composed[name] = function
                taken.add(name)
    return aliases, composed


def _load_function(name: str, entry: Mapping[str, Any], folder: Path) -> ComposedFunction:
    _check_keys(entry, {"needs", "summary", "input_schema"}, folder)
    source = (folder / f"{name}.py.in").read_text(encoding="utf-8")
    compile(source, f"{name}.py.in", "exec")
    return ComposedFunction(
        needs=tuple(entry["needs"]), summary=entry["summary"], input_schema=entry["input_schema"], source=source
    )


def _check_keys(entry: Mapping[str, Any], known: set[str], folder: Path) -> None:
    if unknown := set(entry) - known:
        raise ValueError(f"{folder}: an overlay has no field {', '.join(sorted(unknown))}")
