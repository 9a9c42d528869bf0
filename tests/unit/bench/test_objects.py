"""What simulated nodes write."""

from ipaddress import ip_address, ip_network

import objects

MOMENT = "2026-01-01T00:00:00Z"
POD = {
    "metadata": {"name": "a", "namespace": "agents", "uid": "uid-1"},
    "spec": {
        "containers": [
            {"name": "sandbox", "image": "some/image:1", "env": [{"name": "MCP_EXEC_TOKEN_SHA256", "value": "abc"}]}
        ]
    },
    "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]},
}


def test_each_pod_has_an_address_of_its_own_on_the_loopback_network() -> None:
    addresses = [objects.pod_address(number) for number in range(100_000)]
    assert len(set(addresses)) == len(addresses)
    assert all(ip_address(address) in ip_network("127.0.0.0/8") for address in addresses)
    assert "127.0.0.1" not in addresses


def test_a_running_pod_is_ready_and_keeps_when_it_was_scheduled() -> None:
    status = objects.running_status(POD, address="127.1.0.1", moment=MOMENT)
    conditions = {each["type"]: each["status"] for each in status["conditions"]}
    assert conditions == dict.fromkeys(("PodScheduled", "Initialized", "ContainersReady", "Ready"), "True")
    assert status["podIP"] == "127.1.0.1"
    assert status["containerStatuses"][0]["ready"]
    assert status["containerStatuses"][0]["image"] == "some/image:1"


def test_a_pods_token_digest_comes_from_its_environment() -> None:
    assert objects.read_token_digest(POD) == "abc"
    assert objects.read_token_digest({"spec": {"containers": [{"name": "other"}]}}) == ""


def test_a_node_keeps_away_what_does_not_ask_for_it() -> None:
    node = objects.node_object(objects.node_name(7), pods=250, moment=MOMENT)
    assert node["metadata"]["name"] == "simulated-0007"
    assert node["spec"]["taints"][0]["effect"] == "NoSchedule"
    assert node["spec"]["taints"][0]["key"] == objects.TOLERATION["key"] == objects.LABEL
    assert node["status"]["allocatable"]["pods"] == "250"
    assert {each["type"]: each["status"] for each in node["status"]["conditions"]}["Ready"] == "True"
