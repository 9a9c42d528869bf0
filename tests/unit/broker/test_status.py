"""What a ToolServer's status says, credentials taken out of answers, keys of users."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_api.tool_server import ToolServerStatus
from mcp_exec_broker.catalog.entry import CatalogEntry
from mcp_exec_broker.catalog.status import build_patch, build_status
from mcp_exec_broker.upstream.credentials import encode_user_key
from mcp_exec_broker.upstream.redaction import MARK, redact_json
from mcp_exec_broker.upstream.servers import ToolServer
from mcp_exec_broker.upstream.stdio_transport import split_address
from mcp_exec_common.supervisor.tokens import bridge_token

MOMENT = datetime(2026, 11, 22, tzinfo=UTC)


def server(**status: Any) -> ToolServer:
    item = {"metadata": {"namespace": "a", "name": "s", "generation": 3}, "spec": {"url": "http://s"}, "status": status}
    return ToolServer.from_object(item)


def entry(**changes: Any) -> CatalogEntry:
    return CatalogEntry(**({"available": True, "generation": 3, "listed_at": MOMENT} | changes))


def merged(stored: Any, patch: Any) -> Any:
    """As the API server merges."""
    if not isinstance(patch, dict):
        return patch
    found = dict(stored) if isinstance(stored, dict) else {}
    for name, value in patch.items():
        found.pop(name, None) if value is None else found.update({name: merged(found.get(name), value)})
    return found


def test_a_status_has_no_empty_texts_and_is_what_the_type_says() -> None:
    for each in (entry(), entry(available=False, reason="Unreachable", message="no", listed_at=None)):
        found = build_status(server(), each, {}, moment=MOMENT)
        ToolServerStatus.model_validate(found)
        assert "" not in found.values()
        assert "" not in [value for condition in found["conditions"] for value in condition.values()]


def test_only_what_differs_is_written_and_what_is_gone_is_removed() -> None:
    failed = build_status(server(), entry(available=False, reason="Unreachable", message="no"), {}, moment=MOMENT)
    good = build_status(server(**failed), entry(), {}, moment=MOMENT)
    patch = build_patch(failed, good, refresh_seconds=300)
    assert patch is not None
    assert (patch["available"], patch["reason"], patch["message"]) == (True, None, None)
    assert merged(failed, patch) == good
    assert build_patch(good, good, refresh_seconds=300) is None


def test_a_new_time_alone_is_written_seldom() -> None:
    first = build_status(server(), entry(), {}, moment=MOMENT)
    for seconds, written in ((10, False), (200, True)):
        later = build_status(server(**first), entry(listed_at=MOMENT + timedelta(seconds=seconds)), {}, moment=MOMENT)
        assert bool(build_patch(first, later, refresh_seconds=300)) is written


JSON = st.recursive(st.integers() | st.text(max_size=4), lambda each: st.dictionaries(st.text(max_size=3), each))


@given(st.dictionaries(st.text(max_size=3), JSON, min_size=1), st.dictionaries(st.text(max_size=3), JSON, min_size=1))
def test_schemas_that_change_are_stored_as_they_are(old: dict[str, Any], new: dict[str, Any]) -> None:
    stored = build_status(server(), entry(), old, moment=MOMENT)
    found = build_status(server(**stored), entry(), new, moment=MOMENT)
    patch = build_patch(stored, found, refresh_seconds=300)
    assert (merged(stored, patch) if patch else stored) == found


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


def test_each_user_has_a_key_of_their_own() -> None:
    assert encode_user_key("alice") == "alice"
    assert encode_user_key("bob@example.com") == "base64-Ym9iQGV4YW1wbGUuY29t"
    assert encode_user_key("base64-Ym9iQGV4YW1wbGUuY29t") != "base64-Ym9iQGV4YW1wbGUuY29t"


def test_each_bridge_has_a_token_of_its_own() -> None:
    tokens = {bridge_token(key=b"k", namespace=namespace, name=name) for namespace, name in (("a", "b"), ("a", "c"))}
    assert {len(token) for token in tokens} == {64}
    assert len(tokens) == 2


def test_an_address_is_host_and_port() -> None:
    assert split_address("10.0.0.1:8083") == ("10.0.0.1", 8083)
    assert split_address("[::1]:8083") == ("::1", 8083)
    for wrong in ("host", ":1", "host:"):
        with pytest.raises(ValueError, match="HOST:PORT"):
            split_address(wrong)
