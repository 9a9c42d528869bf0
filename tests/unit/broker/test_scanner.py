"""Secrets and personal data in arguments and results. All secrets here are invented."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_api.tool_server import PersonalDataAction, Scan, SecretAction
from mcp_exec_broker.core.errors import ErrorReason, ToolCallError
from mcp_exec_broker.features.scanning.detectors import TextIndex
from mcp_exec_broker.features.scanning.scanner import Scanner
from mcp_exec_broker.features.scanning.tokenizer import Tokenizer

KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\nabc+/=\n-----END RSA PRIVATE KEY-----"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
SECRETS = {
    "AWS Access Key": "AKIA" + "QWERTYUIOPASDFGH",
    "GitHub Token": "ghp_" + "a1" * 18,
    "GitLab Token": "glpat-" + "x" * 20,
    "Slack Token": "xoxb-" + "123456789012-123456789012-abcdefABCDEF",
    "Stripe Access Key": "sk_live_" + "a" * 24,
    "JSON Web Token": JWT,
    "NPM tokens": "npm_" + "a" * 36,
    "PyPI Token": "pypi-AgEIcHlwaS5vcmc" + "a" * 75,
    "OpenAI Token": "sk-" + "a" * 20 + "T3BlbkFJ" + "b" * 20,
    "SendGrid API Key": "SG." + "a" * 22 + "." + "b" * 43,
    "Twilio API Key": "SK" + "a" * 32,
    "Azure Storage Account access key": "AccountKey=" + "a" * 88,
    "Anthropic Token": "sk-ant-api03-" + "a" * 60,
    "Google API Key": "AIza" + "a" * 35,
    "Supabase Token": "sbp_" + "0" * 40,
    "Private Key": KEY,
}
PERSONAL = {
    "EMAIL": "jane.doe@example.com",
    "PHONE": "+1 415-555-2671",
    "CARD": "4111 1111 1111 1111",
    "IBAN": "DE89 3704 0044 0532 0130 00",
    "SSN": "536-22-8726",
}
TOKENIZE = Scan(personal_in_results=PersonalDataAction.TOKENIZE)
REDACT = Scan(personal_in_results=PersonalDataAction.REDACT)
PLAIN: list[Any] = [
    {"id": n, "at": "2026-11-21T20:00:05.123456Z", "day": "2026-11-21", "amount": 12.5 * n, "note": "Taxi, 3 km",
     "url": "https://host.test:8080/a/b?c=d@e", "uuid": "0e37df36-f698-11e6-8dd4-cb9ced3df976", "ip": "10.1.2.3",
     "sha": "da39a3ee5e6b4b0d3255bfef95601890afd80709", "ms": 1732233600000, "version": "1.22.333-4",
     "remote": "git@github.com:owner/repo.git", "size": "1,234,567", "range": "100-200"}
    for n in range(20)
]  # fmt: skip


def without_suffix(text: str) -> str:
    """Return a text whose tokens have no random part."""
    return re.sub(r"_[a-z2-7]{8}\]", "]", text)


@pytest.fixture(scope="module")
def scanner() -> Scanner:
    return Scanner()


@pytest.mark.parametrize("kind", SECRETS)
async def test_a_secret_in_a_result_is_redacted_whole(scanner: Scanner, kind: str) -> None:
    secret = SECRETS[kind]
    scanned = await scanner.scan_result({"a": [f"before {secret} after", 5, None]}, Scan(), Tokenizer())
    assert scanned.value == {"a": [f"before [REDACTED {kind}] after", 5, None]}
    assert scanned.findings == {kind: 1}


async def test_a_password_in_an_address_is_redacted_alone(scanner: Scanner) -> None:
    scanned = await scanner.scan_result("postgres://jane:hunter2@db.test/app", Scan(), Tokenizer())
    assert scanned.value == "postgres://jane:[REDACTED Basic Auth Credentials]@db.test/app"


async def test_a_longer_secret_than_the_pattern_has_is_redacted_to_its_end(scanner: Scanner) -> None:
    scanned = await scanner.scan_result("x ghp_" + "a" * 50 + ", y", Scan(), Tokenizer())
    assert scanned.value == "x [REDACTED GitHub Token], y"


async def test_a_secret_in_a_key_is_redacted_and_keys_stay_apart(scanner: Scanner) -> None:
    one, two = "ghp_" + "a" * 36, "ghp_" + "b" * 36
    scanned = await scanner.scan_result({one: 1, two: 2}, Scan(), Tokenizer())
    assert list(scanned.value.values()) == [1, 2]
    assert not {one, two} & set(scanned.value)


@pytest.mark.parametrize("kind", SECRETS)
async def test_a_secret_in_arguments_ends_the_call(scanner: Scanner, kind: str) -> None:
    with pytest.raises(ToolCallError, match=kind) as raised:
        await scanner.scan_arguments({"body": SECRETS[kind]}, Scan(), Tokenizer())
    assert raised.value.reason is ErrorReason.SECRET_FOUND
    assert SECRETS[kind] not in raised.value.message


async def test_nothing_is_looked_for_where_it_is_off(scanner: Scanner) -> None:
    off = Scan(secrets_in_arguments=SecretAction.OFF, secrets_in_results=SecretAction.OFF)
    value = [*SECRETS.values(), *PERSONAL.values()]
    assert (await scanner.scan_arguments(value, off, Tokenizer())).value is value
    assert (await scanner.scan_result(value, off, Tokenizer())).value is value


@pytest.mark.parametrize("kind", PERSONAL)
async def test_personal_data_is_redacted_blocked_or_made_a_token(scanner: Scanner, kind: str) -> None:
    value = {"note": f"call {PERSONAL[kind]}, please"}
    scanned = await scanner.scan_result(value, REDACT, Tokenizer())
    assert scanned.value == {"note": f"call [REDACTED {kind}], please"}
    scanned = await scanner.scan_result(value, TOKENIZE, Tokenizer())
    assert without_suffix(scanned.value["note"]) == f"call [{kind}_1], please"
    with pytest.raises(ToolCallError, match=kind) as raised:
        await scanner.scan_result(value, Scan(personal_in_results=PersonalDataAction.BLOCK), Tokenizer())
    assert raised.value.reason is ErrorReason.PERSONAL_DATA_FOUND
    assert PERSONAL[kind] not in raised.value.message


async def test_plain_rows_pass_as_they_are(scanner: Scanner) -> None:
    scanned = await scanner.scan_result(PLAIN, TOKENIZE, Tokenizer())
    assert scanned.findings == {}
    assert scanned.value is PLAIN


async def test_one_value_has_one_token_and_it_is_put_back_at_a_tool(scanner: Scanner) -> None:
    tokenizer = Tokenizer()
    rows = [{"email": "a@example.com"}, {"email": "b@example.com"}, {"cc": "a@example.com, b@example.com"}]
    scanned = await scanner.scan_result(rows, TOKENIZE, tokenizer)
    one, two = scanned.value[0]["email"], scanned.value[1]["email"]
    assert scanned.value == [{"email": one}, {"email": two}, {"cc": f"{one}, {two}"}]
    assert (without_suffix(one), without_suffix(two)) == ("[EMAIL_1]", "[EMAIL_2]")
    sent = await scanner.scan_arguments({"to": two, "text": f"Hi {one} [EMAIL_9]"}, TOKENIZE, tokenizer)
    assert sent.value == {"to": "b@example.com", "text": "Hi a@example.com [EMAIL_9]"}
    kept = await scanner.scan_arguments({"to": two}, Scan(untokenize=False), tokenizer)
    assert kept.value == {"to": two}


async def test_a_number_that_is_a_card_comes_back_as_a_number(scanner: Scanner) -> None:
    tokenizer = Tokenizer()
    scanned = await scanner.scan_result({"card": 4111111111111111}, TOKENIZE, tokenizer)
    assert without_suffix(scanned.value["card"]) == "[CARD_1]"
    assert tokenizer.detokenize(scanned.value) == {"card": 4111111111111111}


async def test_a_server_that_says_what_it_was_sent_does_not_give_tokens_away(scanner: Scanner) -> None:
    tokenizer = Tokenizer()
    await scanner.scan_result("a@example.com", TOKENIZE, tokenizer)
    scanned = await scanner.scan_result("you sent a@example.com and other@example.com", Scan(), tokenizer)
    assert without_suffix(scanned.value) == "you sent [EMAIL_1] and other@example.com"


async def test_a_full_tokenizer_redacts_irreversibly(scanner: Scanner) -> None:
    tokenizer = Tokenizer(max_values=1)
    scanned = await scanner.scan_result(["a@example.com", "b@example.com", "a@example.com"], TOKENIZE, tokenizer)
    assert [without_suffix(text) for text in scanned.value] == ["[EMAIL_1]", "[REDACTED EMAIL]", "[EMAIL_1]"]
    assert Tokenizer(max_bytes=3).tokenize("EMAIL", "a@example.com") is None


async def test_a_large_result_is_looked_through_to_its_end(scanner: Scanner) -> None:
    rows = [{"text": "lorem ipsum dolor sit amet " * 20} for _ in range(2000)]
    scanned = await scanner.scan_result([*rows, SECRETS["GitHub Token"]], Scan(), Tokenizer())
    assert scanned.value[-1] == "[REDACTED GitHub Token]"
    assert scanned.value[:-1] == rows


@pytest.mark.parametrize(
    "text", ["eyJ" * 60_000, "eyJhbGciOiJIUzI1NiJ9." * 10_000, "://a:" * 40_000, "BEGIN PRIVATE KEY " * 12_000,
             "a@a." * 50_000, "AC" * 90_000, "12-" * 60_000, "1 " * 90_000, "+1 415 " * 20_000,
             "AB12 CDEF " * 20_000, "xoxb-1-" * 30_000]
)  # fmt: skip
async def test_a_text_that_is_made_to_be_slow_is_not(scanner: Scanner, text: str) -> None:
    await scanner.scan_result([text], TOKENIZE, Tokenizer())  # a quadratic scan would exceed the time limit of tests


async def test_beyond_so_many_checks_what_has_the_form_of_a_number_is_taken_for_one(scanner: Scanner) -> None:
    scanned = await scanner.scan_result([f"555-{n:07d}" for n in range(6000)], REDACT, Tokenizer())
    assert "REDACTED PHONE" in scanned.value[-1]


def test_the_text_for_audit_and_approvals_is_redacted_and_bounded(scanner: Scanner) -> None:
    secret = SECRETS["GitHub Token"]
    text = scanner.redact_json({"to": "a@example.com", "key": secret, "n": 1})
    assert json.loads(text) == {"to": "[REDACTED EMAIL]", "key": "[REDACTED GitHub Token]", "n": 1}
    long = scanner.redact_json({"key": ["x" * 30, secret] * 1000}, limit=500)
    assert len(long) == 500
    assert secret[:20] not in long
    assert scanner.redact_json("\ud800").encode()


known_values = st.sampled_from([*SECRETS.values(), *PERSONAL.values()])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | known_values,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(json_values)
async def test_no_secret_is_left_wherever_it_stands(scanner: Scanner, value: Any) -> None:
    scanned = await scanner.scan_result(value, REDACT, Tokenizer())
    left = json.dumps(scanned.value, ensure_ascii=False)
    for secret in SECRETS.values():
        assert json.dumps(secret, ensure_ascii=False)[1:-1] not in left


@given(json_values)
async def test_what_is_made_tokens_is_had_back_as_it_was(scanner: Scanner, value: Any) -> None:
    tokenizer = Tokenizer()
    only = Scan(secrets_in_results=SecretAction.OFF, personal_in_results=PersonalDataAction.TOKENIZE)
    scanned = await scanner.scan_result(value, only, tokenizer)
    assert tokenizer.detokenize(scanned.value) == value


@given(json_values)
def test_texts_without_marks_are_as_they_were(value: Any) -> None:
    assert TextIndex(value).replace([]) == value
