"""Peers of the supervisor's port, and the proof that it gives them."""

import errno
import socket

import pytest

from mcp_exec_common import peers as client
from mcp_exec_sandbox.supervisor.http import routes
from mcp_exec_sandbox.supervisor.http.connection import bind_port

FOREIGN = [("198.51.100.7", 4000), ("2001:db8::7", 4000, 0, 0), ("::ffff:198.51.100.7", 4000, 0, 0)]
OWN = [("127.0.0.1", 4000), ("127.0.0.2", 4000), ("127.255.0.9", 4000), ("::ffff:127.0.0.3", 4000, 0, 0)]
SPELLINGS = [
    ("::ffff:10.0.0.5", "10.0.0.5"),
    ("10.0.0.5", "10.0.0.5"),
    ("2001:0DB8:0:0::1", "2001:db8::1"),
    ("fe80::1%eth0", "fe80::1"),
    ("::1", "::1"),
]


@pytest.mark.parametrize("peer", OWN)
def test_every_loopback_address_is_the_pods_own(peer: tuple[str, int]) -> None:
    assert routes.is_own_address(peer)


@pytest.mark.parametrize("peer", FOREIGN)
def test_an_address_of_another_pod_is_not_the_pods_own(peer: tuple[str, int]) -> None:
    assert not routes.is_own_address(peer)


def test_an_address_whose_ports_are_all_taken_is_still_the_pods_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Exhausted(socket.socket):
        def bind(self, address: object) -> None:
            raise OSError(errno.EADDRINUSE, "in use")

    monkeypatch.setattr(routes.socket, "socket", Exhausted)
    assert routes.is_own_address(("127.0.0.1", 4000))


@pytest.mark.parametrize(("spelt", "short"), SPELLINGS)
def test_supervisor_and_client_spell_an_address_alike(spelt: str, short: str) -> None:
    assert routes.normalize_address(spelt) == client.normalize_address(spelt) == short


def test_supervisor_and_client_compute_the_same_proof() -> None:
    given = {"key": "a" * 64, "nonce": "b" * 64, "address": "10.0.0.5"}
    assert routes.compute_proof(**given) == client.compute_proof(**given)
    for name, other in (("key", "c" * 64), ("nonce", "d" * 64), ("address", "10.0.0.6")):
        assert routes.compute_proof(**given | {name: other}) != client.compute_proof(**given)


def test_connections_from_all_own_addresses_have_one_small_share() -> None:
    limits = routes.PeerLimits()
    admitted = [limits.admit((f"127.0.0.{number}", 1)) for number in range(1, 100)]
    assert [name for name in admitted if name] == [routes.OWN] * routes.MAX_OWN_CONNECTIONS
    others = [limits.admit((f"198.51.100.{number}", 1)) for number in range(100)]
    assert sum(name is not None for name in others) == routes.MAX_CONNECTIONS - routes.MAX_OWN_CONNECTIONS


def test_readers_of_one_gateway_leave_room_for_the_operator() -> None:
    limits = routes.PeerLimits()
    admitted = [limits.admit(("198.51.100.1", port)) for port in range(100)]
    assert sum(name is not None for name in admitted) == routes.MAX_PEER_CONNECTIONS
    assert limits.admit(("198.51.100.2", 1)) == "198.51.100.2"
    limits.release("198.51.100.1")
    assert limits.admit(("::ffff:198.51.100.1", 1, 0, 0)) == "198.51.100.1"


@pytest.mark.parametrize("host", ["", "127.0.0.1"])
def test_a_port_of_the_supervisor_is_bound_without_the_options_that_share_it(host: str) -> None:
    with bind_port(host, 0) as listener:
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            assert listener.getsockopt(socket.SOL_SOCKET, option) == 0


@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.1", "127.0.0.2"])
@pytest.mark.parametrize("option", [socket.SO_REUSEADDR, socket.SO_REUSEPORT])
def test_no_other_socket_can_be_bound_to_a_bound_port(address: str, option: int) -> None:
    with bind_port("", 0) as listener, socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, option, 1)
        with pytest.raises(OSError, match="in use"):
            other.bind((address, listener.getsockname()[1]))
