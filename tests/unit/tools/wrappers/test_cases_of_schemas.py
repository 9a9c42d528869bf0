"""What servers list, what code reads of it, and what a call sends: each row is a schema that broke other clients.

The signature is Python, its names are those that code must write, and a call by it reaches the server by the tool's own
names. The calls go through the sandbox's client and the broker's validation. What a server answers (an error with other
structured content, declared output that is not sent) is tested in tests/component/broker/test_output_validation.py, and
malformed lists in tests/unit/broker/test_tool_listing.py.
"""

import ast
import asyncio
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest
from tests.unit.tools.wrappers.conftest import Echo, Load

from mcp_exec_broker.core.errors import ToolCallError
from mcp_exec_sandbox.sdk import client
from mcp_exec_sandbox.tools.errors import ToolError
from mcp_exec_tools.catalog import Catalog
from mcp_exec_tools.schemas.model_schema import build_model_schema
from mcp_exec_tools.schemas.parameters import read_parameters
from mcp_exec_tools.wrappers import build_files
from mcp_exec_tools.wrappers.signature import format_signature

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}
FULL_WIDTH_ID = "\uff49\uff44"

Sent = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A schema, the signature of its tool `f`, and calls as code writes them with the arguments that arrive."""

    case: str
    schema: Any
    signature: str
    calls: list[tuple[str, Sent]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Calls that never reach the server."""


def objects(*names: str, **more: Any) -> dict[str, Any]:
    """Return the schema of an object with texts."""
    return {"type": "object", "properties": dict.fromkeys(names, TEXT), **more}


