"""Tokens for personal data: how long they live, what they cost, and what is no token."""

import pytest
from tests.support.clock import Clock

from mcp_exec_api.constants import MAX_APPROVAL_SECONDS
from mcp_exec_broker.core.errors import ErrorReason, ToolCallError
from mcp_exec_broker.features.scanning.tokenizer import Tokenizer, TokenizerCache, check_tokens
from mcp_exec_common.broker.grants import MAX_GRANT_SECONDS


def test_no_number_of_other_executions_makes_a_token_forgotten() -> None:
    cache = TokenizerCache()
    token = cache.get_or_create("victim").tokenize("EMAIL", "a@example.com")
    for number in range(5000):
        cache.get_or_create(f"uid-{number}").tokenize("EMAIL", f"{number}@example.com")
    assert cache.get_or_create("victim").detokenize(token) == "a@example.com"


def test_tokens_outlive_the_longest_grant_after_the_last_call() -> None:
    clock = Clock()
    cache = TokenizerCache(clock=clock)
    token = cache.get_or_create("uid").tokenize("EMAIL", "a@example.com")
    clock.now += MAX_GRANT_SECONDS
    assert cache.get_or_create("uid").detokenize(token) == "a@example.com"
    clock.now += MAX_GRANT_SECONDS + MAX_APPROVAL_SECONDS
    assert cache.get_or_create("uid").detokenize(token) == "a@example.com"
    clock.now += MAX_GRANT_SECONDS + MAX_APPROVAL_SECONDS + 60
    assert cache.get_or_create("uid").detokenize(token) == token


def test_one_value_has_another_token_in_each_execution() -> None:
    cache = TokenizerCache()
    tokens = {cache.get_or_create(f"uid-{number}").tokenize("EMAIL", "a@example.com") for number in range(100)}
    assert len(tokens) == 100


def test_full_memory_makes_no_token_and_forgets_none_until_an_execution_ends() -> None:
    cache = TokenizerCache(max_bytes=1000)
    one, two = cache.get_or_create("one"), cache.get_or_create("two")
    tokens = [one.tokenize("EMAIL", f"{number}@example.com") for number in range(3)]
    assert tokens[2] is None
    assert two.tokenize("EMAIL", "0@example.com") is None
    assert one.detokenize(tokens[:2]) == ["0@example.com", "1@example.com"]
    cache.close_execution("one")
    assert one.tokenize("EMAIL", "new@example.com") is None  # a call in progress adds none
    assert two.tokenize("EMAIL", "0@example.com") is not None


@pytest.mark.parametrize("text", ["[EMAIL_1_aaaaaaaa]", '{"a": ["x [SSN_999999_234567ab]."]}'])
def test_a_text_in_the_form_of_a_token_is_refused(text: str) -> None:
    with pytest.raises(ToolCallError) as raised:
        check_tokens(text)
    assert raised.value.reason is ErrorReason.UNKNOWN_TOKEN


@pytest.mark.parametrize("text", ["[EMAIL_1]", "[EMAIL_1_AAAAAAAA]", "[NAME_1_aaaaaaaa]", "[EMAIL_1_aaaaaaa1]", "{}"])
def test_other_texts_are_no_tokens(text: str) -> None:
    check_tokens(text)


def test_a_token_is_found_again_after_it_is_detokenized_once() -> None:
    tokenizer = Tokenizer()
    token = tokenizer.tokenize("PHONE", "+1 202 555 0147")
    assert tokenizer.tokenize("PHONE", "+1 202 555 0147") == token
    assert tokenizer.detokenize({f"{token}{token}": [token]}) == {"+1 202 555 0147" * 2: ["+1 202 555 0147"]}
