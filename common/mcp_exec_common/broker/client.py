"""Client of the broker's control interface, for operator and gateway, across all replicas.

Each request says by `Repeat` when it goes to the next replica.

One replica, which the execution's grant names, counts its calls; the others have no data of it. What is known of an
execution is therefore the sum over all replicas. Catalogs and wrappers are the same on each of them.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import Enum
from io import BytesIO
from typing import Annotated, Final, Self, TypeVar
from zlib import crc32

import aiohttp
from pydantic import Field, ValidationError
from yarl import URL

from mcp_exec_api.approvals import Approval, PendingApproval
from mcp_exec_api.code_execution import ToolCalls
from mcp_exec_api.meta import Model
from mcp_exec_common.broker.grants import MAX_GRANT_SECONDS, GrantSigner, ServiceName
from mcp_exec_common.broker.replicas import list_replicas, reflect_replicas
from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import Reflector
from mcp_exec_common.peers import InvalidAnswer, PeerNotProven, check_head, parse_answer, read_answer
from mcp_exec_common.sandbox_keys import SandboxKeys

MAX_ANSWER_BYTES: Final = 64 * 2**20
"""Longest accepted answer: a namespace's catalogs, its wrappers, or a page of audit records."""
MAX_CALLS_BYTES: Final = 16 * 2**20
"""Longest accepted answer about the calls of one execution, or about a namespace's pending approvals."""
MAX_PENDING_APPROVALS: Final = 1000
"""Most pending approvals that a replica lists of one namespace."""
NOT_IMPLEMENTED: Final = 501
"""HTTP status of a broker without the feature that was requested (RFC 9110)."""
_OF_ONE_REPLICA: Final = (401, 404)
_MAX_WAITS: Final = 64
_PART_BYTES: Final = 256 * 1024
"""Most bytes of a part of a body that is passed on."""
_CONNECT_SECONDS: Final = 1.0
_Answer = TypeVar("_Answer")
_Content = TypeVar("_Content", bound=Model)
_PORT: Final = "control"
"""Name of the control interface's port."""


