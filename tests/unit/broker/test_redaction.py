"""Redaction of credentials in answers."""

import json

from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_broker.core.upstream.errors import MARK, redact_json


@given(st.text(min_size=6, max_size=20), st.text(max_size=10))
def test_no_credential_stays_in_an_answer(secret: str, around: str) -> None:
    value = {"a": [around + secret + around, 1, None]}
    found = redact_json(value, [secret])
    assert secret not in found["a"][0].replace(MARK, "") or secret in around + around
    assert json.loads(json.dumps(found)) == found


def test_a_credential_is_found_in_keys_numbers_and_escapes() -> None:
    assert redact_json({"k": 1234567, "é0000001": ["\x90000000"]}, ["234567", "é000000", "000000"]) == {
        "k": MARK,
        f"{MARK}1": [f"\x90{MARK}"],
    }


def test_what_has_no_credential_is_not_touched() -> None:
    value = {"a": "b"}
    assert redact_json(value, ["something"]) is value
    assert redact_json(value, []) is value
