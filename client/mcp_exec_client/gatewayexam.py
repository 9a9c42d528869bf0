"""The examination of a gateway, as one of its callers: health, key, tools, a trial run."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import aiohttp

from mcp_exec_client import hints
from mcp_exec_client.report import Report
from mcp_exec_client.toolnames import judge

_SECONDS: Final = 10.0
_MARGIN_SECONDS: Final = 10.0
"""How much longer than its `wait` a request may take."""
_MOST_TOOLS: Final = 1000
_CODE: Final = "print(1)"
_NO_BROKER: Final = "no tool broker is configured"


@dataclass(frozen=True)
class Answer:
    """What the gateway said."""

    status: int
    data: dict[str, Any]
    """A JSON object's members; those of a list are under `items`."""

    @property
    def said(self) -> str:
        """What went wrong, by its own words."""
        return f"{self.status}: {self.data.get('detail') or self.data or 'no JSON'}"

    @property
    def hint(self) -> str:
        """What to do about it."""
        return hints.PROBLEMS.get(str(self.data.get("type")).rpartition(":")[2], hints.ELSE)


class Unreachable(Exception):
    """Nobody answered."""


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
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        async with aiohttp.ClientSession(headers=headers) as session:
            try:
                if not (await self._is_up(session) and await self._takes_the_key(session)):
                    self.report.skipped("tools and trial run", "not before that is solved")
                    return
                await self._tools(session)
                await self._trial(session)
            except Unreachable as error:
                hint = "is the address right, and does a port-forward or an Ingress lead there?"
                self.report.problem("gateway", str(error), hint)

    async def _is_up(self, session: aiohttp.ClientSession) -> bool:
        alive = await self._ask(session, "GET", "/healthz")
        if alive.status != HTTPStatus.OK or alive.data.get("status") != "ok":
            self.report.problem("gateway", alive.said, "something else answers at this address")
            return False
        ready = await self._ask(session, "GET", "/readyz")
        if ready.status == HTTPStatus.OK:
            self.report.ok("gateway", f"{self.url} is ready")
            return True
        missing = ", ".join(map(str, ready.data.get("missing") or [])) or "nothing"
        said = f"it is not ready but {ready.data.get('status')}; not known yet: {missing}"
        self.report.problem("gateway", said, "wait; if it lasts, look at its log and whether it reaches the API server")
        return False

    async def _takes_the_key(self, session: aiohttp.ClientSession) -> bool:
        if not self.key:
            self.report.problem("key", "none was given", "--api-key, or $MCP_EXEC_API_KEY")
            return False
        answer = await self._ask(session, "GET", "/v1/executions", limit="1")
        if answer.status != HTTPStatus.OK:
            self.report.problem("key", answer.said, answer.hint)
            return False
        self.report.ok("key", "it is accepted")
        return True

    async def _tools(self, session: aiohttp.ClientSession) -> None:
        answer = await self._ask(session, "GET", "/api/v1/mcp/tools/search", query="", limit=str(_MOST_TOOLS))
        if answer.status != HTTPStatus.OK:
            if _NO_BROKER in str(answer.data.get("detail")) and not self.tools:
                self.report.ok("tools", "there is no broker, so code calls none")
            else:
                self.report.problem("tools", answer.said, answer.hint)
            return
        found = [each for each in answer.data.get("items") or [] if isinstance(each, dict)]
        known = {(str(each.get("server")), str(each.get("name"))) for each in found}
        servers = ", ".join(sorted({server for server, _ in known}))
        self.report.ok("tools", f"{len(known)} that this key may use" + (f", of {servers}" if servers else ""))
        for name in self.tools:
            judgement = judge(name, known)
            if judgement.good:
                self.report.ok(f"tool {name}", judgement.said)
            else:
                self.report.problem(f"tool {name}", judgement.said, judgement.hint)

    async def _trial(self, session: aiohttp.ClientSession) -> None:
        body = {
            "code": _CODE,
            "timeoutSeconds": min(10, max(1, int(self.seconds))),
            "poolRef": {"name": self.pool},
            "ttlSecondsAfterFinished": 60,
        }
        what = f"trial run in pool {self.pool}"
        answer = await self._ask(session, "POST", "/v1/executions", body=body, wait=f"{self.seconds:g}")
        name, phase, reason = (str(answer.data.get(each) or "") for each in ("name", "phase", "reason"))
        if answer.status not in (HTTPStatus.OK, HTTPStatus.ACCEPTED):
            self.report.problem(what, answer.said, answer.hint)
        elif answer.status == HTTPStatus.ACCEPTED:
            await self._ask(session, "DELETE", f"/v1/executions/{name}")
            said = f"{name} has not ended within {self.seconds:g} s: {phase} {reason} {_bound(answer.data)}"
            hint = hints.for_reason(reason) if reason else "is the operator running? kubectl get pods"
            self.report.problem(what, said, hint)
        elif phase == "Succeeded" and (answer.data.get("output") or {}).get("stdout") == "1\n":
            self.report.ok(what, f"{name}: {answer.data.get('start')} start, {answer.data.get('duration')}")
        else:
            message = (answer.data.get("error") or {}).get("message") or "it did not print what it should"
            self.report.problem(what, f"{name}: {phase} {reason}: {message}", hints.for_reason(reason))

    async def _ask(
        self, session: aiohttp.ClientSession, method: str, path: str, *, body: object = None, **query: str
    ) -> Answer:
        """Asks the gateway. Raises Unreachable."""
        if self.namespace and path.startswith("/v1/"):
            query["namespace"] = self.namespace
        limit = aiohttp.ClientTimeout(total=float(query.get("wait", _SECONDS)) + _MARGIN_SECONDS)
        try:
            async with session.request(
                method, self.url + path, params=query, json=body, timeout=limit, allow_redirects=False
            ) as response:
                return Answer(response.status, await _members(response))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise Unreachable(f"{method} {self.url}{path}: {error or 'no answer in time'}") from error


async def _members(response: aiohttp.ClientResponse) -> dict[str, Any]:
    try:
        data = await response.json(content_type=None)
    except ValueError:
        return {}
    if isinstance(data, list):
        return {"items": data}
    return data if isinstance(data, dict) else {}


def _bound(status: dict[str, Any]) -> str:
    """Why an execution has no pod, where it says so."""
    found = [each for each in status.get("conditions") or [] if each.get("type") == "Bound"]
    return str(found[0].get("message") or "") if found else ""
