"""Requests on files that the gateway passes on to the broker, and the broker's answers.

A caller's request gives a body, a condition and parameters that the route has validated. Namespace and owner are always
the gateway's. Of an answer, only the body and the headers named here are passed on.
"""

import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError
from starlette.responses import Response

from mcp_exec_api.files import Owner, WorkspaceName
from mcp_exec_api.meta import Model, field_errors
from mcp_exec_api.wire.problems import PROBLEM_MEDIA_TYPE, ProblemDetails
from mcp_exec_common.broker.client import BrokerClient, BrokerError, BrokerResponse
from mcp_exec_common.broker.files import MAX_UPLOAD_SECONDS
from mcp_exec_gateway.core.http.json import encoded_response
from mcp_exec_gateway.core.http.limits import MemoryBudget
from mcp_exec_gateway.core.http.parameters import OwnerQuery
from mcp_exec_gateway.core.http.problems import HttpProblem, invalid_field, unavailable
from mcp_exec_gateway.features.files.upload import UploadBody

log = logging.getLogger(__name__)

TAG: Final = {"ETag": re.compile(r'"[\x21\x23-\x7e]{1,200}"')}
"""The header of a success that is passed on."""
_PROBLEM_HEADERS: Final = {"X-Workspace-Version": re.compile(r"[0-9]{1,16}"), "Retry-After": re.compile(r"[0-9]{1,4}")}
_PASSED_PROBLEMS: Final = {
    ("not-found", 404),
    ("changed", 409),
    ("outdated", 412),
    ("quota", 413),
    ("invalid", 422),
    ("too-many", 429),
}
"""The broker's problems that are the caller's. All others are the gateway's with the broker."""
_MAX_PROBLEM_BYTES: Final = 64 * 1024
_MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
"""More than the longest answer: a page of files whose paths have the most bytes."""
_SECONDS: Final = 30.0
_TRANSFER_SECONDS: Final = 900.0
_UPLOAD_SECONDS: Final = MAX_UPLOAD_SECONDS + 60.0
_STALL_SECONDS: Final = 60.0
_Answer = TypeVar("_Answer", bound=Model)


