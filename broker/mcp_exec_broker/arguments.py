"""Arguments of a call against the tool's schema, before they travel."""

from collections.abc import Mapping
from typing import Any

from mcp_exec_api.tools.catalog import Tool


def parameters_of(tool: Tool) -> list[str]:
    """The tool's parameters, required ones first and with a star."""
    raise NotImplementedError


class Arguments:
    """Checks arguments. Validators are kept, by catalog."""

    def __init__(self, *, max_kept: int = 4096) -> None: ...

    def check(self, tool: Tool, arguments: Mapping[str, Any], *, catalog_hash: str) -> None:
        """Raises Failure (ToolError, InvalidArguments) with the parameters and what was probably meant.

        It takes a bounded time, and less than a millisecond for what tools really have: call it on the event loop.
        """
