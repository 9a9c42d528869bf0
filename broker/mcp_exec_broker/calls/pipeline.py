"""One call of one tool, from the sandbox's request to the line that answers it.

The order: the tool is found, the call is counted against the execution's budget, the policy judges it, its arguments
are checked and looked through, the audit has it, somebody consents where that is needed, the server is called, the
result becomes a value that is looked through, the audit has that too, and the sandbox its answer.
"""

import asyncio
import json
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Final
from uuid import uuid4

from mcp_exec_api.approvals import Approval
from mcp_exec_api.tool_server import Action
from mcp_exec_broker.access import quotas as budgets
from mcp_exec_broker.access.approvals import Approvals
from mcp_exec_broker.access.policy import evaluate
from mcp_exec_broker.audit import log as audit
from mcp_exec_broker.calls.call import ApprovalNotifier, Call, CallRequest, ResolvedTool
from mcp_exec_broker.calls.denials import DenialCounter
from mcp_exec_broker.calls.dispatch import Dispatcher
from mcp_exec_broker.calls.response import ResponseBuilder
from mcp_exec_broker.catalog.sync import CatalogSync
from mcp_exec_broker.errors import (
    CallOutcome,
    ErrorReason,
    ToolCallError,
    build_denial,
    build_rejection,
    build_server_error,
    build_unavailable_error,
    build_unknown_server_error,
    build_unknown_tool_error,
)
from mcp_exec_broker.metrics import Metrics
from mcp_exec_broker.scanning.scanner import Scanner
from mcp_exec_broker.scanning.tokenizers import TokenizerCache
from mcp_exec_broker.upstream.credentials import UserUnknown
from mcp_exec_broker.upstream.errors import ServerUnavailable
from mcp_exec_broker.upstream.redaction import redact_json, redact_text
from mcp_exec_broker.upstream.servers import ToolServerCache
from mcp_exec_broker.validation.arguments import ArgumentValidator, check_serializable
from mcp_exec_common.broker.grants import Grant
from mcp_exec_tools.names import snake_case, split_tool
from mcp_exec_tools.patterns import matches_any, may_use_server

