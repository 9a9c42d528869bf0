"""Preconditions of writes, as headers say them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.files_store import entry_of
from tests.support.fuzz import fuzz_settings

from mcp_exec_broker.features.files.requests import FilesRefused
from mcp_exec_broker.features.files.workspace.commit import parse_precondition
from mcp_exec_broker.features.files.workspace.manifest import Manifest
from mcp_exec_common.broker.files import FilesReason

ID = "0c" * 16
FILE = entry_of("a", b"1")
EMPTY = Manifest(files={"a": FILE})


@pytest.mark.parametrize(
    ("header", "tags"),
    [
        ("*", {"*"}),
        (' "x" ', {"x"}),
        ('"x","y" , "z"', {"x", "y", "z"}),
        ('W/"x", "y"', {"y"}),
        ('W/"x"', set()),
        ('""', {""}),
    ],
)
def test_tags_are_read_as_http_has_them_and_weak_ones_never_match(header: str, tags: set[str]) -> None:
    assert parse_precondition(header, None).tags == tags


@pytest.mark.parametrize(
    ("if_match", "if_none_match"),
    [
        ("x", None),
        ("", None),
        ('"x" "y"', None),
        ('"x",', None),
        ('"' + "x" * 101 + '"', None),
        ('"x",' * 20 + '"x"', None),
        ("*, *", None),
        (None, '"x"'),
        (None, ""),
    ],
)
def test_a_header_that_is_none_of_a_write_is_refused_by_its_name(
    if_match: str | None, if_none_match: str | None
) -> None:
    with pytest.raises(FilesRefused, match=r"must be|a write allows") as caught:
        parse_precondition(if_match, if_none_match)
    assert caught.value.reason is FilesReason.INVALID


@fuzz_settings(100)
@given(st.text('W/"x*, ', max_size=30) | st.text(max_size=30))
def test_whatever_a_header_says_it_allows_nothing_that_it_does_not_name(header: str) -> None:
    try:
        precondition = parse_precondition(header, None)
    except FilesRefused:
        return
    if header.strip() == "*":
        precondition.check(ID, EMPTY, "a", changes=True)
    for path in ("b", None):
        with pytest.raises(FilesRefused):
            precondition.check(ID, EMPTY, path, changes=True)
