"""A server that says the worst of itself gets wrappers all the same, and nothing of what it says is run."""

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
from mcp_exec_tools.wrappers import catalog_text, files_of, modules_of
from mcp_exec_tools.wrappers.text import clean, docstring, literal


def statements(source: str) -> set[str]:
    """What kinds of statement a module has."""
    return {type(node).__name__ for node in ast.parse(source).body}


def test_files_stay_inside_and_have_names_that_a_file_system_takes() -> None:
    for name in files_of([hostile_catalog(), hostile_catalog("/"), hostile_catalog("..")], stubs=True):
        path = PurePosixPath(name)
        assert len(path.parts) == 2
        assert all(len(part) < 100 and part.isascii() and part.strip("._") for part in path.parts)
        assert path.suffix in {".py", ".pyi"}


def test_only_what_wrappers_are_made_of_is_in_the_files() -> None:
    allowed = {"Expr", "ImportFrom", "Import", "ClassDef", "Assign", "AnnAssign", "AsyncFunctionDef"}
    for name, text in files_of([hostile_catalog()], stubs=True).items():
        assert statements(text) <= allowed, name
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) in {"_call_wrapped", "TypedDict"}, name
            if isinstance(node, ast.Import):
                assert [each.name for each in node.names] == ["builtins"], name
            if isinstance(node, ast.ImportFrom):
                assert node.level == 1 or node.module in {"typing", "client"}, name


def test_every_file_is_imported_and_calls_its_own_tool(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = hostile_catalog()

    async def call(tool: str, input: Any, *others: Any) -> Any:
        return {"tool": tool, "arguments": input}

    # no arguments would do for schemas that are none
    monkeypatch.setattr(client, "call_wrapped", call)
    package = load([catalog])(modules_of([catalog])[catalog.server])
    for tool in catalog.tools:
        answer = asyncio.run(getattr(package, tool.function)({"anything": 1}))
        assert answer == {"tool": f"{catalog.server}.{tool.name}", "arguments": {"anything": 1}}
    assert len({tool.function for tool in catalog.tools}) == len(catalog.tools)


def test_files_are_bounded_whatever_a_schema_says() -> None:
    for name, text in files_of([hostile_catalog()]).items():
        assert len(text) < 300_000, name


def test_servers_whose_packages_would_be_called_alike_get_two() -> None:
    catalogs = [Catalog.of(name, [{"name": "t"}]) for name in ("a.b", "a-b", "a_b", "A-B")]
    modules = modules_of(catalogs)
    assert modules["A-B"] == "A_B"
    assert len({module.casefold() for module in modules.values()}) == 4
    assert modules == modules_of(reversed(catalogs))
    assert {name.partition("/")[0] for name in files_of(catalogs)} == set(modules.values())


def test_a_catalog_is_text_in_one_order() -> None:
    catalogs = [Catalog.of("b", [{"name": "y"}, {"name": "x"}]), Catalog.of("a", [])]
    assert catalog_text(catalogs) == catalog_text(reversed(catalogs))
    assert catalog_text(catalogs).index('"a"') < catalog_text(catalogs).index('"b"')


@given(st.text())
def test_a_literal_is_the_text_it_was_made_of(text: str) -> None:
    assert ast.literal_eval(literal(text)) == text
    assert literal(text).isascii()
    assert literal(text).isprintable()


@settings(max_examples=300)
@given(st.text(alphabet="\"'\\\n\r\t ab.#日\0\x0c{}"), st.lists(st.text(alphabet="\"'\\ ab日")))
def test_a_docstring_is_one_string_whatever_it_says(summary: str, section: list[str]) -> None:
    source = "\n".join(docstring(summary, section))
    (node,) = ast.parse(source).body
    assert isinstance(node, ast.Expr)
    assert isinstance(node.value, ast.Constant)
    assert isinstance(node.value.value, str)


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_a_line_is_a_line_and_not_too_long(text: str) -> None:
    assert len(clean(text, 50)) <= 50
    assert clean(text, 50).isprintable()
