"""The broker's control interface, as operator and gateway see it: over all of its replicas.

A sandbox's calls all go to one replica (its Service keeps a client's address at one), so what is known of an
execution is the sum of what each replica knows; catalogs and wrappers are the same at all of them.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

import aiohttp
from pydantic import ValidationError

from mcp_exec_api.approvals import Approval
from mcp_exec_api.code_execution import ToolCalls
from mcp_exec_api.meta import Model
from mcp_exec_common.broker.grants import GrantSigner, ServiceName
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import Reflector


class BrokerError(Exception):
    """No broker can be reached, or what it said is no answer. `status` is the HTTP status that it gave, else 0."""

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class ExecutionCalls(Model):
    """What a broker knows of one execution."""

    tool_calls: ToolCalls = ToolCalls()
    """Its calls, counted."""
    approvals: list[Approval] = []
    """Those that need or needed consent, oldest first."""

    def plus(self, other: Self) -> "ExecutionCalls":
        """What two replicas know."""
        one, two = self.tool_calls, other.tool_calls
        by_tool = {tool: one.by_tool.get(tool, 0) + two.by_tool.get(tool, 0) for tool in one.by_tool | two.by_tool}
        return ExecutionCalls(
            tool_calls=ToolCalls(
                total=one.total + two.total,
                failed=one.failed + two.failed,
                by_tool=by_tool,
                bytes_in=one.bytes_in + two.bytes_in,
                complete=one.complete and two.complete,
            ),
            approvals=sorted([*self.approvals, *other.approvals], key=lambda approval: approval.requested_at),
        )


def ready_addresses(endpoints: Object | None, *, port: str) -> list[str]:
    """HOST:PORT of each ready address of an Endpoints object, by the name of the port."""
    found: list[str] = []
    for subset in (endpoints or {}).get("subsets") or []:
        numbers = [each["port"] for each in subset.get("ports") or [] if each.get("name") == port]
        for address in subset.get("addresses") or []:
            host = f"[{address['ip']}]" if ":" in address["ip"] else address["ip"]
            found.extend(f"{host}:{number}" for number in numbers)
    return sorted(found)


@dataclass(frozen=True, kw_only=True)
class BrokerClient:
    """All replicas of the broker."""

    session: aiohttp.ClientSession
    signer: GrantSigner
    bearer: ServiceName
    addresses: Callable[[], Sequence[str]]
    """HOST:PORT of the control interface of each replica that is ready."""

    async def calls(self, uid: str, *, close: bool = False, timeout_seconds: float = 2.0) -> ExecutionCalls:
        """What is known of an execution; `close` ends what of it still goes on, and all that would come.

        Raises BrokerError where none answers; where only some do, the sum is not `complete`.
        """
        answers = await asyncio.gather(
            *(self._calls_at(address, uid, close, timeout_seconds) for address in self.addresses()),
            return_exceptions=True,
        )
        known = [answer for answer in answers if isinstance(answer, ExecutionCalls)]
        if not known:
            raise BrokerError("no broker answers" if answers else "no broker is ready")
        total = known[0]
        for more in known[1:]:
            total = total.plus(more)
        if len(known) < len(answers):
            total = total.model_copy(update={"tool_calls": total.tool_calls.model_copy(update={"complete": False})})
        return total

    async def _calls_at(self, address: str, uid: str, close: bool, timeout_seconds: float) -> ExecutionCalls:
        method = "DELETE" if close else "GET"
        answer = await self._ask(address, method, f"/v1/executions/{uid}", timeout_seconds=timeout_seconds)
        try:
            return ExecutionCalls.model_validate(answer)
        except ValidationError as error:
            raise BrokerError(f"the broker at {address} returned malformed calls: {error}") from error

    async def ask(self, path: str, *, params: Mapping[str, str] | None = None, timeout_seconds: float = 10.0) -> Object:
        """What any replica answers to a GET. Raises BrokerError."""
        last: BrokerError = BrokerError("no broker is ready")
        for address in self.addresses():
            try:
                return await self._ask(address, "GET", path, params=params, timeout_seconds=timeout_seconds)
            except BrokerError as error:
                last = error
        raise last

    async def ask_at(
        self, address: str, path: str, *, params: Mapping[str, str] | None = None, timeout_seconds: float = 10.0
    ) -> Object:
        """What the replica at one of the addresses answers to a GET. Raises BrokerError."""
        return await self._ask(address, "GET", path, params=params, timeout_seconds=timeout_seconds)

    async def _ask(
        self,
        address: str,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        timeout_seconds: float,
    ) -> Object:
        headers = {"Authorization": f"Bearer {self.signer.service_token(self.bearer)}"}
        timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=1.0)
        try:
            async with self.session.request(
                method, f"http://{address}{path}", params=params, headers=headers, timeout=timeout
            ) as response:
                body = await response.read()
                if response.status != 200:
                    message = f"the broker at {address} answers {response.status}: {body[:300]!r}"
                    raise BrokerError(message, status=response.status)
                answer: Any = json.loads(body)
        except (aiohttp.ClientError, TimeoutError, ValueError, RecursionError) as error:
            raise BrokerError(f"the broker at {address}: {type(error).__name__} {error}") from error
        if not isinstance(answer, dict):
            raise BrokerError(f"the broker at {address} answers no object")
        return answer


def follow_broker(
    *, kube: KubeClient, session: aiohttp.ClientSession, namespace: str, service: str, key: bytes, bearer: ServiceName
) -> tuple[BrokerClient, Reflector]:
    """The replicas behind a Service, and the reflector of its Endpoints that they are known by, which does not run yet.

    `key` is that of the sandboxes' tokens.
    """
    reflector = Reflector(
        kube=kube, path=resource_path("endpoints", namespace=namespace), fields=f"metadata.name={service}"
    )
    brokers = BrokerClient(
        session=session,
        signer=GrantSigner(key=key),
        bearer=bearer,
        addresses=lambda: ready_addresses(reflector.items.get((namespace, service)), port="control"),
    )
    return brokers, reflector


@asynccontextmanager
async def connect_broker(
    *, kube: KubeClient, session: aiohttp.ClientSession, namespace: str, service: str, key: bytes, bearer: ServiceName
) -> AsyncIterator[BrokerClient]:
    """The replicas behind a Service, followed while the context stands."""
    brokers, reflector = follow_broker(
        kube=kube, session=session, namespace=namespace, service=service, key=key, bearer=bearer
    )
    async with reflector.running():
        yield brokers
