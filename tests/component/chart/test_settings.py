"""Settings of a process as values of the chart: a declared one is in values.yaml, its schema and the environment."""

import re
import shutil
from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from hack.chart import documents, settings
from hack.chart.values import Values
from pydantic import Field
from tests.component.chart.conftest import CHART, Render

from mcp_exec_common.process.settings import ChartValue, ProcessSettings, Seconds
from mcp_exec_operator.settings import Settings as OperatorSettings


class MoreSettings(OperatorSettings):
    patience_seconds: Annotated[float, Field(gt=0), ChartValue("operator.sessions.patienceSeconds", Seconds)] = 7.0
    """Seconds of patience."""


@pytest.fixture
def more(tmp_path: Path) -> Path:
    """The chart for operators with one more setting."""
    processes = settings.PROCESSES | {"operator": MoreSettings}
    values = settings.add_settings(Values, processes)
    chart = shutil.copytree(CHART, tmp_path / "mcp-exec")
    (chart / "values.yaml").write_text(documents.build_values_yaml(values))
    (chart / "values.schema.json").write_text(documents.build_schema_json(values))
    (chart / "files" / "defaults.json").write_text(documents.build_defaults(values))
    (chart / "files" / "variables.json").write_text(settings.build_variables(processes))
    return chart


def find_patience(render: Render, chart: Path, given: Any) -> str | None:
    values = {"operator": {"sessions": {"patienceSeconds": given}}}
    return render(values, chart=chart).environment("mcp-exec-operator").get("MCP_EXEC_PATIENCE_SECONDS")


def test_a_setting_is_declared_once_for_values_schema_and_environment(
    helm4: Render, more: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (more / "values.yaml").read_text()
    assert "    # Seconds of patience.\n    patienceSeconds: 7\n" in text
    environment = helm4(chart=more).environment("mcp-exec-operator")
    assert environment["MCP_EXEC_PATIENCE_SECONDS"] == "7"
    assert find_patience(helm4, more, 9) == "9"
    assert find_patience(helm4, more, None) is None
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert MoreSettings.from_environment().patience_seconds == 7


@pytest.mark.parametrize("given", [0, 3601, 0.5, "long"])
def test_a_value_outside_the_bounds_of_its_setting_is_refused_by_its_name(
    helm4: Render, more: Path, given: object
) -> None:
    with pytest.raises(AssertionError, match="patienceSeconds"):
        find_patience(helm4, more, given)


@pytest.mark.parametrize(
    ("values", "process", "variable", "expected"),
    [
        ({"broker": {"maxCalls": 99_999}}, "broker", "MAX_CALLS", "99999"),
        ({"maxStoredBytes": 2**40}, "gateway", "MAX_STORED_BYTES", str(2**40)),
        ({"gateway": {"docs": False}}, "gateway", "DOCS", "false"),
        ({"gateway": {"drainSeconds": 0}}, "gateway", "DRAIN_SECONDS", "0"),
        ({"gateway": {"trustedProxies": ["::/128", "10.0.0.0/8"]}}, "gateway", "TRUSTED_PROXIES", "::/128,10.0.0.0/8"),
        ({"gateway": {"trustedProxies": []}}, "gateway", "TRUSTED_PROXIES", None),
        ({"gateway": {"publicUrl": ""}}, "gateway", "PUBLIC_URL", None),
        ({"gateway": {"mcp": None}}, "gateway", "ALLOWED_HOSTS", None),
        ({"broker": {"files": {"enabled": False}}}, "broker", "FILES_FILE_BYTES", None),
        ({"broker": {"files": {"enabled": True}}}, "broker", "FILES_ARTIFACT_TTL_SECONDS", str(7 * 24 * 3600)),
        ({"broker": {"records": {"enabled": False}}}, "operator", "RECORDS_CODE", None),
        ({"broker": {"replicas": 2}}, "broker", "RECORDS_KEEP_DAYS", None),
        ({"metrics": {"enabled": False}}, "operator", "METRICS", "false"),
    ],
)  # fmt: skip
def test_a_value_is_a_variable_as_the_process_reads_it(
    helm4: Render, values: dict[str, Any], process: str, variable: str, expected: str | None
) -> None:
    assert helm4(values).environment(f"mcp-exec-{process}").get(f"MCP_EXEC_{variable}") == expected


class Unplaced(ProcessSettings):
    depth: Annotated[int, ChartValue("operator.fathoms.depth")] = 1
    """Depth."""


class Taken(ProcessSettings):
    replicas: Annotated[int, ChartValue("operator.replicas")] = 1
    """Replicas."""


class TakenByAll(ProcessSettings):
    affinity: Annotated[int, ChartValue("gateway.affinity")] = 1
    """Affinity."""


class Other(ProcessSettings):
    max_calls: Annotated[int, ChartValue("broker.maxCalls")] = 1
    """Calls."""


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (Unplaced, "hack/chart declares no operator.fathoms, which is on the path of a setting's value"),
        (Taken, "operator.replicas is declared by hack/chart and by settings"),
        (TakenByAll, "gateway.affinity is declared by hack/chart and by settings"),
        (Other, "broker.maxCalls is declared by two fields of settings"),
    ],
)
def test_a_value_has_one_declaration_and_a_place(declared: type[ProcessSettings], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        settings.add_settings(Values, settings.PROCESSES | {"another": declared})


def test_no_template_names_a_variable_that_a_setting_declares() -> None:
    declared = {each["name"] for group in yaml.safe_load(settings.build_variables()).values() for each in group}
    text = "\n".join(path.read_text() for path in CHART.rglob("templates/**/*") if path.is_file())
    # how long the gateway answers after it drained follows from the longest wait
    assert declared & set(re.findall(r"MCP_EXEC_\w+", text)) == {"MCP_EXEC_SHUTDOWN_SECONDS"}
