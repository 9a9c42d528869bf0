"""Signals between parts of the operator."""

from mcp_exec_common.util.signals import Signal


def test_receivers_get_each_event_in_the_order_of_their_connection() -> None:
    signal: Signal[[str, int]] = Signal()
    seen: list[str] = []
    signal.emit("nobody", 0)
    signal.connect(lambda name, number: seen.append(f"first {name} {number}"))
    signal.connect(lambda name, number: seen.append(f"second {name} {number}"))
    signal.emit("a", 1)
    assert seen == ["first a 1", "second a 1"]
