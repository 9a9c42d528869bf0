"""Replicas of the broker from EndpointSlices: several slices, address families, conditions, duplicates."""

from typing import Any

import pytest

from mcp_exec_common.broker.replicas import MAX_REPLICAS, list_replicas

PORTS = [{"name": "calls", "port": 8082}, {"name": "control", "port": 8084}]


def endpoint(address: str, uid: str | None = None, **conditions: bool | None) -> dict[str, Any]:
    target = {"targetRef": {"kind": "Pod", "uid": uid}} if uid else {}
    return {"addresses": [address], "conditions": conditions, **target}


def endpoints(*found: dict[str, Any], kind: str = "IPv4", ports: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"addressType": kind, "endpoints": list(found), "ports": PORTS if ports is None else ports}


def hosts(*slices: dict[str, Any]) -> list[tuple[str, bool]]:
    return [(replica.host, replica.ready) for replica in list_replicas(slices)]


def test_replicas_of_all_slices_are_found_with_their_ports_by_name() -> None:
    found = list_replicas([endpoints(endpoint("10.0.0.2", "b", ready=True)), endpoints(endpoint("10.0.0.1", "a"))])
    assert [(replica.uid, replica.host, dict(replica.ports)) for replica in found] == [
        ("a", "10.0.0.1", {"calls": 8082, "control": 8084}),
        ("b", "10.0.0.2", {"calls": 8082, "control": 8084}),
    ]


@pytest.mark.parametrize(("conditions", "ready"), [({}, True), ({"ready": None}, True), ({"ready": False}, False)])
def test_an_unknown_state_is_ready(conditions: dict[str, Any], ready: bool) -> None:
    assert hosts(endpoints(endpoint("10.0.0.1", "a", **conditions))) == [("10.0.0.1", ready)]


def test_a_slice_without_conditions_endpoints_or_ports_is_read() -> None:
    assert list_replicas([{"addressType": "IPv4", "endpoints": None, "ports": None}]) == []
    [replica] = list_replicas([{"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": None}])
    assert (replica.uid, replica.ready, dict(replica.ports)) == ("", True, {})


def test_a_terminating_pod_is_no_replica_even_if_it_serves_or_another_slice_is_older() -> None:
    serving = endpoint("10.0.0.1", "a", ready=False, serving=True, terminating=True)
    older = endpoint("10.0.0.1", "a", ready=True, terminating=False)
    assert hosts(endpoints(serving)) == []
    assert hosts(endpoints(serving), endpoints(older)) == hosts(endpoints(older), endpoints(serving)) == []


def test_a_pod_in_two_slices_is_one_replica_and_ready_if_one_of_them_says_so() -> None:
    one, other = endpoint("10.0.0.1", "a", ready=False), endpoint("10.0.0.1", "a", ready=True)
    for slices in ((one, other), (other, one)):
        assert hosts(*(endpoints(each) for each in slices)) == [("10.0.0.1", True)]


def test_a_pod_with_addresses_of_both_families_is_one_replica_by_its_ipv4_address() -> None:
    four, six = endpoints(endpoint("10.0.0.1", "a")), endpoints(endpoint("fd00::1", "a"), kind="IPv6")
    assert hosts(four, six) == hosts(six, four) == [("10.0.0.1", True)]
    assert hosts(six) == [("[fd00::1]", True)]


def test_names_are_no_addresses_of_replicas() -> None:
    assert hosts(endpoints(endpoint("broker.example.com"), kind="FQDN")) == []


def test_a_port_without_a_number_is_left_out() -> None:
    [replica] = list_replicas(
        [endpoints(endpoint("10.0.0.1", "a"), ports=[{"name": "all"}, {"name": None, "port": 1}])]
    )
    assert dict(replica.ports) == {"": 1}


def test_the_number_of_replicas_is_bounded() -> None:
    assert (
        len(list_replicas([endpoints(*(endpoint(f"10.0.0.{each}", f"{each}") for each in range(200)))])) == MAX_REPLICAS
    )
