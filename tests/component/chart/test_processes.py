"""Operator and gateway, as the chart runs them."""

from ipaddress import ip_network
from pathlib import Path

import pytest
import yaml
from pydantic import TypeAdapter, ValidationError
from tests.component.chart.conftest import CHART, Render, Rendered
from tests.support.certificates import certificates_for
from tests.support.pod_security import pods_of, violations

from mcp_exec_broker.settings import Settings as BrokerSettings
from mcp_exec_common.access import AccessRule, OidcIssuer
from mcp_exec_gateway.settings import Settings as GatewaySettings
from mcp_exec_operator.settings import Settings as OperatorSettings

SETTINGS = {
    "namespaces": ["agents", "batch"],
    "logLevel": "DEBUG",
    "operator": {
        "bindTimeoutSeconds": 11,
        "resyncSeconds": 12,
        "podStartTimeoutSeconds": 13,
        "verifyIsolation": False,
        "templatePrefixes": ["cost.example.com", "team.example.com"],
        "leaderElection": {"leaseDurationSeconds": 9, "renewDeadlineSeconds": 8, "retryPeriodSeconds": 7},
    },
    "gateway": {"maxWaitSeconds": 14, "maxBodyBytes": 2097152, "audience": "team-gateway", "drainSeconds": 2},
}


def test_the_operator_reads_every_variable_that_it_is_given(render: Render, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = render(SETTINGS).environment("mcp-exec-operator")
    assert {name.removeprefix("MCP_EXEC_").lower() for name in environment} <= set(OperatorSettings.model_fields)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settings = OperatorSettings.from_environment()
    assert settings.namespaces == ("agents", "batch")
    assert (settings.release_namespace, settings.release_name) == ("mcp-exec-system", "mcp-exec")
    assert (settings.bind_timeout_seconds, settings.resync_seconds, settings.pod_start_timeout_seconds) == (11, 12, 13)
    assert (settings.port, settings.isolation_port, settings.verify_isolation) == (8081, 8086, False)
    assert settings.template_prefixes == ("cost.example.com", "team.example.com")
    assert settings.lease_name == "mcp-exec-operator"
    assert (settings.lease_duration_seconds, settings.lease_renew_seconds, settings.lease_retry_seconds) == (9, 8, 7)


def test_the_gateway_reads_every_variable_that_it_is_given(render: Render, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in render(SETTINGS).environment("mcp-exec-gateway").items():
        monkeypatch.setenv(name, value)
    settings = GatewaySettings.from_environment()
    assert settings.namespaces == ("agents", "batch")
    assert settings.api_keys_secret == "mcp-exec-api-keys"
    assert (settings.max_wait_seconds, settings.max_body_bytes, settings.audience) == (14, 2097152, "team-gateway")
    assert (settings.drain_seconds, settings.shutdown_seconds, settings.port) == (2, 14, 8080)


def test_tokens_of_service_accounts_have_an_audience_of_their_own(render: Render) -> None:
    assert render().environment("mcp-exec-gateway")["MCP_EXEC_AUDIENCE"] == "mcp-exec"
    with pytest.raises(AssertionError, match="audience"):
        render({"gateway": {"audience": ""}})


RULES = [
    {"groups": ["oidc/corp/dev"], "namespaces": ["agents"], "limits": {"maxWaits": 7, "tools": ["github.*"]}},
    {"users": ["k8s/alice"], "namespaces": ["agents", "batch"], "approver": True},
]
CORP = {"alias": "corp", "url": "https://login.example.com/corp", "audience": "mcp"}


def test_rules_of_the_values_are_those_of_the_gateway_and_restart_no_pod(render: Render) -> None:
    before, after = render(), render({"gateway": {"rules": RULES}})
    assert TypeAdapter(list[AccessRule]).validate_json(read_rules(before), strict=True) == []
    rules = TypeAdapter(list[AccessRule]).validate_json(read_rules(after), strict=True)
    assert [rule.approver for rule in rules] == [False, True]
    assert (rules[0].limits.max_waits, rules[0].limits.users) == (7, None)
    name = "mcp-exec-gateway"
    pods = [each.one("Deployment", name)["spec"]["template"] for each in (before, after)]
    assert pods[0] == pods[1]
    (volume,) = [each for each in pods[0]["spec"]["volumes"] if each["name"] == "rules"]
    assert volume["configMap"]["name"] == "mcp-exec-rules"


def read_rules(rendered: Rendered) -> str:
    return str(rendered.one("ConfigMap", "mcp-exec-rules")["data"]["rules.json"])


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"users": ["alice"], "namespaces": ["agents"]}, "oidc/corp/developers"),
        ({"users": ["k8s/alice"]}, "namespaces"),
        ({"users": ["k8s/alice"], "namespaces": ["agents"], "limits": {"maxWait": 1}}, "maxWait"),
    ],
)
def test_a_rule_that_is_not_valid_is_refused_with_what_is_allowed(
    render: Render, rule: dict[str, object], message: str
) -> None:
    with pytest.raises(AssertionError, match=message):
        render({"gateway": {"rules": [rule]}})


