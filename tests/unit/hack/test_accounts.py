"""The table of accounts: it has all that the roles grant and nothing else, and what it trusts stands in security.md."""

import re
from pathlib import Path

import pytest
from hack.accounts.model import Row, read_rows
from hack.accounts.rights import CHART, INCLUDED, list_rights
from hack.accounts.trust import Trust
from hack.chart.rbac import render_chart
from tests.component.accounts.samples import SAMPLES, find_sample

ROOT = Path(__file__).parents[3]
ROWS = read_rows()
WRITES = {"create", "update", "patch", "delete", "deletecollection"}
CONNECTION = re.compile(r"pods/(exec|attach|portforward|proxy)|services/proxy|.*/approval")
"""Kinds without a dry run: connections to pods, and what only the gateway asks for."""
OF_OTHERS = {"mcp-exec-definitions", "mcp-exec-secrets", "mcp-exec-server-status", "mcp-exec-status"}
"""Policies about what no role of tenants may do: the operator's Secrets and definitions, and each status."""


def test_every_right_of_the_roles_has_a_row_and_every_row_a_right() -> None:
    granted, _ = list_rights()
    stated = {right for row in ROWS for right in row.list_rights()}
    assert sorted(granted - stated) == []
    assert sorted(stated - granted) == []


def test_a_row_names_the_roles_with_the_fewest_rights() -> None:
    granted, _ = list_rights()
    fewer = {role: {each for each, including in INCLUDED.items() if role in including[1:]} for role in INCLUDED}
    for row in ROWS:
        lesser = set().union(*(fewer[role] for role in row.by))
        assert [
            each for each in granted if each.role in lesser and each.verb in row.verbs and each.kind in row.kinds
        ] == []


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_row_is_tried_unless_it_has_no_dry_run(row: Row) -> None:
    has_dry_run = set(row.verbs) <= WRITES and not any(CONNECTION.fullmatch(kind) for kind in row.kinds)
    assert bool(row.what) is has_dry_run
    assert {find_sample(what, kind).name for what in row.what for kind in row.kinds} or not has_dry_run


def test_every_sample_is_of_a_row() -> None:
    assert set(SAMPLES) == {what for row in ROWS for what in row.what}


def test_every_policy_of_the_chart_refuses_what_a_row_names_or_is_about_others() -> None:
    rendered = render_chart(CHART, values={"admissionPolicy": {"enabled": True}})
    names = {each["metadata"]["name"] for each in rendered if each["kind"] == "ValidatingAdmissionPolicy"}
    refusing = {policy for row in ROWS for policy in row.policies}
    assert refusing <= names
    assert names - refusing == OF_OTHERS


def test_what_is_trusted_stands_in_the_table_of_trust() -> None:
    page = (ROOT / "docs" / "platform" / "security.md").read_text()
    table = page.partition("\n## What is trusted\n")[2].partition("\n## ")[0]
    cells = [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines() if line.startswith("| ")]
    assert [trust for trust in Trust if trust not in cells] == []
    assert {row.because for row in ROWS if row.verdict == "trusted"} == set(Trust)
