"""The company's network in the chart: authorities, proxies, volumes of the user, and three flavours of egress rules."""

import json
import os
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
from tests.component.chart.conftest import Object, Render, Rendered, validate
from tests.component.chart.test_pod_settings import EVERYTHING

from mcp_exec_broker.settings import Settings as BrokerSettings
from mcp_exec_gateway.settings import Settings as GatewaySettings
from mcp_exec_operator.settings import Settings as OperatorSettings

PROCESSES = ("operator", "gateway", "broker")
OUTGOING = ("gateway", "broker")
PROCESS_SETTINGS: dict[str, Any] = {"operator": OperatorSettings, "gateway": GatewaySettings, "broker": BrokerSettings}
_COMMON = {"MCP_EXEC_NAMESPACES": "agents", "MCP_EXEC_RELEASE_NAMESPACE": "mcp-exec-system"}
_FOLDER = {"MCP_EXEC_SANDBOX_KEY_FOLDER": "/"}
NEEDED = {
    "operator": {**_COMMON, "MCP_EXEC_SANDBOX_KEY_SECRET": "key"},
    "gateway": {**_COMMON, **_FOLDER},
    "broker": {**_COMMON, **_FOLDER},
}
VOLUME = {"name": "agent", "hostPath": {"path": "/run/agent"}}
PROXY = "http://proxy.company.example:3128"
MOUNT = {"name": "agent", "mountPath": "/run/agent", "readOnly": True}


@pytest.fixture(scope="module")
def plain(render: Render) -> Rendered:
    """The chart without values."""
    return render()


@pytest.fixture(scope="module")
def company(render: Render) -> Rendered:
    """Everything that the chart has, in the company's network."""
    extra = {"extraVolumes": [VOLUME], "extraVolumeMounts": [MOUNT]}
    values = {process: {**EVERYTHING.get(process, {}), **extra} for process in PROCESSES}
    return render(
        {
            **EVERYTHING,
            **values,
            "caBundle": {"configMap": "company", "key": "all.pem"},
            "proxy": {"http": PROXY, "https": PROXY, "secret": "account", "serversSecret": "servers-account"},
        }
    )


def container(rendered: Rendered, process: str) -> Object:
    return dict(rendered.pods()[f"mcp-exec-{process}"]["containers"][0])


def find_volume(rendered: Rendered, process: str, path: str) -> Object:
    """Return the volume at a path of a process."""
    (mount,) = (each for each in container(rendered, process)["volumeMounts"] if path.startswith(each["mountPath"]))
    (volume,) = (each for each in rendered.pods()[f"mcp-exec-{process}"]["volumes"] if each["name"] == mount["name"])
    return dict(volume)


@pytest.mark.parametrize("process", OUTGOING)
def test_a_process_with_outgoing_connections_reads_the_bundle_where_it_is_mounted(
    company: Rendered, process: str
) -> None:
    path = company.environment(f"mcp-exec-{process}")["MCP_EXEC_CA_BUNDLE"]
    items = [{"key": "all.pem", "path": path.rsplit("/", 1)[1]}]
    assert find_volume(company, process, path)["configMap"] == {"name": "company", "items": items}


def test_the_bundle_may_be_in_a_secret(render: Render) -> None:
    rendered = render({"caBundle": {"secret": "company"}})
    source = find_volume(rendered, "broker", rendered.environment("mcp-exec-broker")["MCP_EXEC_CA_BUNDLE"])["secret"]
    assert (source["secretName"], source["items"][0]["key"]) == ("company", "ca.crt")


def read_config_maps(rendered: Rendered) -> list[Object]:
    """Return the operator's rules on ConfigMaps in the served namespaces."""
    rules = [rule for item in rendered.all("Role") if item["metadata"]["name"] == "mcp-exec-operator"
             for rule in item["rules"]]  # fmt: skip
    return [rule for rule in rules if "configmaps" in rule["resources"]]


