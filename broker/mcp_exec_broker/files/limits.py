"""Limits on what owners may store."""

from dataclasses import dataclass
from typing import Final

MIB: Final = 1024 * 1024
GIB: Final = 1024 * MIB
MAX_COMMIT_BYTES: Final = 16 * MIB
"""Longest body of a commit."""
MAX_PATHS_BYTES: Final = 4 * MIB
"""Most bytes of all paths of a version, in UTF-8. In memory, a path may take four times as many."""


@dataclass(frozen=True, kw_only=True)
class StoreLimits:
    """Quotas and lifetimes."""

    workspace_bytes: int = GIB
    """Most bytes of the files of a version. A workspace may have a lower limit."""
    workspace_files: int = 20_000
    """Most files of a version. A workspace may have a lower limit."""
    file_bytes: int = 256 * MIB
    """Most bytes of a file."""
    owner_workspaces: int = 100
    """Most workspaces of an owner."""
    owner_bytes: int = 10 * GIB
    """Most bytes of an owner's objects: all versions, artifacts, and contents that no version has yet or any more."""
    namespace_bytes: int = 50 * GIB
    """Most bytes of the objects of all owners in a namespace: callers choose for which users they store."""
    workspace_ttl_seconds: int = 30 * 24 * 3600
    """Seconds after its last use at which a workspace is deleted, unless it has a value of its own."""
    artifact_ttl_seconds: int = 7 * 24 * 3600
    """Seconds after which an artifact is deleted."""
    artifact_bytes: int = 64 * MIB
    """Most bytes of an artifact."""