class BrokerError(Exception):
    """A broker that cannot be reached, refused a request or sent an invalid response."""

    def __init__(self, message: str, *, status: int = 0, text: str = "", is_sent: bool = True) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status, or 0."""
        self.text = text
        """Beginning of the response of a broker that refused the request."""
        self.is_sent = is_sent
        """Whether a replica may have received the request."""


class Repeat(Enum):
    """Failures of a replica that make a request go to the next one."""

    IF_UNREACHED = "IfUnreached"
    """If no connection was made, so that the replica did not receive the request."""
    IF_FAILED = "IfFailed"
    """Unless it was answered, or refused by what every replica would refuse: for requests that may be made twice.

    A replica of another release may not have a route or a key yet, so that its 401 or 404 is a failure.
    """


class ApprovalWait(Model):
    """Time that the calls of one execution waited for approvals, as one process of the broker measured it."""

    process: Annotated[str, Field(max_length=64)]
    """Random id of the process. After a restart, another one measures from 0."""
    waited_seconds: Annotated[float, Field(ge=0)]
    """Seconds until now while at least one call waited."""
    remaining_seconds: Annotated[float, Field(ge=0)]
    """Seconds until the last of the waiting calls is denied; 0 if none waits."""


class ExecutionCalls(Model):
    """Tool calls of one execution, as one or more replicas recorded them."""

    tool_calls: ToolCalls = ToolCalls()
    """Counts."""
    approvals: list[Approval] = []
    """Calls that need or needed an approval, oldest first."""
    waits: Annotated[list[ApprovalWait], Field(max_length=_MAX_WAITS)] = []
    """Time that calls waited for approvals, one entry for each replica that measured any."""

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
            waits=[*self.waits, *other.waits][:_MAX_WAITS],
        )


class PendingApprovals(Model):
    """Calls of one namespace that wait for an approval, at one or more replicas."""

    items: Annotated[list[PendingApproval], Field(max_length=MAX_PENDING_APPROVALS)] = []
    """Approvals, newest first."""


@dataclass(frozen=True)
class BrokerResponse:
    """An open response of a replica, whatever its status.

    Its head and its time are bounded by the request. Each way to read the body raises BrokerError if the body breaks
    off, is compressed or takes too long.
    """

    address: str
    """HOST:PORT of the replica."""
    _response: aiohttp.ClientResponse

    @property
    def status(self) -> int:
        """HTTP status."""
        return self._response.status

    @property
    def size(self) -> int | None:
        """Size of the body in bytes, if the head has it."""
        return self._response.content_length

    @property
    def media_type(self) -> str:
        """Media type without parameters."""
        return self._response.content_type

    def pick_headers(self, allowed: Mapping[str, re.Pattern[str]]) -> dict[str, str]:
        """Return the allowed headers whose whole value matches."""
        given = {name: self._response.headers.get(name, "") for name in allowed}
        return {name: value for name, value in given.items() if allowed[name].fullmatch(value)}

    async def read(self, *, limit: int) -> bytes:
        """Return the body, at most `limit` bytes."""
        with self._translating_failures():
            return await read_answer(self._response, limit=limit)

    async def parse(self, *, limit: int) -> Object:
        """Return the JSON object that the body is, at most `limit` bytes."""
        with self._translating_failures():
            return parse_answer(await read_answer(self._response, limit=limit))

    async def iterate(self) -> AsyncIterator[bytes]:
        """Yield the body in parts."""
        with self._translating_failures():
            check_head(self._response)
            async for part in self._response.content.iter_chunked(_PART_BYTES):
                yield part

    @contextmanager
    def _translating_failures(self) -> Iterator[None]:
        try:
            yield
        except (aiohttp.ClientError, TimeoutError, InvalidAnswer) as error:
            raise BrokerError(f"the broker at {self.address}: {type(error).__name__} {error}") from error


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

    async def close_calls(
        self, uid: str, *, grant_seconds: int = MAX_GRANT_SECONDS, timeout_seconds: float = 2.0
    ) -> ExecutionCalls:
        """End an execution's calls and refuse new ones, then return what `get_calls` returns.

        The broker remembers the end for `grant_seconds`: the longest time that a grant of it may still be valid.
        """
        params = {"grantSeconds": str(grant_seconds)}
        return await self._sum_calls("DELETE", uid, params=params, timeout_seconds=timeout_seconds)

    async def close_files(self, uid: str, *, timeout_seconds: float = 2.0) -> None:
        """Forget what an execution has uploaded and not committed. Raises BrokerError if no replica answers."""
        await self._gather(
            lambda address: self._ask_one(
                address, "DELETE", f"/v1/executions/{uid}/files", timeout_seconds=timeout_seconds
            )
        )

    async def list_pending_approvals(
        self, namespace: str, *, caller: str | None = None, timeout_seconds: float = 5.0
    ) -> tuple[list[PendingApproval], bool]:
        """Return the calls that wait for an approval, newest first, and whether every replica answered.

        They are those of a namespace, or of one of its callers. Raises BrokerError if no replica answers.
        """
        answers, is_complete = await self._gather(
            lambda address: self._request_pending(address, namespace, caller, timeout_seconds)
        )
        items = [item for answer in answers for item in answer.items if item.namespace == namespace]
        return sorted(items, key=lambda item: item.requested_at, reverse=True), is_complete

    async def _request_pending(
        self, address: str, namespace: str, caller: str | None, timeout_seconds: float
    ) -> PendingApprovals:
        path = f"/v1/namespaces/{namespace}/approvals"
        params = None if caller is None else {"caller": caller}
        content = await self._ask_one(address, "GET", path, params=params, timeout_seconds=timeout_seconds)
        return _parse(PendingApprovals, content)

    async def get(self, path: str, *, params: Mapping[str, str] | None = None, timeout_seconds: float = 10.0) -> Object:
        """Return the response of the first replica that answers. Raises BrokerError."""
        return await self.ask("GET", path, repeat=Repeat.IF_FAILED, params=params, timeout_seconds=timeout_seconds)

    async def get_from(
        self, address: str, path: str, *, params: Mapping[str, str] | None = None, timeout_seconds: float = 10.0
    ) -> Object:
        """Return the response of the replica at one of the addresses. Raises BrokerError."""
        return await self.ask(
            "GET", path, repeat=Repeat.IF_UNREACHED, at=[address], params=params, timeout_seconds=timeout_seconds
        )

    async def ask(
        self,
        method: str,
        path: str,
        *,
        repeat: Repeat,
        at: Sequence[str] | None = None,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_seconds: float,
        limit: int = MAX_ANSWER_BYTES,
    ) -> Object:
        """Return the answer, a JSON object of at most `limit` bytes, of the first of the replicas `at` that gives one.

        Raises BrokerError.
        """
        last = BrokerError("no broker replica is ready", is_sent=False)
        for address in self.addresses() if at is None else at:
            try:
                sending = self.send(
                    method, path, at=[address], params=params, body=body, timeout_seconds=timeout_seconds
                )
                async with sending as response:
                    if response.status == 200:
                        return await response.parse(limit=limit)
                    text = (await response.read(limit=limit))[:500].decode(errors="replace").strip()
                    message = f"the broker at {address} answered {response.status}: {text}"
                    raise BrokerError(message, status=response.status, text=text)
            except BrokerError as error:
                last = error
            is_clients_fault = 400 <= last.status < 500 and last.status not in _OF_ONE_REPLICA
            is_refused = is_clients_fault or last.status == NOT_IMPLEMENTED
            if last.is_sent and (repeat is Repeat.IF_UNREACHED or is_refused):
                break
        raise last

    @asynccontextmanager
    async def send(
        self,
        method: str,
        path: str,
        *,
        at: Sequence[str] | None = None,
        near: str = "",
        token: str = "",
        params: Mapping[str, str] | None = None,
        body: bytes | AsyncIterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float,
        stall_seconds: float | None = None,
    ) -> AsyncIterator[BrokerResponse]:
        """Open the response of the first of the replicas `at` that can be reached, whatever its status.

        Requests `near` the same text reach the same replica, as long as it is ready. `path` is encoded already. `token`
        is sent in place of the sender's own. `timeout_seconds` bounds the whole request, `stall_seconds` the time
        without a byte of the response. At the end of the block, what was not read is abandoned. Raises BrokerError.
        """
        addresses = list(self.addresses() if at is None else at)
        if near:
            addresses.sort(key=lambda address: crc32(f"{near} {address}".encode()))
        token = token or self.signer.sign_service_token(self.sender)
        last = BrokerError("no broker replica is ready", is_sent=False)
        for address in addresses:
            request = self.session.request(
                method,
                URL(f"http://{address}{path}", encoded=True),
                params=params,
                data=BytesIO(body) if isinstance(body, bytes) else body,  # aiohttp sends large bytes in one piece
                headers={"Authorization": f"Bearer {token}", **(headers or {})},
                timeout=aiohttp.ClientTimeout(
                    total=timeout_seconds, sock_connect=_CONNECT_SECONDS, sock_read=stall_seconds
                ),
                allow_redirects=False,
            )
            try:
                response = await request
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, PeerNotProven) as error:
                last = BrokerError(f"the broker at {address}: {type(error).__name__} {error}", is_sent=False)
                continue
            except (aiohttp.ClientError, TimeoutError) as error:
                raise BrokerError(f"the broker at {address}: {type(error).__name__} {error}") from error
            async with response:
                yield BrokerResponse(address, response)
            return
        raise last

    async def _sum_calls(
        self, method: str, uid: str, *, params: Mapping[str, str] | None = None, timeout_seconds: float
    ) -> ExecutionCalls:
        records, is_complete = await self._gather(
            lambda address: self._request_calls(address, method, uid, params=params, timeout_seconds=timeout_seconds)
        )
        total = records[0]
        for record in records[1:]:
            total = total.add(record)
        if not is_complete:
            total = total.model_copy(update={"tool_calls": total.tool_calls.model_copy(update={"complete": False})})
        return total

    async def _gather(self, request: Callable[[str], Awaitable[_Answer]]) -> tuple[list[_Answer], bool]:
        """Return what the replicas answered, and whether all did. Raises BrokerError if none did."""
        results = await asyncio.gather(*map(request, self.addresses()), return_exceptions=True)
        answers = [result for result in results if not isinstance(result, BaseException)]
        if not answers:
            raise BrokerError("no broker replica answers" if results else "no broker replica is ready")
        return answers, len(answers) == len(results)

    async def _request_calls(
        self, address: str, method: str, uid: str, *, params: Mapping[str, str] | None, timeout_seconds: float
    ) -> ExecutionCalls:
        path = f"/v1/executions/{uid}"
        content = await self._ask_one(address, method, path, params=params, timeout_seconds=timeout_seconds)
        return _parse(ExecutionCalls, content)

    async def _ask_one(
        self, address: str, method: str, path: str, *, params: Mapping[str, str] | None = None, timeout_seconds: float
    ) -> Object:
        return await self.ask(
            method,
            path,
            repeat=Repeat.IF_UNREACHED,
            at=[address],
            params=params,
            timeout_seconds=timeout_seconds,
            limit=MAX_CALLS_BYTES,
        )


def follow_broker(
    *,
    kube: KubeClient,
    session: aiohttp.ClientSession,
    namespace: str,
    service: str,
    keys: SandboxKeys,
    sender: ServiceName,
) -> tuple[BrokerClient, Reflector]:
    """Return a client of the replicas behind a Service, and the reflector of its slices, which the caller must run.

    `keys` are the release's keys.
    """
    reflector = reflect_replicas(kube=kube, namespace=namespace, service=service)

    def list_addresses() -> list[str]:
        replicas = [replica for replica in list_replicas(reflector.items.values()) if replica.ready]
        return [f"{replica.host}:{replica.ports[_PORT]}" for replica in replicas if _PORT in replica.ports]

    client = BrokerClient(
        session=session,
        signer=GrantSigner(keys=keys),
        sender=sender,
        addresses=list_addresses,
    )
    return client, reflector


def _parse(model: type[_Content], content: Object) -> _Content:
    try:
        return model.model_validate(content, extra="ignore")  # a later release adds fields
    except ValidationError as error:
        raise BrokerError(f"the broker sent invalid {model.__name__}: {error}") from error
