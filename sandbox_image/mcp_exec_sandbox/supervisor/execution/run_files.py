"""Files of one run, as the run sees them. What transfers them is imported once a run has files: few have."""

from typing import TYPE_CHECKING, Any

from mcp_exec_sandbox.supervisor.files.kept import FilesReport, KeptFiles
from mcp_exec_sandbox.supervisor.files.request import RequestedFiles

if TYPE_CHECKING:
    from mcp_exec_sandbox.supervisor.files.transfer import FilesTransfer


class RunFiles:
    """Transfers of one run. No method raises: what fails is reported."""

    def __init__(self, *, request: RequestedFiles | None, kept: KeptFiles) -> None:
        self._request = request
        self._kept = kept
        self._is_untouched = kept.take_untouched()
        self._transfer: FilesTransfer | None = None

    @property
    def has_workspace(self) -> bool:
        """Whether the run has a workspace, which must be in place before its code starts."""
        return self._request is not None and self._request.workspace is not None

    async def place(self) -> str:
        """Put the workspace in place. Return the problem, or an empty text."""
        return await self._load().place()

    def show(self, message: dict[str, Any]) -> None:
        """Take in the runner's message about a file that the code shows."""
        self._load().shown.add(message)

    def has_work(self, *, may_save: bool, keeps_artifacts: bool) -> bool:
        """Return whether there is anything to save after the run."""
        saves = self._transfer is not None and self._transfer.writes(may_save)
        return saves or (keeps_artifacts and self._kept.has_artifacts())

    async def finish(self, *, may_save: bool, keeps_artifacts: bool) -> FilesReport:
        """Save the workspace and store the artifacts, if the run may. Call it while no code runs."""
        has_work = self.has_work(may_save=may_save, keeps_artifacts=keeps_artifacts)
        if not has_work and self._transfer is None:
            return FilesReport()
        return await self._load().finish(has_work=has_work, may_save=may_save, keeps_artifacts=keeps_artifacts)

    def cancel(self) -> None:
        """End the transfer in progress, at its next step."""
        if self._transfer is not None:
            self._transfer.cancel()

    def _load(self) -> "FilesTransfer":
        if self._transfer is None:
            from mcp_exec_sandbox.supervisor.files.transfer import FilesTransfer

            self._transfer = FilesTransfer(request=self._request, kept=self._kept, is_untouched=self._is_untouched)
        return self._transfer
