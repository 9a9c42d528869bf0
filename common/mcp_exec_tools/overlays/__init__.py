"""Overlays: names that users know for tools that are called otherwise today, and functions composed of tools.

An overlay is a folder with an `overlay.json`:

    {"aliases": {"executeSQL": "execute_sql"},
     "functions": {"compare_libraries": {
         "needs": ["resolve-library-id", "query-docs"], "summary": "...", "input_schema": {...}}}}

and the source of each function in `<function>.py.in`. It names no server: each alias and each function is there where
the tools that it needs are, unless a tool bears its name already.
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
    """A function composed of tools."""

    needs: tuple[str, ...]
    """Own names of tools."""
    summary: str
    input_schema: Mapping[str, Any]
    """JSON Schema of what it takes by keyword."""
    source: str


@dataclass(frozen=True, kw_only=True)
class Overlay:
    """What is added to servers that have the tools for it."""

    needs: tuple[str, ...] = ()
    """Own names of tools without which none of it applies: they tell a server by what it has."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Other names of tools, and the tools' own names."""
    functions: Mapping[str, ComposedFunction] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Reads an overlay's folder.

        Raises ValueError where it says what no overlay can, and OSError where a file is missing.
        """
        data = json.loads((folder / "overlay.json").read_text(encoding="utf-8"))
        _check_keys(data, {"needs", "aliases", "functions"}, folder)
        names = [*data.get("aliases", {}), *data.get("functions", {})]
        if wrong := [name for name in names if not (name.isidentifier() and name.isascii())]:
            raise ValueError(f"{folder}: {wrong[0]!r} is no name of a function")
        if other := [name for name, tool in data.get("aliases", {}).items() if not isinstance(tool, str)]:
            raise ValueError(f"{folder}: {other[0]!r} is no name of a tool: it names none")
        return cls(
            needs=tuple(data.get("needs", ())),
            aliases=data.get("aliases", {}),
            functions={name: _load_function(name, entry, folder) for name, entry in data.get("functions", {}).items()},
        )


@cache
def load_shipped() -> Mapping[str, Overlay]:
    """The overlays that come with the product, by name."""
    return {path.parent.name: Overlay.load(path.parent) for path in sorted(_SHIPPED.glob("*/overlay.json"))}


def apply_overlays(
    overlays: Iterable[Overlay], *, tools: Iterable[str], functions: Iterable[str]
) -> tuple[dict[str, str], dict[str, ComposedFunction]]:
    """What the overlays add to a server with these tools, whose functions have these names."""
    have, taken = set(tools), set(functions)
    aliases: dict[str, str] = {}
    composed: dict[str, ComposedFunction] = {}
    for overlay in overlays:
        if not have.issuperset(overlay.needs):
            continue
        for name, tool in sorted(overlay.aliases.items()):
            if tool in have and name not in taken:
                aliases[name] = tool
                taken.add(name)
        for name, function in sorted(overlay.functions.items()):
            if have.issuperset(function.needs) and name not in taken:
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
        raise ValueError(f"{folder}: an overlay knows no {', '.join(sorted(unknown))}")
