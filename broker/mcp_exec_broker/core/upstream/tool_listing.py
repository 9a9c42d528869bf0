"""The tools that a server lists: repaired for the SDK, and bounded. Pure.

The SDK refuses all tools of a server for one that is malformed, so listings are repaired first. A tool that exceeds a
bound is left out, and the others are kept.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import mcp_types as types
from mcp.client.session import ClientSession
from pydantic import ValidationError

from mcp_exec_broker.core.upstream.result_repair import CHECKED, repair_result
from mcp_exec_tools.text import shorten

_LIST: Final = "tools/list"
_CALL: Final = "tools/call"
_KEPT: Final = ("name", "title", "description", "inputSchema", "outputSchema")

Object = dict[str, Any]
_MAX_TOOLS: Final = 2000
_MAX_BYTES: Final = 4 * 1024 * 1024
"""Bytes of all kept tools as JSON."""
_MAX_RECEIVED: Final = 16 * 1024 * 1024
"""Bytes of all tools as JSON. No more pages are requested beyond them."""
_MAX_NODES: Final = 200_000
"""Values in the schemas of all kept tools, which take about 100 bytes of memory each."""
_MAX_STEPS: Final = 1_000_000
"""Values visited in all schemas, which takes about 0.3 s."""
_MAX_NAME: Final = 128
_MAX_TITLE: Final = 1024
_MAX_DESCRIPTION: Final = 16 * 1024
"""Maximum characters of a description; the rest is cut."""
_MAX_ANNOTATIONS: Final = 4 * 1024
_MAX_SCHEMA_BYTES: Final = 128 * 1024
_MAX_SCHEMA_NODES: Final = 10_000
_MAX_DEPTH: Final = 64
_MAX_KEYS: Final = 500
_MAX_ITEMS: Final = 2000
"""Items of a list, such as the values of an enumeration."""
_MAX_EXPANDED: Final = 50_000
_MAX_REFERENCES: Final = 32
"""Length of a chain of references."""
_MAX_REPORTED: Final = 20
_SHOWN_NAME: Final = 80
_NO_NAME: Final = "(no name)"
"""API servers may reject an empty text in a status, and a person does not see blanks."""


class RepairingDispatcher:
    """The SDK's dispatcher of a session, whose listings of tools and results of calls are repaired."""

    def __init__(self, dispatcher: Any, *, is_modern: bool) -> None:
        self._dispatcher, self._is_modern = dispatcher, is_modern

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dispatcher, name)

    async def send_raw_request(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Send a request and return the result as on the wire."""
        result = await self._dispatcher.send_raw_request(method, *arguments, **options)
        if method == _CALL and not _asks_for_input(result):
            repaired = repair_result(result, is_modern=self._is_modern)
            return {"content": [], "resultType": "complete", CHECKED: repaired}
        return repair_listing(result, is_modern=self._is_modern) if method == _LIST else result


def _asks_for_input(result: Any) -> bool:
    return isinstance(result, Mapping) and result.get("resultType", "complete") != "complete"


def accept_malformed_answers(session: ClientSession, *, is_modern: bool) -> None:
    """Make a session list the other tools of a server that lists malformed ones, and read malformed results.

    `is_modern` is whether it uses the protocol of 2026-07-28 or later, whose results need not be objects.
    """
    if not isinstance(session._dispatcher, RepairingDispatcher):  # noqa: SLF001 - there is no public way
        dispatcher: Any = RepairingDispatcher(session._dispatcher, is_modern=is_modern)  # noqa: SLF001
        session._dispatcher = dispatcher  # noqa: SLF001


def repair_listing(result: Any, *, is_modern: bool) -> Any:
    """Return the result of `tools/list` with tools that the SDK accepts. The name of an entry without one is empty."""
    if not isinstance(result, Mapping) or not isinstance(tools := result.get("tools"), list):
        return result
    named = [tool if isinstance(tool, dict) and isinstance(tool.get("name"), str) else {"name": ""} for tool in tools]
    return {**result, "tools": [_repair(tool, is_modern=is_modern) for tool in named]}


def _repair(tool: Object, *, is_modern: bool) -> Object:
    """Return a tool whose schemas are those of objects, and whose other fields are valid."""
    repaired = {**tool, "inputSchema": _repair_schema(tool.get("inputSchema")) or {"type": "object"}}
    output = tool.get("outputSchema")
    output = output if is_modern and isinstance(output, Mapping) else _repair_schema(output)
    repaired.pop("outputSchema", None)
    repaired |= {} if output is None else {"outputSchema": output}
    try:
        types.Tool.model_validate(repaired, by_name=False)
    except ValidationError:
        repaired = {name: repaired[name] for name in _KEPT if name in repaired}
        for name in ("title", "description"):
            if not isinstance(repaired.get(name), str):
                repaired.pop(name, None)
    return repaired


def _repair_schema(schema: Any) -> Object | None:
    """Return a schema of an object, or None: MCP requires `type`, which some servers leave out next to `anyOf`."""
    if not isinstance(schema, Mapping):
        return None
    kinds = schema.get("type") or "object"
    if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
        return None
    repaired = {**schema, "type": "object"}
    required, properties = schema.get("required"), schema.get("properties")
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        repaired.pop("required", None)
    if not isinstance(properties, Mapping):
        repaired.pop("properties", None)
    return repaired


class _Exceeded(Exception):
    """A tool exceeds a bound. The text names the bound and no text of the server."""


@dataclass(frozen=True, kw_only=True)
class OmittedEntry:
    """A tool that was left out."""

    name: str
    """Its name, cut, with unprintable characters escaped; `(no name)` if it is blank."""
    reason: str


@dataclass(kw_only=True, eq=False)
class ToolCollector:
    """The tools of one listing, page by page."""

    tools: list[dict[str, Any]] = field(default_factory=list)
    omitted: list[OmittedEntry] = field(default_factory=list)
    """The first 20 tools that were left out."""
    omitted_count: int = 0
    size: int = 0
    """Bytes of the kept tools as JSON."""
    steps_left: int = _MAX_STEPS
    """Values in schemas that may still be visited."""
    _named: dict[str, dict[str, Any]] = field(default_factory=dict)
    _received: int = 0
    _nodes: int = 0

    @property
    def is_full(self) -> bool:
        """Whether further pages are not worth a request."""
        return self._received > _MAX_RECEIVED or len(self.tools) >= _MAX_TOOLS or self.steps_left <= 0

    def add_all(self, tools: Sequence[dict[str, Any]]) -> bool:
        """Keep each tool that is within all bounds. Takes up to 0.3 s for a server that tries.

        A tool that is there already, in the same words, is skipped. Return False if all of them are.
        """
        fresh = [tool for tool in tools if self._named.get(str(tool.get("name"))) != tool]
        for tool in fresh:
            try:
                self._add(tool)
            except _Exceeded as error:
                self.omit(str(tool.get("name")), str(error))
        return bool(fresh) or not tools

    def omit(self, name: str, reason: str) -> None:
        """Record a tool that is left out."""
        self.omitted_count += 1
        if len(self.omitted) < _MAX_REPORTED:
            shown = ascii(name[:_SHOWN_NAME])[1:-1][:_SHOWN_NAME]
            self.omitted.append(OmittedEntry(name=shown if shown.strip() else _NO_NAME, reason=reason))

    def _add(self, tool: dict[str, Any]) -> None:
        name, listed = tool.get("name"), tool
        if isinstance(text := tool.get("description"), str):
            tool = {**tool, "description": shorten(text, _MAX_DESCRIPTION)}
        size = len(json.dumps(tool))
        self._received += size
        _check_name(name)
        if name in self._named:
            raise _Exceeded("an earlier tool of the server has this name")
        _check_length("the title", str(tool.get("title") or ""), _MAX_TITLE, unit="characters")
        _check_length("the annotations", json.dumps(tool.get("annotations") or {}), _MAX_ANNOTATIONS, unit="bytes")
        nodes = 0
        for key in ("inputSchema", "outputSchema"):
            if (schema := tool.get(key)) is not None:
                nodes += self._check_schema(key, schema)
        for what, used, limit in (
            ("tools", len(self.tools) + 1, _MAX_TOOLS),
            ("bytes of tools", self.size + size, _MAX_BYTES),
            ("values in schemas", self._nodes + nodes, _MAX_NODES),
        ):
            if used > limit:
                raise _Exceeded(f"the server has more than {limit} {what}")
        self.size += size
        self._nodes += nodes
        self._named[str(name)] = listed
        self.tools.append(tool)

    def _check_schema(self, key: str, schema: Any) -> int:
        _check_length(key, json.dumps(schema), _MAX_SCHEMA_BYTES, unit="bytes")
        if self.steps_left <= 0:
            raise _Exceeded("the schemas of the server's other tools are too large")
        walk = _SchemaWalk(root=schema)
        try:
            nodes = walk.measure(schema)
            walk.expand(schema)
        except _Exceeded as error:
            raise _Exceeded(f"{key} {error}") from None
        finally:
            self.steps_left -= walk.steps
        return nodes


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise _Exceeded("it has no name")
    if len(name) > _MAX_NAME:
        raise _Exceeded(f"the name has {len(name)} characters, allowed are {_MAX_NAME}")
    if not name.isascii() or not name.isprintable() or set(name) & set(" *\"'`\\"):
        # others look like another tool's name, or have a meaning in patterns
        raise _Exceeded("the name has characters other than printable ASCII without spaces, stars, quotes, backslashes")


def _check_length(what: str, text: str, limit: int, *, unit: str) -> None:
    if len(text) > limit:
        raise _Exceeded(f"{what} has {len(text)} {unit}, allowed are {limit}")


@dataclass(kw_only=True)
class _SchemaWalk:
    root: Any
    steps: int = 0
    _sizes: dict[str, int] = field(default_factory=dict)
    """Values that each reference expands to; 1 while that is measured, because recursion is no expansion."""

    def measure(self, schema: Any) -> int:
        """Return the number of values. Raises _Exceeded if depth, keys, items or values are too many."""
        nodes, stack = 0, [(schema, 1)]
        while stack:
            value, depth = stack.pop()
            nodes += 1
            self.steps += 1
            if nodes > _MAX_SCHEMA_NODES:
                raise _Exceeded(f"has more than {_MAX_SCHEMA_NODES} values")
            if depth > _MAX_DEPTH:
                raise _Exceeded(f"is nested deeper than {_MAX_DEPTH}")
            if isinstance(value, Mapping):
                if len(value) > _MAX_KEYS:
                    raise _Exceeded(f"has an object with {len(value)} keys, allowed are {_MAX_KEYS}")
                stack += [(item, depth + 1) for item in value.values()]
            elif isinstance(value, list):
                if len(value) > _MAX_ITEMS:
                    raise _Exceeded(f"has a list of {len(value)} items, allowed are {_MAX_ITEMS}")
                stack += [(item, depth + 1) for item in value]
        return nodes

    def expand(self, schema: Any, *, references: int = 0) -> int:
        """Return the number of values after all local references are replaced. Raises _Exceeded if it is too large."""
        if references > _MAX_REFERENCES:
            raise _Exceeded(f"has more than {_MAX_REFERENCES} references in a chain")
        total, stack = 0, [schema]
        while stack:
            value = stack.pop()
            total += 1
            self.steps += 1
            if isinstance(value, Mapping):
                stack += value.values()
                if isinstance(reference := value.get("$ref"), str):
                    total += self._expand_reference(reference, references=references + 1)
            elif isinstance(value, list):
                stack += value
            if total > _MAX_EXPANDED or self.steps > _MAX_EXPANDED:
                raise _Exceeded(f"expands to more than {_MAX_EXPANDED} values by its references")
        return total

    def _expand_reference(self, reference: str, *, references: int) -> int:
        if reference not in self._sizes:
            self._sizes[reference] = 1
            self._sizes[reference] = self.expand(self._resolve(reference), references=references)
        return self._sizes[reference]

    def _resolve(self, reference: str) -> Any:
        target = self.root if reference.startswith("#") else None
        for part in reference.removeprefix("#").strip("/").split("/")[: _MAX_DEPTH + 1]:
            if part:
                target = target.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(target, Mapping) else None
        return target
