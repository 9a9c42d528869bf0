import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_gateway.core.events.follower import StreamPosition
from mcp_exec_gateway.core.http.problems import HttpProblem

COUNTS = st.integers(0, 10**9 - 1)


@given(st.builds(StreamPosition, seq=COUNTS, stdout=COUNTS, stderr=COUNTS, stage=st.integers(0, 2)))
def test_an_id_stands_for_its_position(position: StreamPosition) -> None:
    assert StreamPosition.parse(str(position)) == position


@pytest.mark.parametrize(
    "text", ["", "1", "1.2.3", "1.2.3.1000", "1.2.3.0\n", "-1.0.0.0", "1.2.3.0.0", "9" * 10 + ".0.0.0"]
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(HttpProblem, match="lastEventId"):
        StreamPosition.parse(text)


def test_a_position_counts_characters_of_each_stream() -> None:
    position = (
        StreamPosition()
        .advance("status")
        .advance("stdout", "aü")
        .advance("stderr", "\U0001f600")
        .advance("stdout", "b")
    )
    assert str(position) == "4.3.1.0"
    assert position.advance("result").has_result
    assert not position.advance("result").ended
    assert position.advance("result").advance("end").ended
