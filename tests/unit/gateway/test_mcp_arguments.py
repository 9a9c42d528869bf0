"""Arguments of MCP tools as models write them: read if they can mean one thing only, else left for the error."""

from typing import Any

import pytest
from mcp_types import Tool

from mcp_exec_gateway.features.mcp.code_mode.arguments import read_arguments
from mcp_exec_gateway.features.mcp.code_mode.definitions import (
    READ_FILE,
    RUN_CODE,
    RUN_SKILL,
    SEARCH_TOOLS,
    TOOLS,
    WRITE_FILE,
)

READ: list[tuple[Tool, dict[str, Any], dict[str, Any]]] = [
    (RUN_CODE, {"code": "1", "session": "", "workspace": "", "description": ""}, {"code": "1"}),
    (RUN_CODE, {"code": "1", "session": None, "timeout": "", "context": "", "tools": ""}, {"code": "1"}),
    (RUN_CODE, {"code": "None", "timeout": "None", "context": "null", "tools": " null "}, {"code": "None"}),
    (RUN_CODE, {"code": "null", "description": "null"}, {"code": "null", "description": "null"}),
    (RUN_CODE, {"code": ""}, {"code": ""}),
    (RUN_CODE, {"timeout": "5"}, {"timeout": 5}),
    (RUN_CODE, {"timeout": " 60.0 "}, {"timeout": 60}),
    (RUN_CODE, {"timeout": 60.0}, {"timeout": 60}),
    (RUN_CODE, {"context": '{"a": [1, "b"]}'}, {"context": {"a": [1, "b"]}}),
    (RUN_CODE, {"tools": '["github.get_*", "slack.post"]'}, {"tools": ["github.get_*", "slack.post"]}),
    (RUN_CODE, {"tools": "github.get_*, slack.post"}, {"tools": ["github.get_*", "slack.post"]}),
    (RUN_CODE, {"tools": "[]"}, {"tools": []}),
    (
        RUN_SKILL,
        {"name": "n", "version": "2", "arguments": '{"x": 1}'},
        {"name": "n", "version": 2, "arguments": {"x": 1}},
    ),
    (READ_FILE, {"workspace": "w", "path": "", "offset": "20000"}, {"workspace": "w", "offset": 20000}),
    (WRITE_FILE, {"workspace": "w", "path": "a", "content": ""}, {"workspace": "w", "path": "a", "content": ""}),
    (WRITE_FILE, {"workspace": "w", "path": "a", "content": "[1]"}, {"workspace": "w", "path": "a", "content": "[1]"}),
    (SEARCH_TOOLS, {"query": "", "limit": "5", "detail_level": ""}, {"query": "", "limit": 5}),
]


@pytest.mark.parametrize(("tool", "given", "read"), READ)
def test_what_can_mean_one_thing_is_read(tool: Tool, given: dict[str, Any], read: dict[str, Any]) -> None:
    assert read_arguments(tool, given) == read


@pytest.mark.parametrize(
    "given",
    [
        {"timeout": "soon"},
        {"timeout": "5 s"},
        {"timeout": "1e3"},
        {"timeout": "5.5"},
        {"timeout": 5.5},
        {"timeout": "9" * 5000},
        {"timeout": "\u0665"},
        {"context": "a text"},
        {"context": "[1]"},
        {"context": '{"a": 1, "a": 2}'},
        {"context": '{"a": NaN}'},
        {"context": '{"a": "\ud800"}'},
        {"context": '{"a":' * 100_000},
        {"tools": '["a.b"'},
        {"tools": "a b"},
        {"tools": "a.b," * 5000},
        {"session": 5},
        {"unknown": ""},
        {"code": 5},
    ],
)
def test_all_else_is_left_as_it_is(given: dict[str, Any]) -> None:
    assert read_arguments(RUN_CODE, given) == given


def test_schemas_say_which_texts_are_legal() -> None:
    properties = RUN_CODE.input_schema["properties"]
    for name in ("session", "workspace"):
        assert {"minLength", "maxLength", "pattern"} <= properties[name].keys()
    for tool in TOOLS:
        assert set(tool.input_schema["required"]) <= tool.input_schema["properties"].keys()
