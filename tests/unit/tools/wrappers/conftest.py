"""Catalogs of real servers, and wrappers as modules beside a `client` that echoes."""

import importlib
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pytest

from mcp_exec_api.tools.catalog import Catalog

ROOT = Path(__file__).parents[4]
FOLDERS = (ROOT / "servers" / "catalogs", ROOT / "tests" / "data" / "catalogs")

CLIENT = '''"""The module `client`, as far as wrappers need it."""

from collections.abc import Mapping
from typing import Any


class ToolError(Exception):
    """A call failed."""


async def call_wrapped(
    tool: str,
    input: Mapping[str, Any] | None,
    arguments: Mapping[str, Any],
    parameters: Mapping[str, bool],
    spellings: Mapping[str, str] = {},
) -> Any:
    """Answers with what it was called with."""
    given = {**(input or {}), **{spellings.get(name, name): value for name, value in arguments.items()}}
    return {"tool": tool, "arguments": given, "parameters": dict(parameters)}
'''

Load = Callable[[Mapping[str, str]], Callable[[str], ModuleType]]


def real_catalogs() -> list[Catalog]:
    paths = sorted(path for folder in FOLDERS for path in folder.glob("*.json"))
    return [Catalog.of((data := json.loads(path.read_text()))["server"], data["tools"]) for path in paths]


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Load]:
    """Writes wrappers as a package of their own and imports modules of it."""
    before, path_before = dict(sys.modules), list(sys.path)
    folder = tmp_path_factory.mktemp("wrapped")
    client = ModuleType("client")
    exec(CLIENT, client.__dict__)
    sys.modules["client"] = client
    sys.path.insert(0, str(folder))
    numbers = itertools.count()

    def loader(files: Mapping[str, str]) -> Callable[[str], ModuleType]:
        package = f"wrapped_{next(numbers)}"
        write(folder / package, {"__init__.py": "", **files})
        importlib.invalidate_caches()
        return lambda name: importlib.import_module(f"{package}.{name}")

    yield loader
    sys.path[:] = path_before
    for name in set(sys.modules) - set(before):
        del sys.modules[name]
    if "client" in before:
        sys.modules["client"] = before["client"]
