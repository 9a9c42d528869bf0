"""Check that a NetworkPolicy isolates this sandbox, because only some network plugins enforce policies.

The operator names addresses that answer other pods and must not answer this one. No code runs before several attempts
to connect to them stayed without an answer, and the attempts continue as long as the sandbox exists. Since a network
that does not work yet is silent as well, the check also needs a connection that works.
"""

import asyncio
import errno
import socket
import struct
from collections.abc import Awaitable, Callable, Collection
from enum import Enum, auto
from pathlib import Path

from mcp_exec_sandbox.supervisor.settings import NetworkAddress

ATTEMPTS = 3
"""Attempts that must stay silent before the sandbox accepts code, one after the other."""
ATTEMPT_SECONDS = 0.15
INTERVAL_SECONDS = 1.0
"""Time of each attempt afterwards."""
REST_SECONDS = 9.0
"""Time between two attempts while no code runs. In gVisor, an attempt takes 2 ms of the processor."""
CONTROL_SECONDS = 3.0
"""Time for the address that is known to answer. Afterwards a connection of the operator will do: the broker may be down
although the network works."""
CONTROL_ATTEMPT_SECONDS = 0.1
"""Short, because a policy that allows the address often takes effect a little after the pod's start, and TCP would send
its next packet only after a second."""
MAX_UNKNOWN = 5
"""Attempts in a row that fail in the sandbox itself, for example because it has no port left, before its isolation
counts as lost."""

_UNREACHABLE = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.EACCES})
_RECEIVE_ERRORS = {socket.AF_INET: (socket.IPPROTO_IP, 11), socket.AF_INET6: (socket.IPPROTO_IPV6, 25)}
"""`IP_RECVERR` and `IPV6_RECVERR`: the kernel keeps the cause of an error."""
_ICMP_ORIGINS = frozenset({2, 3})
"""`SO_EE_ORIGIN_ICMP` and `SO_EE_ORIGIN_ICMP6`."""
_EXTENDED_ERROR = struct.Struct("=IB")
_INTERFACES = Path("/proc/net/if_inet6")
_GLOBAL_SCOPE = "00"


class Answer(Enum):
    """Outcome of one attempt to connect."""

    SILENT = auto()
    """No packet of the address arrived: nothing, or a firewall's rejection."""
    ANSWERED = auto()
    """The address accepted or refused the connection, so packets pass."""
    UNKNOWN = auto()
    """The attempt could not be made."""


