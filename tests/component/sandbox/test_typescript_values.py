"""Values of TypeScript as results and as arguments of tools: nothing is changed silently."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.component.sandbox.conftest import ReusedSandbox
from tests.support.broker_calls import FakeBrokerCalls

CUT = "OutputCut"
PAGE = Path(__file__).parents[3] / "docs/agents/typescript.md"
CELLS = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True, kw_only=True)
class Value:
    """A row of the page."""

    result: Any
    note: str
    argument: str


def read_values() -> dict[str, Value]:
    """Read the table of the page, by the expressions."""
    rows = PAGE.read_text().partition("| TypeScript | result | note | argument |\n")[2].splitlines()[1:]
    cells = [[cell.strip().strip("`").replace("\\|", "|") for cell in CELLS.split(row)[1:-1]] for row in rows]
    return {
        code: Value(result=json.loads(result), note=note, argument=argument) for code, result, note, argument in cells
    }


VALUES = read_values()


def test_the_page_has_values() -> None:
    assert len(VALUES) > 40


@pytest.mark.parametrize("expression", VALUES)
def test_a_result_keeps_its_meaning_or_has_a_note(typescript: ReusedSandbox, expression: str) -> None:
    value = VALUES[expression]
    run = typescript.run(f"const value = {expression};\nvalue")
    assert (run.error, run.result) == (None, value.result)
    notes = [(note["kind"], note["path"].startswith("result")) for note in run.end.get("notes", [])]
    assert notes == ([(value.note, True)] if value.note else [])


@pytest.mark.parametrize("expression", VALUES)
def test_an_argument_is_never_changed(typescript: ReusedSandbox, broker: FakeBrokerCalls, expression: str) -> None:
    value = VALUES[expression]
    run = typescript.run(f'await callMcpTool("s.echo", {{ value: {expression} }});\n1', tools=broker.job)
    if value.argument == "refused":
        assert (run.error["type"], "InvalidArguments" in run.error["message"]) == ("ToolError", True), run.error
        assert "value" in run.error["message"]
        assert broker.calls == []
    else:
        assert run.error is None
        expected = value.result if value.argument == "the same" else json.loads(value.argument)
        assert broker.calls[0].arguments == {"value": expected}


def test_a_structure_that_contains_itself_is_cut(typescript: ReusedSandbox) -> None:
    run = typescript.run("const value: any = { rows: [] };\nvalue.rows.push(value);\nvalue")
    assert run.result == {"rows": ["<cycle>"]}
    assert run.end["notes"] == [{"kind": CUT, "path": "result.rows[0]", "message": "It contains itself."}]


def test_a_note_counts_its_places(typescript: ReusedSandbox) -> None:
    run = typescript.run("[NaN, NaN, NaN]")
    (note,) = run.end["notes"]
    assert (note["path"], note["message"]) == ("result[0]", "JSON has no NaN, so this is null. So in 3 places.")
