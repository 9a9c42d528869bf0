"""Listings of tools in a form that the SDK accepts: it refuses all tools of a server for one that is malformed."""

from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types
from mcp.client.session import ClientSession
from pydantic import ValidationError

_METHOD: Final = "tools/list"
_KEPT: Final = ("name", "title", "description", "inputSchema", "outputSchema")

Object = dict[str, Any]


class RepairingDispatcher:
    """The SDK's dispatcher of a session, whose listings of tools are repaired."""

    def __init__(self, dispatcher: Any, *, is_modern: bool) -> None:
        self._dispatcher, self._is_modern = dispatcher, is_modern

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dispatcher, name)

    async def send_raw_request(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Send a request and return the result as on the wire."""
        result = await self._dispatcher.send_raw_request(method, *arguments, **options)
        return repair_listing(result, is_modern=self._is_modern) if method == _METHOD else result


def accept_malformed_tools(session: ClientSession, *, is_modern: bool) -> None:
    """Make a session list the other tools of a server that lists malformed ones.

    `is_modern` is whether it uses the protocol of 2026-07-28 or later, whose results need not be objects.
    """
    if not isinstance(session._dispatcher, RepairingDispatcher):  # noqa: SLF001 - there is no public way
        dispatcher: Any = RepairingDispatcher(session._dispatcher, is_modern=is_modern)  # noqa: SLF001
        session._dispatcher = dispatcher  # noqa: SLF001


def repair_listing(result: Any, *, is_modern: bool) -> Any:
    """Return the result of `tools/list` with tools that the SDK accepts. An entry without a name stays out."""
    if not isinstance(result, Mapping) or not isinstance(tools := result.get("tools"), list):
        return result
    named = [tool for tool in tools if isinstance(tool, dict) and isinstance(tool.get("name"), str)]
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
