"""Metrics and the API's description: where they are served, and who may reach them."""

from tests.component.chart.conftest import Render

PEER = {"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}
PROCESSES = ("mcp-exec-operator", "mcp-exec-gateway", "mcp-exec-broker")


def test_metrics_are_served_by_all_processes_or_by_none(render: Render) -> None:
    for enabled, text in ((True, "true"), (False, "false")):
        rendered = render({"metrics": {"enabled": enabled}})
        assert {rendered.environment(name)["MCP_EXEC_METRICS"] for name in PROCESSES} == {text}


def test_the_description_can_be_switched_off(render: Render) -> None:
    assert render().environment("mcp-exec-gateway")["MCP_EXEC_DOCS"] == "true"
    assert render({"gateway": {"docs": False}}).environment("mcp-exec-gateway")["MCP_EXEC_DOCS"] == "false"


def test_another_port_of_metrics_is_no_part_of_the_service_and_open_to_named_peers_alone(render: Render) -> None:
    rendered = render({"gateway": {"metricsPort": 8085}, "networkPolicy": {"metricsFrom": [PEER]}})
    assert rendered.environment("mcp-exec-gateway")["MCP_EXEC_METRICS_PORT"] == "8085"
    container = rendered.pods()["mcp-exec-gateway"]["containers"][0]
    assert {"name": "metrics", "containerPort": 8085, "protocol": "TCP"} in container["ports"]
    assert [each["name"] for each in rendered.one("Service", "mcp-exec-gateway")["spec"]["ports"]] == ["http"]
    ingress = rendered.one("NetworkPolicy", "mcp-exec-gateway")["spec"]["ingress"]
    assert {"ports": [{"port": 8085, "protocol": "TCP"}], "from": [PEER]} in ingress
    for values in ({"metricsPort": 8085}, {}):
        ingress = render({"gateway": values}).one("NetworkPolicy", "mcp-exec-gateway")["spec"]["ingress"]
        assert [rule["ports"] for rule in ingress] == [[{"port": 8080, "protocol": "TCP"}]]
