"""The methods `tasks/*`, and calls that become tasks because their client says so.

A caller sees its own runs only. `tasks/list` is not offered: GET /v1/executions lists executions.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from mcp import MCPError
from mcp_types import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolRequestParams,
    CallToolResult,
    CancelTaskRequestParams,
    CancelTaskResult,
    CreateTaskResult,
    ElicitRequest,
    EmptyResult,
    GetTaskPayloadRequestParams,
    GetTaskRequestParams,
    GetTaskResult,
    RequestParams,
    Task,
)
from pydantic import Field

from mcp_exec_api.code_execution import is_finished
from mcp_exec_common.kube.objects import Object
from mcp_exec_gateway.core.events.follower import StreamPosition
from mcp_exec_gateway.features.mcp.code_mode.decisions import find_own_run
from mcp_exec_gateway.features.mcp.code_mode.discovery import InvalidArguments
from mcp_exec_gateway.features.mcp.code_mode.run import RunOutcome, build_outcome, may_ask
from mcp_exec_gateway.features.mcp.code_mode.task_state import (
    EXTENSION,
    FIRST_REVISION,
    TaskHandle,
    TaskState,
    relate_to_task,
)
from mcp_exec_gateway.features.mcp.code_mode.tools import RUNNING_TOOLS, resume_run, starting_run
from mcp_exec_gateway.features.mcp.forms import build_approval_form, decide, list_pending
from mcp_exec_gateway.features.mcp.request import McpRequest
from mcp_exec_gateway.features.mcp.transport.tokens import ApprovalToken, ResumePoint

_MAX_RESPONSES: Final = 32
"""Answers in one request, as many as approvals can wait at once."""


class UpdateTaskParams(RequestParams):
    """Parameters of `tasks/update`."""

    task_id: str
    input_responses: dict[str, Any] = Field(max_length=_MAX_RESPONSES)


def wants_task(request: McpRequest, method: str, params: Mapping[str, Any] | None) -> bool:
    """Return whether a request is a call that its client wants as a task: in revision 2025-11-25."""
    legacy = not request.is_modern and request.version >= FIRST_REVISION
    return legacy and method == "tools/call" and (params or {}).get("task") is not None


async def create_task(request: McpRequest, params: CallToolRequestParams) -> CreateTaskResult:
    """Begin a run and return its task. Raises MCPError for what cannot be a task, and HttpProblem."""
    read = RUNNING_TOOLS.get(params.name)
    if read is None:
        names = ", ".join(RUNNING_TOOLS)
        raise MCPError(METHOD_NOT_FOUND, f"{params.name[:100]!r} cannot be a task; these can: {names}")
    try:
        params.arguments = read(params.arguments or {})
        async with starting_run(request, params, of_task=True) as (_, execution):
            return CreateTaskResult(task=Task(**TaskState.read(execution).to_legacy()))
    except InvalidArguments as error:
        raise MCPError(INVALID_PARAMS, str(error)) from None


async def get_task(request: McpRequest, params: GetTaskRequestParams) -> GetTaskResult | TaskHandle:
    """Return the state of a task, in the extension with its result or its questions. Raises HttpProblem."""
    check_declared(request)
    await request.sender.authorize("get")
    execution = await find_own_run(request.sender, params.task_id)
    forms = await _list_forms(request, execution)
    state = TaskState.read(execution)
    if not request.is_modern:
        fields = state.to_legacy()
        return GetTaskResult(**(fields | {"status": "input_required"} if forms and not state.is_cancelling else fields))
    handle = TaskHandle.of(state).model_copy(update={"result_type": "complete"})
    if forms:
        return handle.model_copy(update={"status": "input_required", "input_requests": forms})
    if handle.status == "completed":
        return handle.model_copy(update={"result": await build_outcome(request, execution)})
    return handle


async def get_result(request: McpRequest, params: GetTaskPayloadRequestParams) -> RunOutcome:
    """Return the result of a task at its end, and ask the user for approvals until then: revision 2025-11-25 alone."""
    if request.is_modern:
        raise MCPError(METHOD_NOT_FOUND, "tasks/result is not part of the extension: tasks/get has the result")
    point = ResumePoint(execution=params.task_id, position=StreamPosition())
    result = await resume_run(request, point, of_task=True)
    if isinstance(result, CallToolResult):
        result.meta = relate_to_task(params.task_id)
    return result


async def update_task(request: McpRequest, params: UpdateTaskParams) -> EmptyResult:
    """Record what the user decided. Answers to what is not asked are ignored. Raises HttpProblem."""
    if not request.is_modern:
        raise MCPError(METHOD_NOT_FOUND, "tasks/update is part of revision 2026-07-28")
    check_declared(request)
    await find_own_run(request.sender, params.task_id)
    for key, response in params.input_responses.items():
        token = ApprovalToken.parse(key)
        if token is not None and token.execution == params.task_id:
            await decide(request.sender, token, response)
    return EmptyResult()


async def cancel_task(request: McpRequest, params: CancelTaskRequestParams) -> CancelTaskResult | EmptyResult:
    """Request the cancellation of a task. Raises HttpProblem, and MCPError for one that has ended in 2025-11-25."""
    check_declared(request)
    sender = request.sender
    await sender.authorize("patch")
    execution = await find_own_run(sender, params.task_id)
    if not is_finished(execution):
        key = (sender.namespace, params.task_id)
        execution = await sender.dependencies.executions.request_cancellation(key) or execution
    elif not request.is_modern:
        raise MCPError(INVALID_PARAMS, f"task {params.task_id} has ended: {TaskState.read(execution).message}")
    return EmptyResult() if request.is_modern else CancelTaskResult(**TaskState.read(execution).to_legacy())


METHODS: Final[Mapping[str, tuple[type[RequestParams], Callable[[McpRequest, Any], Awaitable[Any]]]]] = {
    "tasks/get": (GetTaskRequestParams, get_task),
    "tasks/result": (GetTaskPayloadRequestParams, get_result),
    "tasks/update": (UpdateTaskParams, update_task),
    "tasks/cancel": (CancelTaskRequestParams, cancel_task),
}
"""Parameters and handler of each method."""


def check_declared(request: McpRequest) -> None:
    """Raise MCPError if a client of revision 2026-07-28 did not declare the extension in this request."""
    if request.is_modern and not request.tasks:
        needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, f"declare the extension {EXTENSION}", needed)


async def _list_forms(request: McpRequest, execution: Object) -> dict[str, ElicitRequest]:
    """Return the questions to the client's user, by a key that binds the answer to what the form shows."""
    if is_finished(execution) or not (pending := list_pending(request.sender, execution)) or not await may_ask(request):
        return {}
    name = execution["metadata"]["name"]
    return {
        str(ApprovalToken(execution=name, approval=each["id"], digest=each.get("argumentsDigest", ""))):
            build_approval_form(name, each)
        for each in pending
    }  # fmt: skip
