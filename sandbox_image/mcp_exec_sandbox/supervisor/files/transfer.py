"""Transfers of one run: put in place before the code, saved after it, by a thread while no code runs."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

from mcp_exec_sandbox.supervisor.files.artifacts import ArtifactUpload, ShownFiles
from mcp_exec_sandbox.supervisor.files.connection import (
    Deadline,
    FilesConnection,
    OutOfTime,
    TransferFailed,
    TransferRefused,
)
from mcp_exec_sandbox.supervisor.files.placement import place_workspace
from mcp_exec_sandbox.supervisor.files.request import FilesReport, KeptFiles, RequestedFiles
from mcp_exec_sandbox.supervisor.files.saving import save_workspace
from mcp_exec_sandbox.supervisor.files.workspace import TooManyFiles, WorkspaceFolder
from mcp_exec_sandbox.supervisor.settings import log_failure
from mcp_exec_tools.text import shorten_line

PLACE_SECONDS = 60.0
SAVE_SECONDS = 60.0
"""Time for the workspace and the artifacts together."""
_MESSAGE_CHARACTERS = 500
_REASONS = {"Conflict": "WorkspaceConflict", "TooLarge": "WorkspaceTooLarge"}
_UNAVAILABLE = "WorkspaceUnavailable"
_EXPECTED = (TransferRefused, TransferFailed, OutOfTime, TooManyFiles, OSError)
T = TypeVar("T")


class FilesTransfer:
    """Transfers of one run. No method raises: what fails is reported."""

    def __init__(self, *, request: RequestedFiles | None, kept: KeptFiles, is_untouched: bool) -> None:
        """Prepare. `is_untouched` means that no code has run since the workspace was saved or put in place."""
        kept.workspace = self._workspace = kept.workspace or WorkspaceFolder(root=kept.root)
        self._kept = kept
        self._request = request
        self._is_untouched = is_untouched
        self._deadline = Deadline(PLACE_SECONDS)
        self._client: FilesConnection | None = None
        self._base: int | None = None
        self.shown = ShownFiles()

    async def place(self) -> str:
        """Put the workspace in place. Return the problem, or an empty text."""
        self._deadline = Deadline(PLACE_SECONDS)
        return await _run_in_thread(self._place)

    def writes(self, may_save: bool) -> bool:
        """Return whether the workspace is saved after the run."""
        request = self._request
        return (
            may_save
            and self._base is not None
            and request is not None
            and request.workspace is not None
            and request.workspace.mode == "Write"
        )

    async def finish(self, *, has_work: bool, may_save: bool, keeps_artifacts: bool) -> FilesReport:
        """Save the workspace and store the artifacts, if the run `has_work`."""
        report = FilesReport()
        if self._base is not None:
            report.workspace = {"base": self._base}
        if has_work:
            self._deadline = Deadline(SAVE_SECONDS)
            await _run_in_thread(lambda: self._finish(report, may_save, keeps_artifacts))
        return report

    def cancel(self) -> None:
        """End the transfer in progress, at its next step."""
        self._deadline.cancel()
        if self._client is not None:
            self._client.abort()

    def _connect(self, request: RequestedFiles) -> FilesConnection:
        client = FilesConnection(host=request.host, port=request.port, token=request.token, deadline=self._deadline)
        self._client = client
        return client

    def _place(self) -> str:
        assert self._request is not None  # noqa: S101 - it has a workspace
        try:
            with closing(self._connect(self._request)) as client:
                place_workspace(self._workspace, client, deadline=self._deadline, is_untouched=self._is_untouched)
        except _EXPECTED as error:
            return shorten_line(f"the workspace's files are not in place: {error}", _MESSAGE_CHARACTERS)
        except Exception as error:
            log_failure("a workspace was not put in place", error)
            return "the workspace's files are not in place: the supervisor failed; see the log of the sandbox"
        self._base = self._workspace.base.version if self._workspace.base is not None else None
        return ""

    def _finish(self, report: FilesReport, may_save: bool, keeps_artifacts: bool) -> None:
        if self._request is None:
            report.notes.append("the files in the folder artifacts are not kept: this installation stores none")
            return
        with closing(self._connect(self._request)) as client:
            if self.writes(may_save):
                self._save(report, client)
            if keeps_artifacts and self._kept.has_artifacts():
                self._store_artifacts(report, client, self._request)

    def _save(self, report: FilesReport, client: FilesConnection) -> None:
        assert report.workspace is not None  # noqa: S101 - it is in place
        try:
            saved = save_workspace(self._workspace, client, deadline=self._deadline)
        except _EXPECTED as error:
            report.workspace |= {
                "reason": _find_reason(error),
                "message": shorten_line(str(error), _MESSAGE_CHARACTERS),
            }
        except Exception as error:
            log_failure("a workspace was not saved", error)
            report.workspace |= {"reason": _UNAVAILABLE, "message": "the supervisor failed; see the log of the sandbox"}
        else:
            report.workspace |= {
                "version": saved.version,
                "changedFiles": saved.changed_files,
                "bytes": saved.bytes,
                "leftOut": saved.left_out,
            }
            report.notes += [f"not saved to the workspace: {note}" for note in saved.notes]
            if saved.left_out > len(saved.notes):
                report.notes.append(f"not saved to the workspace: {saved.left_out - len(saved.notes)} more")
        if message := report.workspace.get("message"):
            report.notes.append(f"the workspace was not saved: {message}")

    def _store_artifacts(self, report: FilesReport, client: FilesConnection, request: RequestedFiles) -> None:
        upload = ArtifactUpload(
            kept=self._kept,
            shown=self.shown,
            client=client,
            deadline=self._deadline,
            max_artifacts=request.max_artifacts,
            max_bytes=request.max_artifact_bytes,
        )
        try:
            upload.run()
        except OutOfTime as error:
            upload.notes.append(f"the rest: {error}")
        except Exception as error:
            log_failure("artifacts were not stored", error)
            upload.notes.append("the rest: the supervisor failed; see the log of the sandbox")
        report.artifacts = upload.stored
        report.notes += [f"not kept as an artifact: {note}" for note in upload.notes[:20]]


async def _run_in_thread(work: Callable[[], T]) -> T:
    """Run in a thread of its own, which ends with the work: code that runs later must not find it in its limits."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as caught:
            error = caught
        loop.call_soon_threadsafe(settle, result, error)

    thread = threading.Thread(target=run, name="files", daemon=True)
    thread.start()
    result = await future
    thread.join(0.1)
    return result


def _find_reason(error: Exception) -> str:
    if isinstance(error, TooManyFiles):
        return "WorkspaceTooLarge"
    return _REASONS.get(error.reason, _UNAVAILABLE) if isinstance(error, TransferRefused) else _UNAVAILABLE