def test_the_operator_may_read_the_one_config_map_whose_change_replaces_stdio_servers(company: Rendered) -> None:
    rules = read_config_maps(company)
    assert rules
    for rule in rules:
        assert (rule["resourceNames"], rule["verbs"]) == (["company"], ["get"])


def test_without_values_there_is_no_bundle(plain: Rendered) -> None:
    assert not any("MCP_EXEC_CA_BUNDLE" in plain.environment(f"mcp-exec-{process}") for process in PROCESSES)
    assert read_config_maps(plain) == []


@pytest.mark.parametrize("process", PROCESSES)
def test_volumes_of_the_user_are_mounted_beside_those_of_the_chart(company: Rendered, process: str) -> None:
    assert find_volume(company, process, "/run/agent") == VOLUME
    mounts = container(company, process)["volumeMounts"]
    assert MOUNT in mounts
    assert len({each["mountPath"] for each in mounts}) == len(mounts) > 2


def test_credentials_of_the_proxy_are_only_in_secrets_and_each_process_reads_its_own(company: Rendered) -> None:
    for process in OUTGOING:
        environment = company.environment(f"mcp-exec-{process}")
        assert (environment["MCP_EXEC_PROXY_HTTP"], environment["MCP_EXEC_PROXY_HTTPS"]) == (PROXY, PROXY)
        secret = find_volume(company, process, environment["MCP_EXEC_PROXY_FOLDER"])["secret"]
        assert secret["secretName"] == "account"
        assert sorted(each["path"] for each in secret["items"]) == ["http", "https"]
    operator = company.environment("mcp-exec-operator")
    assert "MCP_EXEC_PROXY_FOLDER" not in operator
    assert operator["MCP_EXEC_SERVERS_PROXY_SECRET"] == "servers-account"
    bundle = {"kind": "ConfigMap", "name": "company", "key": "all.pem"}
    assert json.loads(operator["MCP_EXEC_SERVERS_CA_BUNDLE"]) == bundle


def test_processes_take_the_variables_of_the_chart(company: Rendered, monkeypatch: pytest.MonkeyPatch) -> None:
    for process, settings in PROCESS_SETTINGS.items():
        found = {
            name: value
            for name, value in company.environment(f"mcp-exec-{process}").items()
            if name.startswith(("MCP_EXEC_PROXY_", "MCP_EXEC_CLUSTER_DOMAIN", "MCP_EXEC_SERVERS_"))
            and not name.endswith("_FOLDER")
        }
        with monkeypatch.context() as patched:
            patched.setattr(os, "environ", {**NEEDED[process], **found})
            read = settings.from_environment()
        assert (read.proxy_https, read.direct_hosts[:3]) == (PROXY, ("localhost", ".svc", ".cluster.local"))
        assert "10.0.0.0/8" in read.direct_hosts


def select(rendered: Rendered, kind: str, process: str) -> list[Object]:
    return list(rendered.one(kind, f"mcp-exec-{process}")["spec"]["egress"])


EXTRA = {"to": [{"ipBlock": {"cidr": "10.1.2.3/32"}}], "ports": [{"protocol": "TCP", "port": 4317}]}
DNS = {"podSelector": {"matchLabels": {"k8s-app": "kube-dns"}}, "namespaceSelector": {}}


def allows(rules: list[Object], address: str, port: int) -> bool:
    """Return whether egress rules of a NetworkPolicy allow connections to an address outside of the cluster."""
    return any(
        ("ports" not in rule or port in [each["port"] for each in rule["ports"]])
        and (
            "to" not in rule
            or any(
                ip_address(address) in ip_network(peer["ipBlock"]["cidr"]) for peer in rule["to"] if "ipBlock" in peer
            )
        )
        for rule in rules
    )


