"""Forms for approvals: nothing that the code chooses hides a parameter from who approves."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import ElicitRequestFormParams
from tests.support.fuzz import fuzz_settings

from mcp_exec_broker.core.calls.shown_arguments import escape_unprintable, show_arguments
from mcp_exec_gateway.features.mcp.forms import build_form

NOT_ALL = "Not all of the arguments are shown"


def write_form(arguments: dict[str, Any]) -> tuple[str, bool]:
    """Return the text of the form for these arguments, and whether the broker left nothing out."""
    shown, body = show_arguments(arguments), json.dumps(arguments).encode()
    approval = {
        "tool": "mail.send",
        "arguments": shown.text,
        "argumentsComplete": shown.is_complete,
        "argumentsDigest": "sha256:" + hashlib.sha256(body).hexdigest(),
        "argumentsBytes": len(body),
    }
    params = build_form("Call mail.send", approval).params
    assert isinstance(params, ElicitRequestFormParams)
    return params.message, shown.is_complete


def test_a_recipient_between_two_long_texts_is_shown() -> None:
    form, _ = write_form({"body": "x" * 1000, "recipient": "attacker@evil.example", "text": "y" * 1250})
    first, second, third = form.splitlines()
    assert first == 'Call mail.send with the parameters "body", "recipient", "text".'
    assert second.startswith("Size: 2312 bytes. Digest: sha256:")
    assert second.endswith(". All arguments are shown.")
    assert '"recipient": "attacker@evil.example"' in third


def test_a_form_says_if_a_value_is_cut() -> None:
    form, _ = write_form({"body": "x" * 10_000, "to": "a"})
    assert NOT_ALL in form
    assert '"to": "a"' in form


def test_arguments_that_cannot_be_read_are_not_called_complete() -> None:
    params = build_form("Call a.b", {"arguments": '{"a": ' + "[" * 20_000}).params
    assert isinstance(params, ElicitRequestFormParams)
    assert "parameters whose names are not known" in params.message
    assert NOT_ALL in params.message
    assert len(params.message) < 20_000


names = st.text(max_size=60) | st.sampled_from(["…", 'a"b', "All arguments are shown.", "\n"])
values = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=3000), st.lists, max_leaves=5)


@pytest.mark.fuzz
@fuzz_settings(100)
@given(arguments=st.dictionaries(names, values, max_size=60))
def test_each_name_is_in_the_form_or_the_form_says_that_some_are_not(arguments: dict[str, Any]) -> None:
    form, is_complete = write_form(arguments)
    first, second, _ = form.split("\n")
    assert (NOT_ALL in second) == (not is_complete)
    if is_complete:
        written = [escape_unprintable(json.dumps(name)) for name in arguments]
        assert [name for name in written if name not in first] == []
    elif len(arguments) > 40:
        assert f"{len(arguments) - 40} more parameters" in form
