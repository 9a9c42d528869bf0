"""The estimate of tokens, against counts of a tokenizer that `python bench/tokenizer.py --record` wrote."""

import json
from itertools import groupby
from operator import itemgetter
from typing import Any

import pytest
import tokenizer

from mcp_exec_tools.text import MAX_EXACT_CHARACTERS, METHOD, estimate_tokens

RECORDED: dict[str, Any] = json.loads(tokenizer.RECORDED.read_text())
TEXT_BOUND, KIND_BOUND, CATALOG_BOUND = 0.15, 0.07, 0.06
"""Largest relative error for one text, for all texts of a kind, and for the definitions of one server."""
KINDS = {
    kind: list(texts) for kind, texts in groupby(sorted(RECORDED["texts"], key=itemgetter("kind")), itemgetter("kind"))
}


def test_recorded_counts_belong_to_this_method() -> None:
    assert RECORDED["method"] == METHOD


@pytest.mark.parametrize("server", tokenizer.catalog_texts())
def test_definitions_of_a_server_are_estimated_within_the_bound(server: str) -> None:
    recorded = {each["server"]: each for each in RECORDED["catalogs"]}
    text = tokenizer.catalog_texts()[server]
    assert tokenizer.digest(text) == recorded[server]["sha256"], "run: python bench/tokenizer.py --record"
    assert estimate_tokens(text) == pytest.approx(recorded[server]["tokens"], rel=CATALOG_BOUND)


@pytest.mark.parametrize("kind", KINDS)
def test_code_data_and_prose_are_estimated_within_the_bounds(kind: str) -> None:
    texts = KINDS[kind]
    total = sum(each["tokens"] for each in texts)
    assert sum(estimate_tokens(each["text"]) for each in texts) == pytest.approx(total, rel=KIND_BOUND)
    if kind != "languages":
        for each in texts:
            assert estimate_tokens(each["text"]) == pytest.approx(each["tokens"], rel=TEXT_BOUND)


def test_an_empty_text_has_no_tokens_and_any_other_at_least_one() -> None:
    assert estimate_tokens("") == 0
    assert [estimate_tokens(text) for text in (" ", "a", "\n", "é", "\x00", "\ud800")] == [1] * 6


def test_a_text_above_the_limit_is_estimated_from_samples() -> None:
    line = json.dumps({"id": 17, "name": "Ana Ruiz", "paid": True}) + "\n"
    repeated = line * (4 * MAX_EXACT_CHARACTERS // len(line))
    assert estimate_tokens(repeated) == pytest.approx(
        estimate_tokens(line * 100) / 100 * (len(repeated) / len(line)), rel=0.02
    )


def test_samples_of_a_text_cover_its_beginning_and_its_end() -> None:
    half = MAX_EXACT_CHARACTERS * 2
    mixed = "a" * half + "b 1 " * (half // 4)
    assert estimate_tokens(mixed) == pytest.approx(estimate_tokens("b 1 " * 1000) / 4000 * half + 0.15 * half, rel=0.1)
