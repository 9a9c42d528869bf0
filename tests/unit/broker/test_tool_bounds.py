"""Bounds of a server's tools: the offender is left out alone, and no check takes long."""

from typing import Any

import pytest

from mcp_exec_broker.core.upstream.tool_listing import ToolCollector

Object = dict[str, Any]


def tool(name: str = "good", schema: Any = None, **fields: Any) -> Object:
    return {"name": name, "inputSchema": {"type": "object"} if schema is None else schema, **fields}


def nested(depth: int) -> Object:
    schema: Object = {"type": "string"}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


def laughs(levels: int) -> Object:
    """Return a schema whose definitions refer twice to the next one."""
    definitions = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"$defs": {**definitions, f"d{levels}": {"type": "string"}}, "$ref": "#/$defs/d0"}


OFFENDERS = {
    "long name": tool("x" * 129),
    "empty name": tool(""),
    "spaces": tool("delete all"),
    "a star": tool("*"),
    "a Cyrillic letter": tool("d\u0435lete"),
    "a bidi mark": tool("good\u202e"),
    "a control character": tool("good\x00"),
    "a quote": tool('"""good'),
    "annotations": tool(annotations={"title": "x" * 5000}),
    "schema bytes": tool(schema={"description": "x" * 200_000}),
    "output bytes": tool(outputSchema={"description": "x" * 200_000}),
    "depth": tool(schema=nested(100)),
    "nodes": tool(schema={"allOf": [[1] * 1000 for _ in range(20)]}),
    "properties": tool(schema={"properties": {str(number): {} for number in range(501)}}),
    "an enumeration": tool(schema={"enum": list(range(2001))}),
    "references that double": tool(schema=laughs(25)),
    "references in a chain": tool(
        schema={"$defs": {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(40)}, "$ref": "#/$defs/d0"}
    ),
    "references to large parts": tool(
        schema={"$defs": {"big": {"enum": list(range(500))}}, "anyOf": [{"$ref": "#/$defs/big"}] * 400}
    ),
}


@pytest.mark.parametrize("kind", OFFENDERS)
def test_a_tool_that_exceeds_a_bound_is_left_out_alone(kind: str) -> None:
    collector = ToolCollector()
    collector.add_all([tool("first"), OFFENDERS[kind], tool("last")])
    assert [each["name"] for each in collector.tools] == ["first", "last"]
    [omitted] = collector.omitted
    assert (omitted.name.isascii(), omitted.name.isprintable()) == (True, True)
    assert len(omitted.name) <= 80
    assert 10 < len(omitted.reason) < 200


def test_a_long_description_is_cut_and_its_tool_stays() -> None:
    collector = ToolCollector()
    collector.add_all([tool("long", description="It counts. " + "x" * 200_000)])
    [kept] = collector.tools
    assert (kept["description"][:11], len(kept["description"]), collector.omitted) == ("It counts. ", 16_384, [])


def test_usual_schemas_are_within_all_bounds() -> None:
    recursive = {"$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}, "other": {"$ref": "#"}}}}}
    collector = ToolCollector()
    collector.add_all(
        [tool("a.b-c_d/e:1"), tool("deep", nested(40)), tool("tree", recursive | {"$ref": "#/$defs/node"})]
    )
    assert (len(collector.tools), collector.omitted) == (3, [])


def test_the_first_of_two_tools_with_one_name_counts() -> None:
    collector = ToolCollector()
    collector.add_all([tool("same", description="first"), tool("same", description="second")])
    assert [each["description"] for each in collector.tools] == ["first"]
    assert collector.omitted_count == 1


@pytest.mark.parametrize(
    ("number", "made", "most"),
    [
        (3000, lambda n: tool(f"t{n}"), 2000),
        (200, lambda n: tool(f"t{n}", {"description": "x" * 100_000}), 42),
        (60, lambda n: tool(f"t{n}", {"allOf": [[1] * 999] * 9}), 22),
    ],
)
def test_a_server_has_bounds_too(number: int, made: Any, most: int) -> None:
    collector = ToolCollector()
    collector.add_all(made(each) for each in range(number))
    assert 0 < len(collector.tools) <= most
    assert collector.omitted_count == number - len(collector.tools)
    assert len(collector.omitted) == 20
    assert collector.is_full or most == 22


def test_the_check_of_a_whole_catalog_of_offenders_ends() -> None:
    parts = {f"d{number}": {"enum": list(range(1900))} for number in range(5)}
    schema = {"$defs": parts, "anyOf": [{"$ref": f"#/$defs/d{number}"} for number in range(5)]}
    collector = ToolCollector()
    collector.add_all(tool(f"t{number}", schema) for number in range(200))
    assert collector.is_full
    assert -60_000 < collector.steps_left <= 0
