"""Keys: none is in the chart. The operator gets the names of those that it creates, or uses Secrets of the user."""

import json
import re
from typing import Any

import pytest
from tests.component.chart.conftest import CHART, Object, Render, Rendered

from mcp_exec_api.wire.stats import KeyLimits
from mcp_exec_common.api_keys import KeyEntry
from mcp_exec_operator.settings import InitialApiKey, Settings


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Reads the operator's settings from a rendering."""

    def read(rendered: Rendered) -> Settings:
        for name, value in rendered.environment("mcp-exec-operator").items():
            monkeypatch.setenv(name, value)
        return Settings.from_environment()

    return read


def initial(settings: Settings) -> InitialApiKey:
    assert settings.initial_api_key is not None
    return settings.initial_api_key


EVERYTHING: Object = {
    "namespaces": ["agents", "batch"],
    "extraPools": [{"name": "kata", "runtimeClassName": "kata"}],
    "dataPool": {"enabled": True},
    "demoServers": {"weather": {"enabled": True}},
    "toolServers": {"docs": {"url": "https://docs.example/mcp"}},
    "broker": {"files": {"enabled": True}, "records": {"enabled": True}, "audit": {"persistence": {"enabled": True}}},
    "monitoring": {"rules": {"enabled": True}, "dashboards": {"enabled": True}, "serviceMonitor": {"enabled": True}},
}


@pytest.mark.parametrize("values", [{}, EVERYTHING, {"broker": {"enabled": False}}], ids=["few", "all", "none"])
def test_two_renderings_are_equal_and_have_no_secret(render: Render, helm3: Render, values: Object) -> None:
    first, second = render(values), render(values)
    assert first.text == second.text
    assert first.all("Secret") == []
    installed = helm3(values, "--kube-version", "1.34.0")
    assert installed.text == helm3(values, "--kube-version", "1.34.0", "--is-upgrade").text


VARYING = ["ago", r"date\w*", "unixEpoch", "now", r"rand\w+", "shuffle", "uuidv4", "bcrypt", "htpasswd", "encryptAES"]
KEYS = [r"gen\w+", "derivePassword"]
READING = ["lookup", "getHostByName", r"\.Capabilities\.APIVersions", r"\.Release\.(?:Revision|IsInstall|IsUpgrade)"]
CALL = re.compile(rf"(?<![\w.-])(?:{'|'.join([*VARYING, *KEYS, *READING])})\b(?!-)")
"""Names of Helm and Sprig. `helm template` has nothing to look up, and no earlier revision."""


def test_no_template_makes_a_random_value_a_time_or_a_key_or_reads_from_the_cluster() -> None:
    found = {
        (path.name, call)
        for path in (CHART / "templates").rglob("*.*")
        for action in re.findall(r"\{\{-?(?!\s*/\*)(.*?)-?\}\}", path.read_text(), re.DOTALL)
        for call in CALL.findall(re.sub(r'"[^"]*"|`[^`]*`', '""', action))
    }
    assert found == set()


@pytest.mark.parametrize(
    "action",
    ['lookup "v1" "Secret" "" "x"', "randAlphaNum 8", "now | date `2006`", "$x := genCA 1", "(.Release.IsUpgrade)"],
)
def test_such_a_call_would_be_found(action: str) -> None:
    assert CALL.search(action)


def test_no_template_has_a_secret() -> None:
    assert [path.name for path in (CHART / "templates").rglob("*.yaml") if "kind: Secret" in path.read_text()] == []


def test_the_operator_creates_the_keys_where_the_others_look_for_them(render: Render, told: Any) -> None:
    rendered = render()
    settings = told(rendered)
    assert settings.create_sandbox_key
    assert settings.sandbox_key_secret == "mcp-exec-sandbox-key"
    assert settings.api_keys_secret == rendered.environment("mcp-exec-gateway")["MCP_EXEC_API_KEYS_SECRET"]
    test = rendered.pods()["mcp-exec-test"]["containers"][0]
    (key,) = [each for each in test["env"] if each["name"] == "GATEWAY_API_KEY"]
    assert key["valueFrom"]["secretKeyRef"] == {"name": settings.initial_api_key_secret, "key": "api-key"}
    assert settings.service_account == rendered.pods()["mcp-exec-operator"]["serviceAccountName"]


def test_the_operator_starts_without_a_secret_and_the_others_wait_for_one(render: Render) -> None:
    pods = render().pods()
    mounted = {
        name: [volume["secret"] for volume in pod["volumes"] if "secret" in volume]
        for name, pod in pods.items()
        if "volumes" in pod
    }
    key = {"secretName": "mcp-exec-sandbox-key", "defaultMode": 0o440}
    assert mounted == {"mcp-exec-operator": [], "mcp-exec-gateway": [key], "mcp-exec-broker": [key]}


