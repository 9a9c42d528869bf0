"""Head and tail of an output stream, whatever the bytes and however they come."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from mcp_exec_sandbox.supervisor.execution.output import HeadTailBuffer

chunks = st.lists(st.binary(max_size=40) | st.text(max_size=20).map(str.encode), max_size=20)
texts = st.lists(st.text(max_size=20), max_size=20)


def collect(data, limit):
    stream = HeadTailBuffer(limit)
    head = "".join(stream.write(memoryview(chunk)) for chunk in data)
    rest, cut = stream.finish()
    return head, rest, cut


@given(chunks, st.integers(0, 300))
@example(data=[b"\x80"], limit=3)
def test_output_within_the_limit_is_whole_and_the_rest_is_head_mark_and_tail(data, limit):
    whole = b"".join(data).decode("utf-8", "replace")
    head, rest, cut = collect(data, limit)
    if len(whole.encode()) <= limit:
        assert not cut
    if not cut:
        assert head + rest == whole
        return
    # The mark is found from both ends, as the output may look like one.
    start, end = len(head), len(head + rest)
    match = re.match(r"(.*?)\n\[\.\.\. (\d+) bytes cut \.\.\.\]\n", (head + rest)[start:end], re.DOTALL)
    assert match
    beginning, tail = head + match[1], rest[match.end() :]
    assert whole.startswith(beginning)
    assert whole.endswith(tail)
    kept = len(beginning.encode()) + len(tail.encode())
    assert kept <= limit
    assert int(match[2]) == len(whole.encode()) - kept


@given(texts, st.integers(0, 300))
def test_characters_are_never_split(data, limit):
    head, rest, _ = collect([text.encode() for text in data], limit)
    assert "\ufffd" not in (head + rest).replace("\ufffd", "", "".join(data).count("\ufffd"))


@given(st.text(max_size=200), st.integers(1, 3))
def test_a_character_that_comes_in_pieces_is_whole(text, size):
    data = text.encode()
    head, rest, cut = collect([data[i : i + size] for i in range(0, len(data), size)], 10_000)
    assert (head + rest, cut) == (text, False)


def test_half_of_the_limit_is_head_and_half_is_tail():
    head, rest, cut = collect([b"0123456789"], 4)
    assert (head, rest, cut) == ("01", "\n[... 6 bytes cut ...]\n89", True)


def test_the_head_comes_at_once():
    stream = HeadTailBuffer(100)
    assert stream.write(b"now") == "now"
