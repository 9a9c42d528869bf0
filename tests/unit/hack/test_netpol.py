"""netpol: conversion of NetworkPolicies to nftables rules, and the cache of the cluster's objects."""

import ssl
import threading
from typing import Any

import pytest
from tests.support.scripts import load

rules, watch = load("netpol/rules.py"), load("netpol/watch.py")


def pod(
    name: str,
    address: str | None,
    *,
    namespace: str = "agents",
    phase: str = "Running",
    created: str = "2026-01-01T00:00:00Z",
    ports: list[dict[str, Any]] | None = None,
    host_network: bool = False,
    **labels: str,
) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels, "creationTimestamp": created},
        "spec": {"hostNetwork": host_network, "containers": [{"ports": ports or []}]},
        "status": {"phase": phase, **({"podIP": address} if address else {})},
    }


def policy(namespace: str = "agents", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "policy", "namespace": namespace}, "spec": {"podSelector": {}, **spec}}


def lines(
    pods: list[dict[str, Any]], *policies: dict[str, Any], namespaces: dict[str, dict[str, str]] | None = None
) -> dict[str, list[str]]:
    """Return the rules of each chain."""
    script = rules.build_ruleset(
        pods=pods,
        namespaces=[{"metadata": {"name": name, "labels": labels}} for name, labels in (namespaces or {}).items()],
        policies=list(policies),
        pod_network="10.88.0.0/16",
    )
    chains: dict[str, list[str]] = {}
    for line in script.splitlines():
        if line.strip().startswith("chain "):
            chain = chains.setdefault(line.split()[1], [])
        elif line.startswith("    "):
            chain.append(line.strip())
    return chains


SANDBOX = pod("sandbox", "10.88.0.2", app="sandbox")
BROKER = pod("broker", "10.88.0.3", app="broker")
TO_BROKER = {"podSelector": {"matchLabels": {"app": "broker"}}}


def test_pods_without_policies_are_open() -> None:
    chains = lines([SANDBOX])
    assert chains["ingress"] == chains["egress"] == ["drop"]
    assert not any("jump" in rule for rule in chains["forward"] + chains["input"])


def test_an_address_whose_pod_is_not_known_yet_may_not_send() -> None:
    assert "ip saddr 10.88.0.0/16 ip saddr != { 10.88.0.2 } drop" in lines([SANDBOX])["forward"]
    assert "ip saddr 10.88.0.0/16 drop" in lines([])["input"]


def test_an_empty_policy_closes_ingress_alone() -> None:
    chains = lines([SANDBOX], policy())
    assert "ip daddr { 10.88.0.2 } jump ingress" in chains["forward"]
    assert chains["ingress"] == ["drop"]
    assert not any("jump egress" in rule for rule in chains["forward"] + chains["input"])


def test_egress_is_closed_towards_pods_and_towards_the_node() -> None:
    chains = lines([SANDBOX], policy(policyTypes=["Egress"]))
    assert "ip saddr { 10.88.0.2 } jump egress" in chains["forward"]
    assert "ip saddr { 10.88.0.2 } jump egress" in chains["input"]


def test_an_egress_rule_opens_one_port_of_the_selected_pods() -> None:
    opened = policy(
        podSelector={"matchLabels": {"app": "sandbox"}},
        policyTypes=["Egress"],
        egress=[{"to": [TO_BROKER], "ports": [{"port": 8080}]}],
    )
    chains = lines([SANDBOX, BROKER], opened)
    assert chains["egress"] == [
        "ip saddr { 10.88.0.2 } ip daddr { 10.88.0.3 } tcp dport 8080 return", "drop",
    ]  # fmt: skip


def test_what_egress_lets_out_must_still_pass_ingress() -> None:
    chains = lines([SANDBOX, BROKER], policy(policyTypes=["Ingress", "Egress"], egress=[{}]))
    assert chains["egress"][0].endswith("return")
    jumps = [rule for rule in chains["forward"] if "jump" in rule]
    assert [rule.split()[-1] for rule in jumps] == ["egress", "ingress"]


@pytest.mark.parametrize(
    ("port", "match"),
    [
        ({}, "meta l4proto tcp"),
        ({"protocol": "UDP"}, "meta l4proto udp"),
        ({"port": 53, "protocol": "UDP"}, "udp dport 53"),
        ({"port": 8000, "endPort": 8010}, "tcp dport 8000-8010"),
        ({"port": "http"}, "tcp dport 8080"),
    ],
)
def test_ports_open_by_number_range_and_name(port: dict[str, Any], match: str) -> None:
    server = pod("server", "10.88.0.4", ports=[{"name": "http", "containerPort": 8080}])
    assert lines([server], policy(ingress=[{"ports": [port]}]))["ingress"] == [
        f"ip daddr {{ 10.88.0.4 }} {match} return", "drop",
    ]  # fmt: skip


def test_a_port_name_that_no_container_has_opens_nothing() -> None:
    assert lines([SANDBOX], policy(ingress=[{"ports": [{"port": "http"}]}]))["ingress"] == ["drop"]


def test_a_peer_that_stands_for_no_pod_opens_nothing() -> None:
    assert lines([SANDBOX], policy(ingress=[{"from": [TO_BROKER]}]))["ingress"] == ["drop"]


