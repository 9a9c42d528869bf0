"""Tokens that no API server has to review, because their text is not a valid one."""

import base64
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fuzz import fuzz_settings

from mcp_exec_gateway.core.auth.kubernetes_tokens import read_token_expiry


def token(payload: bytes) -> str:
    return f"x.{base64.urlsafe_b64encode(payload).decode().rstrip('=')}.x"


@pytest.mark.parametrize(
    "payload",
    [
        b'{"exp": 1' + b"0" * 400 + b"}",
        b'{"exp": -1' + b"0" * 400 + b"}",
        b'{"exp": 1' + b"0" * 5000 + b"}",
        b'{"exp": 1e999}',
        b'{"exp": NaN}',
        b'{"exp": Infinity}',
        b'{"exp": true}',
        b'{"exp": null}',
        b'{"exp": "1"}',
        b'{"exp": [1]}',
        b"[" * 12000,
        b'{"a":' * 2000 + b"1" + b"}" * 2000,
        b"[" * 3000 + b"]" * 3000,
        b"\xff\xfe{}",
        b'{"sub": "\xff"}',
        b"\x80",
        b"[]",
        b"1",
        b"",
    ],
)
def test_a_payload_that_no_issuer_writes_is_no_token(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_token_expiry(token(payload))


@pytest.mark.parametrize("text", ["", "a", "a.b", "a.b.c.d", "x.é.x", "x.\ud800.x", "x." + "A" * 20000 + ".x", "x.A.x"])
def test_a_text_of_another_form_is_no_token(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_token_expiry(text)


@pytest.mark.fuzz
@fuzz_settings(200)
@given(
    payload=st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["exp", "sub", "x"]), inner),
    ).map(lambda claims: json.dumps(claims).encode(errors="surrogatepass")),
)
def test_every_payload_is_an_expiry_or_a_value_error(payload: bytes) -> None:
    try:
        expiry = read_token_expiry(token(payload))
    except ValueError:
        return
    assert math.isfinite(expiry) or (expiry == math.inf and "exp" not in json.loads(payload))
