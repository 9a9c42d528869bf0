"""Values of earlier releases: each whole file renders with this chart, as `helm upgrade --reuse-values` sends it."""

from pathlib import Path

import pytest
import yaml
from tests.component.chart.conftest import Render

VALUES = sorted((Path(__file__).parents[2] / "data" / "values").glob("*.yaml"))


@pytest.mark.parametrize("path", VALUES, ids=lambda path: path.stem)
def test_the_values_of_an_earlier_release_render(render: Render, path: Path) -> None:
    rendered = render(yaml.safe_load(path.read_text()))
    assert {"mcp-exec-operator", "mcp-exec-gateway"} <= set(rendered.names("Deployment"))
    assert rendered.one("SandboxPool", "default")["spec"]["image"]


def test_the_first_release_is_there() -> None:
    assert [path.stem for path in VALUES][:1] == ["0.1.0"]
