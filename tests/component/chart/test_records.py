"""Records: a volume of one broker, or a database of several."""

from typing import Any

import pytest
from tests.component.chart.conftest import ONE_AT_A_TIME, Render, Rendered

from mcp_exec_broker.settings import Settings


def broker(rendered: Rendered) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the volumes of the broker's pod, and its variables on records."""
    spec = rendered.one("Deployment", "mcp-exec-broker")["spec"]["template"]["spec"]
    env = {entry["name"]: entry.get("value", "") for entry in spec["containers"][0]["env"]}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    return volumes, {name: value for name, value in env.items() if name.startswith("MCP_EXEC_RECORDS_")}


def test_audit_and_records_outlive_a_pod_by_default(render: Render) -> None:
    rendered = render()
    volumes, env = broker(rendered)
    assert env["MCP_EXEC_RECORDS_FILE"]
    assert rendered.names("PersistentVolumeClaim") == ["mcp-exec-broker-audit", "mcp-exec-broker-records"]
    for name in ("audit", "records"):
        assert volumes[f"{name}-claim"]["persistentVolumeClaim"]["claimName"] == f"mcp-exec-broker-{name}"
    assert rendered.environment("mcp-exec-operator")["MCP_EXEC_RECORDS"] == "true"


def test_several_brokers_keep_what_they_can_share(render: Render) -> None:
    rendered = render({"broker": {"replicas": 2}})
    volumes, env = broker(rendered)
    assert (env, {"records", "records-claim"} & volumes.keys(), volumes["audit"].keys()) == (
        {},
        set(),
        {"name", "emptyDir"},
    )
    assert "MCP_EXEC_RECORDS" not in rendered.environment("mcp-exec-operator")
    assert not rendered.all("PersistentVolumeClaim")
    _, env = broker(render({"broker": {"replicas": 2, "records": {"database": {"secret": "db"}}}}))
    assert "MCP_EXEC_RECORDS_DATABASE_FILE" in env


def test_records_can_be_left_out(render: Render) -> None:
    rendered = render({"broker": {"records": {"enabled": False}, "audit": {"persistence": {"enabled": False}}}})
    volumes, env = broker(rendered)
    assert (env, {"records", "records-claim"} & volumes.keys()) == ({}, set())
    assert not rendered.all("PersistentVolumeClaim")


def test_records_are_on_a_volume_that_outlives_the_release(render: Render) -> None:
    rendered = render({"broker": {"records": {"enabled": True, "volume": {"storageClass": "fast"}}}})
    volumes, env = broker(rendered)
    claim = rendered.one("PersistentVolumeClaim", "mcp-exec-broker-records")
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert claim["spec"]["storageClassName"] == "fast"
    assert volumes["records-claim"]["persistentVolumeClaim"]["claimName"] == "mcp-exec-broker-records"
    assert rendered.one("Deployment", "mcp-exec-broker")["spec"]["strategy"] == ONE_AT_A_TIME
    assert {name.removeprefix("MCP_EXEC_").lower() for name in env} <= Settings.model_fields.keys()


def test_several_brokers_share_the_records_of_a_database(render: Render) -> None:
    records = {"enabled": True, "database": {"secret": "db"}}
    rendered = render({"broker": {"replicas": 2, "records": records}})
    volumes, env = broker(rendered)
    assert volumes["records-database"]["secret"]["secretName"] == "db"
    assert env["MCP_EXEC_RECORDS_DATABASE_FILE"] == "/etc/mcp-exec/records-database/url"
    assert not rendered.all("PersistentVolumeClaim")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"replicas": 2, "records": {"enabled": True}}, "needs broker.replicas: 1"),
        ({"records": {"enabled": True, "database": {"secret": "db"}, "volume": {"temporary": True}}}, "choose one"),
        ({"records": {"enabled": True, "volume": {"size": "1Gi"}}}, "must be at least 256 MiB"),
    ],
)
def test_values_that_do_not_fit_are_refused(render: Render, values: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        render({"broker": values})


@pytest.mark.parametrize(
    "values",
    [
        {"records": {"enabled": True, "volume": {"existingClaim": "mine"}}},
        {"audit": {"persistence": {"enabled": True, "existingClaim": "mine"}}},
    ],
    ids=str,
)
def test_a_claim_that_two_nodes_may_share_has_one_pod_with_sqlite_at_a_time(
    render: Render, values: dict[str, Any]
) -> None:
    assert render({"broker": values}).one("Deployment", "mcp-exec-broker")["spec"]["strategy"] == {"type": "Recreate"}
