"""What a sandbox reports of a run's files. It is hostile, so everything is bounded here."""

from dataclasses import dataclass, field
from typing import Final

from mcp_exec_api.files import MAX_ARTIFACTS, Artifact, WorkspaceStatus
from mcp_exec_api.reasons.execution import Reason, ReasonTrait
from mcp_exec_common.kube.objects import Object, drop_empty_fields
from mcp_exec_common.supervisor.protocol import ArtifactEvent, EndedWorkspace
from mcp_exec_tools.text import shorten

_MAX_PREVIEWS: Final = 32 * 1024
"""Characters of all previews of an execution."""


@dataclass(kw_only=True)
class ArtifactCollector:
    """Artifacts of one run, in their order."""

    _artifacts: dict[str, Object] = field(default_factory=dict)
    """By id."""
    _left: int = _MAX_PREVIEWS

    def add(self, event: ArtifactEvent) -> None:
        """Take in an event. One too many changes nothing."""
        if event.id in self._artifacts or len(self._artifacts) >= MAX_ARTIFACTS:
            return
        preview = shorten(event.preview, self._left)
        self._left -= len(preview)
        artifact = Artifact(
            id=event.id,
            name=event.name,
            media_type=event.media_type,
            bytes=event.bytes,
            sha256=event.sha256,
            title=event.title,
            preview=preview,
        )
        self._artifacts[event.id] = drop_empty_fields(artifact.to_api())

    def build(self) -> list[Object]:
        """Return the artifacts for the status."""
        return list(self._artifacts.values())


def build_workspace(ended: EndedWorkspace | None) -> Object | None:
    """Return what the run read and saved for the status; None if the sandbox reported nothing."""
    if ended is None:
        return None
    status = WorkspaceStatus(**{**dict(ended), "reason": find_failure(ended)})
    return drop_empty_fields(status.to_api())


def find_failure(ended: EndedWorkspace | None) -> Reason:
    """Return why the workspace was not saved: a reason that a sandbox may give for that."""
    if ended is None or ended.reason is Reason.NONE:
        return Reason.NONE
    return ended.reason if ReasonTrait.FILES in ended.reason.traits else Reason.WORKSPACE_UNAVAILABLE