CASES = [
    Case(
        case="C1 only a root anyOf",
        schema={
            "type": "object",
            "anyOf": [objects("content", required=["content"]), objects("source_url", required=["source_url"])],
        },
        signature="f(content: Annotated[str, 'pass either content, or source_url, or both'] = None, "
        "source_url: str = None)",
        calls=[
            ("f('x')", {"content": "x"}),
            ("f(source_url='u')", {"source_url": "u"}),
            ("f(content=None, source_url='u')", {"source_url": "u"}),
            ("f({'content': 'x'})", {"content": "x"}),
        ],
        refused=["f()", "f(other='x')", "f(content=5)"],
    ),
    Case(
        case="C1 a root oneOf with a discriminator, through $ref and allOf",
        schema={
            "allOf": [{"$ref": "#/$defs/Base"}],
            "oneOf": [{"$ref": "#/$defs/File"}, {"$ref": "#/$defs/Link"}],
            "$defs": {
                "Base": {"properties": {"id": NUMBER}, "required": ["id"]},
                "File": {"properties": {"kind": {"const": "file"}, "path": TEXT}, "required": ["kind", "path"]},
                "Link": {"properties": {"kind": {"const": "link"}, "url": TEXT}, "required": ["kind"]},
            },
        },
        signature="f(id: Annotated[int, \"pass either kind='file' and path, or kind='link' and optionally url\"], "
        "kind: Literal['file', 'link'], path: str = None, url: str = None)",
        calls=[
            ("f(1, 'file', 'p')", {"id": 1, "kind": "file", "path": "p"}),
            ("f(1, 'link')", {"id": 1, "kind": "link"}),
        ],
        refused=["f(1, 'file')", "f(1)"],
    ),
    Case(
        case="requirements by anyOf",
        schema=objects("a", "b", "c", required=["c"], anyOf=[{"required": ["a"]}, {"required": ["b"]}]),
        signature="f(c: Annotated[str, 'pass either a, or b, or both'], a: str = None, b: str = None)",
        calls=[("f('3', '1')", {"c": "3", "a": "1"}), ("f('3', b='2')", {"c": "3", "b": "2"})],
        refused=["f('3')"],
    ),
    Case(
        case="requirements by oneOf, of several names",
        schema=objects("a", "b", "c", oneOf=[{"required": ["a", "b"]}, {"required": ["c"]}, {"required": ["from"]}]),
        signature="f(a: Annotated[str, 'pass exactly one of: a and b; c; from_'] = None, b: str = None, c: str = None, "
        "from_: Any = None)",
        calls=[("f('1', '2')", {"a": "1", "b": "2"}), ("f(from_=4)", {"from": 4})],
        refused=["f('1')", "f('1', '2', '3')"],
    ),
    Case(
        case="if, then, else, and dependent names",
        schema=objects(
            "mode",
            "path",
            "url",
            **{"if": {"properties": {"mode": {"const": "file"}}}},
            then={"required": ["path"]},
            dependentRequired={"url": ["mode"]},
            required=["mode"],
        ),
        signature="f(mode: Annotated[str, \"with mode='file', pass path; with url, pass mode too\"], path: str = None, "
        "url: str = None)",
        calls=[("f('file', 'p')", {"mode": "file", "path": "p"}), ("f('web')", {"mode": "web"})],
        refused=["f('file')"],
    ),
    Case(
        case="C4 definitions inside a property, and a reference that dangles",
        schema={
            "type": "object",
            "properties": {
                "filter": {"$ref": "#/$defs/Filter", "$defs": {"Filter": TEXT}},
                "sort": {"$ref": "#/properties/filter/$defs/Filter"},
            },
            "required": ["filter"],
        },
        signature="f(filter: Any, sort: str = None)",
        calls=[("f(['x'], 'name')", {"filter": ["x"], "sort": "name"})],
    ),
    Case(
        case="C5 keywords and dashes",
        schema=objects("from", "class", "cik-A", "$filter", "None", "1st", "items[]", required=["from"]),
        signature="f(from_: str, class_: str = None, cik_A: str = None, filter: str = None, None_: str = None, "
        "_1st: str = None, items: str = None)",
        calls=[
            ("f('a', 'b', 'c')", {"from": "a", "class": "b", "cik-A": "c"}),
            (
                "f(from_='a', cik_A='b', filter='c', None_='d')",
                {"from": "a", "cik-A": "b", "$filter": "c", "None": "d"},
            ),
            (
                "f({'from': 'a', '$filter': 'b'}, items='c', _1st='d')",
                {"from": "a", "$filter": "b", "items[]": "c", "1st": "d"},
            ),
        ],
    ),
    Case(
        case="names that are equal in code, and a name without a letter",
        schema=objects("a-b", "a.b", "a_b", "", "$"),
        signature="f(a_b_2: str = None, a_b_3: str = None, a_b: str = None, parameter_4: str = None, "
        "parameter_5: str = None)",
        calls=[
            ("f('1', '2', '3', '4', '5')", {"a-b": "1", "a.b": "2", "a_b": "3", "": "4", "$": "5"}),
            ("f(a_b='3', a_b_2='1', a_b_3='2', parameter_4='4')", {"a_b": "3", "a-b": "1", "a.b": "2", "": "4"}),
            ("f({'a.b': '2', '': '4'})", {"a.b": "2", "": "4"}),
        ],
    ),
    Case(
        case="C7 compatibility characters, decomposed accents, full-width letters",
        schema=objects("µm", "cafe\u0301", FULL_WIDTH_ID),
        signature="f(μm: str = None, café: str = None, id: str = None)",
        calls=[
            ("f(µm='3', café='c')", {"µm": "3", "cafe\u0301": "c"}),
            ("f(cafe\u0301='c', \uff49\uff44='7')", {"cafe\u0301": "c", FULL_WIDTH_ID: "7"}),
            ("f({'µm': '1', 'café': '2', 'id': '3'})", {"µm": "1", "cafe\u0301": "2", FULL_WIDTH_ID: "3"}),
            ("f({'μm': '1'}, id='3')", {"µm": "1", FULL_WIDTH_ID: "3"}),
        ],
    ),
    Case(
        case="names in other scripts",
        schema=objects("日本語", "имя", "größe", "हिन्दी", required=["имя"]),
        signature="f(имя: str, 日本語: str = None, größe: str = None, हिन्दी: str = None)",
        calls=[
            ("f(имя='a', 日本語='b', größe='c', हिन्दी='d')", {"имя": "a", "日本語": "b", "größe": "c", "हिन्दी": "d"})
        ],
    ),
    Case(
        case="C12 names of the caller's own parameters",
        schema=objects(
            *["tool", "name", "self", "values", "arguments", "parameters", "spellings", "fixed", "is_open", "input"],
            *["type", "timeout", "tool_name", "result_format", "_remote_tool_name", "__class__"],
        ),
        signature="f(tool: str = None, name: str = None, self: str = None, values: str = None, arguments: str = None, "
        "parameters: str = None, spellings: str = None, fixed: str = None, is_open: str = None, input: str = None, "
        "type: str = None, timeout: str = None, tool_name: str = None, result_format: str = None, "
        "_remote_tool_name: str = None, __class__: str = None)",
        calls=[
            ("f(tool='other.tool', fixed='x', is_open='y')", {"tool": "other.tool", "fixed": "x", "is_open": "y"}),
            ("f(values='v', arguments='a', self='s')", {"values": "v", "arguments": "a", "self": "s"}),
            ("f(input='i', type='t', timeout='9')", {"input": "i", "type": "t", "timeout": "9"}),
            ("f(_remote_tool_name='r', __class__='c')", {"_remote_tool_name": "r", "__class__": "c"}),
            ("call_mcp_tool('s.f', tool_name='n', type='t', name='x')", {"tool_name": "n", "type": "t", "name": "x"}),
            ("call_mcp_tool('s.f', {'timeout': '9', 'input': 'i'})", {"timeout": "9", "input": "i"}),
        ],
    ),
    Case(
        case="defaults that break their own type, and one that is no JSON",
        schema={
            "type": "object",
            "properties": {
                "n": {"type": "integer", "default": "ten"},
                "ratio": {"type": "number", "default": float("nan")},
                "text": {"type": "string", "default": "x" * 5000},
                "page": {"type": "integer", "default": 1},
                "state": {"enum": ["on", "off"], "default": "ajar"},
            },
            "required": ["n", "page"],
        },
        signature="f(n: int, ratio: float = None, text: str = ..., page: int = 1, state: Literal['on', 'off'] = None)",
        calls=[("f(5)", {"n": 5, "page": 1}), ("f(5, state='off')", {"n": 5, "state": "off", "page": 1})],
        refused=["f()", "f(5, state='ajar')"],
    ),
    Case(
        case="values of several types",
        schema={
            "type": "object",
            "properties": {
                "mixed": {"enum": ["a", 1, True, None]},
                "rows": {"enum": [[1], {"x": 1}]},
                "listed": {"type": ["string", "integer", "null"]},
                "nullable": {"type": "string", "nullable": True},
                "maybe": {"enum": ["a"], "nullable": True},
                "pair": {"type": "array", "prefixItems": [TEXT, NUMBER]},
                "map": {"type": "object", "additionalProperties": NUMBER},
                "when": {"type": "string", "format": "date-time"},
            },
        },
        signature="f(mixed: Literal['a', 1, True, None] = None, rows: list | dict = None, "
        "listed: str | int | None = None, nullable: str | None = None, maybe: Literal['a'] | None = None, "
        "pair: list[str | int] = None, "
        "map: dict[str, int] = None, when: str = None)",
        calls=[
            ("f(mixed=1, rows={'x': 1}, pair=['a', 1])", {"mixed": 1, "rows": {"x": 1}, "pair": ["a", 1]}),
            ("f(nullable=None, maybe=None, listed=None)", {"nullable": None, "maybe": None, "listed": None}),
            ("f(when=__import__('datetime').datetime(2026, 1, 2))", {"when": "2026-01-02T00:00:00"}),
        ],
        refused=["f(pair=[1])", "f(mixed='b')", "f(map={'a': 'x'})"],
    ),
    Case(
        case="other parameters, of one type",
        schema=objects("extra", additionalProperties=NUMBER),
        signature="f(extra: str = None, **extra_: int)",
        calls=[("f(extra='e', height=3)", {"extra": "e", "height": 3})],
        refused=["f(height='tall')"],
    ),
    Case(
        case="other parameters, of any type",
        schema=objects("a", additionalProperties=True),
        signature="f(a: str = None, **extra: Any)",
        calls=[("f(a='1', b=[2])", {"a": "1", "b": [2]})],
    ),
    Case(
        case="no other parameters",
        schema=objects("a", additionalProperties=False),
        signature="f(a: str = None)",
        calls=[("f('1')", {"a": "1"})],
        refused=["f(b=2)"],
    ),
    Case(
        case="other parameters by a pattern",
        schema=objects("a", patternProperties={"^x-": NUMBER}),
        signature="f(a: str = None, **extra: int)",
        calls=[("f({'x-size': 3}, a='1')", {"x-size": 3, "a": "1"})],
        refused=["f({'x-size': 'big'})"],
    ),
    Case(
        case="recursion through $defs: a cycle of three",
        schema={
            "type": "object",
            "properties": {"node": {"$ref": "#/$defs/A"}},
            "required": ["node"],
            "$defs": {
                "A": {"type": "object", "properties": {"b": {"$ref": "#/$defs/B"}}},
                "B": {"type": "object", "properties": {"c": {"$ref": "#/$defs/C"}}},
                "C": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}},
            },
        },
        signature="f(node: dict)",
        calls=[("f(node={'b': {'c': {'a': {}}}})", {"node": {"b": {"c": {"a": {}}}}})],
        refused=["f(node={'b': {'c': {'a': 5}}})"],
    ),
    Case(
        case="a root that is a reference to itself",
        schema={"$ref": "#", "type": "object", "properties": {"a": TEXT}},
        signature="f(a: str = None)",
    ),
    *(
        Case(
            case=f"C13 inputSchema: {schema}", schema=schema, signature="f()", calls=[("f()", {}), ("f(a=1)", {"a": 1})]
        )
        for schema in ({}, True, None, [], {"type": "object"}, {"type": "object", "properties": None})
    ),
    Case(
        case="no parameters",
        schema=objects(),
        signature="f()",
        calls=[("f()", {})],
        refused=["f(a=1)"],
    ),
]


