"""Kubernetes objects as plain JSON."""

import sys
from collections.abc import Collection
from typing import Any

from mcp_exec_api.constants import LABEL_NAME, MANAGED_BY

Object = dict[str, Any]


def compact(item: Object, former: Object | None = None) -> Object:
    """Return a copy of an object without `managedFields` that holds equal texts once in memory.

    Thousands of similar objects, such as the pods of a pool, then take less than a third of their memory. What is
    equal in `former`, an earlier compact copy, is taken from there: most events of a pod change only its status.
    """
    known = former or {}
    metadata = {name: value for name, value in item["metadata"].items() if name != "managedFields"}
    shared = _share_members(item, known, but="metadata")
    return shared | {"metadata": _share_members(metadata, known.get("metadata") or {})}


def _share_members(values: Object, known: Object, *, but: str = "") -> Object:
    return {
        sys.intern(name): known[name] if name in known and known[name] == value else _share(value)
        for name, value in values.items()
        if name != but
    }


def _share(value: Any) -> Any:
    if isinstance(value, dict):
        return {sys.intern(name): _share(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_share(each) for each in value]
    return sys.intern(value) if isinstance(value, str) else value


def drop_empty_fields(fields: Object) -> Object:
    """Return the fields of an API object without those that are null or an empty string.

    API servers before Kubernetes 1.24, if built by Go 1.22 or later, read an empty string as null and reject it.
    """
    return {name: value for name, value in fields.items() if value is not None and value != ""}


def is_release_secret(secret: Object, names: Collection[str]) -> bool:
    """Return whether a Secret holds keys of a release: by its name, or by the label that the chart sets on each."""
    metadata = secret.get("metadata") or {}
    return metadata.get("name") in names or (metadata.get("labels") or {}).get(LABEL_NAME) == MANAGED_BY


def describe_release_secret(name: str) -> str:
    """Return the message for a ToolServer that names such a Secret."""
    return f"Secret {name} holds keys of an mcp-exec release and is not given to servers: use another Secret"
