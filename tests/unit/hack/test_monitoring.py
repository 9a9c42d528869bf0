"""Boards and rules: their files are generated, and their queries use metrics that the processes have."""

import json
import re
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from hack.monitoring.__main__ import BOARDS, list_files
from hack.monitoring.alerts import ALERTS
from hack.monitoring.grafana import build_board
from hack.monitoring.panels import Board, substitute
from hack.monitoring.recordings import CALLERS_OWN, RECORDINGS, TARGET_FAILURES, TARGET_SECONDS
from hack.monitoring.rules import RUNBOOKS, build_rules
from tests.support.metrics import known_series

from mcp_exec_api.reasons.execution import Reason

ROOT = Path(__file__).parents[3]
RUNBOOK_PAGE = ROOT / "docs/platform/runbooks.md"
RECORDED = {TARGET_SECONDS, TARGET_FAILURES, *(each.name for each in RECORDINGS)}
OF_TARGETS = {"release", "job", "instance"}
"""Labels that the scrape adds to each series."""
SECTIONS = ("**Meaning.**", "**Impact.**", "**Cause.**", "**Mend.**")

QUERIES = [
    *((board.name, expr) for board in BOARDS for expr in board.list_queries()),
    *((each.name, each.expr) for each in RECORDINGS),
    *((each.name, each.expr) for each in ALERTS),
]


def parse(expr: str) -> list[promql_parser.VectorSelector]:
    """Return the selectors of a query of a board or rule, in any depth."""
    found: list[promql_parser.VectorSelector] = []

    def visit(node: Any) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)

    promql_parser.walk(promql_parser.parse(substitute(expr, window="1m", span="1h")), visit)
    return found


def grouped_labels(expr: str) -> set[str]:
    """The labels that a query groups or joins by."""
    lists = re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", expr)
    return {label.strip() for text in lists for label in text.split(",")} - {""}


@pytest.mark.parametrize(("place", "expr"), QUERIES, ids=[f"{place}-{n}" for n, (place, _) in enumerate(QUERIES)])
def test_each_query_parses_and_uses_metrics_and_labels_that_exist(place: str, expr: str) -> None:
    known = known_series()
    found = parse(expr)
    assert found, f"{place} selects nothing"
    labels: set[str] = set()
    for selector in found:
        assert selector.name in known.keys() | RECORDED, f"{place}: no process has {selector.name}"
        own = known.get(selector.name or "", set())
        labels |= own
        if selector.name in known:
            asked = {matcher.name for matcher in selector.matchers.matchers}
            assert asked - OF_TARGETS <= own, f"{place}: {selector.name} has no label {asked - own}"
    if not {selector.name for selector in found} & RECORDED:
        assert grouped_labels(expr) - OF_TARGETS <= labels, (
            f"{place}: {grouped_labels(expr) - labels} is a label of no series"
        )


def test_each_rule_and_panel_tells_releases_apart() -> None:
    rules = yaml.safe_load(build_rules(RECORDINGS, ALERTS))["groups"]
    for rule in (rule for group in rules for rule in group["rules"]):
        for selector in parse(rule["expr"]):
            assert "release" in {matcher.name for matcher in selector.matchers.matchers}, rule["expr"]
    for board in BOARDS:
        content = json.loads(build_board(board))
        assert "release" in {variable["name"] for variable in content["templating"]["list"]}
        for expr in (target["expr"] for panel in content["panels"] for target in panel["targets"]):
            for selector in parse(expr):
                assert "release" in {matcher.name for matcher in selector.matchers.matchers}, expr


def test_panels_of_pools_show_the_pools_that_the_reader_chose() -> None:
    content = json.loads(build_board(next(board for board in BOARDS if board.name == "service")))
    assert [each["name"] for each in content["templating"]["list"]] == ["datasource", "release", "namespace", "pool"]
    queues = [panel["targets"][0]["expr"] for panel in content["panels"] if panel["title"] == "Queue"]
    assert 'pool=~"$pool"' in queues[0]


def test_a_query_on_an_unknown_metric_is_noticed() -> None:
    (found,) = parse('sum by (pool) (rate(mcp_exec_no_such_total{namespace=~"$namespace"}[$__rate_interval]))')
    assert found.name == "mcp_exec_no_such_total"
    assert found.name not in known_series()


def test_the_files_in_the_chart_are_those_that_the_types_generate() -> None:
    for path, text in list_files().items():
        assert path.read_text() == text, f"{path.name} differs: run `make generate`"
    boards = {path.name for path in (ROOT / "charts/mcp-exec/dashboards").iterdir()}
    assert boards == {f"{board.name}.json" for board in BOARDS}


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_panels_do_not_overlap_and_each_says_how_to_read_it(board: Board) -> None:
    content = json.loads(build_board(board))
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in content["panels"]]
    assert len(set(places)) == len(places)
    assert all(panel["description"].endswith(".") and panel["targets"] for panel in content["panels"])
    assert len({panel["title"] for panel in content["panels"]}) == len(places)


def test_each_alert_has_its_section_in_the_runbooks_and_links_to_it() -> None:
    text = RUNBOOK_PAGE.read_text()
    sections = dict(re.findall(r"^## (McpExec\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert list(sections) == [alert.name for alert in ALERTS]
    for name, section in sections.items():
        assert [part for part in SECTIONS if part not in section] == [], name
        assert "    kubectl" in section or "    mcp-exec" in section, f"{name} shows no command"
    rules = build_rules(RECORDINGS, ALERTS)
    assert all(f"{RUNBOOKS}#{alert.name.lower()}\n" in rules for alert in ALERTS)


def test_commands_of_runbooks_take_the_names_from_three_variables() -> None:
    first, *others = re.findall(r"(?:^    .*\n)+", RUNBOOK_PAGE.read_text(), re.MULTILINE)
    assert re.findall(r"^ +(\w+)=", first, re.MULTILINE) == ["system", "release", "namespace"]
    fixed = r"mcp-exec-(?:system|operator|gateway|broker)\b|\bagents\b"
    assert [line for block in others for line in block.splitlines() if re.search(fixed, line)] == []


def test_each_process_that_is_absent_has_a_case_for_no_pods() -> None:
    text = RUNBOOK_PAGE.read_text()
    sections = dict(re.findall(r"^## (McpExec\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    absent = ("McpExecNoLeader", "McpExecGatewayAbsent", "McpExecBrokerAbsent")
    assert [name for name in absent if "(#no-pods)" not in sections[name]] == []
    assert "kubectl get deployments,replicasets" in text


def test_a_new_reason_must_be_assigned_to_the_caller_or_the_platform() -> None:
    platform = {reason.value for reason in Reason if reason not in CALLERS_OWN}
    assert platform == {
        "", "NotObserved", "AwaitingApproval", "IsolationLost", "SandboxLost", "SupervisorDied", "StreamBroken",
        "NodeLost", "Evicted", "SessionLost", "PoolUnavailable", "PoolAtCapacity", "QueueFull", "QuotaExceeded",
        "LimitRangeExceeded",
        "RuntimeClassNotFound", "ImagePullFailed", "Unschedulable", "PodRefused", "PodChanged", "BrokerUnavailable",
        "WorkspaceUnavailable", "PodFailed", "PreimportFailed", "ProtocolMismatch",
    }  # fmt: skip