@pytest.fixture(scope="module")
def call(load: Load, echo: Echo) -> Callable[[Case, str], Any]:
    """Return a function that runs a call as code writes it, and returns the arguments that the server gets."""
    modules: dict[str, ModuleType] = {}

    def run(case: Case, code: str) -> Any:
        catalog = Catalog.from_tools("s", [{"name": "f", "inputSchema": case.schema}])
        modules[case.case] = load([catalog])("s")
        names = {"f": modules[case.case].f, "call_mcp_tool": client.call_mcp_tool}
        asyncio.run(eval(code, names))
        return echo.sent

    return run


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.case)
def test_the_signature_shows_what_code_must_write(case: Case) -> None:
    [tool] = Catalog.from_tools("s", [{"name": "f", "inputSchema": case.schema}]).tools
    assert format_signature("f", tool.input_schema, None) == case.signature


@pytest.mark.parametrize(
    ("case", "code", "sent"),
    [pytest.param(case, *each, id=f"{case.case}: {each[0]}") for case in CASES for each in case.calls],
)
def test_a_call_by_the_signature_reaches_the_server(
    case: Case, code: str, sent: Sent, call: Callable[[Case, str], Any]
) -> None:
    assert call(case, code) == sent


@pytest.mark.parametrize(
    ("case", "code"), [pytest.param(case, code, id=f"{case.case}: {code}") for case in CASES for code in case.refused]
)
def test_a_call_that_the_schema_forbids_is_refused(case: Case, code: str, call: Callable[[Case, str], Any]) -> None:
    with pytest.raises((ToolError, ToolCallError)):
        call(case, code)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.case)
