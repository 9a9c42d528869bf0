"""The transcripts of the token benchmark, and the page that shows its figures."""

import json
import re
from typing import Any

import languages
import pytest
import token_report
import tokens
import transcripts
from token_costs import cost_of, dump
from token_rules import TURN

from mcp_exec_client.agent import HybridRules
from mcp_exec_client.agent.code_mode import TOOLS
from mcp_exec_tools.catalog import Catalog
from mcp_exec_tools.prompt import system_prompt
from mcp_exec_tools.search.index import Index
from mcp_exec_tools.text import estimate_tokens

RERUN = "run: python bench/tokens.py --write"
MAX_PROMPT_TOKENS = 1000
FOUND = {each.task: each for each in transcripts.load_transcripts()}
CATALOGS = transcripts.load_catalogs()
FIGURES: dict[str, Any] = json.loads(tokens.FIGURES.read_text())


@pytest.mark.parametrize("task", FOUND)
def test_a_transcript_is_consistent(task: str) -> None:
    assert transcripts.find_faults(FOUND[task], CATALOGS) == []


def test_faults_of_a_transcript_are_found() -> None:
    use = {"type": "tool_use", "id": "1", "name": "weather__get_weather", "input": {"place": 5}}
    code = {
        "type": "tool_use",
        "id": "1",
        "name": "execute_code",
        "input": {"code": "from servers.weather import no\nif"},
    }
    wrong = {"type": "tool_use", "id": "1", "name": "execute_code", "input": {"code": "from servers.weather import no"}}

    def arm(asked: dict[str, Any], answered: str = "1") -> list[dict[str, Any]]:
        result = {"type": "tool_result", "tool_use_id": answered, "content": "x"}
        answer = {"role": "assistant", "content": [{"type": "text", "text": "done"}]}
        return [{"role": "user", "content": []}, {"role": "assistant", "content": [asked]},
                {"role": "user", "content": [result]}, answer]  # fmt: skip

    def faults(direct: list[dict[str, Any]], code: list[dict[str, Any]]) -> str:
        found = transcripts.Transcript(
            task="t", kind="k", prompt="p", servers=(), results="none", arms={"direct": direct, "code": code}
        )
        return " ".join(transcripts.find_faults(found, CATALOGS))

    assert "'location' is a required property" in faults(arm(use), arm(code))
    assert "does not parse" in faults(arm(use), arm(code))
    assert "has no function no" in faults(arm(use), arm(wrong))
    assert "not answered" in faults(arm(use, "2"), arm(code))
    assert "there is no tool" in faults(arm(use | {"name": "weather__none"}), arm(code))
    assert "no answer" in faults(arm(use)[:3], arm(code))


def test_tasks_are_many_and_of_every_kind() -> None:
    kinds = {each.kind for each in FOUND.values()}
    assert len(FOUND) >= 12
    assert kinds >= {"single call", "chain", "filter", "aggregate", "polling", "cross-server", "error recovery"}
    assert kinds >= {"long document", "lookup that needs no code"}
    assert sum(each.results == "recorded" for each in FOUND.values()) >= 12


def test_figures_belong_to_the_transcripts_and_catalogs() -> None:
    assert FIGURES["inputs"] == tokens.digest_inputs(), RERUN


def test_figures_belong_to_the_prompt_of_code_mode() -> None:
    estimate = estimate_tokens(system_prompt(sorted(CATALOGS)) + json.dumps(TOOLS, separators=(",", ":")))
    assert estimate == pytest.approx(FIGURES["prompt"]["estimate"], rel=0.1), RERUN


def test_the_page_shows_the_figures() -> None:
    page = token_report.PAGE.read_text()
    assert page == token_report.fill_page(page, FIGURES), RERUN
    assert all(f"<!-- begin {name} -->" in page for name in token_report.blocks(FIGURES))


def test_no_other_number_is_on_the_page() -> None:
    assert re.findall(r"\d+", token_report.prose(token_report.PAGE.read_text())) == []


