"""Wrappers of hostile catalogs: they work, and no text of the catalog is executed."""

import ast
import asyncio
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.tools.wrappers.conftest import Load
from tests.unit.tools.wrappers.hostile import HOSTILE_TEXTS, hostile_catalog

from mcp_exec_sandbox.sdk import client
from mcp_exec_tools.catalog import Catalog
from mcp_exec_tools.wrappers import assign_modules, build_files, format_catalog
from mcp_exec_tools.wrappers.python.text import format_docstring, format_literal
from mcp_exec_tools.wrappers.text import clean_line


def statements(source: str) -> set[str]:
    """Return the types of a module's statements."""
    return {type(node).__name__ for node in ast.parse(source).body}


def test_files_stay_in_the_folder_and_have_valid_names() -> None:
    for name in build_files([hostile_catalog(), hostile_catalog("/"), hostile_catalog("..")], stubs=True):
        path = PurePosixPath(name)
        assert len(path.parts) == 2
        assert all(len(part.encode()) < 200 and part.strip("._") for part in path.parts)
        assert path.stem.isidentifier()
        assert path.suffix in {".py", ".pyi"}


CALLED = {"_call_wrapped", "TypedDict", "_load_lazily", "_load", "_NAMES.values"}


def test_files_have_only_the_statements_of_wrappers() -> None:
    allowed = {"Expr", "ImportFrom", "Import", "ClassDef", "Assign", "AnnAssign", "AsyncFunctionDef"}
    for name, text in build_files([hostile_catalog()], stubs=True).items():
        assert statements(text) <= allowed | ({"FunctionDef"} if name.endswith("/__init__.py") else set()), name
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) in CALLED, name
            if isinstance(node, ast.Import):
                assert [each.name for each in node.names] == ["builtins"], name
            if isinstance(node, ast.ImportFrom):
                assert node.level == 1 or node.module in {"typing", "client"}, name


def test_every_file_is_imported_and_calls_its_own_tool(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = hostile_catalog()

    async def call(tool: str, values: Any, *others: Any, **more: Any) -> Any:
        return {"tool": tool, "arguments": values[0]}

    # No arguments satisfy an invalid schema, so this function replaces the call that validates them.
    monkeypatch.setattr(client, "call_wrapped", call)
    package = load([catalog])(assign_modules([catalog])[catalog.server])
    for tool in catalog.tools:
        answer = asyncio.run(getattr(package, tool.function)({"anything": 1}))
        assert answer == {"tool": f"{catalog.server}.{tool.name}", "arguments": {"anything": 1}}
    assert len({tool.function for tool in catalog.tools}) == len(catalog.tools)


def test_files_are_bounded_whatever_a_schema_says() -> None:
    for name, text in build_files([hostile_catalog()]).items():
        assert len(text) < 320_000, name


def test_servers_with_colliding_package_names_get_two_packages() -> None:
    catalogs = [Catalog.from_tools(name, [{"name": "t"}]) for name in ("a.b", "a-b", "a_b", "A-B")]
    modules = assign_modules(catalogs)
    assert modules["A-B"] == "A_B"
    assert len({module.casefold() for module in modules.values()}) == 4
    assert modules == assign_modules(reversed(catalogs))
    assert {name.partition("/")[0] for name in build_files(catalogs)} == set(modules.values())


def test_a_catalog_is_text_in_one_order() -> None:
    catalogs = [Catalog.from_tools("b", [{"name": "y"}, {"name": "x"}]), Catalog.from_tools("a", [])]
    assert format_catalog(catalogs) == format_catalog(reversed(catalogs))
    assert format_catalog(catalogs).index('"a"') < format_catalog(catalogs).index('"b"')


@given(st.text())
def test_a_literal_evaluates_to_its_text(text: str) -> None:
    assert ast.literal_eval(format_literal(text)) == text
    assert format_literal(text).isascii()
    assert format_literal(text).isprintable()


@settings(max_examples=300)
@given(st.text(alphabet="\"'\\\n\r\t ab.#日\0\x0c{}"), st.lists(st.text(alphabet="\"'\\ ab日")))
def test_a_docstring_of_any_text_is_one_string(summary: str, section: list[str]) -> None:
    source = "\n".join(format_docstring(summary, section))
    (node,) = ast.parse(source).body
    assert isinstance(node, ast.Expr)
    assert isinstance(node.value, ast.Constant)
    assert isinstance(node.value.value, str)


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_a_cleaned_line_is_one_line_within_its_limit(text: str) -> None:
    assert len(clean_line(text, 50)) <= 50
    assert clean_line(text, 50).isprintable()
