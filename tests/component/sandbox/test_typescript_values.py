"""Values of TypeScript as results and as arguments of tools: nothing is changed silently."""

import pytest
from tests.component.sandbox.conftest import ReusedSandbox
from tests.support.broker_calls import FakeBrokerCalls

CHANGED, CUT, COLLIDED = "ValueChanged", "OutputCut", "KeysCollided"
SAME = object()
REFUSED = object()

VALUES = {
    "7": (7, None, SAME),
    "true": (True, None, SAME),
    "1.5": (1.5, None, SAME),
    "[2.0]": ([2], None, SAME),
    "-0": (0, CHANGED, SAME),
    "2 ** 53 - 1": (2**53 - 1, None, SAME),
    "2 ** 60": (1152921504606847000, CHANGED, SAME),
    "NaN": (None, CHANGED, REFUSED),
    "-Infinity": (None, CHANGED, REFUSED),
    "({ a: [NaN, 1.5] })": ({"a": [None, 1.5]}, CHANGED, REFUSED),
    "5n": (5, None, SAME),
    "725653563933458433n": (725653563933458433, CHANGED, SAME),
    "2n ** 64n + 3n": ("18446744073709551619", CHANGED, 2**64 + 3),
    "'é'": ("é", None, SAME),
    "''": ("", None, SAME),
    "'a\\ud800b'": ("a\\ud800b", CHANGED, REFUSED),
    "new String('a')": ("a", None, SAME),
    "[1, 'a', null]": ([1, "a", None], None, SAME),
    "[undefined]": ([None], CHANGED, REFUSED),
    "[, 1]": ([None, 1], CHANGED, REFUSED),
    "({ a: undefined, b: 1 })": ({"b": 1}, None, SAME),
    "new Set([3, 1])": ([3, 1], None, SAME),
    "new Map([['a', 1]])": ({"a": 1}, None, SAME),
    "new Map<unknown, number>([[1, 2], [null, 3], [true, 4]])": ({"1": 2, "null": 3, "true": 4}, None, SAME),
    "new Map<unknown, number>([[1, 2], ['1', 3]])": ({"1": 2, "1 (2)": 3}, COLLIDED, REFUSED),
    "new Map([[{ a: 1 }, 2]])": ({'{"a":1}': 2}, None, REFUSED),
    "({ __proto__: null, a: 1 })": ({"a": 1}, None, SAME),
    "JSON.parse('{\"__proto__\": 1}')": ({"__proto__": 1}, None, SAME),
    "new (class Point { x = 1; #y = 2 })()": ({"x": 1}, None, SAME),
    "new Date(0)": ("1970-01-01T00:00:00.000Z", None, SAME),
    "new Date(NaN)": (None, CHANGED, REFUSED),
    "new URL('http://h/a')": ("http://h/a", None, SAME),
    "new Uint8Array([1, 2])": ([1, 2], None, SAME),
    "new Float64Array([1.5, NaN])": ([1.5, None], CHANGED, REFUSED),
    "new BigInt64Array([1n])": ([1], None, SAME),
    "new ArrayBuffer(3)": ("<ArrayBuffer of 3 bytes>", CHANGED, REFUSED),
    "new Error('no')": ("Error: no", CHANGED, REFUSED),
    "/a/g": ("/a/g", CHANGED, REFUSED),
    "Symbol('s')": ("Symbol(s)", CHANGED, REFUSED),
    "[Math.max]": (["function max() { [native code] }"], CHANGED, REFUSED),
    "[Promise.resolve(1)]": (["<promise>"], CHANGED, REFUSED),
    "({ get a(): number { throw new Error('x') } })": (
        "<Object: Error while it was converted>",
        CHANGED,
        REFUSED,
    ),
    "({ toJSON: () => ({ a: 1n }) })": ({"a": 1}, None, SAME),
    "(function* () { yield 1; yield 2 })()": ([1, 2], None, SAME),
    "new Map([['a', 1]]).values()": ([1], None, SAME),
    "({ [Symbol('s')]: 1, a: 2 })": ({"a": 2}, CHANGED, REFUSED),
}


@pytest.mark.parametrize("expression", VALUES)
def test_a_result_keeps_its_meaning_or_has_a_note(typescript: ReusedSandbox, expression: str) -> None:
    expected, kind, _ = VALUES[expression]
    run = typescript.run(f"const value = {expression};\nvalue")
    assert (run.error, run.result) == (None, expected)
    notes = [(note["kind"], note["path"].startswith("result")) for note in run.end.get("notes", [])]
    assert notes == ([(kind, True)] if kind else [])


@pytest.mark.parametrize("expression", VALUES)
def test_an_argument_is_never_changed(typescript: ReusedSandbox, broker: FakeBrokerCalls, expression: str) -> None:
    result, _, expected = VALUES[expression]
    run = typescript.run(f'await callMcpTool("s.echo", {{ value: {expression} }});\n1', tools=broker.job)
    if expected is REFUSED:
        assert (run.error["type"], "InvalidArguments" in run.error["message"]) == ("ToolError", True), run.error
        assert "value" in run.error["message"]
        assert broker.calls == []
    else:
        assert run.error is None
        assert broker.calls[0].arguments == {"value": result if expected is SAME else expected}


def test_a_structure_that_contains_itself_is_cut(typescript: ReusedSandbox) -> None:
    run = typescript.run("const value: any = { rows: [] };\nvalue.rows.push(value);\nvalue")
    assert run.result == {"rows": ["<cycle>"]}
    assert run.end["notes"] == [{"kind": CUT, "path": "result.rows[0]", "message": "It contains itself."}]


def test_a_note_counts_its_places(typescript: ReusedSandbox) -> None:
    run = typescript.run("[NaN, NaN, NaN]")
    (note,) = run.end["notes"]
    assert (note["path"], note["message"]) == ("result[0]", "JSON has no NaN, so this is null. So in 3 places.")
