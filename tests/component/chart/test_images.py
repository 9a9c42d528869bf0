"""Images by digest: those of a released chart, and those of the values."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hack.artifacts import chart
from tests.component.chart.conftest import Render

from mcp_exec_api.wire.version import RELEASE

RELEASED = {
    name: f"sha256:{number:064x}" for number, name in enumerate(("sandbox", "operator", "gateway", "broker", "servers"))
}
OWN = f"sha256:{'f' * 64}"
ALL: dict[str, Any] = {
    "pool": {"warm": {"min": 1}},
    "prePull": {"enabled": True},
    "demoServers": {"calculator": {"enabled": True}},
}


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("released")
    return chart.package(folder, "mcp-exec", repository="registry.example/mcp-exec", digests=RELEASED)


def find_images(render: Render, released: Path, **values: Any) -> dict[str, str]:
    """Return every image that a release uses, by its name."""
    text = render({**ALL, **values}, chart=released).text
    listed = chart.list_images(list(yaml.safe_load_all(text)), repository=r"registry.example/mcp-exec")
    return {image.partition(":")[0].rpartition("mcp-exec-")[2]: image for image in listed}


def test_a_released_chart_pulls_all_images_by_the_digests_of_the_release(render: Render, released: Path) -> None:
    rendered = render(ALL, chart=released)
    expected = {
        name: f"registry.example/mcp-exec/mcp-exec-{name}:{RELEASE}@{digest}" for name, digest in RELEASED.items()
    }
    assert find_images(render, released) == expected
    assert rendered.one("SandboxPool", "default")["spec"]["image"] == expected["sandbox"]
    assert rendered.one("ToolServer", "calculator")["spec"]["stdio"]["image"] == expected["servers"]
    assert rendered.environment("mcp-exec-operator")["MCP_EXEC_SERVERS_IMAGE"] == expected["servers"]
    (daemon,) = rendered.all("DaemonSet")
    assert daemon["spec"]["template"]["spec"]["containers"][0]["image"] == expected["sandbox"]
    for name in ("operator", "gateway", "broker"):
        assert rendered.pods()[f"mcp-exec-{name}"]["containers"][0]["image"] == expected[name]


def test_a_mirror_of_the_release_has_its_digests(render: Render, released: Path) -> None:
    spec = render({"images": {"repository": "mirror.example"}}, chart=released).one("SandboxPool", "default")["spec"]
    assert spec["image"] == f"mirror.example/mcp-exec-sandbox:{RELEASE}@{RELEASED['sandbox']}"


@pytest.mark.parametrize(
    ("values", "image"),
    [
        ({"images": {"tag": "1"}}, "registry.example/mcp-exec/mcp-exec-gateway:1"),
        ({"gateway": {"image": {"tag": "1"}}}, "registry.example/mcp-exec/mcp-exec-gateway:1"),
        ({"gateway": {"image": {"repository": "own/gateway"}}}, f"own/gateway:{RELEASE}"),
        (
            {"images": {"tag": "1", "digests": {"gateway": OWN}}},
            f"registry.example/mcp-exec/mcp-exec-gateway:1@{OWN}",
        ),
        (
            {"images": {"digests": {"gateway": OWN}}, "gateway": {"image": {"repository": "own/gateway"}}},
            f"own/gateway:{RELEASE}@{OWN}",
        ),
    ],
)
def test_an_image_of_the_values_has_no_digest_but_its_own(
    render: Render, released: Path, values: dict[str, Any], image: str
) -> None:
    assert render(values, chart=released).pods()["mcp-exec-gateway"]["containers"][0]["image"] == image


def test_a_chart_of_a_checkout_has_tags(render: Render) -> None:
    assert render().one("SandboxPool", "default")["spec"]["image"] == f"localhost/mcp-exec-sandbox:{RELEASE}"


def test_what_is_no_digest_is_refused(render: Render) -> None:
    with pytest.raises(
        AssertionError, match=r'images\.digests\.broker is "latest"; it must be a digest: sha256: and 64'
    ):
        render({"images": {"digests": {"broker": "latest"}}})