@dataclass(frozen=True)
class FilesForwarder:
    """Passes requests on files to the broker. All methods raise HttpProblem."""

    client: BrokerClient | None
    """None if no broker is configured."""

    @asynccontextmanager
    async def open(
        self,
        method: str,
        *path: str,
        owner: Owner,
        params: Mapping[str, str] | None = None,
        body: bytes | UploadBody | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = _SECONDS,
        execution: str | None = None,
    ) -> AsyncIterator[BrokerResponse]:
        """Open the answer to a request on an owner's files. `path` is what follows `/v1`, part by part.

        `execution` is the name of the one that produced them, for the log.

        Problems of the broker, and contents that break off inside the block, are raised as problems.
        """
        if self.client is None:
            raise unavailable("no tool broker is configured, so that no files are stored")
        upload = body if isinstance(body, UploadBody) else None
        identity = {"namespace": owner.namespace, "owner": owner.digest, "caller": owner.caller_digest}
        sending = self.client.send(
            method,
            build_path(*path),
            near=owner.digest,
            params={**(params or {}), **identity},
            body=body.read() if isinstance(body, UploadBody) else body,
            headers=headers,
            timeout_seconds=_UPLOAD_SECONDS if upload else seconds,
            stall_seconds=None if upload else _STALL_SECONDS,
        )
        try:
            async with sending as response:
                if response.status < 300:
                    yield response
                    return
                problem = await _read_problem(response)
        except BrokerError as error:
            fields = {"execution": execution, "caller": owner.caller, "namespace": owner.namespace}
            known = {name: value for name, value in fields.items() if value}
            log.warning("the broker did not serve a request on files: %s", error, extra=known)
            problem = _unavailable()
        raise problem if upload is None else upload.find_failure(problem)

    def open_content(
        self, *path: str, owner: Owner, params: Mapping[str, str] | None = None, execution: str | None = None
    ) -> AbstractAsyncContextManager[BrokerResponse]:
        """Open a content of any size, which may take long."""
        return self.open("GET", *path, owner=owner, params=params, seconds=_TRANSFER_SECONDS, execution=execution)

    async def ask(
        self,
        answer: type[_Answer],
        method: str,
        *path: str,
        owner: Owner,
        params: Mapping[str, str] | None = None,
        body: UploadBody | None = None,
    ) -> _Answer:
        """Return an answer that the gateway reads itself."""
        async with self.open(method, *path, owner=owner, params=params, body=body) as response:
            content = await response.parse(limit=_MAX_ANSWER_BYTES)
        try:
            return answer.model_validate(content, extra="ignore")
        except ValidationError as error:
            fields = {"caller": owner.caller, "namespace": owner.namespace}
            log.warning("the broker sent invalid %s: %s", answer.__name__, error, extra=fields)
            raise _unavailable() from error

    async def pass_on(
        self,
        method: str,
        *path: str,
        owner: Owner,
        memory: MemoryBudget,
        params: Mapping[str, str] | None = None,
        body: bytes | UploadBody | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Return the broker's answer, which is JSON or empty. It is passed on as it came, and never parsed."""
        async with self.open(method, *path, owner=owner, params=params, body=body, headers=headers) as response:
            if response.status == 204:
                return Response(status_code=204)
            if response.media_type != "application/json":
                raise BrokerError(f"the broker at {response.address} answered with {response.media_type}")
            content, tag = await response.read(limit=_MAX_ANSWER_BYTES), response.pick_headers(TAG)
        return encoded_response(content, headers=tag, memory=memory, namespace=owner.namespace)


_WORKSPACES: Final = "workspaces"
_WORKSPACE_NAME: Final[TypeAdapter[str]] = TypeAdapter(WorkspaceName)


def build_path(*parts: str) -> str:
    """Return the broker's path.

    Raises HttpProblem, a 422, for a workspace's name that none can have, and for a part that would change the meaning
    of others. Each request on files passes here, whatever its route, tool or resource.
    """
    if parts[0] == _WORKSPACES and len(parts) > 1:
        check_workspace_name(parts[1])
    if any(part in ("", ".", "..") or "/" in part for part in parts):
        raise invalid_field("path", "parts of it are empty, . or .., or have a /")
    return "/".join(["/v1", *(quote(part, safe="") for part in parts)])


def check_workspace_name(name: str) -> None:
    """Raise HttpProblem, a 422, for a name that no workspace can have."""
    try:
        _WORKSPACE_NAME.validate_python(name)
    except ValidationError as error:
        (problem,) = field_errors(error)
        raise invalid_field("workspace", problem.message) from None


def build_params(query: OwnerQuery) -> dict[str, str]:
    """Return the parameters of a validated query that the broker reads, without those that name an owner."""
    given = query.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"namespace", "user"})
    return {name: "true" if value is True else str(value) for name, value in given.items()}


async def _read_problem(response: BrokerResponse) -> HttpProblem:
    """Return the caller's problem. Raises BrokerError for all others, and if the answer cannot be read."""
    content = await response.parse(limit=_MAX_PROBLEM_BYTES)
    try:
        found = ProblemDetails.model_validate(content, extra="ignore")
    except ValidationError:
        found = None
    is_problem = found is not None and (response.media_type, response.status) == (PROBLEM_MEDIA_TYPE, found.status)
    if found is None or not is_problem or (found.kind, found.status) not in _PASSED_PROBLEMS:
        raise BrokerError(f"{response.status} {str(content)[:500]}")
    headers = response.pick_headers(_PROBLEM_HEADERS)
    return HttpProblem(found.kind, found.status, found.detail, errors=found.errors, headers=headers)


def _unavailable() -> HttpProblem:
    return unavailable("the broker, which stores files, does not answer")
