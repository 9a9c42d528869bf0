"""A hostile catalog: names, texts and schemas."""

import itertools
from typing import Any

from mcp_exec_tools.catalog import Catalog


def _nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for level in range(depth):
        schema = {"type": "object", "properties": {"a": schema}} if level % 2 else {"type": "array", "items": schema}
    return schema


HOSTILE_NAMES = (
    "__import__('os')",
    "../../x",
    "/etc/passwd",
    "class",
    "import",
    "match",
    "None",
    "日本",
    "日本語",
    "Ünïcödé",
    "-",
    "_",
    "__",
    "1",
    "a" * 10_000,
    "B" * 10_000,
    "createIssue",
    "create_issue",
    "CreateIssue",
    "CREATE_ISSUE",
    "create-issue",
    "list",
    "dict",
    "str",
    "int",
    "bool",
    "float",
    "input",
    "client",
    "overload",
    "typing",
    "builtins",
    "any",
    "self",
    "answer",
    "arguments",
    "call_wrapped",
    "_call_wrapped",
    "__init__",
    "__all__",
    "x\ny",
    "x\0y",
    "\ud800",
    "a.b",
    "a/b",
)

HOSTILE_TEXTS = (
    '"""',
    '"""\nimport os\nraise SystemExit(9)\n"""',
    '"\n',
    "'''",
    "\\",
    "a\\",
    '"',
    '""',
    'x"',
    '"x',
    "end\\\\\\",
    "\0\r\n\x0c\x1b[31m\u2028\u202ex",
    "  indented\n    more\n\t\ttab\n",
    "x" * 100_000,
    "日本語" * 60,
    "{__import__('os')} %s",
    "# comment",
    " \n\n\n x",
    "\ud800",
    "a\n\n\n  b\n c\\",
    "A " * 30 + "\n" + "B. " * 60,
    "One. Two.\n- three",
)

HOSTILE_SCHEMAS: tuple[Any, ...] = (
    {"$ref": "#/$defs/p0", "$defs": {f"p{at}": {"allOf": [{"$ref": f"#/$defs/p{at + 1}"}] * 30} for at in range(30)}},
    {"$ref": "#/$defs/p0", "$defs": {f"p{at}": {"anyOf": [{"$ref": f"#/$defs/p{at + 1}"}] * 30} for at in range(30)}},
    True,
    False,
    None,
    [],
    "x",
    5,
    {},
    {"$ref": "#"},
    {"$ref": "http://192.0.2.1/x"},
    {"$ref": 5},
    _nested(300),
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    {
        "type": "object",
        "properties": {"n": {"$ref": "#/$defs/N"}},
        "$defs": {
            "N": {
                "type": "object",
                "properties": {
                    "v": {},
                    "next": {"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]},
                    "all": {"type": "array", "items": {"$ref": "#/$defs/N"}},
                },
                "required": ["v"],
            }
        },
    },
    {
        "type": "object",
        "properties": {"a": {"$ref": "file:///etc/passwd"}, "b": {"$ref": "#/x/y"}, "c": {"$ref": "#/%2"}},
    },
    {"type": "object", "properties": {"deep": _nested(300)}},
    {
        "type": "object",
        "properties": {
            "wide": {"enum": [f"value {number}" for number in range(5000)]},
            "c": {"const": "a\"b'c\\\n\0é\ud800"},
            "none": {"enum": []},
            "kinds": {"enum": ["a", 1, True, None, 1.5, {"x": 1}, [1], 2**70, "q" * 500]},
            "big": {"const": 2**100},
        },
        "required": ["wide", "absent", 5, None],
    },
    {
        "type": "object",
        "properties": {
            "from": {"type": "string"},
            "class": {"type": "integer"},
            "a b": {"type": "array"},
            '"]; import os': {},
            "\n": {},
            "é": {},
            "x" * 10_000: {"type": "string"},
            "$v": {"type": ["string", "null", 5]},
            "__x": {},
            "": {},
            "\ud800": {},
            "None": {},
        },
        "required": ["from"],
    },
    {
        "type": "object",
        "properties": {
            "list": {"type": "array", "items": {"type": "string"}},
            "str": {"type": "string"},
            "Any": {},
            "input": {"properties": {"input": {}}},
            "other": {"type": "array", "items": {"type": "integer"}},
            "self": {"type": "string"},
            "arguments": {},
            "TypedDict": {},
        },
    },
    {"type": ["object"], "properties": 5, "required": "x", "additionalProperties": {"type": "string"}},
    {
        "properties": {
            "a": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False},
            "b": {"items": [{}, 5]},
            "c": {
                "oneOf": [
                    {"const": "x"},
                    {"const": "y"},
                    {"properties": {"k": {"enum": ["a" * 60, "b" * 50, "c'", 'd"']}}},
                ]
            },
            "d": {"additionalProperties": {"items": {"properties": {"z": {"nullable": True, "type": "string"}}}}},
            "f": False,
            "t": True,
        }
    },
    {
        "allOf": [
            {"properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"$ref": "#/$defs/b"},
            5,
            {"$ref": "#"},
        ],
        "$defs": {"b": {"properties": {"b": {"type": "integer"}}}},
    },
    {"anyOf": [{"type": "string"}] * 500},
    {"type": "array", "items": {"$ref": "#"}},
    {"enum": ["one", "two"]},
    {
        "properties": {
            f"p{one}": {"properties": {f"q{two}": {"properties": {"r": {}}} for two in range(5)}} for one in range(300)
        }
    },
    {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(2000)}},
    {
        "properties": {
            f"key {number} " * 8: {
                "anyOf": [
                    {"properties": {"a": {}}},
                    {"items": {"properties": {"b": {}}}},
                    {"type": "null"},
                    {"type": "integer"},
                ][: number % 5 + 1]
            }
            for number in range(20)
        }
    },
    {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]},
    {"type": "object", "x-fastmcp-wrap-result": True, "properties": {"result": 5}},
    {"type": "object", "additionalProperties": True},
    {"type": "object", "patternProperties": {"(((": 5, "x": {"type": "string"}}},
    {
        "properties": {
            "a": {
                "properties": {
                    "from": {"$ref": "#/properties/a"},
                    "l": {"anyOf": [{"$ref": "#/properties/a"}, {"type": "null"}]},
                }
            }
        }
    },
)


def hostile_catalog(server: str = "../../evil") -> Catalog:
    """Return a catalog with every hostile name, text and schema at least once."""
    texts, schemas = itertools.cycle(HOSTILE_TEXTS), itertools.cycle(HOSTILE_SCHEMAS)
    tools: list[dict[str, Any]] = [
        {"name": name, "description": next(texts), "inputSchema": next(schemas), "outputSchema": next(schemas)}
        for name in HOSTILE_NAMES
    ]
    for number, schema in enumerate(HOSTILE_SCHEMAS):
        tools.append({"name": f"schema{number}", "inputSchema": schema, "outputSchema": schema})
    for number, text in enumerate(HOSTILE_TEXTS):
        about = {"type": "string", "description": text, "default": text, "enum": [text]}
        schema = {"type": "object", "properties": {"a": about, text: {}}}
        tools.append({"name": f"text{number}", "description": text, "inputSchema": schema})
    return Catalog.from_tools(server, tools)
