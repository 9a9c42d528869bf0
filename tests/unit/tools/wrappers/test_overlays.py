"""Overlays: aliases of tools, and functions composed of tools."""

import ast
import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.unit.tools.wrappers.conftest import Load, real_catalogs

from mcp_exec_sandbox.tools.errors import ToolError
from mcp_exec_tools.catalog import Catalog
from mcp_exec_tools.overlays import load_shipped
from mcp_exec_tools.wrappers import Overlay, build_files


def context7() -> Catalog:
    return next(each for each in real_catalogs() if each.server == "context7")


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"context7CompatibleLibraryID": "/a/b", "topic": "hooks"}, {"libraryId": "/a/b", "query": "hooks"}),
        ({"context7CompatibleLibraryID": "/a/b", "tokens": 5000}, {"libraryId": "/a/b", "query": "getting started"}),
        ({"context7_compatible_library_id": "/a/b"}, {"libraryId": "/a/b", "query": "getting started"}),
        ({"libraryId": "/a/b", "query": "hooks"}, {"libraryId": "/a/b", "query": "hooks"}),
        ({"library_id": "/a/b", "topic": None}, {"libraryId": "/a/b", "query": "getting started"}),
    ],
)
def test_an_alias_calls_the_new_tool_with_the_old_parameters(given: Any, sent: Any, load: Load) -> None:
    package = load([context7()])("context7")
    for answer in (package.get_library_docs(given), package.getLibraryDocs(**given)):
        assert asyncio.run(answer) == {"tool": "context7.query-docs", "arguments": sent}


def test_an_alias_refuses_unknown_parameters(load: Load) -> None:
    package = load([context7()])("context7")
    with pytest.raises(ToolError, match="there is no parameter page"):
        asyncio.run(package.get_library_docs(libraryId="/a/b", page=2))


def test_documentation_is_found_by_a_librarys_name(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    importer = load([context7()])
    package = importer("context7")
    composed = importer("context7.get_docs_by_name")

    async def resolve(**arguments: Any) -> str:
        assert arguments["query"] == "routing"
        if arguments["libraryName"] == "nothing":
            return "No libraries found"
        return f"- Title: X\n- Context7-compatible library ID: /org/{arguments['libraryName']}\n- Description: y"

    async def query(**arguments: Any) -> str:
        return f"docs of {arguments['libraryId']} on {arguments['query']}"

    monkeypatch.setattr(composed, "resolve_library_id", resolve)
    monkeypatch.setattr(composed, "query_docs", query)
    assert asyncio.run(package.get_docs_by_name("next.js", "routing")) == "docs of /org/next.js on routing"
    assert asyncio.run(package.compareLibraries(["a", "b"], "routing")) == {
        "a": "docs of /org/a on routing",
        "b": "docs of /org/b on routing",
    }
    with pytest.raises(composed.ToolError, match="there is no library 'nothing'"):
        asyncio.run(package.get_docs_by_name("nothing", "routing"))


def test_a_functions_schema_matches_its_parameters() -> None:
    for overlay in load_shipped().values():
        for name, function in overlay.functions.items():
            (defined,) = (each for each in ast.parse(function.source).body if isinstance(each, ast.AsyncFunctionDef))
            schema, named = function.input_schema, [each.arg for each in defined.args.args]
            if named:
                assert (defined.name, list(schema["properties"])) == (name, named)
                assert schema["required"] == named[: len(named) - len(defined.args.defaults)]
            listed = re.findall(r"^    (\w+): .*?(\(optional\))?$", ast.get_docstring(defined) or "", re.MULTILINE)
            assert [each for each, _ in listed] == list(schema["properties"])


def test_an_overlay_follows_the_tools_and_not_the_servers_name() -> None:
    renamed = Catalog.from_tools("docs", [tool.to_json() for tool in context7().tools])
    assert "docs/compare_libraries.py" in build_files([renamed])
    without = Catalog.from_tools("context7", [tool.to_json() for tool in context7().tools if tool.name != "query-docs"])
    assert sorted(build_files([without])) == ["context7/__init__.py", "context7/resolve_library_id.py"]


def test_a_tool_keeps_its_name_against_an_overlay() -> None:
    tools = [*(tool.to_json() for tool in context7().tools), {"name": "get_library_docs", "description": "Its own."}]
    assert (
        "context7.get_library_docs"
        in build_files([Catalog.from_tools("context7", tools)])["context7/get_library_docs.py"]
    )


def test_githubs_newer_server_has_the_names_of_the_older_one(load: Load) -> None:
    schema = {"type": "object", "properties": {name: {} for name in ("method", "owner", "repo", "title")}}
    names = ("issue_write", "search_code", "get_file_contents")
    package = load([Catalog.from_tools("github", [{"name": name, "inputSchema": schema} for name in names])])("github")
    answer = asyncio.run(package.create_issue({"owner": "o", "repo": "r"}, title="t"))
    assert answer["tool"] == "github.issue_write"
    assert answer["arguments"] == {"owner": "o", "repo": "r", "title": "t", "method": "create"}
    assert asyncio.run(package.updateIssue(owner="o"))["arguments"]["method"] == "update"


@pytest.mark.parametrize(
    "data",
    [
        {"alias": {}},
        {"aliases": {"a": {"tool": "t", "parameters": {}}}},
        {"aliases": {"../a": {"tool": "t"}}},
        {"functions": {"a": {"needs": [], "summary": "", "code": ""}}},
    ],
)
def test_an_invalid_overlay_is_refused(tmp_path: Path, data: Any) -> None:
    (tmp_path / "overlay.json").write_text(json.dumps(data))
    with pytest.raises(ValueError, match=r"has no field|not a valid function name|must map to"):
        Overlay.load(tmp_path)
