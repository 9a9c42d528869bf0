"""Files of one run: its workspace and its artifacts. What moves them is imported by the first run that has any."""

from typing import TYPE_CHECKING, Any

from mcp_exec_sandbox.supervisor.files.request import FilesReport, KeptFiles, RequestedFiles

if TYPE_CHECKING:
    from mcp_exec_sandbox.supervisor.files.transfer import FilesTransfer


class RunFiles:
    """Transfers of one run. No method raises: what fails is reported."""

    def __init__(self, *, request: RequestedFiles | None, kept: KeptFiles) -> None:
        self._request = request
        self._kept = kept
        self._is_untouched = kept.take_untouched()
        self._transfer: FilesTransfer | None = None
        self.is_placing = False
        """Whether the workspace is being put in place."""
        self.report = FilesReport()
        """What was saved and stored, after `finish`."""

    @property
    def has_workspace(self) -> bool:
        """Whether the run has a workspace, which must be in place before its code starts."""
        return self._request is not None and self._request.workspace is not None

    async def place(self) -> str:
        """Put the workspace in place. Return the problem, or an empty text."""
        self.is_placing = True
        problem = await self._load().place()
        self.is_placing = False
        return problem

    def show(self, message: dict[str, Any]) -> None:
        """Take in the runner's message about a file that the code shows."""
        self._load().shown.add(message)

    def has_work(self, *, may_save: bool, keeps_artifacts: bool) -> bool:
        """Return whether there is anything to save after the run."""
        saves = self._transfer is not None and self._transfer.writes(may_save)
        return saves or (keeps_artifacts and self._kept.has_artifacts())

    async def finish(self, *, may_save: bool, keeps_artifacts: bool) -> None:
        """Save the workspace and store the artifacts, if the run may. Call it while no code runs."""
        has_work = self.has_work(may_save=may_save, keeps_artifacts=keeps_artifacts)
        if has_work or self._transfer is not None:
            transfer = self._load()
            self.report = await transfer.finish(has_work=has_work, may_save=may_save, keeps_artifacts=keeps_artifacts)

    def cancel(self) -> None:
        """End the transfer in progress, at its next step."""
        if self._transfer is not None:
            self._transfer.cancel()

    def _load(self) -> "FilesTransfer":
        if self._transfer is None:
            from mcp_exec_sandbox.supervisor.files.transfer import FilesTransfer

            self._transfer = FilesTransfer(request=self._request, kept=self._kept, is_untouched=self._is_untouched)
        return self._transfer
