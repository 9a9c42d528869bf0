"""A sandbox that the network does not isolate accepts no code, and ends the code that it has."""

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Iterator
from unittest import mock

import pytest
from tests.support.pace import paced
from tests.support.until import eventually, until

from mcp_exec_sandbox.supervisor import network_check
from mcp_exec_sandbox.supervisor.network_check import Answer, IsolationGuard, connect, has_ipv6
from mcp_exec_sandbox.supervisor.settings import NetworkAddress

SECONDS = paced(20)
SHORT_PATIENCE = """
import sys
from mcp_exec_sandbox.__main__ import main
from mcp_exec_sandbox.supervisor import lifecycle
lifecycle.ISOLATION_SECONDS = 0.5
sys.exit(main())
"""
"""The program of a supervisor that waits less long for a policy that takes effect late."""
PACE = """
import sys
from mcp_exec_sandbox.__main__ import main
from mcp_exec_sandbox.supervisor import network_check
network_check.INTERVAL_SECONDS, network_check.REST_SECONDS = 0.05, {rest}
sys.exit(main())
"""
"""The program of a supervisor that checks often, with a rest of so many seconds while no code runs."""


class Endpoint:
    """A TCP port that is silent like an address behind a policy, because its queue is full, until it answers."""

    def __init__(self) -> None:
        self._server = socket.socket()
        self._server.bind(("127.0.0.1", 0))
        self._server.listen(0)
        self.address = NetworkAddress(host="127.0.0.1", port=self._server.getsockname()[1])
        self._filler = socket.create_connection(self._server.getsockname())

    def answer(self) -> None:
        """Accept connections from now on."""
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                self._server.accept()[0].close()
            except OSError:
                return

    def close(self) -> None:
        self._filler.close()
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


@pytest.fixture
def silent() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    yield endpoint
    endpoint.close()


@pytest.fixture
def answering() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    endpoint.answer()
    yield endpoint
    endpoint.close()


@pytest.fixture
def closed() -> NetworkAddress:
    """An address that refuses connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return NetworkAddress(host="127.0.0.1", port=server.getsockname()[1])


def guard(*forbidden: NetworkAddress, answering: NetworkAddress | None = None) -> IsolationGuard:
    return IsolationGuard(forbidden=forbidden, answering=answering)


async def go_on(seconds: float) -> None:
    """Do not rest between two attempts."""


def test_it_is_ready_if_the_forbidden_address_is_silent_and_the_other_answers(make_sandbox, silent, answering):
    sandbox = make_sandbox(
        forbidden_addresses=f"{silent.address},{silent.address}", answering_address=str(answering.address)
    )
    assert sandbox.client.get("/healthz").json()["state"] == "idle"
    assert sandbox.run("1").end["phase"] == "Succeeded"


def test_it_ends_with_a_sentence_if_the_forbidden_address_goes_on_answering(make_sandbox, answering):
    addresses = {"forbidden_addresses": str(answering.address), "answering_address": str(answering.address)}
    sandbox = make_sandbox(program=("-c", SHORT_PATIENCE), **addresses)
    assert sandbox.process.wait(SECONDS) == 1
    message = json.loads(sandbox.process.stdout.readline())["message"]
    assert "no NetworkPolicy is enforced" in message


def test_an_idle_sandbox_that_is_not_isolated_any_more_ends(make_sandbox, silent, answering):
    addresses = {"forbidden_addresses": str(silent.address), "answering_address": str(answering.address)}
    sandbox = make_sandbox(program=("-c", PACE.format(rest=0.1)), **addresses)
    assert sandbox.client.get("/healthz").json()["state"] == "idle"
    silent.answer()
    assert sandbox.process.wait(SECONDS) == 1
    assert "not enforced any more" in json.loads(sandbox.process.stdout.readline())["message"]


def test_code_ends_at_once_if_its_sandbox_is_not_isolated_any_more(make_sandbox, silent, answering):
    """Also if the sandbox was at rest before."""
    addresses = {"forbidden_addresses": str(silent.address), "answering_address": str(answering.address)}
    sandbox = make_sandbox(program=("-c", PACE.format(rest=10 * SECONDS)), **addresses)
    code = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('on')\nwhile True: signal.pause()"
    response = sandbox.start(code, timeoutSeconds=SECONDS)
    lines = response.iter_lines()
    events = [json.loads(next(lines)), json.loads(next(lines))]
    assert [event["type"] for event in events] == ["status", "stdout"]
    silent.answer()
    events += map(json.loads, lines)
    assert (events[-1]["phase"], events[-1]["reason"]) == ("Failed", "IsolationLost")
    assert "not enforced any more" in events[-1]["error"]["message"]
    assert sandbox.client.get("/healthz").json()["state"] == "finished"


def test_it_waits_for_a_sign_that_its_network_works(make_sandbox, silent):
    """A network that is not up yet is as silent as a policy."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    sandbox = make_sandbox(forbidden_addresses=str(silent.address), port=str(port))

    def has_connected() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=SECONDS).close()
        except OSError:
            return False
        return True

    eventually(has_connected, what="the supervisor listens")
    assert sandbox.client.get("/healthz").json()["state"] == "idle"


async def test_silence_of_a_network_that_does_not_work_is_no_isolation(silent):
    checked = guard(silent.address)
    attempts = 0

    async def count(address, seconds):
        nonlocal attempts
        attempts += 1
        return Answer.SILENT

    with (
        mock.patch.object(network_check, "connect", count),
        mock.patch.multiple(network_check, ATTEMPT_SECONDS=0, INTERVAL_SECONDS=0.01),
    ):
        waiting = asyncio.ensure_future(checked.wait_until_isolated(seconds=0))
        await until(lambda: attempts > 2 * network_check.ATTEMPTS)
        assert not waiting.done()
        before = attempts
        checked.note_connection()
        assert await waiting == ""
        assert attempts > before


