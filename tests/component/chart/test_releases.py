"""Values of earlier releases: each whole file renders with this chart, as `helm upgrade --reuse-values` sends it."""

import json
import shutil
import subprocess
from pathlib import Path

import helm_python
import pytest
import yaml
from tests.component.chart.conftest import CHART, Render
from tests.support.pace import paced

from mcp_exec_api.wire.version import RELEASE

UNRELEASED = sorted((Path(__file__).parents[2] / "data" / "values" / "unreleased").glob("*.yaml"))
"""Values of revisions that were never released, and that many clusters had."""
VALUES = sorted((Path(__file__).parents[2] / "data" / "values").glob("*.yaml"))


@pytest.mark.parametrize("path", VALUES, ids=lambda path: path.stem)
def test_the_values_of_an_earlier_release_render(render: Render, path: Path) -> None:
    rendered = render(yaml.safe_load(path.read_text()))
    assert {"mcp-exec-operator", "mcp-exec-gateway"} <= set(rendered.names("Deployment"))
    assert rendered.one("SandboxPool", "default")["spec"]["image"]


def reuse(values: Path, folder: Path, name: str = "mcp-exec") -> Path:
    """Return the chart with other values as its own, as `helm upgrade --reuse-values` renders it."""
    for chart in CHART.parent.iterdir():
        shutil.copytree(chart, folder / chart.name)
    (folder / "mcp-exec" / "values.yaml").write_text(values.read_text())
    return folder / name


def command(helm: str, chart: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Render a chart by Helm's command."""
    release = {"mcp-exec-cluster": "mcp-exec-cluster"}.get(chart.name, "mcp-exec")
    arguments = [helm, "template", release, str(chart), "--namespace", "mcp-exec-system", *options]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=paced(60), check=False)


@pytest.mark.parametrize("name", ["mcp-exec", "mcp-exec-cluster"])
@pytest.mark.parametrize("path", VALUES, ids=lambda path: path.stem)
def test_reused_values_of_an_earlier_release_get_the_defaults_that_they_lack(
    helm: str, path: Path, name: str, tmp_path: Path
) -> None:
    reused = command(helm, reuse(path, tmp_path, name))
    passed = command(helm, CHART.parent / name, "--values", str(path))
    assert (reused.returncode, reused.stderr) == (0, "")
    assert reused.stdout == passed.stdout


def test_reused_values_that_were_set_stay_whatever_they_are(helm: str, tmp_path: Path) -> None:
    (path,) = [path for path in VALUES if path.stem == "0.1.0"]
    options = ["--set", "broker.enabled=false,gateway.replicas=3,operator.resyncSeconds=33,createNamespaces=false"]
    reused = command(helm, reuse(path, tmp_path), *options)
    passed = command(helm, CHART, "--values", str(path), *options)
    assert (reused.returncode, reused.stderr) == (0, "")
    assert reused.stdout == passed.stdout


@pytest.mark.parametrize("path", UNRELEASED, ids=lambda path: path.stem)
def test_values_that_the_chart_no_longer_has_are_refused_by_their_names(helm: str, path: Path, tmp_path: Path) -> None:
    reused = command(helm, reuse(path, tmp_path))
    assert reused.returncode != 0
    assert "nil pointer" not in reused.stderr
    assert "values don't meet the specifications of the schema" in reused.stderr


def test_every_template_completes_the_values_first() -> None:
    for folder in CHART.parent.iterdir():
        for path in (folder / "templates").rglob("*"):
            if path.is_file() and not path.name.startswith("_"):
                assert path.read_text().startswith('{{- include "mcp-exec.completeValues" . }}\n'), path


def test_the_first_release_is_there() -> None:
    assert [path.stem for path in VALUES][:1] == ["0.1.0"]


RENAMES = json.loads((CHART / "files" / "renames.json").read_text())["renames"]


def resync(values: dict[str, object], render: Render) -> str:
    return render({"operator": values}).environment("mcp-exec-operator")["MCP_EXEC_RESYNC_SECONDS"]


def notes(values: dict[str, object]) -> list[str]:
    """Return the warnings of the notes that Helm prints."""
    with helm_python.Chart.load(str(CHART)) as chart:
        files = chart.render(values, name="mcp-exec", namespace="mcp-exec-system")
    return [line for line in files["mcp-exec/templates/NOTES.txt"].splitlines() if line.startswith("WARNING")]


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        ({}, "20"),
        ({"resyncSeconds": 41}, "41"),
        ({"sweepSeconds": 42}, "42"),
        ({"sweepSeconds": 42, "resyncSeconds": 42}, "42"),
    ],
)
def test_a_renamed_value_has_both_names(render: Render, helm3: Render, values: dict[str, object], seconds: str) -> None:
    assert resync(values, render) == resync(values, helm3) == seconds


def test_a_value_that_is_set_by_both_names_is_refused(render: Render, helm3: Render) -> None:
    message = "operator.sweepSeconds and operator.resyncSeconds are one value with two names, and have different values"
    for each in (render, helm3):
        with pytest.raises(AssertionError, match=message):
            each({"operator": {"sweepSeconds": 42, "resyncSeconds": 41}})


def test_a_renamed_value_is_checked_as_before(render: Render) -> None:
    with pytest.raises(AssertionError, match="sweepSeconds"):
        render({"operator": {"sweepSeconds": "soon"}})


def test_the_notes_warn_of_a_former_name_and_say_when_it_goes() -> None:
    (rename,) = [each for each in RENAMES if each["old"] == "operator.sweepSeconds"]
    assert notes({"operator": {"sweepSeconds": 42}}) == [
        "WARNING: the value operator.sweepSeconds is operator.resyncSeconds now. "
        f"Rename it: from {rename['until']} on, the former name is refused."
    ]
    assert notes({"operator": {"resyncSeconds": 42}}) == []


@pytest.mark.parametrize("rename", RENAMES, ids=lambda each: str(each["old"]))
def test_a_former_name_goes_in_its_release_and_until_then_templates_read_both(rename: dict[str, str]) -> None:
    assert [int(each) for each in RELEASE.partition("-")[0].split(".")] < [int(e) for e in rename["until"].split(".")]
    texts = [path.read_text() for path in (CHART / "templates").rglob("*") if path.is_file()]
    assert not any(f".Values.{rename['new']}" in text for text in texts)
    assert any(f'"{rename["new"]}"' in text for text in texts)