def test_the_gateway_reads_the_issuers_and_reaches_their_ports(render: Render, monkeypatch: pytest.MonkeyPatch) -> None:
    ca, _ = certificates_for("lab.example.com")
    other = {"alias": "lab", "url": "https://lab.example.com:7443", "audience": "a,b", "ca": ca}
    other["jwksUrl"] = "https://keys.example.com:9443/jwks"
    oidc = {"issuers": [CORP, other], "allowedAddresses": ["169.254.7.0/24"]}
    rendered = render({"gateway": {"oidc": oidc}})
    for name, value in rendered.environment("mcp-exec-gateway").items():
        monkeypatch.setenv(name, value)
    settings = GatewaySettings.from_environment()
    assert [(each.alias, each.audience, each.ca) for each in settings.oidc_issuers] == [
        ("corp", "mcp", ""),
        ("lab", "a,b", ca),
    ]
    assert settings.oidc_allowed_addresses == (ip_network("169.254.7.0/24"),)
    assert list_open_ports(rendered) - list_open_ports(render()) == {7443, 9443}
    assert 443 in list_open_ports(rendered)


def list_open_ports(rendered: Rendered) -> set[int]:
    rules = rendered.one("NetworkPolicy", "mcp-exec-gateway")["spec"]["egress"]
    return {port["port"] for rule in rules if not rule.get("to") for port in rule["ports"]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"url": "http://login.example.com"}, "https://"),
        ({"url": "https://login.example.com?tenant=1"}, "https://"),
        ({"url": "https://user@login.example.com"}, "https://"),
        ({"alias": "Corp"}, "alias"),
        ({"clockSkewSeconds": 301}, "clockSkewSeconds"),
        ({"audience": ""}, "audience"),
    ],
)
def test_an_issuer_that_can_not_be_trusted_is_refused(render: Render, changes: dict[str, object], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        render({"gateway": {"oidc": {"issuers": [CORP | changes]}}})


def test_issuers_of_one_name_or_address_or_without_usable_authorities_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for second, message in (
        ({"url": "https://b.example.com"}, "alias corp"),
        ({"alias": "b"}, "url https://login"),
        ({"alias": "b", "url": "https://b.example.com", "ca": "b.pem"}, "issuer b has no certificate"),
    ):
        with pytest.raises(ValidationError, match=message):
            GatewaySettings(
                namespaces=("agents",),
                sandbox_key_folder=Path("unused"),
                release_namespace="system",
                oidc_issuers=(OidcIssuer.model_validate(CORP), OidcIssuer.model_validate(CORP | second)),
            )


def test_the_broker_reads_every_variable_that_it_is_given(render: Render, monkeypatch: pytest.MonkeyPatch) -> None:
    audit = {"keepDays": 17, "keepBytes": 2097152}
    broker = {"maxCalls": 15, "shutdownSeconds": 16, "allowedAddresses": ["127.0.0.1/32", "::1/128"], "audit": audit}
    for name, value in render({**SETTINGS, "broker": broker}).environment("mcp-exec-broker").items():
        monkeypatch.setenv(name, value)
    settings = BrokerSettings.from_environment()
    assert settings.namespaces == ("agents", "batch")
    assert (settings.port, settings.control_port) == (8082, 8084)
    assert (settings.max_calls, settings.shutdown_seconds) == (15, 16)
    assert settings.release_secrets == ("mcp-exec-sandbox-key", "mcp-exec-api-keys", "mcp-exec-initial-api-key")
    assert (settings.audit_keep_days, settings.audit_keep_bytes) == (17, 2097152)
    assert [str(network) for network in settings.allowed_addresses] == ["127.0.0.1/32", "::1/128"]


def test_the_default_values_are_settings_too(render: Render, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = render()
    for deployment in ("mcp-exec-operator", "mcp-exec-gateway"):
        for name, value in rendered.environment(deployment).items():
            monkeypatch.setenv(name, value)
        _ = (
            OperatorSettings.from_environment()
            if deployment.endswith("operator")
            else GatewaySettings.from_environment()
        )
        for name in rendered.environment(deployment):
            monkeypatch.delenv(name)


def test_the_keys_are_where_the_settings_say_and_change_in_place(render: Render) -> None:
    rendered = render()
    for name, pod in rendered.pods().items():
        if name.endswith(("-test", "-operator")):
            continue
        mounts = {each["name"]: each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
        secret = next(each["secret"] for each in pod["volumes"] if each["name"] == "sandbox-key")
        assert rendered.environment(name)["MCP_EXEC_SANDBOX_KEY_FOLDER"] == mounts["sandbox-key"]
        # with all entries, which come and go; the kubelet does not change a mount by `subPath`
        assert secret == {"secretName": "mcp-exec-sandbox-key", "defaultMode": 0o440}
        assert not any("subPath" in each for each in pod["containers"][0]["volumeMounts"])


def test_every_pod_meets_the_restricted_pod_security_level(render: Render) -> None:
    pods = render().pods()
    assert set(pods) == {"mcp-exec-operator", "mcp-exec-gateway", "mcp-exec-broker", "mcp-exec-test"}
    for pod in pods.values():
        assert violations(pod) == []
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["requests"]
            assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("path", sorted(CHART.glob("ci/*-values.yaml")), ids=lambda path: path.stem)
def test_no_pod_of_any_kind_needs_more_than_the_restricted_level(render: Render, path: Path) -> None:
    rendered = render(yaml.safe_load(path.read_text()))
    found = {item["metadata"]["name"]: violations(pod) for item in rendered.objects for pod in pods_of(item)}
    makers = {name for kind in ("DaemonSet", "Deployment", "Job", "Pod") for name in rendered.names(kind)}
    assert {"mcp-exec-cleanup", "mcp-exec-gateway", "mcp-exec-test"} <= makers
    assert found.keys() == makers
    assert {name: problems for name, problems in found.items() if problems} == {}


def test_operator_and_gateway_are_probed_at_their_ports(render: Render) -> None:
    for name, port in (("mcp-exec-operator", 8081), ("mcp-exec-gateway", 8080)):
        container = render().pods()[name]["containers"][0]
        assert container["ports"][0] == {"name": "http", "containerPort": port, "protocol": "TCP"}
        assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
        assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
        assert container["startupProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}


def test_services_set_no_variables_that_could_be_taken_for_settings(render: Render) -> None:
    pods = render().pods()
    assert [pods[name]["enableServiceLinks"] for name in ("mcp-exec-operator", "mcp-exec-gateway")] == [False, False]


def test_a_second_operator_stands_by_on_another_node_where_there_is_one(render: Render) -> None:
    spec = render().one("Deployment", "mcp-exec-operator")["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    spread = spec["template"]["spec"]["topologySpreadConstraints"][1]
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "ScheduleAnyway")
    assert spread["labelSelector"] == spec["selector"]


def test_each_operator_is_known_by_its_pod(render: Render) -> None:
    env = {each["name"]: each for each in render().pods()["mcp-exec-operator"]["containers"][0]["env"]}
    fields = {name: env[f"MCP_EXEC_POD_{name}"]["valueFrom"]["fieldRef"]["fieldPath"] for name in ("NAME", "UID")}
    assert fields == {"NAME": "metadata.name", "UID": "metadata.uid"}


@pytest.mark.parametrize(
    ("election", "said"),
    [
        ({"renewDeadlineSeconds": 15}, "leaseDurationSeconds must be more than renewDeadlineSeconds"),
        ({"retryPeriodSeconds": 10}, "renewDeadlineSeconds must be more than retryPeriodSeconds"),
    ],
)
def test_times_of_the_election_that_do_not_fit_are_refused(render: Render, election: dict[str, int], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        render({"operator": {"leaderElection": election}})


def test_an_operator_that_goes_has_time_to_end_its_writes_and_give_up_its_lease(render: Render) -> None:
    fields = OperatorSettings.model_fields
    # two steps of the shutdown, the lease's last write, and kopf's end
    needed = 2 * fields["shutdown_seconds"].default + fields["lease_renew_seconds"].default / 2 + 5
    assert render().pods()["mcp-exec-operator"]["terminationGracePeriodSeconds"] >= needed


def test_a_gateway_that_goes_has_time_for_the_longest_wait(render: Render) -> None:
    deployment = render({"gateway": {"maxWaitSeconds": 100, "drainSeconds": 7, "replicas": 3}}).one(
        "Deployment", "mcp-exec-gateway"
    )
    pod = deployment["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > 107
    assert deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert pod["topologySpreadConstraints"][1]["whenUnsatisfiable"] == "ScheduleAnyway"


@pytest.mark.parametrize(
    ("replicas", "budgets"), [(1, ["mcp-exec-operator"]), (2, ["mcp-exec-gateway", "mcp-exec-operator"])]
)
def test_one_gateway_has_no_budget_that_would_block_a_drain(render: Render, replicas: int, budgets: list[str]) -> None:
    rendered = render({"gateway": {"replicas": replicas}})
    assert rendered.names("PodDisruptionBudget") == budgets
    assert all(each["spec"]["maxUnavailable"] == 1 for each in rendered.all("PodDisruptionBudget"))


def test_scheduling_and_extras_are_handed_on(render: Render) -> None:
    common = {
        "nodeSelector": {"role": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
        "podLabels": {"team": "platform"},
        "podAnnotations": {"note": "x"},
        "serviceAccountAnnotations": {"role": "y"},
        "extraEnv": [{"name": "SSL_CERT_FILE", "value": "/ca.pem"}],
    }
    rendered = render({"operator": common, "gateway": common, "imagePullSecrets": [{"name": "registry"}]})
    for name in ("mcp-exec-operator", "mcp-exec-gateway"):
        template = rendered.one("Deployment", name)["spec"]["template"]
        fields = ("nodeSelector", "tolerations", "affinity", "priorityClassName")
        assert {field: template["spec"][field] for field in fields} == {field: common[field] for field in fields}
        assert template["spec"]["imagePullSecrets"] == [{"name": "registry"}]
        assert template["metadata"]["labels"]["team"] == "platform"
        assert template["metadata"]["annotations"]["note"] == "x"
        assert rendered.environment(name)["SSL_CERT_FILE"] == "/ca.pem"
        assert rendered.one("ServiceAccount", name)["metadata"]["annotations"] == {"role": "y"}


def test_selectors_find_their_pods_and_no_others(render: Render) -> None:
    rendered = render({"gateway": {"replicas": 2}}, release="blue")
    labels = {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"] for each in rendered.all("Deployment")
    }
    assert set(labels) == {"blue-mcp-exec-operator", "blue-mcp-exec-gateway", "blue-mcp-exec-broker"}

    def found_by(selector: dict[str, str]) -> list[str]:
        return [name for name, given in labels.items() if selector.items() <= given.items()]

    assert found_by(rendered.one("Service", "blue-mcp-exec-gateway")["spec"]["selector"]) == ["blue-mcp-exec-gateway"]
    for kind, selector in (
        ("Deployment", "selector"),
        ("PodDisruptionBudget", "selector"),
        ("NetworkPolicy", "podSelector"),
    ):
        for item in rendered.all(kind):
            if item["metadata"].get("namespace") == "mcp-exec-system":
                chosen = item["spec"][selector].get("matchLabels", {})
                assert found_by(chosen) == [item["metadata"]["name"]]


def test_one_registry_and_tag_apply_to_all_images_that_have_none_of_their_own(render: Render) -> None:
    rendered = render(
        {
            "images": {"repository": "registry.example/team", "tag": "v2"},
            "broker": {"image": {"tag": "v3"}},
            "gateway": {"image": {"repository": "elsewhere/gateway"}},
            "demoServers": {"trips": {"enabled": True}},
        }
    )
    for name, image in (
        ("operator", "registry.example/team/mcp-exec-operator:v2"),
        ("broker", "registry.example/team/mcp-exec-broker:v3"),
        ("gateway", "elsewhere/gateway:v2"),
    ):
        (container,) = rendered.one("Deployment", f"mcp-exec-{name}")["spec"]["template"]["spec"]["containers"]
        assert container["image"] == image
    servers = "registry.example/team/mcp-exec-servers:v2"
    assert rendered.environment("mcp-exec-operator")["MCP_EXEC_SERVERS_IMAGE"] == servers
    assert rendered.one("ToolServer", "trips")["spec"]["stdio"]["image"] == servers
    pool = rendered.one("SandboxPool", "default")["spec"]
    assert pool["image"] == "registry.example/team/mcp-exec-sandbox:v2"


def test_a_new_team_or_pool_changes_no_pod_of_the_release(render: Render) -> None:
    before = render()
    extra = {"name": "large", "namespaces": ["team-a"], "maxPods": 3}
    after = render({"namespaces": ["agents", "team-a"], "extraPools": [extra], "pool": {"maxPods": 11}})
    for deployment in before.all("Deployment"):
        name = deployment["metadata"]["name"]
        assert after.one("Deployment", name)["spec"] == deployment["spec"]
    assert after.one("ConfigMap", "mcp-exec-namespaces")["data"] == {"namespaces": "agents,team-a"}


def test_the_level_of_logs_can_be_that_of_one_process(render: Render) -> None:
    rendered = render({"logLevel": "WARNING", "broker": {"logLevel": "DEBUG"}})
    found = {name: rendered.environment(f"mcp-exec-{name}") for name in ("operator", "gateway", "broker")}
    assert {name: each["MCP_EXEC_LOG_LEVEL"] for name, each in found.items()} == dict.fromkeys(found, "WARNING")
    own = {name: each.get("MCP_EXEC_OWN_LOG_LEVEL", "") for name, each in found.items()}
    assert own == {"operator": "", "gateway": "", "broker": "DEBUG"}


def test_the_broker_reserves_the_memory_that_it_uses_under_load(render: Render) -> None:
    (container,) = render().pods()["mcp-exec-broker"]["containers"]
    assert (container["resources"]["requests"]["memory"], container["resources"]["limits"]["memory"]) == (
        "320Mi",
        "512Mi",
    )
