"""Rules for tests: they wait for states and events, never for time, and never compare times."""

import ast
from collections.abc import Iterable
from pathlib import Path

TESTS = Path(__file__).parents[1]
WAITS = TESTS / "support" / "until.py"
"""The one module that polls."""
CLOCKS = {"monotonic", "perf_counter", "process_time"}
MODULES = [path for path in sorted(TESTS.rglob("*.py")) if path != WAITS]


def calls(modules: Iterable[Path], *names: str) -> list[tuple[str, str]]:
    """Return the calls of functions of these names: their places, and their first argument."""
    found = []
    for path in modules:
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(getattr(node, "func", None), "attr", None) or getattr(getattr(node, "func", None), "id", "")
            if isinstance(node, ast.Call) and name in names:
                place = f"{path.relative_to(TESTS)}:{node.lineno}"
                found.append((place, ast.unparse(node.args[0]) if node.args else ""))
    return found


def test_no_test_sleeps() -> None:
    assert [place for place, seconds in calls(MODULES, "sleep") if seconds != "0"] == []


def test_no_unit_or_component_test_compares_times() -> None:
    assert calls((path for path in MODULES if "e2e" not in path.parts), *CLOCKS) == []
