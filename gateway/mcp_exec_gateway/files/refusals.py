"""Refusals of the broker about files, as problems."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from mcp_exec_common.broker.files import FilesReason
from mcp_exec_common.broker.files_client import FilesError
from mcp_exec_gateway.http.problems import HttpProblem, too_many, unavailable

log = logging.getLogger(__name__)

VERSION_HEADER: Final = "X-Workspace-Version"
_KINDS: Final = {
    FilesReason.INVALID: ("invalid", 422),
    FilesReason.DISABLED: ("not-found", 404),
    FilesReason.NO_WORKSPACE: ("not-found", 404),
    FilesReason.NO_VERSION: ("not-found", 404),
    FilesReason.NO_FILE: ("not-found", 404),
    FilesReason.NO_ARTIFACT: ("not-found", 404),
    FilesReason.OUTDATED: ("outdated", 412),
    FilesReason.CONFLICT: ("changed", 409),
    FilesReason.MISSING: ("changed", 409),
    FilesReason.TOO_LARGE: ("quota", 413),
}
"""Kind and status of the problem; of other reasons it is that of an unavailable broker."""


@contextmanager
def translating_refusals() -> Iterator[None]:
    """Raise FilesError as HttpProblem."""
    try:
        yield
    except FilesError as error:
        raise translate_files_error(error) from error


def translate_files_error(error: FilesError) -> HttpProblem:
    """Return the problem of a refused request on files."""
    if error.reason in _KINDS:
        kind, status = _KINDS[error.reason]
        headers = {} if error.version is None else {VERSION_HEADER: str(error.version)}
        return HttpProblem(kind, status, str(error), headers=headers)
    if error.reason is FilesReason.BUSY:
        return too_many(str(error), retry_after=2)
    log.warning("the broker did not serve a request on files: %s %s", error.reason, error)
    return unavailable("the broker, which stores files, does not answer")
