"""The broker and the ToolServers that the chart installs."""

import pytest
from tests.component.chart.conftest import ONE_AT_A_TIME, Render

from mcp_exec_api.constants import LABEL_MANAGED_BY, LABEL_NAME, MANAGED_BY, SANDBOX_NAME
from mcp_exec_api.tool_server import ToolServerSpec

DOCS = {"url": "https://docs.example/mcp", "headers": [{"name": "X-Team", "value": "a"}]}


def test_the_broker_is_found_by_its_service_and_its_two_ports(render: Render) -> None:
    rendered = render(release="blue", namespace="blue-system")
    service = rendered.one("Service", "blue-mcp-exec-broker")["spec"]
    assert [(port["name"], port["port"]) for port in service["ports"]] == [("calls", 8082), ("control", 8084)]
    container = rendered.pods()["blue-mcp-exec-broker"]["containers"][0]
    assert [(port["name"], port["containerPort"]) for port in container["ports"]] == [
        ("calls", 8082),
        ("control", 8084),
    ]
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "control"}
    for name in ("blue-mcp-exec-operator", "blue-mcp-exec-gateway"):
        assert rendered.environment(name)["MCP_EXEC_BROKER_SERVICE"] == "blue-mcp-exec-broker"


def test_a_broker_knows_its_uid_and_checks_addresses_unless_it_is_told_not_to(render: Render) -> None:
    [container] = render().pods()["mcp-exec-broker"]["containers"]
    replica = next(each for each in container["env"] if each["name"] == "MCP_EXEC_REPLICA")
    assert replica["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.uid"
    assert render().environment("mcp-exec-broker")["MCP_EXEC_CHECK_POD_ADDRESS"] == "true"
    off = render({"broker": {"checkPodAddress": False}})
    assert off.environment("mcp-exec-broker")["MCP_EXEC_CHECK_POD_ADDRESS"] == "false"


def test_sandboxes_alone_reach_the_calls_and_operator_and_gateway_the_control_port(render: Render) -> None:
    spec = render({"namespaces": ["agents", "batch"]}).one("NetworkPolicy", "mcp-exec-broker")["spec"]
    calls, control = spec["ingress"]
    assert calls["ports"] == [{"port": 8082, "protocol": "TCP"}]
    labels = {"matchLabels": {LABEL_MANAGED_BY: MANAGED_BY, LABEL_NAME: SANDBOX_NAME}}
    assert calls["from"] == [
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
            "podSelector": labels,
        }
        for name in ("agents", "batch")
    ]
    assert control["ports"] == [{"port": 8084, "protocol": "TCP"}]
    asked = [peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in control["from"]]
    assert asked == ["operator", "gateway"]
    assert spec["egress"] == [{}]


def test_what_the_broker_reaches_can_be_narrowed(render: Render) -> None:
    peer = {"ipBlock": {"cidr": "10.1.0.0/16"}}
    rendered = render({"networkPolicy": {"brokerTo": [peer], "apiServer": {"cidrs": ["10.96.0.1/32"]}}})
    servers, api, others = rendered.one("NetworkPolicy", "mcp-exec-broker")["spec"]["egress"]
    assert servers["ports"] == [{"port": 8083, "protocol": "TCP"}]
    assert api["to"] == [{"ipBlock": {"cidr": "10.96.0.1/32"}}]
    assert others == {"to": [peer]}
    with pytest.raises(AssertionError, match=r"set networkPolicy\.apiServer\.cidrs to the addresses that `kubectl get"):
        render({"networkPolicy": {"brokerTo": [peer]}})  # a rule for any address would widen it


def test_without_a_broker_there_is_nothing_of_it(render: Render) -> None:
    rendered = render({"broker": {"enabled": False}})
    assert [item for item in rendered.objects if "broker" in item["metadata"]["name"]] == []
    assert rendered.environment("mcp-exec-operator")["MCP_EXEC_BROKER_SERVICE"] == ""
    assert len(rendered.one("NetworkPolicy", "mcp-exec-operator")["spec"]["egress"]) == 2


