"""The company's network in the chart: authorities, and volumes of the user."""

from typing import Any

import pytest
from tests.component.chart.conftest import Object, Render, Rendered
from tests.component.chart.test_pod_settings import EVERYTHING

PROCESSES = ("operator", "gateway", "broker")
OUTGOING = ("gateway", "broker")
VOLUME = {"name": "agent", "hostPath": {"path": "/run/agent"}}
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
    return render({**EVERYTHING, **values, "caBundle": {"configMap": "company", "key": "all.pem"}})


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


def test_without_values_there_is_no_bundle(plain: Rendered) -> None:
    assert not any("MCP_EXEC_CA_BUNDLE" in plain.environment(f"mcp-exec-{process}") for process in PROCESSES)


@pytest.mark.parametrize("process", PROCESSES)
def test_volumes_of_the_user_are_mounted_beside_those_of_the_chart(company: Rendered, process: str) -> None:
    assert find_volume(company, process, "/run/agent") == VOLUME
    mounts = container(company, process)["volumeMounts"]
    assert MOUNT in mounts
    assert len({each["mountPath"] for each in mounts}) == len(mounts) > 2


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
