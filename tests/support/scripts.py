"""Modules of scripts that no package contains, for tests of their functions."""

import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType

HACK = Path(__file__).parents[2] / "hack"


def load(path: str) -> ModuleType:
    """Execute a file below hack/, whatever its suffix, and return its module."""
    loader = importlib.machinery.SourceFileLoader(path.replace("/", "_").removesuffix(".py"), str(HACK / path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec
    found = importlib.util.module_from_spec(spec)
    loader.exec_module(found)
    return found