class IsolationGuard:
    """The check of one sandbox, before it is ready and as long as it exists."""

    def __init__(self, *, forbidden: Collection[NetworkAddress], answering: NetworkAddress | None) -> None:
        self._forbidden = tuple(forbidden)
        self._answering = answering
        self._connected = asyncio.Event()

    def note_connection(self) -> None:
        """Note that another pod or the node has connected to this sandbox, so that its network works."""
        self._connected.set()

    async def wait_until_isolated(self, *, seconds: float) -> str:
        """Return an empty text once the sandbox is isolated, or the problem if one remains after `seconds`.

        A policy can take effect a little after the pod's start, so the check repeats while an address answers. It has
        no end while the network does not work; the operator replaces pods that do not get ready.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        network = asyncio.ensure_future(self._wait_for_network())
        silent = 0
        try:
            while self._forbidden:
                works = network.done()
                problem = await self._attempt(ATTEMPT_SECONDS)
                silent = 0 if problem else silent + 1
                if problem and loop.time() >= deadline:
                    return problem
                if silent >= ATTEMPTS:
                    if works:
                        break
                    await asyncio.wait([network], timeout=INTERVAL_SECONDS)
            return ""
        finally:
            network.cancel()

    async def wait_until_lost(self, rest: Callable[[float], Awaitable[object]]) -> str:
        """Return the problem once an address answers, or once attempts can't be made any more.

        `rest` waits between two attempts, for so many seconds at most, while no code runs.
        """
        unknown = 0
        while self._forbidden:
            answers = await self._ask_all(INTERVAL_SECONDS)
            if answered := _find(answers, Answer.ANSWERED):
                return f"{answered} can be reached from the sandbox: its NetworkPolicy is not enforced any more"
            unknown = unknown + 1 if _find(answers, Answer.UNKNOWN) else 0
            if unknown >= MAX_UNKNOWN:
                return "the sandbox could not check its isolation any more"
            await rest(REST_SECONDS)
        await asyncio.Event().wait()
        raise AssertionError

    async def _attempt(self, seconds: float) -> str:
        answers = await self._ask_all(seconds)
        if answered := _find(answers, Answer.ANSWERED):
            return f"{answered} can be reached from here: no NetworkPolicy is enforced, so no code is run"
        if unknown := _find(answers, Answer.UNKNOWN):
            return f"the attempt to connect to {unknown} failed in the sandbox, so that its isolation is unknown"
        return ""

    async def _ask_all(self, seconds: float) -> dict[NetworkAddress, Answer]:
        """Attempt to connect to every forbidden address. Takes `seconds` unless one answers."""
        until = asyncio.get_running_loop().time() + seconds
        ipv6 = has_ipv6()
        addresses = [address for address in self._forbidden if ipv6 or not address.is_ipv6]
        answers = dict(
            zip(addresses, await asyncio.gather(*(connect(each, seconds) for each in addresses)), strict=True)
        )
        if Answer.ANSWERED not in answers.values():
            await asyncio.sleep(until - asyncio.get_running_loop().time())
        return answers

    async def _wait_for_network(self) -> None:
        if self._answering is not None:
            deadline = asyncio.get_running_loop().time() + CONTROL_SECONDS
            while asyncio.get_running_loop().time() < deadline:
                if await connect(self._answering, CONTROL_ATTEMPT_SECONDS) is Answer.ANSWERED:
                    return
                await asyncio.sleep(CONTROL_ATTEMPT_SECONDS / 2)
        await self._connected.wait()


async def connect(address: NetworkAddress, seconds: float) -> Answer:
    """Attempt to connect for at most `seconds`."""
    family = socket.AF_INET6 if address.is_ipv6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as connection:
            connection.setblocking(False)
            connection.setsockopt(*_RECEIVE_ERRORS[family], 1)
            try:
                async with asyncio.timeout(seconds):
                    await asyncio.get_running_loop().sock_connect(connection, (address.host, address.port))
            except ConnectionRefusedError:
                return Answer.SILENT if _was_rejected(connection) else Answer.ANSWERED
    except TimeoutError:
        return Answer.SILENT
    except OSError as error:
        return Answer.SILENT if error.errno in _UNREACHABLE else Answer.UNKNOWN
    return Answer.ANSWERED


def has_ipv6(interfaces: Path = _INTERFACES) -> bool:
    """Return whether this pod has an IPv6 address that is not only valid on its link."""
    try:
        lines = interfaces.read_text().splitlines()
    except OSError:
        return False
    return any(fields[3:4] == [_GLOBAL_SCOPE] for fields in map(str.split, lines))


def _was_rejected(connection: socket.socket) -> bool:
    """Return whether an ICMP message ended the attempt: a firewall's rejection, and no packet of the address."""
    try:
        _, messages, _, _ = connection.recvmsg(1, 512, socket.MSG_ERRQUEUE)
    except OSError:
        return False
    return any(
        (level, kind) in _RECEIVE_ERRORS.values()
        and len(data) >= _EXTENDED_ERROR.size
        and _EXTENDED_ERROR.unpack_from(data)[1] in _ICMP_ORIGINS
        for level, kind, data in messages
    )


def _find(answers: dict[NetworkAddress, Answer], wanted: Answer) -> str:
    return next((str(address) for address, answer in answers.items() if answer is wanted), "")