async def test_an_address_that_refuses_is_reached(closed):
    assert await connect(closed, SECONDS) is Answer.ANSWERED
    assert "can be reached" in await guard(closed).wait_until_isolated(seconds=0)
    assert "can be reached" in await guard(closed).wait_until_lost(go_on)


async def test_a_policy_that_comes_into_force_late_is_waited_for(silent, answering):
    answers = iter([Answer.ANSWERED, Answer.ANSWERED])

    async def answer_first(address, seconds):
        return Answer.ANSWERED if address == answering.address else next(answers, Answer.SILENT)

    with mock.patch.object(network_check, "connect", answer_first):
        checked = guard(silent.address, answering=answering.address)
        assert await checked.wait_until_isolated(seconds=SECONDS) == ""
    assert next(answers, None) is None


async def test_each_answer_begins_the_count_of_silent_attempts_again(answering):
    script = [Answer.SILENT, Answer.SILENT, Answer.ANSWERED, Answer.SILENT, Answer.UNKNOWN]
    asked = 0

    async def play(address, seconds):
        nonlocal asked
        if address == answering.address:
            return Answer.ANSWERED
        asked += 1
        return script[asked - 1] if asked <= len(script) else Answer.SILENT

    with mock.patch.object(network_check, "connect", play):
        checked = guard(NetworkAddress(host="192.0.2.1", port=1), answering=answering.address)
        assert await checked.wait_until_isolated(seconds=SECONDS) == ""
    assert asked == len(script) + network_check.ATTEMPTS


async def test_one_of_several_addresses_is_enough_to_lose_isolation(silent, closed):
    assert str(closed) in await guard(silent.address, closed).wait_until_lost(go_on)


async def test_attempts_pause_while_no_code_runs():
    asked, rests = [], []

    async def ask(address, seconds):
        asked.append(len(rests))
        return Answer.ANSWERED if len(rests) == 2 else Answer.SILENT

    async def rest(seconds):
        rests.append(seconds)

    with (
        mock.patch.object(network_check, "connect", ask),
        mock.patch.object(network_check, "INTERVAL_SECONDS", 0.01),
    ):
        await guard(NetworkAddress(host="192.0.2.1", port=1)).wait_until_lost(rest)
    assert (asked, rests) == ([0, 1, 2], 2 * [network_check.REST_SECONDS])


async def test_isolation_that_can_not_be_checked_counts_as_lost(silent):
    """Code could use up the ports of its sandbox."""
    with (
        mock.patch("socket.socket", side_effect=OSError(24, "Too many open files")),
        mock.patch.object(network_check, "INTERVAL_SECONDS", 0.01),
    ):
        assert "could not check" in await guard(silent.address).wait_until_lost(go_on)
        assert "unknown" in await guard(silent.address).wait_until_isolated(seconds=0)


async def test_a_rejection_by_a_firewall_is_no_answer():
    """Some plugins enforce policies with ICMP messages. The kernel reports these apart from the address's own."""
    rejected = (socket.IPPROTO_IP, 11, struct.pack("=IBBBBII", 111, 2, 3, 3, 0, 0, 0))
    own = (socket.IPPROTO_IP, 11, struct.pack("=IBBBBII", 111, 0, 0, 0, 0, 0, 0))
    for message, expected in ((rejected, Answer.SILENT), (own, Answer.ANSWERED)):
        with (
            mock.patch("socket.socket.recvmsg", return_value=(b"", [message], 0, None), create=True),
            mock.patch.object(asyncio.get_running_loop(), "sock_connect", side_effect=ConnectionRefusedError()),
        ):
            assert await connect(NetworkAddress(host="127.0.0.1", port=1), SECONDS) is expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("00000000000000000000000000000001 01 80 10 80       lo", False),
        ("fe80000000000000000000fffe000001 02 40 20 80     eth0", False),
        ("fd000000000000000000000000000001 02 40 00 80     eth0", True),
    ],
)
def test_addresses_of_the_link_are_no_way_out(tmp_path, line, expected):
    path = tmp_path / "if_inet6"
    assert not has_ipv6(path)
    path.write_text(f"{line}\n")
    assert has_ipv6(path) == expected


async def test_addresses_of_ipv6_are_tried_if_the_pod_has_one(closed):
    tried = []

    async def note(address, seconds):
        tried.append(str(address))
        return Answer.ANSWERED

    addresses = [NetworkAddress(host="192.0.2.1", port=1), NetworkAddress(host="fd00::1", port=1)]
    for present, expected in ((False, ["192.0.2.1:1"]), (True, ["192.0.2.1:1", "[fd00::1]:1"])):
        tried.clear()
        with (
            mock.patch.object(network_check, "connect", note),
            mock.patch.object(network_check, "has_ipv6", return_value=present),
        ):
            await guard(*addresses).wait_until_lost(go_on)
        assert tried == expected


@pytest.mark.parametrize("address", ["nowhere", ":443", "host:port", "kubernetes.default:443", "10.0.0.1:443,x"])
@pytest.mark.parametrize("name", ["forbidden_addresses", "answering_address"])
def test_what_is_no_address_is_refused(make_sandbox, name, address):
    sandbox = make_sandbox(**{name: address})
    assert sandbox.process.wait(SECONDS) == 2
    assert f"MCP_EXEC_{name.upper()}" in sandbox.process.stderr.read().decode()
