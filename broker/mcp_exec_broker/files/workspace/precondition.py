"""Preconditions of writes: what the writer has seen must still be there (RFC 9110, If-Match and If-None-Match)."""

import re
from dataclasses import dataclass
from typing import Final

from mcp_exec_broker.files.errors import FilesRefused, build_invalid
from mcp_exec_broker.files.workspace.manifest import Manifest
from mcp_exec_common.broker.files import FilesReason, build_tag

_MAX_HEADER: Final = 2000
_MAX_TAGS: Final = 20
_TAG: Final = re.compile(r'\s*(W/)?"([!#-~]{0,100})"\s*')
_ANY: Final = "*"


@dataclass(frozen=True, kw_only=True)
class Precondition:
    """What must hold of a workspace's newest version, or of one of its files, when a write takes place."""

    tags: frozenset[str] | None = None
    """Tags of a version, or digests of the file, one of which must be the current one. None: there is no condition."""
    must_be_new: bool = False
    """Whether the file must not exist yet, or without a path no version of the workspace."""

    def check(self, id: str, head: Manifest, path: str | None = None) -> None:
        """Raise FilesRefused (OUTDATED) if a workspace, or the file at a path, is not as expected."""
        entry = None if path is None else head.files.get(path)
        exists = head.version > 0 if path is None else entry is not None
        what = "the workspace" if path is None else f"file {path[:100]!r}"
        if self.must_be_new and exists:
            raise _outdated(f"If-None-Match: {what} exists, in version {head.version}", head.version)
        if self.tags is None or (_ANY in self.tags and exists):
            return
        current = {build_tag(id, head.version)} | ({entry.sha256} if entry is not None else set())
        if not current & self.tags:
            state = "has another tag" if exists else "does not exist"
            raise _outdated(f"If-Match: {what} {state}, in version {head.version}", head.version)

    def check_missing(self) -> None:
        """Raise FilesRefused (OUTDATED) if the workspace, which does not exist, must exist."""
        if self.tags is not None:
            raise _outdated("If-Match: the workspace does not exist", 0)


NO_CONDITION: Final = Precondition()


def parse_precondition(if_match: str | None, if_none_match: str | None) -> Precondition:
    """Return the precondition in the headers of a write. Raises FilesRefused (INVALID)."""
    if if_none_match is not None and if_none_match.strip() != _ANY:
        raise build_invalid("If-None-Match: a write allows * only, which means that the file must not exist")
    return Precondition(tags=None if if_match is None else _parse_tags(if_match), must_be_new=if_none_match is not None)


def _parse_tags(text: str) -> frozenset[str]:
    if text.strip() == _ANY:
        return frozenset({_ANY})
    parts = text.split(",") if len(text) <= _MAX_HEADER else []
    found = [_TAG.fullmatch(part) for part in parts]
    if not 0 < len(found) <= _MAX_TAGS or not all(found):
        raise build_invalid(
            f"If-Match: must be * or at most {_MAX_TAGS} ETags in quotation marks, and is {text[:80]!r}"
        )
    # a weak tag never matches
    return frozenset(match[2] for match in found if match is not None and match[1] is None)


def _outdated(message: str, version: int) -> FilesRefused:
    return FilesRefused(FilesReason.OUTDATED, f"{message}; read it again, and repeat the change", version=version)