def test_rules_by_ports_hold_for_an_api_server_whose_address_changes_and_strict_rules_do_not(
    render: Render, plain: Rendered
) -> None:
    policy = {"flavour": "Addresses", "apiServer": {"cidrs": ["192.0.2.10/32"]}, "brokerTo": [DNS]}
    strict = render({"networkPolicy": {**policy, "extraEgress": {process: [EXTRA] for process in PROCESSES}}})
    both = {"cidrs": ["192.0.2.10/32", "198.51.100.0/24"]}
    moving = render({"networkPolicy": {**policy, "apiServer": both}})
    for process in PROCESSES:
        by_ports, by_addresses = (select(rendered, "NetworkPolicy", process) for rendered in (plain, strict))
        for address in ("192.0.2.10", "198.51.100.7"):
            assert allows(by_ports, address, 6443)
            assert allows(by_addresses, address, 6443) is (address == "192.0.2.10")
            assert allows(select(moving, "NetworkPolicy", process), address, 6443)
        assert not allows(by_addresses, "192.0.2.10", 80)
        assert allows(by_addresses, "10.1.2.3", 4317)
        assert EXTRA not in by_ports
    assert plain.all("CiliumNetworkPolicy") == strict.all("CiliumNetworkPolicy") == []


def test_rules_of_cilium_name_the_api_server_and_hosts(render: Render) -> None:
    names = ["api.example.com", "*.corp.example.com"]
    rendered = render({"networkPolicy": {"flavour": "Cilium", "brokerToNames": names}})
    for process in PROCESSES:
        rules = select(rendered, "NetworkPolicy", process)
        assert not allows(rules, "192.0.2.10", 6443)
        assert all(rule["to"] for rule in rules)
        assert {"toEntities": ["kube-apiserver"]} in select(rendered, "CiliumNetworkPolicy", process)
        spec = rendered.one("CiliumNetworkPolicy", f"mcp-exec-{process}")["spec"]
        policy = rendered.one("NetworkPolicy", f"mcp-exec-{process}")["spec"]
        assert spec["endpointSelector"] == policy["podSelector"]
    _, dns, hosts = select(rendered, "CiliumNetworkPolicy", "broker")
    assert dns["toPorts"][0]["rules"] == {"dns": [{"matchPattern": "*"}]}
    assert hosts == {"toFQDNs": [{"matchName": names[0]}, {"matchPattern": names[1]}]}
    assert len(select(rendered, "CiliumNetworkPolicy", "gateway")) == 1


def test_rules_of_cilium_fit_its_published_schema(render: Render, schemas: Path, tmp_path: Path) -> None:
    names = ["api.example.com", "*.corp.example.com"]
    rules = render({"networkPolicy": {"flavour": "Cilium", "brokerToNames": names}}).all("CiliumNetworkPolicy")
    assert len(rules) == len(PROCESSES)
    wrong: list[Object] = json.loads(json.dumps(rules))
    for item in wrong:
        item["spec"]["egress"][0]["toEntities"] = ["api-server"]
    assert validate(schemas, tmp_path, rules) == [None] * len(rules)
    assert all("toEntities" in str(found) for found in validate(schemas, tmp_path, wrong))


WRONG_RULES: dict[str, tuple[Object, str]] = {
    "no API server": ({"flavour": "Addresses", "brokerTo": [DNS]}, "networkPolicy.apiServer.cidrs is empty: set it"),
    "no peers": (
        {"flavour": "Addresses", "apiServer": {"cidrs": ["192.0.2.10/32"]}},
        "networkPolicy.brokerTo is empty: set it to what the broker may reach",
    ),
    "addresses with Cilium": (
        {"flavour": "Cilium", "apiServer": {"cidrs": ["192.0.2.10/32"]}},
        "networkPolicy.flavour is Cilium, whose rules know the API server: remove networkPolicy.apiServer.cidrs",
    ),
    "names without Cilium": ({"brokerToNames": ["a.example"]}, "networkPolicy.brokerToNames needs the flavour Cilium"),
    "no name": ({"flavour": "Cilium", "brokerToNames": ["https://a"]}, "it must be the name of a host"),
}


