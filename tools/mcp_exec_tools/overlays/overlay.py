"""One overlay, read from its folder."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, Self

from mcp_exec_tools.result_formats import FORMATS

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
class ToolCall:
    """Function that calls one tool with fixed arguments."""

    tool: str
    arguments: Mapping[str, str]
    """The fixed arguments. A server whose tool does not accept them does not get the function."""
    summary: str
    parameters: tuple[str, ...]
    """The other parameters in their positional order. Those that the tool does not have are left out."""
    required: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ResultOverlay:
    """How the results of a tool are read."""

    format: str
    """A key of `result_formats.FORMATS`."""
    output_schema: Mapping[str, Any]
    """JSON Schema of the value that code gets."""


@dataclass(frozen=True, kw_only=True)
class Overlay:
    """Names that are added to each server with the needed tools."""

    needs: tuple[str, ...] = ()
    """Names of tools. The overlay applies to a server only if it has all of them."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """The tool's name by alias."""
    calls: Mapping[str, ToolCall] = field(default_factory=dict)
    functions: Mapping[str, ComposedFunction] = field(default_factory=dict)
    spellings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The parameter's name by its other name, by the name of the tool."""
    results: Mapping[str, ResultOverlay] = field(default_factory=dict)
    """By the name of the tool."""

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read an overlay from its folder.

        Raises ValueError if the overlay is invalid, and OSError if a file is missing.
        """
        data = json.loads((folder / "overlay.json").read_text(encoding="utf-8"))
        _check_keys(data, {"needs", "aliases", "calls", "functions", "spellings", "results"}, folder)
        names = [name for key in ("aliases", "calls", "functions") for name in data.get(key, {})]
        if invalid_names := [name for name in names if not (name.isidentifier() and name.isascii())]:
            raise ValueError(f"{folder}: {invalid_names[0]!r} is not a valid function name")
        if invalid_aliases := [name for name, tool in data.get("aliases", {}).items() if not isinstance(tool, str)]:
            raise ValueError(f"{folder}: the alias {invalid_aliases[0]!r} must map to the name of a tool")
        return cls(
            needs=tuple(data.get("needs", ())),
            aliases=data.get("aliases", {}),
            calls={name: _load_call(entry, folder) for name, entry in data.get("calls", {}).items()},
            functions={name: _load_function(name, entry, folder) for name, entry in data.get("functions", {}).items()},
            spellings=data.get("spellings", {}),
            results={name: _load_result(name, entry, folder) for name, entry in data.get("results", {}).items()},
        )


@cache
def load_shipped() -> Mapping[str, Overlay]:
    """Return the overlays in this package, by name."""
    return {path.parent.name: Overlay.load(path.parent) for path in sorted(_SHIPPED.glob("*/overlay.json"))}


def _load_call(entry: Mapping[str, Any], folder: Path) -> ToolCall:
    _check_keys(entry, {"tool", "arguments", "summary", "parameters", "required"}, folder)
    return ToolCall(
        tool=entry["tool"],
        arguments=entry.get("arguments", {}),
        summary=entry["summary"],
        parameters=tuple(entry["parameters"]),
        required=tuple(entry["required"]),
    )


def _load_function(name: str, entry: Mapping[str, Any], folder: Path) -> ComposedFunction:
    _check_keys(entry, {"needs", "summary", "input_schema"}, folder)
    source = (folder / f"{name}.py.in").read_text(encoding="utf-8")
    compile(source, f"{name}.py.in", "exec")
    return ComposedFunction(
        needs=tuple(entry["needs"]), summary=entry["summary"], input_schema=entry["input_schema"], source=source
    )


def _load_result(name: str, entry: Mapping[str, Any], folder: Path) -> ResultOverlay:
    _check_keys(entry, {"format", "output_schema"}, folder)
    if entry["format"] not in FORMATS:
        raise ValueError(f"{folder}: {name} has the unknown format {entry['format']!r}; known are {', '.join(FORMATS)}")
    return ResultOverlay(format=entry["format"], output_schema=entry["output_schema"])


def _check_keys(entry: Mapping[str, Any], known: set[str], folder: Path) -> None:
    if unknown := set(entry) - known:
        raise ValueError(f"{folder}: an overlay has no field {', '.join(sorted(unknown))}")
