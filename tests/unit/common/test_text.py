from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_common.util.text import cut_marker, drop_empty_fields, shorten


@given(st.text(), st.integers(min_value=-1, max_value=40))
def test_a_cut_text_keeps_head_and_tail_within_the_limit(text: str, limit: int) -> None:
    short = shorten(text, limit)
    if len(text) <= limit:
        assert short == text
        return
    half = max(limit, 0) // 2
    marker = cut_marker(len(text) - 2 * half)
    assert short == text[:half] + marker + text[len(text) - half :]


def test_the_marker_names_what_was_cut() -> None:
    assert shorten("a" * 10 + "b" * 10, 4) == "aa\n[... 16 characters cut ...]\nbb"
    assert shorten("abc", 1) == "\n[... 3 characters cut ...]\n"
    assert cut_marker(7, "bytes") == "\n[... 7 bytes cut ...]\n"


def test_null_and_empty_fields_are_dropped() -> None:
    assert drop_empty_fields({"a": None, "b": "", "c": 0, "d": [], "e": False, "f": "x"}) == {
        "c": 0,
        "d": [],
        "e": False,
        "f": "x",
    }
