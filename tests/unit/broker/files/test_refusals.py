"""Refused requests on files, as sandboxes and as gateway and operator read them."""

import json

import pytest

from mcp_exec_api.wire.problems import PROBLEM_MEDIA_TYPE, PROBLEM_TITLES, ProblemDetails
from mcp_exec_broker.features.files.api.requests import refuse_sandbox, refuse_service
from mcp_exec_broker.features.files.requests import FilesRefused
from mcp_exec_common.broker.files import FilesReason


@pytest.mark.parametrize("reason", FilesReason)
def test_a_service_gets_problem_details_and_the_reason(reason: FilesReason) -> None:
    answer = refuse_service(FilesRefused(reason, "why " * 1000))
    content = json.loads(bytes(answer.body))
    problem = ProblemDetails.model_validate(content)
    assert (answer.media_type, answer.status_code) == (PROBLEM_MEDIA_TYPE, problem.status)
    assert (problem.title, content["reason"]) == (PROBLEM_TITLES[problem.kind], reason)
    assert problem.detail == ("why " * 1000)[:2000]
    assert answer.headers.get("Retry-After") == ("2" if reason is FilesReason.BUSY else None)


def test_a_service_gets_the_current_version_in_a_header() -> None:
    assert refuse_service(FilesRefused(FilesReason.OUTDATED, "x", version=7)).headers["X-Workspace-Version"] == "7"


@pytest.mark.parametrize("reason", FilesReason)
def test_a_sandbox_gets_reason_and_message(reason: FilesReason) -> None:
    answer = refuse_sandbox(FilesRefused(reason, "why", missing=["a"]))
    assert json.loads(bytes(answer.body)) == {"reason": reason, "message": "why", "missing": ["a"]}
    statuses = {FilesReason.INVALID: 400, FilesReason.MISSING: 409, FilesReason.UNAVAILABLE: 503}
    assert answer.status_code == statuses.get(reason, answer.status_code)
