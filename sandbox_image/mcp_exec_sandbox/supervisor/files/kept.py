"""What the supervisor keeps about files: of the working folder between runs, and of one run for its end."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp_exec_sandbox.protocol import ARTIFACTS_FOLDER

if TYPE_CHECKING:
    from mcp_exec_sandbox.supervisor.files.artifacts import ArtifactFolder
    from mcp_exec_sandbox.supervisor.files.workspace import WorkspaceFolder


@dataclass(kw_only=True)
class FilesReport:
    """What became of the files of a run, for the event `end`."""

    workspace: dict[str, Any] | None = None
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was not saved, for people."""


@dataclass(kw_only=True)
class KeptFiles:
    """What the supervisor knows about the files in the working folder, from one run of a session to the next."""

    root: Path
    """The working folder."""
    workspace: "WorkspaceFolder | None" = None
    artifacts: "ArtifactFolder | None" = None

    def make_artifacts_folder(self) -> None:
        """Make the folder of artifacts, which code may write to without making it."""
        (self.root / ARTIFACTS_FOLDER).mkdir(exist_ok=True)

    def has_artifacts(self) -> bool:
        """Return whether there is anything in the folder of artifacts, or something else in its place."""
        try:
            with os.scandir(self.root / ARTIFACTS_FOLDER) as entries:
                return next(entries, None) is not None
        except FileNotFoundError:
            return False
        except OSError:
            return True

    def take_untouched(self) -> bool:
        """Return whether no code has run since the workspace was saved. From now on some may have."""
        if self.workspace is None:
            return False
        is_untouched, self.workspace.is_untouched = self.workspace.is_untouched, False
        return is_untouched

    def forget(self) -> None:
        """Forget all files: the folder was emptied."""
        self.workspace = self.artifacts = None
