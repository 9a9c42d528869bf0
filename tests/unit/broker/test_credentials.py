"""Keys of users in Secrets, tokens and addresses of bridges."""

import pytest

from mcp_exec_broker.core.upstream.credentials import encode_user_key
from mcp_exec_broker.core.upstream.stdio_transport import split_address
from mcp_exec_common.supervisor.tokens import bridge_token


def test_each_user_has_a_key_of_their_own() -> None:
    assert encode_user_key("alice") == "alice"
    assert encode_user_key("bob@example.com") == "base64-Ym9iQGV4YW1wbGUuY29t"
    assert encode_user_key("base64-Ym9iQGV4YW1wbGUuY29t") != "base64-Ym9iQGV4YW1wbGUuY29t"


def test_each_bridge_has_a_token_of_its_own() -> None:
    bridges = (("a", "b", "1"), ("a", "c", "1"), ("a", "b", "2"))
    tokens = {bridge_token(key=b"k", namespace=namespace, name=name, pod=pod) for namespace, name, pod in bridges}
    assert {len(token) for token in tokens} == {64}
    assert len(tokens) == 3


def test_an_address_is_host_and_port() -> None:
    assert split_address("10.0.0.1:8083") == ("10.0.0.1", 8083)
    assert split_address("[::1]:8083") == ("::1", 8083)
    for wrong in ("host", ":1", "host:"):
        with pytest.raises(ValueError, match="HOST:PORT"):
            split_address(wrong)
