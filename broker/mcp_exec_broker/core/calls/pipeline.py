"""The steps of one tool call, from the request of a sandbox or of the gateway to the answer's last line.

The order: find the tool, count the call against the execution's quota, evaluate the policy, read the arguments if they
are large, validate and scan them, write the audit record, wait for an approval if one is required, call the server,
convert and scan the result, write the end of the audit record, answer.
"""

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Final

from mcp_exec_api.approvals import Approval
from mcp_exec_api.tool_server import Action
from mcp_exec_broker.core.access.approvals import Approvals, CallArguments, find_consent
from mcp_exec_broker.core.access.policy import evaluate
from mcp_exec_broker.core.access.quotas import CallerQuota, CallerQuotas, ExecutionQuota, ExecutionQuotas
from mcp_exec_broker.core.calls.audit import (
    CallAudit,
    build_record,
    compute_digest,
    compute_digest_and_size,
    describe_rights,
)
from mcp_exec_broker.core.calls.call import ApprovalNotifier, Call, CallRequest, Offload, ResolvedTool
from mcp_exec_broker.core.calls.denials import DenialCounter
from mcp_exec_broker.core.calls.dispatch import Dispatcher, build_server_error
from mcp_exec_broker.core.calls.response import ResponseBuilder
from mcp_exec_broker.core.calls.scanner import CallScanner
from mcp_exec_broker.core.calls.shown_arguments import show_arguments
from mcp_exec_broker.core.catalog.sync import CatalogSync
from mcp_exec_broker.core.errors import (
    CallOutcome,
    ErrorKind,
    ErrorReason,
    ToolCallError,
    build_denial,
    build_rejection,
    build_unavailable_error,
    build_unknown_server_error,
    build_unknown_tool_error,
)
from mcp_exec_broker.core.upstream.credentials import UserUnknown
from mcp_exec_broker.core.upstream.errors import ServerUnavailable, redact_json, redact_text
from mcp_exec_broker.core.upstream.servers import ToolServerCache
from mcp_exec_broker.core.validation.values import ArgumentValidator, describe_left_out, encode_arguments
from mcp_exec_broker.metrics import CallMode, Metrics
from mcp_exec_common.broker.grants import CallRights, DirectGrant, Grant
from mcp_exec_tools.names import snake_case, split_tool
from mcp_exec_tools.patterns import ToolPatterns
from mcp_exec_tools.schemas.parameters import read_parameters

