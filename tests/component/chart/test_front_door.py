"""The front door of the gateway: Ingress, HTTPRoute and Certificate, and TLS by the gateway itself."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.component.chart.conftest import Object, Render, validate
from tests.support.front_doors import read_blocks

HOST = "agents.example.com"
PARENTS = [{"name": "public", "namespace": "infra", "sectionName": "https"}]
CERTIFICATE = {"create": True, "issuer": "company"}
INGRESS: Object = {"host": HOST, "ingress": {"enabled": True, "className": "nginx", "annotations": {"a/b": "1"}}}
ROUTE: Object = {"host": HOST, "httpRoute": {"enabled": True, "parentRefs": PARENTS}}
SERVED: Object = {"tls": {"secret": "door", "serve": True}}


def test_without_values_there_is_no_front_door_and_no_tls(render: Render) -> None:
    rendered = render()
    assert {"Ingress", "HTTPRoute", "Certificate"} & {item["kind"] for item in rendered.objects} == set()
    assert "MCP_EXEC_TLS_FOLDER" not in rendered.environment("mcp-exec-gateway")
    assert "appProtocol" not in rendered.one("Service", "mcp-exec-gateway")["spec"]["ports"][0]


def test_an_ingress_leads_to_the_service_with_the_certificate_of_the_secret(render: Render) -> None:
    rendered = render({"gateway": {**INGRESS, "service": {"port": 8000}, "tls": {"secret": "door"}}})
    ingress = rendered.one("Ingress", "mcp-exec-gateway", namespace="mcp-exec-system")
    assert ingress["metadata"]["annotations"] == {"a/b": "1"}
    assert ingress["spec"]["ingressClassName"] == "nginx"
    assert ingress["spec"]["tls"] == [{"hosts": [HOST], "secretName": "door"}]
    (rule,) = ingress["spec"]["rules"]
    assert rule["host"] == HOST
    assert rule["http"]["paths"][0]["backend"]["service"] == {"name": "mcp-exec-gateway", "port": {"number": 8000}}


def test_a_route_belongs_to_its_gateways_and_has_no_time_limit_of_its_own(render: Render) -> None:
    route = render({"gateway": ROUTE}).one("HTTPRoute", "mcp-exec-gateway", namespace="mcp-exec-system")
    assert route["spec"]["parentRefs"] == PARENTS
    assert route["spec"]["hostnames"] == [HOST]
    (rule,) = route["spec"]["rules"]
    assert rule["timeouts"] == {"request": "0s"}
    assert rule["backendRefs"] == [{"name": "mcp-exec-gateway", "port": 80}]


@pytest.mark.parametrize("serve", [False, True])
def test_a_certificate_of_cert_manager_is_written_to_the_secret_in_use(render: Render, serve: bool) -> None:
    tls = {"secret": "door", "serve": serve, "certificate": CERTIFICATE}
    gateway = {"host": HOST, "tls": tls} if serve else {**INGRESS, "tls": tls}
    spec = render({"gateway": gateway}).one("Certificate", "mcp-exec-gateway")["spec"]
    assert spec["secretName"] == "door"
    assert spec["issuerRef"] == {"name": "company", "kind": "ClusterIssuer", "group": "cert-manager.io"}
    inside = ["mcp-exec-gateway.mcp-exec-system.svc"] if serve else []
    assert spec["dnsNames"] == [HOST, *inside]


def test_a_gateway_that_serves_tls_has_the_secret_and_everything_that_calls_it_uses_tls(render: Render) -> None:
    monitoring = {"serviceMonitor": {"enabled": True}, "scrapeAnnotations": True}
    rendered = render({"gateway": SERVED, "monitoring": monitoring})
    pod = rendered.pods()["mcp-exec-gateway"]
    (container,) = pod["containers"]
    folder = rendered.environment("mcp-exec-gateway")["MCP_EXEC_TLS_FOLDER"]
    (mount,) = [each for each in container["volumeMounts"] if each["mountPath"] == folder]
    (volume,) = [each for each in pod["volumes"] if each["name"] == mount["name"]]
    assert volume["secret"]["secretName"] == "door"
    probes = [container[name]["httpGet"]["scheme"] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert probes == ["HTTPS"] * 3
    assert rendered.one("Service", "mcp-exec-gateway")["spec"]["ports"][0]["appProtocol"] == "https"
    (test,) = rendered.pods()["mcp-exec-test"]["containers"]
    assert {"name": "door", "key": "tls.crt"} in [each.get("valueFrom", {}).get("secretKeyRef") for each in test["env"]]
    endpoints = {each["port"]: each for each in rendered.one("ServiceMonitor", "mcp-exec")["spec"]["endpoints"]}
    assert (endpoints["metrics"].get("scheme"), endpoints["metrics-tls"]["scheme"]) == (None, "https")
    ports = {
        item["metadata"]["name"]: item["spec"]["ports"][0]["name"]
        for item in rendered.all("Service")
        if item["metadata"]["name"].endswith("-metrics")
    }
    assert ports == {
        "mcp-exec-broker-metrics": "metrics", "mcp-exec-gateway-metrics": "metrics-tls",
        "mcp-exec-operator-metrics": "metrics",
    }  # fmt: skip
    template = rendered.one("Deployment", "mcp-exec-gateway")["spec"]["template"]
    assert template["metadata"]["annotations"]["prometheus.io/scheme"] == "https"


@pytest.mark.parametrize(
    ("gateway", "said"),
    [
        ({"ingress": {"enabled": True}}, "gateway.ingress.enabled needs gateway.host"),
        ({"httpRoute": {"enabled": True, "parentRefs": PARENTS}}, "gateway.httpRoute.enabled needs gateway.host"),
        (
            {"tls": {"secret": "door", "serve": True, "certificate": CERTIFICATE}},
            "certificate.create needs gateway.host",
        ),
        ({"host": HOST}, "gateway.host is set, and nothing uses it"),
        ({"host": HOST, "httpRoute": {"enabled": True}}, "needs gateway.httpRoute.parentRefs"),
        ({**ROUTE, **SERVED}, "gateway.httpRoute.enabled and gateway.tls.serve contradict each other"),
        (
            {**INGRESS, "tls": {"secret": "door", "certificate": {"create": True}}},
            "needs gateway.tls.certificate.issuer",
        ),
        ({**INGRESS, "tls": {"certificate": CERTIFICATE}}, "gateway.tls.certificate.create needs gateway.tls.secret"),
        ({"tls": {"serve": True}}, "gateway.tls.serve needs gateway.tls.secret"),
        ({"tls": {"secret": "door"}}, "gateway.tls.secret is set, and nothing uses it"),
        ({**ROUTE, "tls": {"secret": "door"}}, "gateway.tls.secret is set, and nothing uses it"),
        ({**INGRESS, "host": "https://agents.example.com"}, "host"),
        ({**INGRESS, "host": "agents.example.com:443"}, "host"),
    ],
)
def test_values_that_contradict_each_other_are_refused_with_what_to_set(
    render: Render, gateway: dict[str, Any], said: str
) -> None:
    with pytest.raises(AssertionError, match=said.replace(".", r"\.")):
        render({"gateway": gateway})


def test_the_objects_of_other_projects_fit_their_published_schemas(
    render: Render, schemas: Path, tmp_path: Path
) -> None:
    tls = {"secret": "door", "serve": True, "certificate": CERTIFICATE}
    rendered = [render({"gateway": ROUTE}), render({"gateway": {"host": HOST, "tls": tls}})]
    objects = [item for each in rendered for kind in ("HTTPRoute", "Certificate") for item in each.all(kind)]
    assert [item["kind"] for item in objects] == ["HTTPRoute", "Certificate"]
    wrong: list[Object] = json.loads(json.dumps(objects))
    wrong[0]["spec"]["rules"][0]["timeouts"] = {"request": "for ever"}
    wrong[1]["spec"]["issuerRef"] = "company"
    assert validate(schemas, tmp_path, objects) == [None, None]
    found = validate(schemas, tmp_path, wrong)
    assert ["timeouts" in str(found[0]), "issuerRef" in str(found[1])] == [True, True], found


def test_the_objects_of_envoy_gateway_on_the_page_fit_its_published_schemas_and_belong_to_the_route(
    render: Render, schemas: Path, tmp_path: Path
) -> None:
    values, policies = (yaml.safe_load_all(block) for block in read_blocks("An HTTPRoute"))
    route = render(next(values)).one("HTTPRoute", "mcp-exec-gateway")
    client, backend = objects = list(policies)
    (parent,) = route["spec"]["parentRefs"]
    (target,) = client["spec"]["targetRefs"]
    assert {name: target[name] for name in ("name", "sectionName")} == {
        name: parent[name] for name in ("name", "sectionName")
    }
    assert client["metadata"]["namespace"] == parent["namespace"]
    (target,) = backend["spec"]["targetRefs"]
    assert (target["name"], backend["metadata"]["namespace"]) == tuple(
        route["metadata"][name] for name in ("name", "namespace")
    )
    assert validate(schemas, tmp_path, objects) == [None, None]
    wrong: list[Object] = json.loads(json.dumps(objects))
    wrong[0]["spec"]["timeout"]["http"]["streamIdleTimeout"] = 330
    wrong[1]["spec"]["circuitBreaker"] = 8192
    found = validate(schemas, tmp_path, wrong)
    assert ["streamIdleTimeout" in str(found[0]), "circuitBreaker" in str(found[1])] == [True, True], found


@pytest.mark.parametrize("heading", ["An Ingress", "An HTTPRoute", "TLS by the gateway"])
def test_the_values_on_the_page_are_accepted(render: Render, heading: str) -> None:
    render(yaml.safe_load(read_blocks(heading)[0]))
