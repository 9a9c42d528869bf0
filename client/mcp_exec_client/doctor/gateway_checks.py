"""Checks of a gateway as one of its callers: health, key, tools, a trial run."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from mcp_exec_client.doctor.hints import FALLBACK_HINT, PROBLEMS, hint_for_reason
from mcp_exec_client.doctor.report import CheckReport
from mcp_exec_client.doctor.tool_names import check_tool_name
from mcp_exec_client.gateway import GatewayClient, GatewayResponse, GatewayUnreachable

_MAX_TOOLS: Final = 1000
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
        async with GatewayClient.connect(url=self.url, key=self.key, namespace=self.namespace) as gateway:
            try:
                if not (await self._check_health(gateway) and await self._check_key(gateway)):
                    self.report.skipped("tools and trial run", "they need a ready gateway and a valid key")
                    return
                await self._check_tools(gateway)
                await self._check_trial_run(gateway)
            except GatewayUnreachable as error:
                hint = "is the address right, and does a port-forward or an Ingress lead there?"
                self.report.problem("gateway", str(error), hint)

    async def _check_health(self, gateway: GatewayClient) -> bool:
        alive = await gateway.request("GET", "/healthz")
        if alive.status != HTTPStatus.OK or alive.data.get("status") != "ok":
            self.report.problem("gateway", alive.error, "the server at this address is not a gateway")
            return False
        ready = await gateway.request("GET", "/readyz")
        if ready.status == HTTPStatus.OK:
            self.report.ok("gateway", f"{self.url} is ready")
            return True
        missing = ", ".join(map(str, ready.data.get("missing") or [])) or "nothing"
        message = f"not ready but {ready.data.get('status')}; still missing: {missing}"
        hint = "wait; if it lasts, read its log and check that it reaches the API server"
        self.report.problem("gateway", message, hint)
        return False

    async def _check_key(self, gateway: GatewayClient) -> bool:
        if not self.key:
            self.report.problem("key", "none was given", "use --api-key or $MCP_EXEC_API_KEY")
            return False
        response = await gateway.request("GET", "/v1/executions", limit="1")
        if response.status != HTTPStatus.OK:
            self.report.problem("key", response.error, _find_hint(response))
            return False
        self.report.ok("key", "it is accepted")
        return True

    async def _check_tools(self, gateway: GatewayClient) -> None:
        response = await gateway.request("GET", "/api/v1/mcp/tools/search", query="", limit=str(_MAX_TOOLS))
        if response.status != HTTPStatus.OK:
            if _NO_BROKER in str(response.data.get("detail")) and not self.tools:
                self.report.ok("tools", "no broker is configured, so code cannot call tools")
            else:
                self.report.problem("tools", response.error, _find_hint(response))
            return
        known = {(str(tool.get("server")), str(tool.get("name"))) for tool in response.items}
        servers = ", ".join(sorted({server for server, _ in known}))
        self.report.ok("tools", f"{len(known)} that this key may use" + (f", of {servers}" if servers else ""))
        for name in self.tools:
            check = check_tool_name(name, known)
            if check.valid:
                self.report.ok(f"tool {name}", check.message)
            else:
                self.report.problem(f"tool {name}", check.message, check.hint)

    async def _check_trial_run(self, gateway: GatewayClient) -> None:
        body = {
            "code": _CODE,
            "timeoutSeconds": min(10, max(1, int(self.seconds))),
            "poolRef": {"name": self.pool},
            "ttlSecondsAfterFinished": 60,
        }
        subject = f"trial run in pool {self.pool}"
        response = await gateway.request("POST", "/v1/executions", body=body, wait=f"{self.seconds:g}")
        name, phase, reason = (str(response.data.get(field) or "") for field in ("name", "phase", "reason"))
        if response.status not in (HTTPStatus.OK, HTTPStatus.ACCEPTED):
            self.report.problem(subject, response.error, _find_hint(response))
        elif response.status == HTTPStatus.ACCEPTED:
            await gateway.request("DELETE", f"/v1/executions/{name}")
            message = (
                f"{name} has not ended within {self.seconds:g} s: {phase} {reason} {_bound_message(response.data)}"
            )
            hint = hint_for_reason(reason) if reason else "is the operator running? kubectl get pods"
            self.report.problem(subject, message, hint)
        elif phase == "Succeeded" and (response.data.get("output") or {}).get("stdout") == "1\n":
            self.report.ok(subject, f"{name}: {response.data.get('start')} start, {response.data.get('duration')}")
        else:
            message = (response.data.get("error") or {}).get("message") or "it did not print 1"
            self.report.problem(subject, f"{name}: {phase} {reason}: {message}", hint_for_reason(reason))


def _find_hint(response: GatewayResponse) -> str:
    """Return what to do about a problem that the gateway reports."""
    return PROBLEMS.get(str(response.data.get("type")).rpartition(":")[2], FALLBACK_HINT)


def _bound_message(status: dict[str, Any]) -> str:
    """Return why an execution has no pod, by its condition Bound; empty if it has none."""
    conditions = [condition for condition in status.get("conditions") or [] if condition.get("type") == "Bound"]
    return str(conditions[0].get("message") or "") if conditions else ""