_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(kw_only=True, eq=False)
class CallPipeline:
    """Makes calls."""

    servers: ToolServerCache
    catalogs: CatalogSync
    accounts: budgets.ExecutionQuotas
    arguments: ArgumentValidator
    approvals: Approvals
    sender: Dispatcher
    answers: ResponseBuilder
    scanner: Scanner
    audit: audit.AuditLog
    denials: DenialCounter
    metrics: Metrics
    vaults: TokenizerCache
    max_calls: int = 1024
    _active: int = 0
    _records: set[asyncio.Task[None]] = field(default_factory=set)

    async def make(self, grant: Grant, asked: CallRequest, *, notice: ApprovalNotifier) -> bytes:
        """Makes a call and returns the line that answers it. `notice` is told where the call waits for consent.

        Being cancelled, it cancels the call at the server, too.
        """
        run = Call(
            grant=grant,
            asked=asked,
            account=self.accounts.open(grant),
            vault=self.vaults.of(grant.execution),
            notice=notice,
            began=perf_counter(),
        )
        task = asyncio.current_task()

        def end() -> None:
            run.is_ended = True
            if task is not None:
                task.cancel()

        self._active += 1
        self.metrics.active.set(self._active)
        undo = None
        try:
            undo = run.account.on_close(end) if not run.account.closed else None
            return await self._answered(run)
        except asyncio.CancelledError:
            if task is None or not run.is_ended or task.uncancel():
                self._ended(run, CallOutcome.CANCELLED, size=0, error="the sandbox gave the call up")
                raise
            return self._failed(run, build_denial(ErrorReason.EXECUTION_ENDED, "the execution has ended"))
        except Exception:
            self._ended(run, CallOutcome.ERROR, size=0, error="the broker failed")
            raise
        finally:
            if undo is not None:
                undo()
            self._active -= 1
            self.metrics.active.set(self._active)

    async def close(self) -> None:
        """Waits until the audit has all."""
        if self._records:
            await asyncio.wait(self._records, timeout=5)
        self.denials.write()

    async def _answered(self, run: Call) -> bytes:
        try:
            text = await self._made(run)
        except ToolCallError as failure:
            if not run.audited and not self.denials.counts(run, failure):
                await self._record(run)
            return self._failed(run, failure)
        line = text.encode()
        self._ended(run, CallOutcome.OK, size=len(line))
        return line

    def _failed(self, run: Call, failure: ToolCallError) -> bytes:
        failure.at(server=run.server_name, tool=run.tool_name)
        line = _encode(redact_json(failure.line(), run.secrets)).encode() + b"\n"
        error = self.scanner.redacted_message(redact_text(failure.message, run.secrets))
        self._ended(run, failure.outcome, size=len(line), error=error)
        return line

    # the steps, in order

    async def _made(self, run: Call) -> str:
        try:
            run.target = target = await self._find(run)
        finally:
            run.account.begin(run.tool_name, argument_bytes=run.asked.size)
        if self._active > self.max_calls:
            raise build_denial(
                ErrorReason.RATE_LIMITED, f"{self.max_calls} calls are under way, which is all there may be"
            )
        spec, tool = target.spec, target.tool
        run.verdict = evaluate(
            server=target.server.name,
            tool=tool.name,
            annotations=tool.annotations,
            spec=spec,
            allowed=run.grant.tools,
            pool=run.grant.pool_tools,
        )
        run.verdict.check()
        if run.asked.size > spec.limits.argument_bytes:
            most = spec.limits.argument_bytes
            raise build_rejection(
                ErrorReason.INVALID_ARGUMENTS, f"the arguments have {run.asked.size} bytes, allowed are {most}"
            )
        put_back = run.vault.put_back if spec.scan.untokenize else None
        checked = self.arguments.check(
            tool, run.asked.arguments, catalog_hash=target.known.catalog.hash, put_back=put_back
        )
        run.asked = replace(run.asked, arguments=checked)  # who consents, and the audit, see what is sent
        arguments = (await self.scanner.arguments(run.asked.arguments, spec.scan, run.vault)).value
        check_serializable(target.name, arguments)
        redacted = await self._record(run)
        if run.verdict.action is Action.APPROVE:
            await self._consent(run, target, redacted)
        raw = await self.sender.send(run, target, arguments)
        return await self.answers.line(run, target, raw)

    async def _find(self, run: Call) -> ResolvedTool:
        """Server and tool. Of what the execution may not use it is not told what there is."""
        grant = run.grant
        try:
            server_name, tool_name = split_tool(run.asked.tool)
        except ValueError as error:
            raise build_rejection(ErrorReason.NO_SUCH_TOOL, str(error)) from None
        server = self.servers.get(grant.namespace, server_name)
        if server is None:
            usable = [each.name for each in self.servers.of(grant.namespace) if may_use_server(grant.tools, each.name)]
            raise build_unknown_server_error(server_name, known=usable)
        run.server = server
        if not may_use_server(grant.tools, server.name):
            raise build_denial(ErrorReason.NOT_ALLOWED, f"the execution's tools have none of {server.name}")
        if server.spec is None:
            raise build_unavailable_error(f"{server.name} can't be used: its spec is wrong")
        try:
            known = await self.catalogs.known(server, grant.user)
        except UserUnknown as error:
            raise build_denial(ErrorReason.NO_USER_CREDENTIALS, str(error)) from None
        except ServerUnavailable as error:
            raise build_server_error(server.name, error) from None
        spellings = known.catalog.spellings
        tool = spellings.get(tool_name) or spellings.get(snake_case(tool_name))
        if tool is None:
            names = [each.name for each in known.catalog.tools]
            usable = [name for name in names if matches_any(grant.tools, server=server.name, tool=name)]
            raise build_unknown_tool_error(tool_name, server=server.name, known=usable)
        return ResolvedTool(server=server, spec=server.spec, known=known, tool=tool)

    async def _record(self, run: Call) -> str:
        """Writes the call down, before it travels. Returns its arguments, redacted."""
        redacted = self.scanner.redacted(run.asked.arguments)
        grant, verdict = run.grant, run.verdict
        record = audit.AuditRecord(
            id=str(uuid4()),
            namespace=grant.namespace,
            execution=grant.name,
            uid=grant.execution,
            pool=grant.pool,
            caller=grant.caller,
            user=grant.user,
            server=run.server_name,
            tool=run.target.tool.name if run.target else run.tool_name,
            digest=audit.compute_digest(run.asked.arguments),
            arguments=redacted,
            decision=str(verdict.action if verdict else Action.DENY),
            reason=verdict.why if verdict else "",
        )
        run.audited = record.id
        await self.audit.begin(record)
        return redacted

    async def _consent(self, run: Call, target: ResolvedTool, redacted: str) -> None:
        async def notice(approval: Approval) -> None:
            run.approval = approval  # the audit names it also where nobody approves
            await run.notice(approval)

        began = perf_counter()
        try:
            run.approval = await self.approvals.consent(
                grant=run.grant,
                call=run.asked.id,
                tool=target.name,
                arguments=redacted,
                timeout_seconds=target.spec.policy.approval_timeout_seconds,
                notice=notice,
            )
        finally:
            run.elsewhere += perf_counter() - began

    # how it ended

    def _ended(self, run: Call, outcome: CallOutcome, *, size: int, error: str = "") -> None:
        seconds = perf_counter() - run.began
        run.account.end(failed=outcome is not CallOutcome.OK, result_bytes=size)
        self.metrics.ended("/".join(run.server.key) if run.server else "", str(outcome), seconds)
        self.metrics.overhead_seconds.observe(max(seconds - run.elsewhere, 0.0))
        if not run.audited:
            return
        # the answer need not wait: that the call was made is durable, and a broker that dies now leaves it unfinished
        record = self.audit.end(
            run.audited,
            outcome,
            milliseconds=seconds * 1000,
            bytes_in=size,
            bytes_out=run.asked.size,
            error=error,
            approval=run.approval.id if run.approval else None,
            approved_by=run.approval.decided_by if run.approval else None,
        )
        task = asyncio.get_running_loop().create_task(record)
        self._records.add(task)
        task.add_done_callback(self._records.discard)
