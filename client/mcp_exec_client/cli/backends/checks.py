"""Checks of doctor: its report, and those of a gateway as one of its callers."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

from mcp_exec_api.reasons.execution import Reason
from mcp_exec_api.reasons.server import find_server_reason
from mcp_exec_client.client import AsyncClient
from mcp_exec_client.errors import GatewayError, McpExecError, UnexpectedResponse, WaitExpired
from mcp_exec_client.transport import NO_RETRIES
from mcp_exec_client.types import Execution
from mcp_exec_tools.names import explain_missing_server, words
from mcp_exec_tools.patterns import TOOL_PATTERN, matches
from mcp_exec_tools.text import shorten_line

_MAX_LINE: Final = 600
PROBLEMS: Final[dict[str, str]] = {
    "unauthenticated": (
        "check whether the key was removed or rotated; the chart's notes say how to get the first one; a "
        "ServiceAccount's token needs the audience of gateway.audience"
    ),
    "forbidden": "use a key of that namespace whose limits allow it",
    "rate-limited": "wait a minute, or raise the key's `requestsPerMinute`",
    "too-many": "wait until executions have ended, or raise the key's `maxConcurrent`",
    "queue-full": Reason.QUEUE_FULL.remedy,
    "invalid": "correct the field that the message names",
    "unavailable": "check the component that the message names: kubectl get pods in the release's namespace",
}
"""Hints by the type of a gateway's problem."""
FALLBACK_HINT: Final = "see docs/kubectl/troubleshooting.md"
_SERVERS_PAGE: Final = "see docs/platform/tool-servers.md#status"
_BY_REASON: Final[dict[str, str]] = {str(reason): reason.remedy for reason in Reason}
_MAX_LENGTH: Final = 256
_FORMAT: Final = "write SERVER.TOOL, such as github.create_issue"
_MAX_TOOLS: Final = 1000
_SECONDS: Final = 20.0
"""Time for a response."""
_NOT_READY: Final = 503
_CODE: Final = "print(1)"
_NO_OPERATOR: Final = (
    "check that the operator runs: `mcp-exec doctor --kubeconfig FILE`, or kubectl get deployments,pods in the "
    "release's namespace"
)
_NO_BROKER: Final = "no tool broker is configured"


@dataclass(kw_only=True)
class CheckReport:
    """Prints the result of each check at once and counts the problems."""

    problems: int = 0
    lines: list[str] = field(default_factory=list)
    """What was printed."""

    def ok(self, subject: str, message: str) -> None:
        """Report a check that passed."""
        self._print("ok", subject, message)

    def problem(self, subject: str, message: str, hint: str) -> None:
        """Report a check that failed. `hint` says what to do about it."""
        self.problems += 1
        self._print("problem", subject, f"{_clean(message)} -> {hint}")

    def warning(self, subject: str, message: str) -> None:
        """Report what is no problem yet."""
        self._print("warning", subject, message)

    def skipped(self, subject: str, reason: str) -> None:
        """Report a check that was not possible."""
        self._print("skipped", subject, reason)

    def _print(self, result: str, subject: str, message: str) -> None:
        self.lines.append(f"{result:<8} {_clean(subject)}: {_clean(message)}")
        print(self.lines[-1], flush=True)  # noqa: T201


def _clean(text: str) -> str:
    """Return the text on one line, without control characters that a terminal would interpret."""
    line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    return shorten_line(line, _MAX_LINE)


def hint_for_reason(reason: str) -> str:
    """Return the hint for an execution or a pool with that reason."""
    return _BY_REASON.get(reason, FALLBACK_HINT)


def hint_for_server_reason(reason: str) -> str:
    """Return the hint for a ToolServer with that reason, and the page that explains it."""
    known = find_server_reason(reason)
    return f"{known.remedy} ({_SERVERS_PAGE})" if known is not None else _SERVERS_PAGE


@dataclass(frozen=True, kw_only=True)
class ToolNameCheck:
    """Result of the check of one name."""

    valid: bool
    message: str
    hint: str = ""
    """Advice if it is not valid."""


def check_tool_name(name: str, known: Collection[tuple[str, str]]) -> ToolNameCheck:
    """Check a tool's name or pattern. `known` has server and Python name of each known tool."""
    dotted = _to_dotted(name)
    if len(dotted) > _MAX_LENGTH or not re.match(TOOL_PATTERN, dotted):
        return ToolNameCheck(valid=False, message="not a tool name", hint=_suggest(name, known) or _FORMAT)
    server, _, tool = dotted.partition(".")
    if "*" in dotted:
        count = sum(matches(dotted, server=server, tool=tool) for server, tool in known)
        return ToolNameCheck(valid=count > 0, message=f"matches {count} tools", hint=_suggest(name, known) or _FORMAT)
    if (server, tool) in known:
        return ToolNameCheck(valid=True, message=f"is a tool of {server}")
    functions = [function for other, function in known if other == server]
    for function in functions:
        if words(function) == words(tool):
            return ToolNameCheck(valid=True, message=f"is a tool of {server}; its Python name is {function}")
    if functions:
        message = f"{server} has no such tool among its {len(functions)}"
    else:
        message = explain_missing_server(server, {server for server, _ in known})
    hint = _suggest(dotted, known) or "find it: GET /api/v1/mcp/tools/search"
    return ToolNameCheck(valid=False, message=message, hint=hint)


def _to_dotted(name: str) -> str:
    """Return SERVER.TOOL for mcp__SERVER__TOOL, and any other name unchanged."""
    parts = name.split("__", 2)
    return f"{parts[1]}.{parts[2]}" if len(parts) == 3 and parts[0] == "mcp" else name


def _suggest(name: str, known: Collection[tuple[str, str]]) -> str:
    """Return a question with similar names; empty if no name is similar."""
    names = sorted(f"{server}.{tool}" for server, tool in known)
    # only the tool, in case its server is missing or wrong
    candidates = [known_name for known_name in names if known_name.partition(".")[2] == name.rpartition(".")[2]]
    candidates += get_close_matches(name[:_MAX_LENGTH], names, n=3, cutoff=0.8)
    suggestions = list(dict.fromkeys(candidates))[:3]
    return f"did you mean {' or '.join(suggestions)}?" if suggestions else ""


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
    has_operator: bool = True
    """Whether an operator may run. Without one, a trial run would only wait."""

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
                if self.has_operator:
                    await self._check_trial_run(client)
                else:
                    self.report.skipped("trial run", "no operator runs that would start it")
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
            hint = _NO_OPERATOR if reason in ("", Reason.NOT_OBSERVED) else hint_for_reason(reason)
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