def test_the_audit_can_outlive_the_brokers_pod(render: Render) -> None:
    rendered = render({"broker": {"audit": {"size": "2Gi", "persistence": {"enabled": True}}}})
    claim = rendered.one("PersistentVolumeClaim", "mcp-exec-broker-audit")
    assert claim["spec"]["resources"]["requests"]["storage"] == "2Gi"
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert rendered.one("Deployment", "mcp-exec-broker")["spec"]["strategy"] == ONE_AT_A_TIME
    volumes = {volume["name"]: volume for volume in rendered.pods()["mcp-exec-broker"]["volumes"]}
    assert volumes["audit-claim"]["persistentVolumeClaim"] == {"claimName": "mcp-exec-broker-audit"}
    with pytest.raises(AssertionError, match=r"needs broker\.replicas: 1"):
        render({"broker": {"replicas": 2, "audit": {"persistence": {"enabled": True}}}})
    existing = {"enabled": True, "existingClaim": "ours"}
    claims = render({"broker": {"audit": {"persistence": existing}}}).names("PersistentVolumeClaim")
    assert "mcp-exec-broker-audit" not in claims


def test_audit_records_must_leave_room_in_their_volume(render: Render) -> None:
    mebibyte = 1024 * 1024
    for size, kept in (("512Mi", 256), ("1Gi", 768), ("1Ti", 1024 * 1024 - 256)):
        render({"broker": {"audit": {"size": size, "keepBytes": kept * mebibyte}}})
        with pytest.raises(AssertionError, match=rf"must be at least 256 MiB .* less than broker\.audit\.size, {size}"):
            render({"broker": {"audit": {"size": size, "keepBytes": kept * mebibyte + 1}}})
    with pytest.raises(AssertionError, match="keepBytes"):
        render({"broker": {"audit": {"size": "512Mi"}}})
    existing = {"enabled": True, "existingClaim": "ours"}
    render({"broker": {"audit": {"keepBytes": 10**12, "persistence": existing}}})


def test_tool_servers_are_made_in_each_namespace_or_in_the_named(render: Render) -> None:
    rendered = render(
        {"namespaces": ["agents", "batch"], "toolServers": {"docs": DOCS, "db": {**DOCS, "namespaces": ["batch"]}}}
    )
    assert rendered.names("ToolServer", namespace="agents") == ["docs"]
    assert rendered.names("ToolServer", namespace="batch") == ["db", "docs"]
    spec = ToolServerSpec.model_validate(rendered.one("ToolServer", "db")["spec"])
    assert (spec.url, spec.headers[0].value) == ("https://docs.example/mcp", "a")


def test_demo_servers_are_off_until_they_are_wanted(render: Render) -> None:
    assert render().all("ToolServer") == []
    image = {"image": {"repository": "example.invalid/servers", "tag": "1"}}
    rendered = render({"demoServers": {"trips": {"enabled": True}}, "servers": image})
    spec = ToolServerSpec.model_validate(rendered.one("ToolServer", "trips")["spec"])
    assert spec.stdio is not None
    assert (spec.stdio.image, spec.stdio.command) == (
        "example.invalid/servers:1",
        ["python3", "-m", "mcp_exec_servers.trips"],
    )
    assert rendered.environment("mcp-exec-operator")["MCP_EXEC_SERVERS_IMAGE"] == "example.invalid/servers:1"


def test_demo_servers_name_the_secrets_that_their_image_is_pulled_with(render: Render) -> None:
    servers = {"imagePullSecrets": [{"name": "registry"}]}
    spec = render({"demoServers": {"trips": {"enabled": True}}, "servers": servers}).one("ToolServer", "trips")["spec"]
    assert spec["stdio"]["imagePullSecrets"] == [{"name": "registry"}]
    ToolServerSpec.model_validate(spec)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"toolServers": {"docs": {}}}, "one of url and stdio is needed"),
        (
            {"toolServers": {"docs": {**DOCS, "namespaces": ["elsewhere"]}}},
            "toolServers.docs has the namespace elsewhere",
        ),
        ({"toolServers": {"trips": DOCS}, "demoServers": {"trips": {"enabled": True}}}, "the name of a demo server"),
        ({"toolServers": {"docs": DOCS}, "broker": {"enabled": False}}, "need broker.enabled"),
    ],
)
def test_tool_servers_that_can_not_be_are_refused(render: Render, values: dict[str, object], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        render(values)
