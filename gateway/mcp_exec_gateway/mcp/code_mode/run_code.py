"""`run_code`: creates an execution, follows it, and returns its outcome."""

from collections.abc import Mapping
from typing import Any

from mcp_types import CallToolRequestParams, CallToolResult, InputRequiredResult

from mcp_exec_api.constants import IDEMPOTENCY_META
from mcp_exec_gateway.http.problems import HttpProblem, invalid_field, not_found
from mcp_exec_gateway.http.query_params import is_idempotency_key
from mcp_exec_gateway.mcp.code_mode.approvals import decide
from mcp_exec_gateway.mcp.code_mode.arguments import explain_problem, parse_arguments
from mcp_exec_gateway.mcp.code_mode.run import Run
from mcp_exec_gateway.mcp.code_mode.skills import read_reference
from mcp_exec_gateway.mcp.request import McpRequest
from mcp_exec_gateway.mcp.transport.tokens import ApprovalToken, ResumePoint

Decisions = list[tuple[ApprovalToken, Any]]
"""Filled forms that are not recorded yet, each with the approval that it answers."""


async def run_code(request: McpRequest, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
    """Run code, or follow a run that the client has left for an input. Raises InvalidArguments and HttpProblem."""
    if params.request_state is not None:
        point = ResumePoint.parse(params.request_state, field="requestState")
        decisions = _read_decisions(params, point)
        try:
            return await resume_run(request, point, decisions=decisions)
        except HttpProblem:
            # the run can't be followed now, which is no reason to ask its user again
            await _record(request, decisions)
            raise
    sender, service = request.sender, request.sender.dependencies.executions
    caller = await sender.authorize("create")
    with service.hold_wait(caller, service.max_wait_seconds):
        new = parse_arguments(request, params.arguments or {})
        metadata = new.read_metadata()
        try:
            spec = await service.check(new.read_spec(), caller=caller)
        except HttpProblem as problem:
            raise explain_problem(problem) from None
        run = await Run.prepare(request)
        key = _read_idempotency_key(request)
        async with run.starting(spec, metadata=metadata, caller=caller, idempotency_key=key) as execution:
            del new, spec
            _forget_arguments(request, params)
            return await run.follow(execution)


async def run_skill(request: McpRequest, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
    """Run a skill as `run_code` runs code. Raises InvalidArguments and HttpProblem."""
    if params.request_state is None:
        params.arguments = read_reference(params.arguments or {})
    return await run_code(request, params)


async def resume_run(
    request: McpRequest, point: ResumePoint, *, decisions: Decisions | None = None
) -> CallToolResult | InputRequiredResult:
    """Follow an execution of the caller from a point, and record what its user decided. Raises HttpProblem."""
    sender, service = request.sender, request.sender.dependencies.executions
    caller = await sender.authorize("get")
    with service.hold_wait(caller, service.max_wait_seconds):
        key = (sender.namespace, point.execution)
        execution = await service.find(point.execution, caller=caller)
        if sender.dependencies.attestor.read_caller(execution) != caller.label:
            raise not_found(*key)
        run = await Run.prepare(request, point)
        async with run.watching(key) as execution:
            if decisions:
                await run.wait_for_relay()
                await _record(request, decisions)
            return await run.follow(execution)


def _read_decisions(params: CallToolRequestParams, point: ResumePoint) -> Decisions:
    """Return the decisions that a client sends with a request's state."""
    digests = dict(point.asked)
    decisions: Decisions = []
    for approval, response in (params.input_responses or {}).items():
        if approval not in digests:
            raise invalid_field("inputResponses", f"{approval[:64]}: the server did not ask for this")
        token = ApprovalToken(execution=point.execution, approval=approval, digest=digests[approval])
        decisions.append((token, response.model_dump(by_alias=True, mode="json")))
    return decisions


async def _record(request: McpRequest, decisions: Decisions) -> None:
    """Record each decision once. Raises HttpProblem if the caller may not decide."""
    while decisions:
        await decide(request.sender, *decisions.pop(0))


def _read_idempotency_key(request: McpRequest) -> str | None:
    meta = request.exchange.message.params.get("_meta")
    key = meta.get(IDEMPOTENCY_META) if isinstance(meta, Mapping) else None
    key = request.sender.http.headers.get("idempotency-key") if key is None else key
    if key is None:
        return None
    if not isinstance(key, str) or not is_idempotency_key(key):
        raise invalid_field(IDEMPOTENCY_META, "1 to 255 printable ASCII characters are allowed")
    return key


def _forget_arguments(request: McpRequest, params: CallToolRequestParams) -> None:
    """Release the memory of code and context, which the SDK keeps until the request ends."""
    raw: Any = request.exchange.message.params.get("arguments")
    for arguments in (raw, params.arguments):
        if isinstance(arguments, dict):
            arguments.clear()
    request.memory.release()
