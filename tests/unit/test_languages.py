"""Only what makes a language names it: the image with its runner, wrappers, the prompt, types, commands and skills."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("common", "crds", "tools", "operator", "gateway", "broker", "client", "sandbox_image", "servers_image")
WORDS = ("typescript", "deno")
MAY_NAME = {
    "the runner and its image": ("sandbox_image/",),
    "the generator of wrappers, and signatures in searches": (
        "tools/mcp_exec_tools/languages.py",
        "tools/mcp_exec_tools/overlays/",
        "tools/mcp_exec_tools/search/entries.py",
        "tools/mcp_exec_tools/search/synonyms.py",
        "tools/mcp_exec_tools/wrappers/",
    ),
    "the prompt": ("tools/mcp_exec_tools/prompt.py",),
    "the types of the API": ("crds/mcp_exec_api/",),
    "the command line": ("client/mcp_exec_client/cli/",),
    "skills": (
        "common/mcp_exec_common/skills/",
        "operator/mcp_exec_operator/features/skills/",
    ),
}
"""Folders and modules that may name a language, by their part. docs/internals/add-a-language.md lists the parts."""


def list_names(tree: ast.Module) -> Iterator[str]:
    """Yield the identifiers and texts of a module, without its docstrings."""
    docstrings = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        for _, value in ast.iter_fields(node):
            if isinstance(value, str) and id(node) not in docstrings:
                yield value
        if isinstance(node, ast.Global | ast.Nonlocal):
            yield from node.names


@cache
def list_naming_modules() -> list[str]:
    """Return the product's modules that name a language in their code."""
    return [
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if any(word in name.lower() for name in list_names(ast.parse(path.read_text())) for word in WORDS)
    ]


def test_no_other_module_names_a_language() -> None:
    allowed = tuple(place for places in MAY_NAME.values() for place in places)
    assert [module for module in list_naming_modules() if not module.startswith(allowed)] == []


def test_each_place_that_may_name_a_language_does_so() -> None:
    naming = list_naming_modules()
    unused = [
        place
        for part, places in MAY_NAME.items()
        for place in places
        if part != "the runner and its image" and not any(module.startswith(place) for module in naming)
    ]
    assert unused == []


@pytest.mark.parametrize(
    "code",
    ["x = 'TypeScript'", "from a.typescript import b", "def run_deno(): ...", "x = f'{y} in typescript'", "a.deno"],
)
def test_a_name_a_text_or_an_import_names_a_language(code: str) -> None:
    assert any(word in name.lower() for name in list_names(ast.parse(code)) for word in WORDS)


def test_a_docstring_may_compare_languages() -> None:
    code = '"""As in TypeScript."""\ndef f():\n    "As in Deno."\nx: int\n"""TypeScript."""\n'
    assert not any(word in name.lower() for name in list_names(ast.parse(code)) for word in WORDS)
