"""Metrics and the API's description: where they are served, and who may reach them."""

import json

import pytest
import yaml
from tests.component.chart.conftest import CHART, Render

PEER = {"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}
PROCESSES = ("mcp-exec-operator", "mcp-exec-gateway", "mcp-exec-broker")


def test_metrics_are_served_by_all_processes_or_by_none(render: Render) -> None:
    for enabled, text in ((True, "true"), (False, "false")):
        rendered = render({"metrics": {"enabled": enabled}})
        assert {rendered.environment(name)["MCP_EXEC_METRICS"] for name in PROCESSES} == {text}


def test_the_description_can_be_switched_off(render: Render) -> None:
    assert render().environment("mcp-exec-gateway")["MCP_EXEC_DOCS"] == "true"
    assert render({"gateway": {"docs": False}}).environment("mcp-exec-gateway")["MCP_EXEC_DOCS"] == "false"


def test_the_port_of_metrics_is_no_part_of_the_service_and_open_to_named_peers_only(render: Render) -> None:
    rendered = render({"networkPolicy": {"metricsFrom": [PEER]}})
    assert rendered.environment("mcp-exec-gateway")["MCP_EXEC_METRICS_PORT"] == "8085"
    container = rendered.pods()["mcp-exec-gateway"]["containers"][0]
    assert {"name": "metrics", "containerPort": 8085, "protocol": "TCP"} in container["ports"]
    assert [each["name"] for each in rendered.one("Service", "mcp-exec-gateway")["spec"]["ports"]] == ["http"]
    ingress = rendered.one("NetworkPolicy", "mcp-exec-gateway")["spec"]["ingress"]
    assert {"ports": [{"port": 8085, "protocol": "TCP"}], "from": [PEER]} in ingress
    for values in ({"metricsPort": 9000}, {}):
        ingress = render({"gateway": values}).one("NetworkPolicy", "mcp-exec-gateway")["spec"]["ingress"]
        assert [rule["ports"] for rule in ingress] == [[{"port": 8080, "protocol": "TCP"}]]


def test_no_pod_reaches_the_metrics_of_any_process_by_default(render: Render) -> None:
    rendered = render()
    ports = dict(zip(PROCESSES, (8081, 8085, 8084), strict=True))
    for name, port in ports.items():
        rules = rendered.one("NetworkPolicy", name)["spec"]["ingress"]
        opened = [rule for rule in rules if {"port": port, "protocol": "TCP"} in rule["ports"]]
        # the broker's control port is that of operator and gateway as well
        peers = [peer["podSelector"]["matchLabels"] for rule in opened for peer in rule["from"]]
        components = [labels["app.kubernetes.io/component"] for labels in peers]
        assert components == (["operator", "gateway"] if port == 8084 else []), name


def test_sandboxes_check_a_port_of_the_operator_that_serves_nothing(render: Render) -> None:
    rendered = render({"networkPolicy": {"metricsFrom": [PEER]}})
    environment = rendered.environment("mcp-exec-operator")
    assert (environment["MCP_EXEC_PORT"], environment["MCP_EXEC_ISOLATION_PORT"]) == ("8081", "8086")
    metrics, isolation = rendered.one("NetworkPolicy", "mcp-exec-operator")["spec"]["ingress"]
    assert metrics == {"ports": [{"port": 8081, "protocol": "TCP"}], "from": [PEER]}
    assert isolation == {"ports": [{"port": 8086, "protocol": "TCP"}]}


def test_metrics_on_the_port_of_the_api_are_refused(render: Render) -> None:
    with pytest.raises(AssertionError, match=r"gateway\.metricsPort is 8080, the port of the API"):
        render({"gateway": {"metricsPort": 8080}})


def test_nothing_is_made_for_prometheus_and_grafana_by_default(render: Render) -> None:
    rendered = render()
    assert {item["kind"] for item in rendered.objects} & {"ServiceMonitor", "PrometheusRule"} == set()
    assert not [name for name in rendered.names("ConfigMap") if "board" in name]
    assert "prometheus.io/scrape" not in rendered.text


def test_a_service_monitor_selects_the_pods_of_all_processes(render: Render) -> None:
    rendered = render({"monitoring": {"serviceMonitor": {"enabled": True, "labels": {"release": "prom"}}}})
    monitor = rendered.one("ServiceMonitor", "mcp-exec")
    assert monitor["metadata"]["labels"]["release"] == "prom"
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    services = [each for each in rendered.all("Service") if wanted <= each["metadata"]["labels"].items()]
    ports = {each["metadata"]["name"]: each["spec"]["ports"][0]["targetPort"] for each in services}
    assert ports == {f"{name}-metrics": port for name, port in zip(PROCESSES, (8081, 8085, 8084), strict=True)}
    for service in services:
        selector = service["spec"]["selector"].items()
        name = service["metadata"]["name"].removesuffix("-metrics")
        labels = rendered.one("Deployment", name)["spec"]["template"]["metadata"]["labels"]
        assert selector <= labels.items()
    (endpoint,) = monitor["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["path"], endpoint["honorLabels"]) == ("metrics", "/metrics", True)
    without = render({"monitoring": {"serviceMonitor": {"enabled": True}}, "broker": {"enabled": False}})
    assert "mcp-exec-broker-metrics" not in without.names("Service")


def test_annotations_name_the_port_of_each_process(render: Render) -> None:
    rendered = render({"monitoring": {"scrapeAnnotations": True}, "gateway": {"metricsPort": 9000}})
    found = {
        name: rendered.one("Deployment", name)["spec"]["template"]["metadata"]["annotations"] for name in PROCESSES
    }
    assert {found[name]["prometheus.io/scrape"] for name in PROCESSES} == {"true"}
    assert [found[name]["prometheus.io/port"] for name in PROCESSES] == ["8081", "9000", "8084"]


def test_scraping_without_metrics_is_refused(render: Render) -> None:
    with pytest.raises(AssertionError, match=r"need metrics\.enabled: true"):
        render({"metrics": {"enabled": False}, "monitoring": {"scrapeAnnotations": True}})


def test_a_scrapers_namespace_reaches_the_metrics_of_all_processes(render: Render) -> None:
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    values = {"monitoring": {"scraperNamespaces": ["monitoring"]}, "networkPolicy": {"gatewayFrom": [PEER]}}
    rendered = render(values)
    for name in PROCESSES:
        rules = rendered.one("NetworkPolicy", name)["spec"]["ingress"]
        assert [rule for rule in rules if peer in rule.get("from", ())], name
    calls = rendered.one("NetworkPolicy", "mcp-exec-broker")["spec"]["ingress"][0]
    assert peer not in calls["from"]
    gateway = rendered.one("NetworkPolicy", "mcp-exec-gateway")
    opened = {rule["ports"][0]["port"]: peer in rule["from"] for rule in gateway["spec"]["ingress"]}
    assert opened == {8080: False, 8085: True}


def test_the_rules_are_the_file_with_links_to_the_given_runbooks(render: Render) -> None:
    address = "https://git.example.com/mcp-exec/runbooks.md"
    rule = render({"monitoring": {"rules": {"enabled": True, "runbooks": address}}}).one("PrometheusRule", "mcp-exec")
    links = [each["annotations"]["runbook_url"] for group in rule["spec"]["groups"] for each in group["rules"][:1]
             if "alert" in each]  # fmt: skip
    assert links == [f"{address}#mcpexecnoleader"]
    text = (CHART / "rules" / "mcp-exec.yaml").read_text().replace("RUNBOOKS#", f"{address}#")
    assert rule["spec"] == yaml.safe_load(text)


@pytest.mark.parametrize("runbooks", ["", "docs/platform/runbooks.md"])
def test_without_an_address_there_are_no_links_to_runbooks(render: Render, runbooks: str) -> None:
    values = {"monitoring": {"rules": {"enabled": True, "runbooks": runbooks}, "dashboards": {"enabled": True}}}
    rendered = render(values)
    groups = rendered.one("PrometheusRule", "mcp-exec")["spec"]["groups"]
    assert not [rule for group in groups for rule in group["rules"] if "runbook_url" in rule.get("annotations", {})]
    boards = [json.loads(text) for each in rendered.all("ConfigMap") for text in each["data"].values() if "{" in text]
    assert boards
    assert not any(board.get("links") for board in boards)


def test_rules_and_targets_of_a_release_select_only_its_own_series(render: Render) -> None:
    values = {
        "monitoring": {
            "serviceMonitor": {"enabled": True, "relabelings": [{"action": "labeldrop", "regex": "x"}]},
            "rules": {"enabled": True, "targets": {"seconds": 2}, "disabled": ["McpExecFewWarmHits"]},
        }
    }
    rendered = render(values, release="plat", namespace="tools")
    owner = "tools.plat-mcp-exec"
    (endpoint,) = rendered.one("ServiceMonitor", "plat-mcp-exec")["spec"]["endpoints"]
    assert endpoint["relabelings"] == [
        {"action": "replace", "targetLabel": "release", "replacement": owner},
        {"action": "labeldrop", "regex": "x"},
    ]
    rules = [each for group in rendered.one("PrometheusRule", "plat-mcp-exec")["spec"]["groups"]
             for each in group["rules"]]  # fmt: skip
    assert not any(each.get("alert") == "McpExecFewWarmHits" for each in rules)
    target = next(each for each in rules if each.get("record") == "mcp_exec:target_seconds")
    assert target == {"record": "mcp_exec:target_seconds", "expr": "vector(2)", "labels": {"release": owner}}
    others = [each["expr"] for each in rules if each is not target]
    assert all(f'release="{owner}"' in expr and "release=~" not in expr for expr in others)


def test_boards_of_two_releases_are_different_boards_with_links_to_runbooks(render: Render) -> None:
    address = "https://git.example.com/runbooks.md"
    values = {
        "monitoring": {
            "serviceMonitor": {"enabled": True},
            "dashboards": {"enabled": True, "namespace": "grafana"},
            "rules": {"runbooks": address},
        }
    }
    of = [
        {name: json.loads(text) for each in rendered.all("ConfigMap", namespace="grafana")
         for name, text in each["data"].items()}
        for rendered in (render(values), render(values, release="plat", namespace="tools"))
    ]  # fmt: skip
    assert not of[0].keys() & of[1].keys(), "the sidecar has one file for each name"
    assert not {each["uid"] for each in of[0].values()} & {each["uid"] for each in of[1].values()}
    assert all(len(each["uid"]) <= 40 for each in of[1].values())
    for board in of[1].values():
        chosen = next(each for each in board["templating"]["list"] if each["name"] == "release")["current"]
        assert chosen["value"] == ["tools.plat-mcp-exec"]
        assert [each["url"] for each in board["links"]] == [address]


@pytest.mark.parametrize(
    ("targets", "recorded"),
    [
        ({}, {}),
        ({"seconds": 2}, {"mcp_exec:target_seconds": "vector(2)"}),
        (
            {"seconds": 0.5, "failures": 0.01},
            {"mcp_exec:target_seconds": "vector(0.5)", "mcp_exec:target_failures_ratio": "vector(0.01)"},
        ),
    ],
)
def test_targets_are_recorded_for_their_alerts_if_they_are_set(
    render: Render, targets: dict[str, float], recorded: dict[str, str]
) -> None:
    rule = render({"monitoring": {"rules": {"enabled": True, "targets": targets}}}).one("PrometheusRule", "mcp-exec")
    rules = [each for group in rule["spec"]["groups"] for each in group["rules"]]
    assert {each["record"]: each["expr"] for each in rules if "target" in each.get("record", "")} == recorded


def test_boards_are_config_maps_for_grafanas_sidecar(render: Render) -> None:
    values = {"enabled": True, "namespace": "grafana", "annotations": {"grafana_folder": "mcp-exec"}}
    rendered = render({"monitoring": {"dashboards": values}})
    boards = rendered.all("ConfigMap", namespace="grafana")
    assert [each["metadata"]["labels"]["grafana_dashboard"] for each in boards] == ["1"] * len(boards)
    assert {each["metadata"]["annotations"]["grafana_folder"] for each in boards} == {"mcp-exec"}
    found = {name: json.loads(text) for each in boards for name, text in each["data"].items()}
    files = (CHART / "dashboards").glob("*.json")
    assert found == {f"mcp-exec-{path.name}": json.loads(path.read_text()) for path in files}
