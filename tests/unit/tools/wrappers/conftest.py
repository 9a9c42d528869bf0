"""Catalogs of real servers, and wrappers that call the sandbox's client up to the network."""

import importlib
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mcp_exec_broker.core.validation.values import ArgumentValidator
from mcp_exec_sandbox.sdk import client
from mcp_exec_sandbox.tools import tool_session
from mcp_exec_sandbox.tools.arguments import encode_arguments
from mcp_exec_sandbox.tools.tool_session import ToolSession
from mcp_exec_tools.catalog import Catalog
from mcp_exec_tools.names import split_tool
from mcp_exec_tools.wrappers import build_files

ROOT = Path(__file__).parents[4]
FOLDERS = (ROOT / "servers" / "catalogs", ROOT / "tests" / "data" / "catalogs")

Load = Callable[[Sequence[Catalog]], Callable[[str], ModuleType]]


class Echo(ToolSession):
    """Fake broker that parses each call, finds the tool, validates its arguments and returns both."""

    def __init__(self) -> None:
        super().__init__(broker=None, emit=lambda event: None, workspace=Path())
        self.catalogs: dict[str, Catalog] = {}
        self.sent: dict[str, Any] = {}
        """The arguments of the last call as the server gets them."""
        self._checks = ArgumentValidator()

    async def call(self, tool: str, arguments: Mapping[str, Any], timeout_seconds: float | None) -> Any:
        received = json.loads(encode_arguments(tool, arguments))
        server, name = split_tool(tool)
        catalog = self.catalogs[server]
        self.sent = self._checks.validate(catalog.spellings[name], received, catalog_hash=catalog.hash).arguments
        return await self.answer(server, name, received)

    async def answer(self, server: str, name: str, arguments: dict[str, Any]) -> Any:
        """Return the tool's result."""
        return {"tool": f"{server}.{name}", "arguments": arguments}


def real_catalogs() -> list[Catalog]:
    paths = sorted(path for folder in FOLDERS for path in folder.glob("*.json"))
    return [Catalog.from_tools((data := json.loads(path.read_text()))["server"], data["tools"]) for path in paths]


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture(scope="module")
def echo() -> Iterator[Echo]:
    """Install the fake broker as the session of wrappers."""
    before, made = tool_session.get_session(), Echo()
    tool_session.set_session(made)
    yield made
    tool_session.set_session(before)


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory, echo: Echo) -> Iterator[Load]:
    """Return a function that writes wrappers as a separate package and imports its modules."""
    before, path_before = dict(sys.modules), list(sys.path)
    folder = tmp_path_factory.mktemp("wrapped")
    sys.modules["client"] = client
    sys.path.insert(0, str(folder))
    numbers = itertools.count()

    def loader(catalogs: Sequence[Catalog]) -> Callable[[str], ModuleType]:
        package = f"wrapped_{next(numbers)}"
        write(folder / package, {"__init__.py": "", **build_files(catalogs)})
        importlib.invalidate_caches()
        echo.catalogs = {catalog.server: catalog for catalog in catalogs}
        return lambda name: importlib.import_module(f"{package}.{name}")

    yield loader
    sys.path[:] = path_before
    for name in set(sys.modules) - set(before):
        del sys.modules[name]
    if "client" in before:
        sys.modules["client"] = before["client"]