def test_an_address_block_opens_but_for_its_exceptions() -> None:
    block = {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16", "10.2.0.0/16"]}}
    assert lines([SANDBOX], policy(policyTypes=["Egress"], egress=[{"to": [block]}]))["egress"][0] == (
        "ip saddr { 10.88.0.2 } ip daddr 10.0.0.0/8 ip daddr != { 10.1.0.0/16, 10.2.0.0/16 } return"
    )


def test_an_ipv6_block_opens_nothing_here() -> None:
    block = {"ipBlock": {"cidr": "::/0"}}
    assert lines([SANDBOX], policy(policyTypes=["Egress"], egress=[{"to": [block]}]))["egress"] == ["drop"]


def test_a_peer_of_another_namespace_needs_a_namespace_selector() -> None:
    gateway = pod("gateway", "10.88.0.9", namespace="system", app="gateway")
    here = {"podSelector": {"matchLabels": {"app": "gateway"}}}
    there = {**here, "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "system"}}}
    namespaces: dict[str, dict[str, str]] = {"system": {}, "agents": {}}
    only = {"podSelector": {"matchLabels": {"app": "sandbox"}}}
    closed = lines([SANDBOX, gateway], policy(**only, ingress=[{"from": [here]}]), namespaces=namespaces)
    opened = lines([SANDBOX, gateway], policy(**only, ingress=[{"from": [there]}]), namespaces=namespaces)
    assert closed["ingress"] == ["drop"]
    assert "ip saddr { 10.88.0.9 }" in opened["ingress"][0]


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        ({"key": "app", "operator": "In", "values": ["sandbox"]}, True),
        ({"key": "app", "operator": "In", "values": ["broker"]}, False),
        ({"key": "app", "operator": "NotIn", "values": ["broker"]}, True),
        ({"key": "none", "operator": "NotIn", "values": ["broker"]}, True),
        ({"key": "app", "operator": "Exists"}, True),
        ({"key": "app", "operator": "DoesNotExist"}, False),
        ({"key": "app", "operator": "Resembles", "values": []}, False),
    ],
)
def test_expressions_select_as_kubernetes_says(expression: dict[str, Any], matches: bool) -> None:
    assert rules.selects({"matchExpressions": [expression]}, {"app": "sandbox"}) is matches


def test_an_empty_selector_matches_all_and_none_matches_nothing() -> None:
    assert rules.selects({}, {"app": "sandbox"})
    assert not rules.selects(None, {"app": "sandbox"})


def test_a_terminating_pod_keeps_its_rules_while_it_runs() -> None:
    ending = pod("ending", "10.88.0.5")
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:05Z"
    assert "ip daddr { 10.88.0.5 } jump ingress" in lines([ending], policy())["forward"]


def test_an_ended_pod_and_one_on_the_nodes_network_have_no_rules() -> None:
    ended, host = pod("ended", "10.88.0.5", phase="Failed"), pod("host", "10.87.0.1", host_network=True)
    assert rules.address_owners([ended, host, pod("new", None)]) == {}


def test_a_reused_address_belongs_to_the_younger_pod() -> None:
    old = pod("old", "10.88.0.5", created="2026-01-01T00:00:00Z")
    new = pod("new", "10.88.0.5", created="2026-01-01T00:01:00Z")
    assert rules.address_owners([new, old])["10.88.0.5"] is new


@pytest.fixture
def changed() -> threading.Event:
    return threading.Event()


@pytest.fixture
def watcher(changed: threading.Event) -> Any:
    return watch.Watcher(url="https://127.0.0.1:1", tls=ssl.create_default_context(), changed=changed)


def event(kind: str, name: str = "a", version: str = "7") -> dict[str, Any]:
    return {"type": kind, "object": {"metadata": {"namespace": "n", "name": name, "resourceVersion": version}}}


def test_a_watch_event_changes_the_copy_and_says_so(watcher: Any, changed: threading.Event) -> None:
    assert watcher.apply(event("ADDED")) == "7"
    assert changed.is_set()
    assert [item["metadata"]["name"] for item in watcher.objects()] == ["a"]
    watcher.apply(event("DELETED"))
    assert watcher.objects() == []


def test_a_bookmark_moves_the_version_on_and_changes_nothing(watcher: Any, changed: threading.Event) -> None:
    assert watcher.apply(event("BOOKMARK", version="99")) == "99"
    assert not changed.is_set()


def test_an_expired_version_asks_for_a_new_list(watcher: Any) -> None:
    gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old resource version"}}
    with pytest.raises(watch.Expired, match="too old"):
        watcher.apply(gone)


def test_a_watch_follows_the_objects_that_the_list_had() -> None:
    url = "https://127.0.0.1:1/api/v1/pods"
    watchers = [watch.Watcher(url=each, tls=ssl.create_default_context(), changed=threading.Event())
                for each in (url, f"{url}?fieldSelector=spec.nodeName%3Dnode1")]  # fmt: skip
    assert [each.url() for each in watchers] == [url, f"{url}?fieldSelector=spec.nodeName%3Dnode1"]
    assert [each.url("watch=1") for each in watchers] == [
        f"{url}?watch=1",
        f"{url}?fieldSelector=spec.nodeName%3Dnode1&watch=1",
    ]
