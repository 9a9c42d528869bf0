import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_gateway.events.position import Position
from mcp_exec_gateway.http.problems import Problem

COUNTS = st.integers(0, 10**9 - 1)


@given(st.builds(Position, seq=COUNTS, stdout=COUNTS, stderr=COUNTS, stage=st.integers(0, 2)))
def test_an_id_stands_for_its_position(position: Position) -> None:
    assert Position.parse(str(position)) == position


@pytest.mark.parametrize(
    "text", ["", "1", "1.2.3", "1.2.3.3", "1.2.3.0\n", "-1.0.0.0", "1.2.3.0.0", "9" * 10 + ".0.0.0"]
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(Problem, match="lastEventId"):
        Position.parse(text)


def test_a_position_counts_characters_of_each_stream() -> None:
    position = Position().after("status").after("stdout", "aü").after("stderr", "\U0001f600").after("stdout", "b")
    assert str(position) == "4.3.1.0"
    assert position.after("result").has_result
    assert not position.after("result").ended
    assert position.after("result").after("end").ended
