"""The examination of a gateway, as one of its callers: health, key, tools, a trial run."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from mcp_exec_client import hints
from mcp_exec_client.check_report import Report
from mcp_exec_client.gateway import Answer, Gateway, Unreachable
from mcp_exec_client.tool_names import judge

_MOST_TOOLS: Final = 1000
_CODE: Final = "print(1)"
_NO_BROKER: Final = "no tool broker is configured"


@dataclass(frozen=True, kw_only=True)
class GatewayExam:
    """Examines the gateway at `url`."""

    url: str
    key: str | None
    namespace: str | None
    """None is the key's own."""
    pool: str
    tools: list[str]
    """Names whose spelling is judged."""
    seconds: float
    """How long the trial run may take."""
    report: Report

    async def run(self) -> None:
        """Looks at one thing after the other, as long as what comes after can be looked at."""
        async with Gateway.connect(url=self.url, key=self.key, namespace=self.namespace) as gateway:
            try:
                if not (await self._is_up(gateway) and await self._takes_the_key(gateway)):
                    self.report.skipped("tools and trial run", "not before that is solved")
                    return
                await self._tools(gateway)
                await self._trial(gateway)
            except Unreachable as error:
                hint = "is the address right, and does a port-forward or an Ingress lead there?"
                self.report.problem("gateway", str(error), hint)

    async def _is_up(self, gateway: Gateway) -> bool:
        alive = await gateway.ask("GET", "/healthz")
        if alive.status != HTTPStatus.OK or alive.data.get("status") != "ok":
            self.report.problem("gateway", alive.said, "something else answers at this address")
            return False
        ready = await gateway.ask("GET", "/readyz")
        if ready.status == HTTPStatus.OK:
            self.report.ok("gateway", f"{self.url} is ready")
            return True
        missing = ", ".join(map(str, ready.data.get("missing") or [])) or "nothing"
        said = f"it is not ready but {ready.data.get('status')}; not known yet: {missing}"
        self.report.problem("gateway", said, "wait; if it lasts, look at its log and whether it reaches the API server")
        return False

    async def _takes_the_key(self, gateway: Gateway) -> bool:
        if not self.key:
            self.report.problem("key", "none was given", "--api-key, or $MCP_EXEC_API_KEY")
            return False
        answer = await gateway.ask("GET", "/v1/executions", limit="1")
        if answer.status != HTTPStatus.OK:
            self.report.problem("key", answer.said, _hint(answer))
            return False
        self.report.ok("key", "it is accepted")
        return True

    async def _tools(self, gateway: Gateway) -> None:
        answer = await gateway.ask("GET", "/api/v1/mcp/tools/search", query="", limit=str(_MOST_TOOLS))
        if answer.status != HTTPStatus.OK:
            if _NO_BROKER in str(answer.data.get("detail")) and not self.tools:
                self.report.ok("tools", "there is no broker, so code calls none")
            else:
                self.report.problem("tools", answer.said, _hint(answer))
            return
        known = {(str(each.get("server")), str(each.get("name"))) for each in answer.items}
        servers = ", ".join(sorted({server for server, _ in known}))
        self.report.ok("tools", f"{len(known)} that this key may use" + (f", of {servers}" if servers else ""))
        for name in self.tools:
            judgement = judge(name, known)
            if judgement.good:
                self.report.ok(f"tool {name}", judgement.said)
            else:
                self.report.problem(f"tool {name}", judgement.said, judgement.hint)

    async def _trial(self, gateway: Gateway) -> None:
        body = {
            "code": _CODE,
            "timeoutSeconds": min(10, max(1, int(self.seconds))),
            "poolRef": {"name": self.pool},
            "ttlSecondsAfterFinished": 60,
        }
        what = f"trial run in pool {self.pool}"
        answer = await gateway.ask("POST", "/v1/executions", body=body, wait=f"{self.seconds:g}")
        name, phase, reason = (str(answer.data.get(each) or "") for each in ("name", "phase", "reason"))
        if answer.status not in (HTTPStatus.OK, HTTPStatus.ACCEPTED):
            self.report.problem(what, answer.said, _hint(answer))
        elif answer.status == HTTPStatus.ACCEPTED:
            await gateway.ask("DELETE", f"/v1/executions/{name}")
            said = f"{name} has not ended within {self.seconds:g} s: {phase} {reason} {_bound(answer.data)}"
            hint = hints.for_reason(reason) if reason else "is the operator running? kubectl get pods"
            self.report.problem(what, said, hint)
        elif phase == "Succeeded" and (answer.data.get("output") or {}).get("stdout") == "1\n":
            self.report.ok(what, f"{name}: {answer.data.get('start')} start, {answer.data.get('duration')}")
        else:
            message = (answer.data.get("error") or {}).get("message") or "it did not print what it should"
            self.report.problem(what, f"{name}: {phase} {reason}: {message}", hints.for_reason(reason))


def _hint(answer: Answer) -> str:
    """What to do about it."""
    return hints.PROBLEMS.get(str(answer.data.get("type")).rpartition(":")[2], hints.ELSE)


def _bound(status: dict[str, Any]) -> str:
    """Why an execution has no pod, where it says so."""
    found = [each for each in status.get("conditions") or [] if each.get("type") == "Bound"]
    return str(found[0].get("message") or "") if found else ""
