"""Imports before the job: the modules that code calls tools with, and those that the pool names."""

import importlib
import mmap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_MESSAGE_CHARACTERS = 300
"""The kubelet keeps the last 2 KB of a log, where a character may take six bytes."""

SDK = ("client", "skills", "tool_discovery")


class PreimportFailed(Exception):
    """A module that the pool names can't be imported. The text names it and has the error."""


@dataclass(frozen=True, kw_only=True)
class ImportCost:
    """Time and memory of one module's import. A module that an earlier one imported costs a later one nothing."""

    module: str
    milliseconds: float
    memory_bytes: int
    """Growth of the interpreter's resident memory."""

    def to_message(self) -> dict[str, Any]:
        """Return it as a part of the message `ready`."""
        return {"module": self.module, "ms": round(self.milliseconds), "memoryBytes": self.memory_bytes}


def import_sdk() -> None:
    """Import the modules that code calls tools with."""
    for name in SDK:
        importlib.import_module(name)


def import_of_pool(modules: Sequence[str]) -> list[ImportCost]:
    """Import the modules that the pool names, in their order.

    Raises:
        PreimportFailed: one can't be imported.
    """
    return [_import(module) for module in modules]


def _import(module: str) -> ImportCost:
    size, started = _read_resident_bytes(), time.perf_counter()
    try:
        importlib.import_module(module)
    except (Exception, SystemExit) as error:
        text = f"the module {module} of spec.preimport can't be imported: {type(error).__name__}: {error}"
        raise PreimportFailed(text[:_MESSAGE_CHARACTERS]) from error
    return ImportCost(
        module=module,
        milliseconds=(time.perf_counter() - started) * 1000,
        memory_bytes=max(0, _read_resident_bytes() - size),
    )


def _read_resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE
