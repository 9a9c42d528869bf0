"""Keys: made at random, said nowhere else, or those of an existing Secret."""

import base64
import hashlib
import json
import re
from datetime import datetime, timedelta

import pytest
from tests.component.chart.conftest import CHART, Render, Rendered

from mcp_exec_api.meta import now
from mcp_exec_api.wire.stats import KeyLimits
from mcp_exec_gateway.auth.api_keys import KeyEntry


def secret(rendered: Rendered, name: str) -> dict[str, str]:
    data = rendered.one("Secret", name).get("data") or {}
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


def test_the_sandbox_key_is_long_random_and_restarts_pods_when_it_changes(render: Render) -> None:
    first, second = render(), render()
    keys = [secret(each, "mcp-exec-sandbox-key")["key"] for each in (first, second)]
    assert len(keys[0]) == 64
    assert keys[0] != keys[1]
    for deployment in first.all("Deployment"):
        digest = deployment["spec"]["template"]["metadata"]["annotations"]["checksum/sandbox-key"]
        assert digest == hashlib.sha256(keys[0].encode()).hexdigest()


def test_the_initial_key_is_stored_hashed_beside_others_and_plain_in_a_secret_of_its_own(render: Render) -> None:
    rendered = render({"namespaces": ["agents", "batch"]})
    key = secret(rendered, "mcp-exec-initial-api-key")["api-key"]
    assert re.fullmatch(r"mcpx_[A-Za-z0-9]{43}", key)
    entry = json.loads(secret(rendered, "mcp-exec-api-keys")["initial"])
    assert (entry["sha256"], entry["namespace"]) == (hashlib.sha256(key.encode()).hexdigest(), "agents")


def test_the_initial_key_is_bounded_expires_and_is_no_approver(render: Render) -> None:
    rendered = render()
    entry = KeyEntry.model_validate_json(secret(rendered, "mcp-exec-api-keys")["initial"], strict=True)
    assert entry.limits == KeyLimits(max_concurrent=50, requests_per_minute=600)
    assert not entry.approver
    assert entry.expires_at is not None
    assert timedelta(days=89) < entry.expires_at - now() < timedelta(days=91)
    kept = rendered.one("Secret", "mcp-exec-initial-api-key")["metadata"]["annotations"]["mcp-exec.dev/expires-at"]
    assert datetime.fromisoformat(kept) == entry.expires_at


def test_the_initial_key_never_expires_if_the_values_say_so(render: Render) -> None:
    rendered = render({"gateway": {"initialApiKey": {"validDays": 0}}})
    assert "expiresAt" not in json.loads(secret(rendered, "mcp-exec-api-keys")["initial"])
    assert "annotations" not in rendered.one("Secret", "mcp-exec-initial-api-key")["metadata"]


def test_the_initial_keys_namespace_and_limits_are_values(render: Render) -> None:
    limits = {"maxConcurrent": 2000000, "maxTimeoutSeconds": 60, "pools": ["default"]}
    limits |= {"requestsPerMinute": 1000000, "maxPriority": "Normal", "tools": ["github.*", "fs.read"]}
    limits |= {"users": ["team-a/*", "u-42"]}
    rendered = render(
        {"namespaces": ["agents", "batch"], "gateway": {"initialApiKey": {"namespace": "batch", "limits": limits}}}
    )
    entry = json.loads(secret(rendered, "mcp-exec-api-keys")["initial"])
    assert entry["namespace"] == "batch"
    assert entry["limits"] == limits
    assert KeyEntry.model_validate_json(json.dumps(entry), strict=True).limits == KeyLimits.model_validate(limits)


def test_the_initial_key_may_be_an_approvers_and_may_be_without_any_tool(render: Render) -> None:
    rendered = render({"gateway": {"initialApiKey": {"approver": True, "limits": {"tools": []}}}})
    entry = json.loads(secret(rendered, "mcp-exec-api-keys")["initial"])
    assert (entry["approver"], entry["limits"]["tools"]) == (True, [])
    assert KeyEntry.model_validate_json(json.dumps(entry), strict=True).approver


def test_every_limit_of_a_key_is_a_value_of_the_initial_one() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    initial = schema["properties"]["gateway"]["properties"]["initialApiKey"]["properties"]
    assert set(initial["limits"]["properties"]) == {field.alias for field in KeyLimits.model_fields.values()}
    assert set(KeyEntry(sha256="0" * 64, namespace="agents").to_api()) - {"sha256"} <= set(initial)


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


def test_without_an_initial_key_the_secret_for_others_is_there_and_empty(render: Render) -> None:
    rendered = render({"gateway": {"initialApiKey": {"create": False}}})
    assert secret(rendered, "mcp-exec-api-keys") == {}
    assert rendered.names("Secret") == ["mcp-exec-api-keys", "mcp-exec-sandbox-key"]
    test = rendered.pods()["mcp-exec-test"]["containers"][0]
    assert "GATEWAY_API_KEY" not in [each["name"] for each in test["env"]]


def test_existing_secrets_are_used_and_none_is_made(render: Render) -> None:
    rendered = render(
        {"sandboxKey": {"existingSecret": "our-key"}, "gateway": {"apiKeys": {"existingSecret": "our-callers"}}}
    )
    assert rendered.all("Secret") == []
    for name in ("mcp-exec-operator", "mcp-exec-gateway"):
        volumes = rendered.pods()[name]["volumes"]
        assert next(each for each in volumes if each["name"] == "sandbox-key")["secret"]["secretName"] == "our-key"
    assert rendered.environment("mcp-exec-gateway")["MCP_EXEC_API_KEYS_SECRET"] == "our-callers"
    role = rendered.one("Role", "mcp-exec-gateway-api-keys")
    assert role["rules"][0]["resourceNames"] == ["our-callers"]


def test_no_key_stands_in_a_pods_spec(render: Render) -> None:
    rendered = render()
    keys = [*secret(rendered, "mcp-exec-sandbox-key").values(), *secret(rendered, "mcp-exec-initial-api-key").values()]
    assert len(keys) == 2
    others = json.dumps([item for item in rendered.objects if item["kind"] != "Secret"])
    assert not any(key in others for key in keys)


def test_added_api_keys_outlive_the_release(render: Render) -> None:
    annotations = render().one("Secret", "mcp-exec-api-keys")["metadata"]["annotations"]
    assert annotations == {"helm.sh/resource-policy": "keep"}
