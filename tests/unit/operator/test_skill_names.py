"""The skills that code names are found in its text, in bounded numbers."""

import pytest

from mcp_exec_operator.features.skills.resolver import MAX_NAMES, NamedSkills, find_skills


@pytest.mark.parametrize(
    ("code", "modules"),
    [
        ("from skills.report import run", ["report"]),
        ("import skills.report_v2 as r; skills.other.run()", ["report_v2", "other"]),
        ("from skills import report, chart as c\nx = 1", ["report", "chart", "as", "c"]),
        ("from skills import (\n  report,\n  chart,\n)", ["report", "chart"]),
        ("await run_skill('my-report', a=1)\nrun_skill( \"b\")", ["my_report", "b"]),
        ("myskills.report, a.skills.report, _skills.x, xrun_skill('y')", []),
        ("from myskills import report\nimport os", []),
        ("xfrom skills import report", []),
        ("skills.Report, skills.a-b", ["a"]),
        ("skills = 3", []),
    ],
)
def test_code_names_the_modules_below_skills(code: str, modules: list[str]) -> None:
    assert list(find_skills(code, "python").modules) == modules


@pytest.mark.parametrize(
    ("code", "searches"),
    [
        ("search_skills('x')", True),
        ("from tools import search_tools", True),
        ("search_toolsets(); research_tools()", False),
        ("from skills import a", False),
        ("x = 1", False),
    ],
)
def test_code_that_may_search_gets_the_catalog(code: str, searches: bool) -> None:
    assert find_skills(code, "python").searches is searches


def test_names_beyond_the_limit_are_ignored() -> None:
    named = find_skills(" ".join(f"skills.a{number}" for number in range(20_000)), "python")
    assert named == NamedSkills(modules=tuple(f"a{number}" for number in range(MAX_NAMES)))


def test_the_same_code_is_read_once() -> None:
    assert find_skills("skills.once", "python").modules is find_skills("skills." + "once", "python").modules


@pytest.mark.parametrize(
    ("code", "modules"),
    [
        ('import { run } from "skills/report";', ["report"]),
        ("import * as r from 'skills/report_v2'; await import(`skills/my-report`)", ["report_v2", "my_report"]),
        ('from skills.report import run; import "myskills/report"; skills/report', []),
        ('import "skills/Report"; import "skills/"', []),
        ("await runSkill('my-report', { a: 1 }); runSkill( `chart`); rerunSkill('x')", ["my_report", "chart"]),
    ],
)
def test_typescript_names_skills_by_the_texts_of_its_imports(code: str, modules: list[str]) -> None:
    assert list(find_skills(code, "typescript").modules) == modules


def test_typescript_searches_in_either_spelling() -> None:
    for code in ("await searchSkills('x')", "searchTools('x')", "search_skills('x')"):
        assert find_skills(code, "typescript").searches
    assert not find_skills("researchTools(); searchToolset()", "typescript").searches