def test_a_signature_is_python_with_each_parameter_once(case: Case) -> None:
    [tool] = Catalog.from_tools("s", [{"name": "f", "inputSchema": case.schema}]).tools
    [definition] = ast.parse(f"async def {format_signature('f', tool.input_schema, None)}: ...").body
    assert isinstance(definition, ast.AsyncFunctionDef)
    names = [argument.arg for argument in definition.args.args]
    assert names == list(read_parameters(tool.input_schema).code_names.values())
    assert len({unicodedata.normalize("NFKC", name) for name in names}) == len(names)


def test_the_docstring_and_the_model_get_the_rules_in_sentences() -> None:
    schema = CASES[0].schema
    files = build_files([Catalog.from_tools("s", [{"name": "f", "description": "Attach.", "inputSchema": schema}])])
    assert "    Pass either content, or source_url, or both.\n" in files["s/f.py"]
    model = build_model_schema(schema, "Attach.")
    assert model.description == "Attach.\n\nPass either content, or source_url, or both."
    assert list(model.schema["properties"]) == ["content", "source_url"]


def test_an_output_may_be_recursive_and_the_list_long(load: Load, echo: Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    """C3: three definitions that refer to one another, and a result of 300 KB."""
    output = {
        "type": "object",
        "properties": {"rows": {"type": "array", "items": {"$ref": "#/$defs/A"}}},
        "$defs": {
            "A": {"type": "object", "properties": {"b": {"$ref": "#/$defs/B"}, "name": TEXT}},
            "B": {"type": "object", "properties": {"c": {"type": "array", "items": {"$ref": "#/$defs/C"}}}},
            "C": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}},
        },
    }
    catalog = Catalog.from_tools("s", [{"name": "f", "outputSchema": output}])
    source = build_files([catalog])["s/f.py"]
    assert {"class FResponseA(TypedDict):", "class FResponse(TypedDict):"} <= set(source.splitlines())
    rows = {"rows": [{"name": "x" * 90, "b": {"c": [{"a": {"name": "y"}}]}}] * 2500}

    async def answer(*arguments: Any) -> Any:
        return rows

    monkeypatch.setattr(echo, "answer", answer)
    assert asyncio.run(load([catalog])("s").f()) == rows


