"""Values of earlier releases: each whole file renders with this chart, as `helm upgrade --reuse-values` sends it."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.component.chart.conftest import CHART, Render
from tests.support.pace import paced

FOLDER = Path(__file__).parents[2] / "data" / "values"
FEWEST = "defaultsOf: 0.0.1\nnamespaces: [agents]\n"
"""Values of a release that had almost none of today's."""
VALUES = {"fewest": FEWEST} | {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.yaml"))}
"""Whole files of values: `make release` adds those of each release."""
each_release = pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)


@each_release
def test_the_values_of_an_earlier_release_render(render: Render, values: str) -> None:
    rendered = render(yaml.safe_load(values))
    assert {"mcp-exec-operator", "mcp-exec-gateway"} <= set(rendered.names("Deployment"))
    assert rendered.one("SandboxPool", "default")["spec"]["image"]


def reuse(values: str, folder: Path, name: str = "mcp-exec") -> Path:
    """Return the chart with other values as its own, as `helm upgrade --reuse-values` renders it."""
    for chart in CHART.parent.iterdir():
        shutil.copytree(chart, folder / chart.name)
    (folder / "mcp-exec" / "values.yaml").write_text(values)
    return folder / name


def command(helm: str, chart: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Render a chart by Helm's command."""
    release = {"mcp-exec-cluster": "mcp-exec-cluster"}.get(chart.name, "mcp-exec")
    arguments = [helm, "template", release, str(chart), "--namespace", "mcp-exec-system", *options]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=paced(60), check=False)


@pytest.mark.parametrize("name", ["mcp-exec", "mcp-exec-cluster"])
@each_release
def test_reused_values_of_an_earlier_release_get_the_defaults_that_they_lack(
    helm: str, values: str, name: str, tmp_path: Path
) -> None:
    reused = command(helm, reuse(values, tmp_path, name))
    passed = command(helm, CHART.parent / name, "--values", str(tmp_path / "mcp-exec" / "values.yaml"))
    assert (reused.returncode, reused.stderr) == (0, "")
    assert reused.stdout == passed.stdout


def test_reused_values_that_were_set_stay_whatever_they_are(helm: str, tmp_path: Path) -> None:
    options = ["--set", "broker.enabled=false,gateway.replicas=3,operator.resyncSeconds=33,createNamespaces=false"]
    reused = command(helm, reuse(FEWEST, tmp_path), *options)
    passed = command(helm, CHART, *options)
    assert (reused.returncode, reused.stderr) == (0, "")
    assert reused.stdout == passed.stdout


def test_values_that_the_chart_no_longer_has_are_refused_by_their_names(helm: str, tmp_path: Path) -> None:
    reused = command(helm, reuse(f"{FEWEST}operator: {{sweepSeconds: 20}}\n", tmp_path))
    assert reused.returncode != 0
    assert "nil pointer" not in reused.stderr
    assert "values don't meet the specifications of the schema" in reused.stderr
    assert "sweepSeconds" in reused.stderr


def test_every_template_completes_the_values_first() -> None:
    for folder in CHART.parent.iterdir():
        for path in (folder / "templates").rglob("*"):
            if path.is_file() and not path.name.startswith("_"):
                assert path.read_text().startswith('{{- include "mcp-exec.completeValues" . }}\n'), path