@pytest.mark.parametrize("profile", FIGURES["rules"])
def test_the_default_rules_are_near_the_cheapest_on_these_tasks(profile: str) -> None:
    found = FIGURES["rules"][profile]
    assert found["default"]["rules"] == HybridRules().to_mapping(), RERUN
    weighed = {name: found[name]["cached"] + TURN * found[name]["turns"] for name in ("default", "best")}
    assert weighed["default"] <= 1.03 * weighed["best"]


def test_a_hybrid_agent_does_few_small_calls_directly_and_the_rest_by_code() -> None:
    chosen = {each["task"]: each["hybrid"]["mode"] for each in FIGURES["tasks"]}
    direct = {task for task, mode in chosen.items() if mode == "direct"}
    assert {"one small call", "no tool needed", "convert a time"} <= direct
    assert not direct & {each["task"] for each in FIGURES["tasks"] if each["rows"] > 100 or each["calls"] > 3}
    for each in FIGURES["tasks"]:
        if each["task"] in direct:
            assert each["arms"]["hybrid"]["turns"] <= each["arms"]["code"]["turns"]
    assert sum(each["arms"]["hybrid"]["turns"] for each in FIGURES["tasks"]) < sum(
        each["arms"]["code"]["turns"] for each in FIGURES["tasks"]
    )


def test_the_system_prompt_of_code_mode_stays_small() -> None:
    assert estimate_tokens(system_prompt(sorted(CATALOGS))) <= MAX_PROMPT_TOKENS
    assert estimate_tokens(system_prompt([f"server-{number}" for number in range(30)])) <= MAX_PROMPT_TOKENS


@pytest.mark.parametrize(("level", "budget"), [("name_only", 1300), ("with_description", 5000), ("full", 20_000)])
def test_a_search_stays_within_its_budget_for_a_hundred_tools(level: str, budget: int) -> None:
    index = Index([Catalog.from_tools(server, found) for server, found in CATALOGS.items()])
    shown = index.search("", detail_level=level, limit=1000)
    assert 100 * estimate_tokens(dump(shown)) / len(shown) <= budget


def test_each_request_repeats_what_came_before_and_the_cache_reads_it() -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "a" * 10}]},
        {"role": "assistant", "content": [{"type": "text", "text": "b" * 5}]},
        {"role": "user", "content": [{"type": "tool_result", "content": "c" * 100}]},
        {"role": "assistant", "content": [{"type": "text", "text": "d" * 7}]},
    ]
    cost = cost_of(len, system="s" * 1000, definitions=[], messages=messages)
    assert (cost.turns, cost.input, cost.output) == (2, 1010 + 1115, 12)
    assert (cost.written, cost.read) == (1115, 1010)
    assert cost.money("plain") == pytest.approx(1000 * (2125 * 3 + 12 * 15) / 1e6)
    assert cost.money("cached") == pytest.approx(1000 * ((1.25 * 1115 + 0.1 * 1010) * 3 + 12 * 15) / 1e6)
    assert cost.money("warm") < cost.money("cached")


def test_a_transcript_in_typescript_has_its_code_and_its_names() -> None:
    index = Index([Catalog.from_tools(server, found) for server, found in CATALOGS.items()])
    found = FOUND["triage old issues"]
    translated = languages.translate(found, ["await issueWrite({})"], index)
    blocks = [block for message in translated.arms["code"] for block in message["content"]]
    assert [block["input"]["code"] for block in blocks if block.get("name") == "execute_code"] == [
        "await issueWrite({})"
    ]
    [first, *_] = [json.loads(block["content"]) for block in blocks if block["type"] == "tool_result"]
    assert 'import { issueWrite } from "servers/github_official"' in {each["import"] for each in first}
    assert len(translated.arms["code"]) == len(found.arms["code"])
    with pytest.raises(ValueError, match="1 blocks of code are left over"):
        languages.translate(found, ["a", "b"], index)


def test_the_prompt_in_typescript_is_as_small() -> None:
    assert estimate_tokens(system_prompt(sorted(CATALOGS), language="typescript")) <= MAX_PROMPT_TOKENS