def test_names_that_collide_become_three_functions() -> None:
    """C8: a name in snake_case stays, the others have suffixes that do not depend on the server's other tools."""
    names = ["weather.get", "weather-get", "weather_get"]
    functions = {tool.name: tool.function for tool in Catalog.from_tools("s", [{"name": name} for name in names]).tools}
    assert functions["weather_get"] == "weather_get"
    assert len(set(functions.values())) == 3
    alone = Catalog.from_tools("s", [{"name": name} for name in names[1:]]).tools
    assert {tool.name: tool.function for tool in alone} == {name: functions[name] for name in names[1:]}


def test_tools_in_other_scripts_keep_their_names(load: Load) -> None:
    catalog = Catalog.from_tools("s", [{"name": name, "inputSchema": objects("a")} for name in ("天気", "получитьИмя")])
    package = load([catalog])("s")
    assert asyncio.run(package.天気(a="1"))["tool"] == "s.天気"
    assert asyncio.run(package.получить_имя(a="1"))["tool"] == "s.получитьИмя"


def test_a_giant_description_stays_bounded_text() -> None:
    """C13: 200 KB with the end of a docstring, a mark that reverses text, and control characters."""
    text = 'Count. """\nraise SystemExit\n"""' + "\u202e\x00\x1b[31m" + "x" * 200_000
    catalog = Catalog.from_tools("s", [{"name": "f", "description": text, "inputSchema": objects("a")}])
    source = build_files([catalog])["s/f.py"]
    assert len(source) < 10_000
    assert not {"\u202e", "\x00", "\x1b"} & set(source)
    assert not any(isinstance(node, ast.Raise) for node in ast.walk(ast.parse(source)))
    model = build_model_schema(catalog.tools[0].input_schema, text)
    assert model.description.startswith("Count. ")
    assert len(model.description.encode()) <= 2000
    assert not {"\u202e", "\x00", "\x1b"} & set(model.description)
