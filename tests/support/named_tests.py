"""Names of tests that documents and tables refer to: FILE or FILE::FUNCTION."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_NAME: Final = re.compile(r"tests/[\w/]+\.py(?:::\w+)?")


def find_test_names(text: str) -> list[str]:
    """Return the tests that a text names."""
    return _NAME.findall(text)


def is_test(name: str) -> bool:
    """Return whether a file, and the function in it, exist."""
    path, _, function = name.partition("::")
    return path in _files() and (not function or function in _functions(path))


@cache
def _files() -> frozenset[str]:
    return frozenset(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))


@cache
def _functions(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in tree.body if isinstance(node, kinds) and node.name.startswith("test_"))
