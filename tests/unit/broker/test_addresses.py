"""Addresses that the broker connects to, and those that it refuses."""

import socket
from ipaddress import ip_network

import pytest

from mcp_exec_broker.upstream.addresses import AddressCheck, AddressRefused

STREAM = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("64:ff9b::7f00:1", "loopback"),
        ("169.254.169.254", "link-local"),
        ("::ffff:169.254.169.254", "link-local"),
        ("64:ff9b::a9fe:a9fe", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "unspecified"),
        ("::", "unspecified"),
        ("224.0.0.1", "multicast or reserved"),
        ("255.255.255.255", "multicast or reserved"),
        ("ff02::1", "multicast or reserved"),
        ("fd00:ec2::254", "a cloud's metadata service"),
        ("100.100.100.200", "a cloud's metadata service"),
        ("10.96.0.1", "that of the API server"),
        ("::ffff:10.96.0.1", "that of the API server"),
        ("10.96.0.2", ""),
        ("192.168.1.1", ""),
        ("140.82.121.5", ""),
        ("fd00::2", ""),
        ("2606:50c0:8000::1", ""),
        ("::ffff:10.0.0.1", ""),
    ],
)
def test_an_address_is_refused_for_what_it_is(address: str, problem: str) -> None:
    assert AddressCheck(api_server="https://10.96.0.1:443").find_problem(address) == problem


def test_an_ipv6_address_of_the_api_server_is_refused_however_it_is_written() -> None:
    check = AddressCheck(api_server="https://[FD00:0::1]:443")
    assert [bool(check.find_problem(address)) for address in ("fd00::1", "fd00::2")] == [True, False]


@pytest.mark.parametrize("server", ["", "https://api.invalid:6443", "http://[", "no url"])
def test_an_api_server_without_an_ip_address_is_none_to_compare_with(server: str) -> None:
    check = AddressCheck(api_server=server)
    assert check.find_problem("10.0.0.1") == ""


def test_listed_networks_are_allowed_whatever_they_are() -> None:
    listed = [ip_network("127.0.0.2/32"), ip_network("fe80::/64"), ip_network("10.96.0.1/32")]
    check = AddressCheck(allowed=listed, api_server="https://10.96.0.1")
    allowed = ["127.0.0.2", "::ffff:127.0.0.2", "fe80::1", "10.96.0.1"]
    assert [check.find_problem(address) for address in allowed] == [""] * 4
    assert check.find_problem("127.0.0.1") == "loopback"


def test_no_socket_is_opened_for_a_refused_address() -> None:
    with pytest.raises(AddressRefused, match="the address is loopback") as raised:
        AddressCheck().open_socket((*STREAM, ("127.0.0.1", 80)))
    assert raised.value.address == "127.0.0.1"
    AddressCheck().open_socket((*STREAM, ("10.0.0.1", 80))).close()
