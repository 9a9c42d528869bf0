"""Checks of a gateway as one of its callers: health, key, tools, a trial run."""

from dataclasses import dataclass
from typing import Final

from mcp_exec_client.cli.doctor.hints import FALLBACK_HINT, PROBLEMS, hint_for_reason
from mcp_exec_client.cli.doctor.report import CheckReport
from mcp_exec_client.cli.doctor.tool_names import check_tool_name
from mcp_exec_client.client import AsyncClient
from mcp_exec_client.errors import GatewayError, McpExecError, UnexpectedResponse, WaitExpired
from mcp_exec_client.retry import NO_RETRIES
from mcp_exec_client.types import Execution

_MAX_TOOLS: Final = 1000
_SECONDS: Final = 20.0
"""Time for a response."""
_NOT_READY: Final = 503
_CODE: Final = "print(1)"
_NO_BROKER: Final = "no tool broker is configured"


@dataclass(frozen=True, kw_only=True)
class GatewayChecks:
    """Checks of the gateway at `url`."""

    url: str
    key: str | None
    namespace: str | None
    """Namespace of the trial run; None means the key's own."""
    pool: str
    tools: list[str]
    """Tool names to check."""
    seconds: float
    """Time limit of the trial run."""
    report: CheckReport

    async def run(self) -> None:
        """Check health and key; if both are good, also the tools and a trial run."""
        try:
            async with AsyncClient(
                self.url, api_key=self.key, namespace=self.namespace, timeout_seconds=_SECONDS, retries=NO_RETRIES
            ) as client:
                if not (await self._check_health(client) and await self._check_key(client)):
                    self.report.skipped("tools and trial run", "they need a ready gateway and a valid key")
                    return
                await self._check_tools(client)
                await self._check_trial_run(client)
        except McpExecError as error:
            hint = "is the address right, and does a port-forward or an Ingress lead there?"
            self.report.problem("gateway", str(error), hint)

    async def _check_health(self, client: AsyncClient) -> bool:
        try:
            alive = (await client.transport.request("GET", "/healthz")).to_json()
        except (GatewayError, UnexpectedResponse) as error:
            alive = str(error)
        if not isinstance(alive, dict) or alive.get("status") != "ok":
            self.report.problem("gateway", str(alive), "the server at this address is not a gateway")
            return False
        ready = await client.transport.request("GET", "/readyz", expected=[_NOT_READY])
        if ready.status != _NOT_READY:
            self.report.ok("gateway", f"{self.url} is ready")
            return True
        body = ready.to_json()
        missing = ", ".join(map(str, body.get("missing") or [])) or "nothing"
        message = f"not ready but {body.get('status')}; still missing: {missing}"
        hint = "wait; if it lasts, read its log and check that it reaches the API server"
        self.report.problem("gateway", message, hint)
        return False

    async def _check_key(self, client: AsyncClient) -> bool:
        if not self.key:
            self.report.problem("key", "none was given", "use --api-key or $MCP_EXEC_API_KEY")
            return False
        try:
            async for _ in client.list(limit=1):
                pass
        except GatewayError as error:
            self.report.problem("key", str(error), _find_hint(error))
            return False
        self.report.ok("key", "it is accepted")
        return True

    async def _check_tools(self, client: AsyncClient) -> None:
        try:
            tools = await client.search_tools("", detail_level="name_only", limit=_MAX_TOOLS)
        except GatewayError as error:
            if _NO_BROKER in error.detail and not self.tools:
                self.report.ok("tools", "no broker is configured, so code cannot call tools")
            else:
                self.report.problem("tools", str(error), _find_hint(error))
            return
        known = {(tool.server, tool.name) for tool in tools}
        servers = ", ".join(sorted({server for server, _ in known}))
        self.report.ok("tools", f"{len(known)} that this key may use" + (f", of {servers}" if servers else ""))
        for name in self.tools:
            check = check_tool_name(name, known)
            if check.valid:
                self.report.ok(f"tool {name}", check.message)
            else:
                self.report.problem(f"tool {name}", check.message, check.hint)

    async def _check_trial_run(self, client: AsyncClient) -> None:
        subject = f"trial run in pool {self.pool}"
        try:
            execution = await client.run(
                _CODE,
                timeout_seconds=min(10, max(1, int(self.seconds))),
                pool=self.pool,
                ttl_seconds=60,
                wait_seconds=self.seconds,
            )
        except GatewayError as error:
            self.report.problem(subject, str(error), _find_hint(error))
        except WaitExpired as error:
            execution = await client.get(str(error.execution))
            waiting = f"{execution.phase} {execution.reason} {_bound_message(execution)}"
            message = f"{execution.name} has not ended within {self.seconds:g} s: {waiting}"
            reason = execution.reason
            hint = hint_for_reason(reason) if reason else "is the operator running? kubectl get pods"
            self.report.problem(subject, message, hint)
        else:
            self._report_trial(subject, execution)

    def _report_trial(self, subject: str, execution: Execution) -> None:
        if execution.succeeded and execution.stdout == "1\n":
            self.report.ok(subject, f"{execution.name}: {execution.start} start, {execution.duration}")
            return
        error = execution.error
        message = "it did not print 1" if error is None else error.summary
        if error is not None and error.type == execution.reason:
            message = error.message
        outcome = f"{execution.name}: {execution.phase} {execution.reason}: {message}"
        self.report.problem(subject, outcome, hint_for_reason(execution.reason))


def _find_hint(error: GatewayError) -> str:
    """Return what to do about a problem that the gateway reports."""
    return PROBLEMS.get(error.kind, FALLBACK_HINT)


def _bound_message(execution: Execution) -> str:
    """Return why an execution has no pod, by its condition Bound; empty if it has none."""
    return next((each.message for each in execution.conditions if each.type == "Bound"), "")
