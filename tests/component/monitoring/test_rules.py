"""Prometheus' own checks of the rules: each alert fires on the series that it is for, and not on healthy ones."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hack.monitoring.__main__ import BOARDS
from hack.monitoring.alerts import ALERTS
from hack.monitoring.panels import substitute
from hack.monitoring.rules import ANY_RELEASE
from tests.support.pace import paced

ROOT = Path(__file__).parents[3]
RULES = ROOT / "charts/mcp-exec/rules/mcp-exec.yaml"
PROMTOOL = shutil.which("promtool")

pytestmark = pytest.mark.skipif(PROMTOOL is None, reason="needs promtool, which Debian's package `prometheus` has")

POOL = 'namespace="agents",pool="default"'
GOOD = f'mcp_exec_executions_total{{phase="Succeeded",reason="",start="Warm",{POOL}}}'
COLD = f'mcp_exec_executions_total{{phase="Succeeded",reason="",start="Cold",{POOL}}}'
LOST = f'mcp_exec_executions_total{{phase="Failed",reason="SandboxLost",start="Warm",{POOL}}}'
WRONG = f'mcp_exec_executions_total{{phase="Failed",reason="UserError",start="Warm",{POOL}}}'
QUEUED = f'mcp_exec_execution_stage_seconds_bucket{{{POOL},stage="queued",le="%s"}}'
TOTAL = f'mcp_exec_execution_stage_seconds_bucket{{{POOL},stage="total",le="%s"}}'
MEMORY = 'process_resident_memory_bytes{job="broker",instance="a"}'
LIMIT = 'mcp_exec_memory_limit_bytes{job="broker",instance="a",component="broker"}'
CALLS = 'mcp_exec_broker_calls_total{server="agents/box",mode="code",outcome="%s"}'
REQUESTS = 'mcp_exec_gateway_requests_total{route="/v1/executions",method="POST",code="%s"}'
UP, NEVER = "0+%dx60", "0x60"
"""Values of a counter that grows each minute, and of one that does not."""

HEALTHY: dict[str, str] = {
    "mcp_exec_leader": "1x60",
    "mcp_exec_namespaces_refused": "0x60",
    "mcp_exec_gateway_waiters": "0x60",
    "mcp_exec_broker_calls_active": "0x60",
    GOOD: UP % 100,
    COLD: UP % 1,
    WRONG: UP % 40,
    QUEUED % "0.01": UP % 99,
    QUEUED % "+Inf": UP % 100,
    f"mcp_exec_pool_queued{{{POOL}}}": "3x60",
    f'mcp_exec_pod_failures_total{{{POOL},reason="Failed"}}': NEVER,
    REQUESTS % "200": UP % 100,
    REQUESTS % "503": UP % 1,
    "mcp_exec_resync_failures_total": NEVER,
    'mcp_exec_events_dropped_total{reason="TooMany"}': NEVER,
    CALLS % "ok": UP % 50,
    CALLS % "error": UP % 1,
    'mcp_exec_broker_connects_total{outcome="failed"}': NEVER,
    "mcp_exec_broker_approvals_pending": "0x60",
    'mcp_exec_broker_files_collections_total{outcome="failed"}': NEVER,
    "mcp_exec_records_pending": "0x5 3 0x54",
    'mcp_exec_rollout_phase{namespace="agents",rollout="code-mode",phase="RolledBack"}': NEVER,
    MEMORY: "300000000x60",
    LIMIT: "536870912x60",
}

FAULTS: dict[str, dict[str, str]] = {
    "McpExecNoLeader": {"mcp_exec_leader": "0x60"},
    "McpExecGatewayAbsent": {"mcp_exec_gateway_waiters": ""},
    "McpExecBrokerAbsent": {"mcp_exec_broker_calls_active": "0x20 stale _x39"},
    "McpExecNamespacesRefused": {"mcp_exec_namespaces_refused": "1x60"},
    "McpExecPlatformFaults": {LOST: UP % 20},
    "McpExecExecutionsWait": {QUEUED % "0.01": UP % 90, QUEUED % "10": UP % 100},
    "McpExecQueueGrows": {f"mcp_exec_pool_queued{{{POOL}}}": "40x60"},
    "McpExecFewWarmHits": {COLD: UP % 60},
    "McpExecPodsFail": {f'mcp_exec_pod_failures_total{{{POOL},reason="Failed"}}': UP % 2},
    "McpExecGatewayErrors": {REQUESTS % "503": UP % 20},
    "McpExecResyncsFail": {"mcp_exec_resync_failures_total": UP % 2},
    "McpExecEventsDropped": {'mcp_exec_events_dropped_total{reason="TooMany"}': UP % 1},
    "McpExecToolCallsFail": {CALLS % "error": UP % 40},
    "McpExecServersUnreachable": {'mcp_exec_broker_connects_total{outcome="failed"}': UP % 5},
    "McpExecApprovalsWait": {"mcp_exec_broker_approvals_pending": "2x60"},
    "McpExecFilesNotCollected": {'mcp_exec_broker_files_collections_total{outcome="failed"}': UP % 1},
    "McpExecRecordsPending": {"mcp_exec_records_pending": "2x60"},
    "McpExecRolloutRolledBack": {
        'mcp_exec_rollout_phase{namespace="agents",rollout="code-mode",phase="RolledBack"}': "1x60"
    },
    "McpExecSlowerThanTarget": {TOTAL % "2.5": UP % 90, TOTAL % "5": UP % 100, TOTAL % "+Inf": UP % 100}
    | {"mcp_exec:target_seconds": "2x60"},
    "McpExecFailuresAboveTarget": {"mcp_exec:target_failures_ratio": "0.1x60"},
    "McpExecErrorBudgetBurns": {"mcp_exec:target_failures_ratio": "0.01x60"},
    "McpExecMemoryNearLimit": {MEMORY: "470000000x60"},
}
"""The series that differ from healthy ones, for each alert."""
ALSO = {"McpExecErrorBudgetBurns": {"McpExecFailuresAboveTarget"}}
"""Alerts that fire with another one, whose condition includes theirs."""
OWN, NEIGHBOUR = "mcp-exec-system.mcp-exec", "tools.plat-mcp-exec"


def promtool(*arguments: str, folder: Path) -> str:
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, *arguments], cwd=folder, capture_output=True, text=True, timeout=paced(60), check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def case(series: dict[str, str], *, fires: str = "") -> dict[str, Any]:
    """A case of promtool: after 50 minutes, that alert fires and no other does."""
    given = [{"series": name, "values": values} for name, values in (HEALTHY | series).items() if values]
    expected = [
        {"eval_time": "50m", "alertname": alert.name, "exp_alerts": []}
        for alert in ALERTS
        if alert.name not in {fires, *ALSO.get(fires, ())}
    ]
    return {"interval": "1m", "name": fires or "healthy", "input_series": given, "alert_rule_test": expected}


def firing(name: str, series: dict[str, str]) -> dict[str, Any]:
    """A case where promtool finds the alert, by the series ALERTS that Prometheus writes itself."""
    return case(series, fires=name) | {
        "promql_expr_test": [
            {
                "expr": f'count by (alertname) (ALERTS{{alertname="{name}", alertstate="firing"}}) > bool 0',
                "eval_time": "50m",
                "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1}],
            }
        ]
    }


def of_release(release: str, series: dict[str, str]) -> list[dict[str, str]]:
    """The series as a scrape of that release labels them."""
    labelled = {
        f'{name[:-1]},release="{release}"}}' if name.endswith("}") else f'{name}{{release="{release}"}}': values
        for name, values in (HEALTHY | series).items()
    }
    return [{"series": name, "values": values} for name, values in labelled.items() if values]


def rules_of(tmp_path: Path, *releases: str) -> list[str]:
    """The rules as the chart installs them for each release."""
    paths = []
    for number, release in enumerate(releases):
        paths.append(tmp_path / f"rules-{number}.yaml")
        paths[-1].write_text(RULES.read_text().replace(ANY_RELEASE, f'release="{release}"'))
    return list(map(str, paths))


def run_cases(tmp_path: Path, *cases: dict[str, Any]) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": list(cases)}))
    promtool("test", "rules", str(path), folder=tmp_path)


def test_the_rules_pass_prometheus_own_check(tmp_path: Path) -> None:
    assert "SUCCESS" in promtool("check", "rules", str(RULES), folder=tmp_path)


def test_prometheus_parses_every_query_of_every_board(tmp_path: Path) -> None:
    rules = [
        {"record": f"board:{board.name}:{number}", "expr": substitute(expr, window="1m", span="1h")}
        for board in BOARDS
        for number, expr in enumerate(board.list_queries())
    ]
    path = tmp_path / "boards.json"
    path.write_text(json.dumps({"groups": [{"name": "boards", "rules": rules}]}))
    promtool("check", "rules", str(path), folder=tmp_path)


def test_no_alert_fires_while_all_is_well(tmp_path: Path) -> None:
    run_cases(tmp_path, case({}))


@pytest.mark.parametrize("alert", [alert.name for alert in ALERTS])
def test_each_alert_fires_on_its_fault_and_no_other_does(alert: str, tmp_path: Path) -> None:
    run_cases(tmp_path, firing(alert, FAULTS[alert]))


@pytest.mark.parametrize("is_installed_by_chart", [True, False], ids=["rules of each release", "one file of rules"])
@pytest.mark.parametrize("alert", [alert.name for alert in ALERTS])
def test_each_alert_fires_for_the_release_that_has_the_fault_and_not_for_its_neighbour(
    alert: str, is_installed_by_chart: bool, tmp_path: Path
) -> None:
    if not is_installed_by_chart and alert == "McpExecGatewayAbsent":
        # a file of rules does not know the releases, so it finds one by its series of the last day
        fault = {"mcp_exec_gateway_waiters": "0x20 stale _x39"}
    else:
        fault = FAULTS[alert]
    firing = f'count by (alertname, release) (ALERTS{{alertname="{alert}", alertstate="firing"}}) > bool 0'
    found = {"labels": f'{{alertname="{alert}", release="{NEIGHBOUR}"}}', "value": 1}
    of_both = case({}) | {
        "name": alert,
        "input_series": of_release(OWN, {}) + of_release(NEIGHBOUR, fault),
        "alert_rule_test": [
            {"eval_time": "50m", "alertname": other.name, "exp_alerts": []}
            for other in ALERTS
            if other.name not in {alert, *ALSO.get(alert, ())}
        ],
        "promql_expr_test": [{"expr": firing, "eval_time": "50m", "exp_samples": [found]}],
    }
    rules = rules_of(tmp_path, OWN, NEIGHBOUR) if is_installed_by_chart else [str(RULES)]
    path = tmp_path / "cases.yaml"
    path.write_text(yaml.safe_dump({"rule_files": rules, "evaluation_interval": "1m", "tests": [of_both]}))
    promtool("test", "rules", str(path), folder=tmp_path)


def test_what_keeps_its_targets_raises_no_alert(tmp_path: Path) -> None:
    kept = {TOTAL % "1": UP % 100, TOTAL % "+Inf": UP % 100, WRONG: NEVER}
    run_cases(tmp_path, case(kept | {"mcp_exec:target_seconds": "2x60", "mcp_exec:target_failures_ratio": "0.01x60"}))


def test_what_misses_a_target_that_nobody_set_raises_no_alert(tmp_path: Path) -> None:
    run_cases(tmp_path, case({TOTAL % "10": UP % 1, TOTAL % "+Inf": UP % 100}))


def test_an_installation_without_a_broker_raises_no_alert(tmp_path: Path) -> None:
    series = {name: "" for name in HEALTHY if name.startswith("mcp_exec_broker_")}
    run_cases(tmp_path, case(series))
