"""Secrets of a release, which no ToolServer may use."""

from collections.abc import Collection

from mcp_exec_api.constants import LABEL_NAME, MANAGED_BY
from mcp_exec_common.kube.objects import Object


def is_release_secret(secret: Object, names: Collection[str]) -> bool:
    """Return whether a Secret holds keys of a release: by its name, or by the label that the chart sets on each."""
    metadata = secret.get("metadata") or {}
    return metadata.get("name") in names or (metadata.get("labels") or {}).get(LABEL_NAME) == MANAGED_BY


def describe_release_secret(name: str) -> str:
    """Return the message for a ToolServer that names such a Secret."""
    return f"Secret {name} holds keys of an mcp-exec release and is not given to servers: use another Secret"
