"""Packages of servers whose modules are imported on first use: one tool that is imported loads one tool."""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from mcp_exec_tools.names import fold


class LazyPackage(ModuleType):
    """Package that has a tool's function where Python would put the module of the same name."""

    def __setattr__(self, name: str, value: Any) -> None:
        # The import system binds each module that it has loaded to its package, also where that has a function.
        if isinstance(value, ModuleType) and value.__name__ == f"{self.__name__}.{name}":
            value = value.__dict__.get(name, value)
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__dict__.get("__all__", ())})


def load_lazily(package: str, names: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Make a package load its modules on first use, and return its `__getattr__`.

    A name in another spelling is found too: `executeSQL` and `ExecuteSql` are `execute_sql`, unless several functions
    have this spelling.

    Args:
        package: the name of the package, which is being imported.
        names: what each module defines; its function has the module's name.
    """
    module = sys.modules[package]
    module.__class__ = LazyPackage
    homes = {name: home for home, defined in names.items() for name in defined}

    def load(name: str) -> Any:
        own = name if name in homes else None if name.startswith("_") else _find_spelling(name, names)
        if own is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)
        value = getattr(importlib.import_module(f"{package}.{homes[own]}"), own)
        module.__dict__[name] = value
        return value

    return load


def _find_spelling(name: str, functions: Mapping[str, Any]) -> str | None:
    folded = fold(name)
    found = [function for function in functions if fold(function) == folded] if folded else []
    return found[0] if len(found) == 1 else None
