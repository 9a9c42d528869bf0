"""Addresses that a process connects to for others, and those that it refuses."""

import socket
from ipaddress import ip_address, ip_network

import pytest

from mcp_exec_common.util.addresses import AddressCheck, AddressRefused, TimedResolver

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


EMBEDDING = {
    "mapped": "::ffff:{0}",
    "compatible": "::{0}",
    "translated": "::ffff:0:{0}",
    "NAT64": "64:ff9b::{0}",
    "local NAT64 of 96 bits": "64:ff9b:1:ab:cd:ef:{0}",
    "6to4": "2002:{0}::1",
    "Teredo's server": "2001:0:{0}:0:0:f7f7:f7f7",
    "ISATAP": "2001:db8::5efe:{0}",
    "global ISATAP": "2001:db8::200:5efe:{0}",
}
"""Forms of IPv6 addresses that lead to an IPv4 address, which is written as two groups."""
OTHERS = {
    "local NAT64 of 48 bits": ("64:ff9b:1:a9fe:a9:fe00:0:1", "64:ff9b:1:808:8:800::"),
    "local NAT64 of 56 bits": ("64:ff9b:1:00a9:fe:a9fe:0:1", "64:ff9b:1:8:8:808::"),
    "local NAT64 of 64 bits": ("64:ff9b:1:0:a9:fea9:fe00:1", "64:ff9b:1:0:8:808:800:0"),
    "Teredo's client": ("2001:0:808:808:0:0:5601:5601", "2001:0:808:808:0:0:f7f7:f7f7"),
}
"""Those of 169.254.169.254 and 8.8.8.8 in other forms."""


@pytest.mark.parametrize("form", EMBEDDING.values(), ids=EMBEDDING)
def test_an_ipv6_address_that_leads_to_an_ipv4_address_is_refused_for_it(form: str) -> None:
    refused, check = form.format("a9fe:a9fe"), AddressCheck()
    assert (check.find_problem(refused), check.find_problem(form.format("808:808"))) == ("link-local", "")
    assert AddressCheck(allowed=[ip_network("169.254.169.254/32")]).find_problem(refused) == ""


@pytest.mark.parametrize(("refused", "fine"), OTHERS.values(), ids=OTHERS)
def test_an_ipv4_address_in_another_place_is_found(refused: str, fine: str) -> None:
    own = AddressCheck(describe_own=lambda address: "own" if str(address) == "8.8.8.8" else "")
    assert [bool(check.find_problem(refused)) for check in (AddressCheck(), own)] == [True, True]
    assert (AddressCheck().find_problem(fine), own.find_problem(fine)) == ("", "own")


def test_an_address_of_the_release_is_refused_in_every_form() -> None:
    own = ip_address("10.1.2.3")
    check = AddressCheck(describe_own=lambda address: "own" if address == own else "")
    forms = [str(own), *(form.format("a01:203") for form in EMBEDDING.values())]
    assert {check.find_problem(form) for form in forms} == {"own"}
    assert check.find_problem("10.1.2.4") == ""


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


@pytest.mark.parametrize("host", ["a..example", f"{'a' * 64}.example"])
async def test_a_name_that_dns_cannot_have_does_not_resolve(host: str) -> None:
    with pytest.raises(OSError, match="no name that DNS can have"):
        await TimedResolver().resolve(host)
