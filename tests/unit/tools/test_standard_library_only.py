"""The tools package is part of the sandbox image and imports the standard library only."""

import ast
from pathlib import Path

import mcp_exec_tools

FOLDER = Path(mcp_exec_tools.__file__).parent


def test_the_package_itself_imports_nothing():
    tree = ast.parse((FOLDER / "__init__.py").read_text())
    assert [type(node) for node in tree.body] == [ast.Expr]