def test_the_initial_key_is_bounded_expires_and_is_no_approver(render: Render, told: Any) -> None:
    key = initial(told(render({"namespaces": ["agents", "batch"]})))
    unlimited = {name for name, value in key.limits if value is None}
    assert unlimited == {"pools", "tools", "users", "own"}, "what it may use, but not how much"
    assert (key.limits.max_concurrent, key.limits.requests_per_minute) == (50, 600)
    assert (key.namespace, key.valid_days, key.approver) == ("", 90, False)


def test_the_initial_key_is_made_by_the_values(render: Render, told: Any) -> None:
    limits = {"maxConcurrent": 2000000, "maxTimeoutSeconds": 60, "pools": ["default"]}
    limits |= {"requestsPerMinute": 1000000, "maxPriority": "Normal", "tools": ["github.*", "fs.read"]}
    limits |= {"users": ["team-a/*", "u-42"]}
    values = {"namespace": "batch", "limits": limits, "approver": True, "validDays": 0}
    key = initial(told(render({"namespaces": ["agents", "batch"], "gateway": {"initialApiKey": values}})))
    assert (key.namespace, key.valid_days, key.approver) == ("batch", 0, True)
    given = KeyLimits.model_validate(limits)
    assert key.limits.model_dump(include=given.model_fields_set) == given.model_dump(exclude_unset=True)


def test_the_initial_key_may_be_without_any_tool(render: Render, told: Any) -> None:
    assert initial(told(render({"gateway": {"initialApiKey": {"limits": {"tools": []}}}}))).limits.tools == []


def test_every_limit_of_a_key_is_a_value_of_the_initial_one() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = schema["properties"]["gateway"]["properties"]["initialApiKey"]["properties"]
    assert set(values["limits"]["properties"]) == {field.alias for field in KeyLimits.model_fields.values()}
    assert set(KeyEntry(sha256="0" * 64, namespace="agents").to_api()) - {"sha256"} <= set(values)
    assert {field.alias for field in InitialApiKey.model_fields.values()} == set(values) - {"create"}


def test_operator_and_gateway_have_the_same_bounds_of_stored_executions(render: Render) -> None:
    raised = {"maxStored": 1_000_000, "maxStoredBytes": 2**30}
    for values, expected in ((None, ("2000", "268435456")), (raised, ("1000000", "1073741824"))):
        rendered = render(values)
        for name in ("mcp-exec-operator", "mcp-exec-gateway"):
            found = rendered.environment(name)
            assert (found["MCP_EXEC_MAX_STORED"], found["MCP_EXEC_MAX_STORED_BYTES"]) == expected


def test_an_initial_key_for_a_namespace_that_is_not_served_is_refused(render: Render) -> None:
    with pytest.raises(AssertionError, match=r"gateway\.initialApiKey\.namespace is elsewhere"):
        render({"gateway": {"initialApiKey": {"namespace": "elsewhere"}}})


def test_without_an_initial_key_the_operator_creates_the_secret_for_others_alone(render: Render, told: Any) -> None:
    rendered = render({"gateway": {"initialApiKey": {"create": False}}})
    settings = told(rendered)
    assert (settings.api_keys_secret, settings.initial_api_key) == ("mcp-exec-api-keys", None)
    test = rendered.pods()["mcp-exec-test"]["containers"][0]
    assert "GATEWAY_API_KEY" not in [each["name"] for each in test["env"]]


def test_existing_secrets_are_used_and_none_is_made(render: Render, told: Any) -> None:
    rendered = render(
        {"sandboxKey": {"existingSecret": "our-key"}, "gateway": {"apiKeys": {"existingSecret": "our-callers"}}}
    )
    for name in ("mcp-exec-broker", "mcp-exec-gateway"):
        volumes = rendered.pods()[name]["volumes"]
        assert next(each for each in volumes if each["name"] == "sandbox-key")["secret"]["secretName"] == "our-key"
    assert rendered.environment("mcp-exec-gateway")["MCP_EXEC_API_KEYS_SECRET"] == "our-callers"
    role = rendered.one("Role", "mcp-exec-gateway-api-keys")
    assert role["rules"][0]["resourceNames"] == ["our-callers"]
    settings = told(rendered)
    assert (settings.sandbox_key_secret, settings.create_sandbox_key) == ("our-key", False)
    assert (settings.api_keys_secret, settings.initial_api_key_secret, settings.initial_api_key) == ("", "", None)
    rules = rendered.one("Role", "mcp-exec-operator-keys")["rules"]
    assert [(rule["resourceNames"], rule["verbs"]) for rule in rules] == [(["our-key"], ["get"])]