_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(kw_only=True, eq=False)
class CallPipeline:
    """Runs tool calls."""

    servers: ToolServerCache
    catalogs: CatalogSync
    quotas: ExecutionQuotas
    caller_quotas: CallerQuotas
    validator: ArgumentValidator
    approvals: Approvals
    dispatcher: Dispatcher
    responses: ResponseBuilder
    scanner: CallScanner
    audit: CallAudit
    denials: DenialCounter
    metrics: Metrics
    offload: Offload
    max_calls: int = 1024
    active_calls: int = 0
    """Calls in progress."""

    async def run_call(self, grant: CallRights, request: CallRequest, *, notify_approval: ApprovalNotifier) -> bytes:
        """Run a call and return the last line of its answer. `notify_approval` is called if it needs an approval.

        A direct call never waits for an approval, and its line has the server's result instead of a Python value.

        Cancelling it also cancels the call at the server.
        """
        try:
            quota = self._find_quota(grant)
        except ToolCallError as error:  # too many executions: there is nothing to count the call against
            return _encode(error.to_line()).encode() + b"\n"
        call = Call(
            grant=grant,
            request=request,
            quota=quota,
            scanner=self.scanner.open_account(grant.token_account),
            notify_approval=notify_approval,
            started=perf_counter(),
        )
        self._add_active_calls(1)
        try:
            with call.cancelled_with_execution():
                return await self._answer(call)
        except ToolCallError as error:
            return self._answer_error(call, error)
        except asyncio.CancelledError:
            sender = "caller" if isinstance(grant, DirectGrant) else "sandbox"
            message = f"the {sender} cancelled the call"
            self._end_call(call, CallOutcome.CANCELLED, size=0, error=message, reason="Cancelled")
            raise
        except Exception:
            self._end_call(call, CallOutcome.ERROR, size=0, error="the broker failed", reason="Internal")
            raise
        finally:
            if isinstance(call.quota, ExecutionQuota):
                self.quotas.renew(grant.account, call.quota)
            self._add_active_calls(-1)

    def _find_quota(self, grant: CallRights) -> ExecutionQuota | CallerQuota:
        if isinstance(grant, DirectGrant):
            return self.caller_quotas.get_or_create(grant)
        assert isinstance(grant, Grant)  # noqa: S101 - there are two kinds
        return self.quotas.get_or_create(grant)

    def _add_active_calls(self, number: int) -> None:
        self.active_calls += number
        self.metrics.active.set(self.active_calls)

    async def _answer(self, call: Call) -> bytes:
        try:
            text = await self._run_steps(call)
        except ToolCallError as error:
            if not call.record_id and not await self.denials.count(call, error):
                await self._record(call)
                with suppress(ToolCallError):  # the call is denied anyway
                    await call.wait_until_recorded()
            return self._answer_error(call, error)
        line = text.encode()
        if call.tool_error is None:
            self._end_call(call, CallOutcome.OK, size=len(line))
        else:
            error_text = self.scanner.redact_message(call.tool_error)
            self._end_call(call, CallOutcome.ERROR, size=len(line), error=error_text, reason=ErrorKind.ERROR)
        return line

    def _answer_error(self, call: Call, error: ToolCallError) -> bytes:
        error.add_names(server=call.server_name, tool=call.tool_name)
        answer = error.to_line()
        redacted = redact_json(answer, call.secrets)
        call.is_redacted |= redacted is not answer
        line = _encode(redacted).encode() + b"\n"
        message = self.scanner.redact_message(redact_text(error.message, call.secrets))
        self._end_call(call, error.outcome, size=len(line), error=message, reason=error.reason or error.kind)
        return line

    # the steps, in their order

    async def _run_steps(self, call: Call) -> str:
        # The order matters. A call counts before anything can deny it, so that guesses of names are limited. The policy
        # comes before large arguments are read, so that a denied call takes no memory. Arguments are final before the
        # audit record and the approver see them. The record is begun before the wait for a person, which may be long,
        # and is durable before the call travels. A person is asked last, and only about a call that can be made.
        resolved = await self._admit(call)
        self._apply_policy(call, resolved)
        if call.request.load is not None:
            call.request = await call.request.load()
        arguments = await self._prepare_arguments(call, resolved)
        await self._record(call)
        if call.decision is not None and call.decision.action is Action.APPROVE:
            await self._require_approval(call, resolved)
        result = await self.dispatcher.dispatch(call, resolved, arguments)
        if isinstance(call.grant, DirectGrant):
            return await self.responses.build_raw_line(call, resolved, result)
        return await self.responses.build_line(call, resolved, result)

    async def _admit(self, call: Call) -> ResolvedTool:
        """Return the tool, and count the call against its quota, also if there is no such tool."""
        try:
            call.resolved = await self._resolve_tool(call)
        finally:
            call.quota.begin_call(call.tool_name, argument_bytes=call.request.size)
        if self.active_calls > self.max_calls:
            raise build_denial(
                ErrorReason.RATE_LIMITED, f"{self.max_calls} calls are in progress, which is the limit of this broker"
            )
        return call.resolved

    async def _prepare_arguments(self, call: Call, resolved: ResolvedTool) -> dict[str, Any]:
        """Validate and scan the arguments. Return them as the server gets them."""
        scan, sent, size = resolved.spec.scan, call.request.arguments, call.request.size
        validated, left_out = await self.offload.run(
            lambda: self.validator.validate(
                resolved.tool,
                sent,
                catalog_hash=resolved.listing.catalog.hash,
                detokenize=call.scanner.detokenize if scan.untokenize else None,
            ),
            size=size,
        )
        if left_out:
            call.notes.append(describe_left_out(left_out))
        call.request = replace(call.request, arguments=validated)  # approvals and audit log show what is sent
        arguments: dict[str, Any] = await call.scanner.scan_arguments(validated, scan, size=size)
        text = await self.offload.run(lambda: encode_arguments(resolved.name, arguments), size=size)
        if scan.untokenize:
            await self.offload.run(lambda: call.scanner.check_tokens(text), size=size)
        return arguments

    async def _resolve_tool(self, call: Call) -> ResolvedTool:
        """Return server and tool. Errors name only servers and tools that the execution may use."""
        grant = call.grant
        allowed = ToolPatterns(grant.tools)
        try:
            server_name, tool_name = split_tool(call.request.tool)
        except ValueError as error:
            raise build_rejection(ErrorReason.NO_SUCH_TOOL, str(error)) from None
        server = self.servers.find(grant.namespace, server_name)
        if server is None:
            usable = [
                server.name
                for server in self.servers.list_servers(grant.namespace)
                if allowed.match_server(server.name)
            ]
            raise build_unknown_server_error(server_name, known=usable)
        call.server = server
        if not allowed.match_server(server.name):
            raise build_denial(ErrorReason.NOT_ALLOWED, f"{grant.holder}'s tools have none of {server.name}")
        if server.spec is None:
            raise build_unavailable_error(f"{server.name} can't be used: its spec is invalid")
        try:
            listing = await self.catalogs.get_listing(server, grant.user)
        except UserUnknown as error:
            raise build_denial(ErrorReason.NO_USER_CREDENTIALS, str(error)) from None
        except ServerUnavailable as error:
            raise build_server_error(server.name, error) from None
        spellings = listing.catalog.spellings
        tool = spellings.get(tool_name) or spellings.get(snake_case(tool_name))
        if tool is None:
            names = [tool.name for tool in listing.catalog.tools]
            usable = [name for name in names if allowed.match(server.name, name)]
            raise build_unknown_tool_error(tool_name, server=server.name, known=usable)
        return ResolvedTool(server=server, spec=server.spec, listing=listing, tool=tool)

    def _apply_policy(self, call: Call, resolved: ResolvedTool) -> None:
        call.decision = evaluate(
            server=resolved.server.name,
            tool=resolved.tool.name,
            annotations=resolved.tool.annotations,
            spec=resolved.spec,
            allowed=call.grant.tools,
            pool=call.grant.pool_tools,
            holder=call.grant.holder,
        )
        call.decision.raise_if_denied()
        size, max_bytes = call.request.size, resolved.spec.limits.argument_bytes
        if size > max_bytes:
            raise build_rejection(
                ErrorReason.INVALID_ARGUMENTS, f"the arguments have {size} bytes, allowed are {max_bytes}"
            )

    async def _record(self, call: Call) -> None:
        """Submit the audit record."""
        decision, request = call.decision, call.request
        if request.load is not None:
            redacted, digest = f"(not read: {request.size} bytes)", ""
        else:
            redacted, digest = await self.offload.run(
                lambda: (self.scanner.redact_json(request.arguments), compute_digest(request.arguments)),
                size=request.size,
            )
        record = build_record(
            **describe_rights(call.grant),
            server=call.server_name,
            tool=call.resolved.tool.name if call.resolved else call.tool_name,
            digest=digest,
            arguments=redacted,
            decision=str(decision.action if decision else Action.DENY),
            reason=decision.explanation if decision else "",
            bytes_out=request.size,
        )
        call.record_id = record.id
        # awaited before the call travels: the write overlaps with the wait for slots
        call.recorded = self.audit.begin_call(record)

    async def _require_approval(self, call: Call, resolved: ResolvedTool) -> None:
        """Wait until the call is approved. A direct call must have been approved before. Raises ToolCallError."""
        arguments = await self._show_arguments(call, resolved)
        if isinstance(call.grant, DirectGrant):
            call.approval = find_consent(call.grant, tool=resolved.name, arguments=arguments)
            return
        with call.request.lease.waiting_for_approval():
            await self._wait_for_approval(call, resolved, arguments)
        await self._check_again(call, resolved)

    async def _show_arguments(self, call: Call, resolved: ResolvedTool) -> CallArguments:
        """Return the arguments as an approver sees them."""
        arguments, declared = call.request.arguments, read_parameters(resolved.tool.input_schema).schemas
        redacted = await self.scanner.redact_value(arguments, size=call.request.size)
        shown, (digest, size) = await self.offload.run(
            lambda: (show_arguments(redacted, declared=declared), compute_digest_and_size(arguments)),
            size=call.request.size,
        )
        return CallArguments(text=shown.text, is_complete=shown.is_complete, digest=digest, size=size)

    async def _wait_for_approval(self, call: Call, resolved: ResolvedTool, arguments: CallArguments) -> None:
        async def notify(approval: Approval) -> None:
            call.approval = approval  # the audit log names it even if nobody approves
            await call.notify_approval(approval)

        assert isinstance(call.grant, Grant)  # noqa: S101 - a direct call does not wait
        assert isinstance(call.quota, ExecutionQuota)  # noqa: S101
        await call.wait_until_recorded()
        started = perf_counter()
        try:
            call.approval = await self.approvals.wait_for_approval(
                grant=call.grant,
                tool=resolved.name,
                arguments=arguments,
                timeout_seconds=resolved.spec.policy.approval_timeout_seconds,
                waiting=call.quota.waiting,
                notify=notify,
            )
        finally:
            call.external_seconds += perf_counter() - started

    async def _check_again(self, call: Call, approved: ResolvedTool) -> None:
        """Raise ToolCallError if the tool or the policy changed while the call waited for its approval."""
        resolved = await self._resolve_tool(call)
        one, two = (replace(each.tool, output_schema=None, inferred=False) for each in (approved, resolved))
        if one != two or approved.spec.url != resolved.spec.url:
            raise build_denial(
                ErrorReason.NOT_APPROVED,
                f"{approved.name} changed at its server while the call waited for its approval; call it again",
            )
        self._apply_policy(call, resolved)

    def _end_call(self, call: Call, outcome: CallOutcome, *, size: int, error: str = "", reason: str = "") -> None:
        seconds = perf_counter() - call.started
        call.quota.end_call(failed=outcome is not CallOutcome.OK, result_bytes=size)
        server = "/".join(call.server.key) if call.server else ""
        mode: CallMode = "direct" if isinstance(call.grant, DirectGrant) else "code"
        self.metrics.record_call(server, outcome.value, seconds, mode=mode, result_bytes=size, reason=str(reason))
        if call.is_redacted:
            self.metrics.redactions.inc()
        if isinstance(call.quota, ExecutionQuota) and call.resolved:
            call.quota.add_server(call.server_name)
        self.metrics.overhead_seconds.observe(max(seconds - call.external_seconds, 0.0))
        if not call.record_id:
            return
        # the answer need not wait: the beginning is durable, and a broker that dies now leaves the record unfinished
        self.audit.end_call(
            call.record_id,
            outcome,
            milliseconds=seconds * 1000,
            bytes_in=size,
            bytes_out=call.request.size,
            error=error,
            approval=call.approval.id if call.approval else None,
            approved_by=call.approval.decided_by if call.approval else None,
        )
