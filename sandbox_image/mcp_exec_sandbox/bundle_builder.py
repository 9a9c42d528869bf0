"""Builder of the bundle of modules, which runs once for an image: `python3 -m mcp_exec_sandbox.bundle_builder`."""

import importlib
import marshal
import sys

# What this module imports is in the part of the bundle that every sandbox reads.
from _frozen_importlib_external import ExtensionFileLoader, SourceFileLoader

from mcp_exec_sandbox import bundle
from mcp_exec_sandbox.import_locks import Precompiled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

_OFTEN_NEEDED = """
mcp_exec_sandbox.supervisor.files.transfer
argparse bisect calendar csv decimal fractions glob html pickle pprint queue random shutil statistics tempfile
unicodedata uuid zoneinfo
"""
"""Modules that the start of a sandbox doesn't need: the one for runs with files, and some of the standard library that
code often needs."""


def build(first: "Iterable[ModuleType]", later: "Iterable[ModuleType]", precompiled: Precompiled) -> bytes:
    """Return the bundle of imported modules: those that every sandbox imports, and those that are read when needed."""
    entries: dict[str, bundle.Entry] = {}
    start = _add(entries, first, 0)
    rest = _add(entries, later, len(start))
    head = marshal.dumps((sys.version, len(start), entries, precompiled.functions, precompiled.patterns))
    return len(head).to_bytes(bundle.HEAD_BYTES, "big") + head + start + rest


def _add(entries: "dict[str, bundle.Entry]", modules: "Iterable[ModuleType]", place: int) -> bytes:
    parts: list[bytes] = []
    for module in modules:
        spec = getattr(module, "__spec__", None)
        if spec is None or not spec.origin or spec.name in entries or sys.modules.get(spec.name) is not module:
            continue
        code = b""
        if isinstance(spec.loader, SourceFileLoader):
            code = marshal.dumps(spec.loader.get_code(spec.name))
        elif not isinstance(spec.loader, ExtensionFileLoader):
            continue
        entries[spec.name] = (spec.origin, spec.submodule_search_locations is not None, place, len(code))
        parts.append(code)
        place += len(code)
    return b"".join(parts)


def main() -> None:
    """Import what a sandbox imports, and write the bundle."""
    precompiled = Precompiled({}, {})
    precompiled.record()
    sys.path.append(__file__.rpartition("/")[0] + "/sdk")
    for name in ("early_runner", "supervisor.lifecycle", "runner.__main__"):
        importlib.import_module(f"mcp_exec_sandbox.{name}")
    importlib.import_module("mcp_exec_sandbox.runner.__main__").import_sdk()
    first = [module for name, module in sys.modules.items() if name not in bundle.LAZY]
    for name in _OFTEN_NEEDED.split():
        importlib.import_module(name)
    with open(bundle.FILE, "wb") as file:
        file.write(build(first, list(sys.modules.values()), precompiled))


if __name__ == "__main__":
    main()
