"""Bounded texts and lean API objects."""

from typing import Any

from mcp_exec_tools.text import cut_marker, shorten, shorten_json, shorten_line

__all__ = ["cut_marker", "drop_empty_fields", "shorten", "shorten_json", "shorten_line"]


def drop_empty_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an API object without those that are null or an empty string.

    API servers before Kubernetes 1.24, if built by Go 1.22 or later, read an empty string as null and reject it.
    """
    return {name: value for name, value in fields.items() if value is not None and value != ""}
