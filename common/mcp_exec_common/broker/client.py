"""Client of the broker's control interface, for operator and gateway, across all replicas.

One replica, which the execution's grant names, counts its calls; the others have no data of it. What is known of an
execution is therefore the sum over all replicas. Catalogs and wrappers are the same on each of them.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Self

import aiohttp
from pydantic import ValidationError

from mcp_exec_api.approvals import Approval
from mcp_exec_api.code_execution import ToolCalls
from mcp_exec_api.meta import Model
from mcp_exec_common.broker.grants import GrantSigner, ServiceName
from mcp_exec_common.broker.replicas import list_replicas, reflect_replicas
from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import Reflector
from mcp_exec_common.peers.answers import InvalidAnswer, parse_answer, read_answer

MAX_ANSWER_BYTES: Final = 64 * 2**20
"""Longest accepted answer: a namespace's catalogs, its wrappers, or a page of audit records."""
MAX_CALLS_BYTES: Final = 16 * 2**20
"""Longest accepted answer about the calls of one execution."""
_PORT: Final = "control"
"""Name of the control interface's port."""


class BrokerError(Exception):
    """A broker that cannot be reached or sent an invalid response. `status` is its HTTP status, or 0."""

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class ExecutionCalls(Model):
    """Tool calls of one execution, as one or more replicas recorded them."""

    tool_calls: ToolCalls = ToolCalls()
    """Counts."""
    approvals: list[Approval] = []
    """Calls that need or needed an approval, oldest first."""

    def add(self, other: Self) -> "ExecutionCalls":
        """Return the sum of the records of two replicas."""
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


@dataclass(frozen=True, kw_only=True)
class BrokerClient:
    """Client of all replicas of the broker."""

    session: aiohttp.ClientSession
    signer: GrantSigner
    sender: ServiceName
    """Process that sends the requests."""
    addresses: Callable[[], Sequence[str]]
    """Returns HOST:PORT of the control interface of each ready replica."""

    async def get_calls(self, uid: str, *, timeout_seconds: float = 2.0) -> ExecutionCalls:
        """Return what is recorded of an execution.

        Raises BrokerError if no replica answers. If only some do, the sum is not `complete`.
        """
        return await self._sum_calls("GET", uid, timeout_seconds=timeout_seconds)

    async def close_calls(self, uid: str, *, timeout_seconds: float = 2.0) -> ExecutionCalls:
        """End an execution's calls and refuse new ones, then return what `get_calls` returns."""
        return await self._sum_calls("DELETE", uid, timeout_seconds=timeout_seconds)

    async def get(self, path: str, *, params: Mapping[str, str] | None = None, timeout_seconds: float = 10.0) -> Object:
        """Return the response of the first replica that answers. Raises BrokerError."""
        last: BrokerError = BrokerError("no broker replica is ready")
        for address in self.addresses():
            try:
                return await self._request(address, "GET", path, params=params, timeout_seconds=timeout_seconds)
            except BrokerError as error:
                last = error
        raise last

    async def get_from(
        self, address: str, path: str, *, params: Mapping[str, str] | None = None, timeout_seconds: float = 10.0
    ) -> Object:
        """Return the response of the replica at one of the addresses. Raises BrokerError."""
        return await self._request(address, "GET", path, params=params, timeout_seconds=timeout_seconds)

    async def _sum_calls(self, method: str, uid: str, *, timeout_seconds: float) -> ExecutionCalls:
        requests = [
            self._request_calls(address, method, uid, timeout_seconds=timeout_seconds) for address in self.addresses()
        ]
        results = await asyncio.gather(*requests, return_exceptions=True)
        records = [result for result in results if not isinstance(result, BaseException)]
        if not records:
            raise BrokerError("no broker replica answers" if results else "no broker replica is ready")
        total = records[0]
        for record in records[1:]:
            total = total.add(record)
        if len(records) < len(results):
            total = total.model_copy(update={"tool_calls": total.tool_calls.model_copy(update={"complete": False})})
        return total

    async def _request_calls(self, address: str, method: str, uid: str, *, timeout_seconds: float) -> ExecutionCalls:
        path = f"/v1/executions/{uid}"
        return _parse_calls(
            await self._request(address, method, path, timeout_seconds=timeout_seconds, limit=MAX_CALLS_BYTES)
        )

    async def _request(
        self,
        address: str,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        timeout_seconds: float,
        limit: int = MAX_ANSWER_BYTES,
    ) -> Object:
        headers = {"Authorization": f"Bearer {self.signer.sign_service_token(self.sender)}"}
        timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=1.0)
        try:
            async with self.session.request(
                method,
                f"http://{address}{path}",
                params=params,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                body = await read_answer(response, limit=limit)
                if response.status != 200:
                    message = f"the broker at {address} answered {response.status}: {body[:300]!r}"
                    raise BrokerError(message, status=response.status)
                return parse_answer(body)
        except (aiohttp.ClientError, TimeoutError, InvalidAnswer) as error:
            raise BrokerError(f"the broker at {address}: {type(error).__name__} {error}") from error


def follow_broker(
    *, kube: KubeClient, session: aiohttp.ClientSession, namespace: str, service: str, key: bytes, sender: ServiceName
) -> tuple[BrokerClient, Reflector]:
    """Return a client of the replicas behind a Service, and the reflector of its slices, which the caller must run.

    `key` is the release's key.
    """
    reflector = reflect_replicas(kube=kube, namespace=namespace, service=service)

    def list_addresses() -> list[str]:
        replicas = [replica for replica in list_replicas(reflector.items.values()) if replica.ready]
        return [f"{replica.host}:{replica.ports[_PORT]}" for replica in replicas if _PORT in replica.ports]

    client = BrokerClient(
        session=session,
        signer=GrantSigner(key=key),
        sender=sender,
        addresses=list_addresses,
    )
    return client, reflector


@asynccontextmanager
async def connect_broker(
    *, kube: KubeClient, session: aiohttp.ClientSession, namespace: str, service: str, key: bytes, sender: ServiceName
) -> AsyncIterator[BrokerClient]:
    """Create a client of the replicas behind a Service and follow its slices inside the context."""
    client, reflector = follow_broker(
        kube=kube, session=session, namespace=namespace, service=service, key=key, sender=sender
    )
    async with reflector.run_in_background():
        yield client


def _parse_calls(content: Object) -> ExecutionCalls:
    try:
        return ExecutionCalls.model_validate(content)
    except ValidationError as error:
        raise BrokerError(f"the broker sent invalid call records: {error}") from error
