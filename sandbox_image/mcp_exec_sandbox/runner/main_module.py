"""The module that the agent's code runs in: a real `__main__`, with the context as variables."""

import builtins
import keyword
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

CONTEXT_NAME = "context"


def make_main_module(context: dict[str, Any], workspace: Path) -> ModuleType:
    """A new `__main__`, registered as such so that dataclasses, pickle and `get_type_hints` find the code's names."""
    module = ModuleType("__main__")
    module.__file__ = str(workspace / "agent.py")
    module.__dict__["__builtins__"] = builtins
    module.__dict__.update(context_variables(context))
    sys.modules["__main__"] = module
    return module


def context_variables(context: dict[str, Any]) -> dict[str, Any]:
    """`context` itself, and its keys as variables.

    Keys that aren't identifiers, that are keywords or that would hide a builtin (`id`, `type`) or a name with two
    underscores are found in `context` only.
    """
    named = {
        key: value
        for key, value in context.items()
        if key.isidentifier() and not keyword.iskeyword(key) and not key.startswith("__") and not hasattr(builtins, key)
    }
    return {**named, CONTEXT_NAME: context}