@pytest.mark.parametrize("name", WRONG_RULES)
def test_egress_rules_that_do_not_fit_their_flavour_are_refused(render: Render, name: str) -> None:
    values, said = WRONG_RULES[name]
    assert said in refuse(render, {"networkPolicy": values})


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"https": "http://me:secret@proxy:1"}, "it must be the URL of a proxy without user and password"),
        ({"http": "proxy:3128"}, "it must be the URL of a proxy without user and password"),
        ({"noProxy": ["http://a"]}, "it must be a network, an address, a host or a domain"),
    ],
    ids=["credentials", "no scheme", "no host"],
)
def test_a_proxy_that_is_no_address_without_credentials_is_refused(render: Render, values: Object, said: str) -> None:
    assert said in refuse(render, {"proxy": values})


def refuse(render: Render, values: Object) -> str:
    with pytest.raises(AssertionError) as refused:
        render(values)
    return str(refused.value)


def test_no_volume_of_the_user_takes_the_name_or_the_place_of_one_of_the_chart(
    render: Render, plain: Rendered, company: Rendered
) -> None:
    own = {
        (process, each["name"], each["mountPath"])
        for rendered in (plain, company)
        for process in PROCESSES
        for each in container(rendered, process)["volumeMounts"]
        if each != MOUNT
    }
    assert {path for _, _, path in own} > {"/tmp", "/etc/mcp-exec/ca-bundle", "/var/lib/mcp-exec"}
    values: dict[str, Any] = {
        process: {
            "extraVolumes": [{"name": name, "emptyDir": {}} for found, name, _ in sorted(own) if found == process],
            "extraVolumeMounts": [{"name": n, "mountPath": path} for found, n, path in sorted(own) if found == process],
        }
        for process in PROCESSES
    }
    said = refuse(render, values)
    for process, name, path in own:
        assert f"{process}.extraVolumes has the name {name}, which the chart uses; rename it" in said
        assert f"{process}.extraVolumeMounts has the path {path}, which is at, above or below " in said


PLACES = {
    "/": ("/", "/etc/mcp-exec"),
    "/etc": ("/etc", "/etc/mcp-exec"),
    "/etc/mcp-exec/": ("/etc/mcp-exec", "/etc/mcp-exec"),
    "/etc//mcp-exec/x": ("/etc/mcp-exec/x", "/etc/mcp-exec"),
    "/etc/x/../mcp-exec/y": ("/etc/mcp-exec/y", "/etc/mcp-exec"),
    "/opt/mcp-exec/app": ("/opt/mcp-exec/app", "/opt/mcp-exec"),
    "/var/run": ("/var/run", "/var/run/secrets/kubernetes.io/serviceaccount"),
}
FREE = ("/etc/mcp-exec-company", "/etc/ssl/certs", "/tmpfs", "/var/lib/company")


def test_what_would_fail_after_the_installation_is_refused(render: Render) -> None:
    mounts = [{"name": "mine", "mountPath": path} for path in (*PLACES, *FREE)]
    said = refuse(
        render,
        {
            "broker": {"extraVolumes": [{"name": "mine", "emptyDir": {}}], "extraVolumeMounts": mounts},
            "gateway": {"extraVolumes": [VOLUME], "extraVolumeMounts": [{"name": "tmp", "mountPath": "/a"}]},
            "operator": {"extraVolumeMounts": [{"name": "a", "mountPath": "/a"}]},
            "caBundle": {"configMap": "a", "secret": "b"},
        },
    )
    for shown, own in PLACES.values():
        assert f"broker.extraVolumeMounts has the path {shown}, which is at, above or below {own} of the chart" in said
    assert not [path for path in FREE if path in said]
    assert "gateway.extraVolumeMounts has the name tmp, which is none of gateway.extraVolumes: agent" in said
    assert "operator.extraVolumeMounts has the name a, which is none of operator.extraVolumes: there are none" in said
    assert "caBundle.configMap and caBundle.secret are set: choose one" in said
    assert 'caBundle.key is "a/b"; it must be a key of a ConfigMap' in refuse(render, {"caBundle": {"key": "a/b"}})
