"""Workspaces and artifacts: a volume of one broker, or a bucket of several."""

from typing import Any

import pytest
from tests.component.chart.conftest import ONE_AT_A_TIME, Render, Rendered

from mcp_exec_broker.settings import Settings


def broker(rendered: Rendered) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the spec of the broker's pod, and its variables on files."""
    spec = rendered.one("Deployment", "mcp-exec-broker")["spec"]["template"]["spec"]
    env = {entry["name"]: entry.get("value", "") for entry in spec["containers"][0]["env"]}
    return spec, {name: value for name, value in env.items() if name.startswith("MCP_EXEC_FILES_")}


def volumes(spec: dict[str, Any]) -> dict[str, Any]:
    return {volume["name"]: volume for volume in spec["volumes"]}


def test_no_files_are_stored_by_default(render: Render) -> None:
    spec, env = broker(render())
    assert env == {}
    assert "files" not in volumes(spec)


def test_files_are_on_a_volume_that_outlives_the_release(render: Render) -> None:
    rendered = render({"broker": {"files": {"enabled": True, "volume": {"size": "5Gi", "storageClass": "fast"}}}})
    spec, env = broker(rendered)
    claim = rendered.one("PersistentVolumeClaim", "mcp-exec-broker-files")
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert claim["spec"]["resources"]["requests"]["storage"] == "5Gi"
    assert claim["spec"]["storageClassName"] == "fast"
    assert volumes(spec)["files-claim"]["persistentVolumeClaim"]["claimName"] == "mcp-exec-broker-files"
    mount = next(each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "files-claim")
    assert env["MCP_EXEC_FILES_FOLDER"].startswith(mount["mountPath"])
    assert rendered.one("Deployment", "mcp-exec-broker")["spec"]["strategy"] == ONE_AT_A_TIME
    assert {name.removeprefix("MCP_EXEC_").lower() for name in env} <= Settings.model_fields.keys()


def test_files_are_in_a_bucket_for_several_brokers(render: Render) -> None:
    s3 = {"bucket": "b-1", "prefix": "p", "endpoint": "http://minio:9000", "region": "r", "credentialsSecret": "keys"}
    rendered = render({"broker": {"replicas": 3, "files": {"enabled": True, "s3": s3}}})
    spec, env = broker(rendered)
    given = [env[f"MCP_EXEC_FILES_{name}"] for name in ("BUCKET", "PREFIX", "ENDPOINT", "REGION")]
    assert given == ["b-1", "p", "http://minio:9000", "r"]
    assert volumes(spec)["files-credentials"]["secret"]["secretName"] == "keys"
    assert "MCP_EXEC_FILES_FOLDER" not in env
    assert not [claim for claim in rendered.all("PersistentVolumeClaim") if "files" in claim["metadata"]["name"]]


def test_a_temporary_volume_is_used_only_if_it_is_asked_for(render: Render) -> None:
    rendered = render({"broker": {"files": {"enabled": True, "volume": {"temporary": True}}}})
    assert volumes(broker(rendered)[0])["files"]["emptyDir"] == {"sizeLimit": "10Gi"}
    assert "mcp-exec-broker-files" not in rendered.names("PersistentVolumeClaim")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"replicas": 2, "files": {"enabled": True}}, "broker.replicas: 1"),
        ({"files": {"enabled": True, "s3": {"bucket": "abc"}, "volume": {"temporary": True}}}, "choose one"),
    ],
)
def test_a_volume_for_several_brokers_or_with_a_bucket_is_refused(
    render: Render, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        render({"broker": values})


def test_a_sandbox_reaches_the_port_for_calls_alone(render: Render) -> None:
    rendered = render({"broker": {"files": {"enabled": True}}})
    rules = rendered.one("NetworkPolicy", "mcp-exec-broker")["spec"]["ingress"]
    open_to_sandboxes = [
        [port["port"] for port in rule["ports"]] for rule in rules if "mcp-exec-sandbox" in str(rule["from"])
    ]
    assert open_to_sandboxes == [[8082]]
