"""Code of the modules that a sandbox imports, in one file, with what these modules would compile at their import.

An import looks for its file in the folders of the path, opens it and reads it: some ten system calls, and each is
expensive in gVisor. An import from the bundle makes none if the sandbox needs the module to start, and few if the code
often needs it. Modules are the same in all other ways: they have their files and their sources.

`bundle_builder` writes the file when the image is built. Without it, or if another Python wrote it, modules are
imported from their files.
"""

import marshal
import sys

# What else this module would import would come from files.
from _frozen_importlib_external import ExtensionFileLoader, SourceFileLoader, spec_from_file_location

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import CodeType, ModuleType

    from mcp_exec_sandbox.import_locks import Precompiled

    Entry = tuple[str, bool, int, int]
    """Path of a module's file, whether it is a package, and place and size of its code (size 0: an extension)."""

FILE = __file__.rpartition("/")[0] + "/modules.bundle"
LAZY = frozenset({"ssl", "asyncio.sslproto", "hashlib"})
"""Modules that others import and seldom use. They are executed when an attribute is read, which no start does. OpenSSL
would take a tenth of a sandbox's start."""
ABSENT = frozenset({"nt", "msvcrt", "_winapi"})
"""Modules of Windows, which the standard library tries to import. A search for one makes five system calls."""
HEAD_BYTES = 8


class BundleFinder:
    """First finder of `sys.meta_path`."""

    def __init__(self, entries: "dict[str, Entry]", start: bytes, offset: int) -> None:
        self._entries = entries
        self._start = start
        """Code of the modules that every sandbox imports. It is the first part of all code, which is at `offset`."""
        self._offset = offset
        self._absent = ABSENT
        self.precompiled: Precompiled | None = None
        """Compilations of the modules that every sandbox imports."""

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        """Return the spec of a module of the bundle. A second import of it is that of its file.

        Raises:
            ModuleNotFoundError: no file has the module either.
        """
        if name in self._absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        entry = self._entries.pop(name, None)
        if entry is None:
            return None
        file, is_package, place, size = entry
        if not size:
            return spec_from_file_location(name, file, loader=ExtensionFileLoader(name, file))
        folders = [file.rpartition("/")[0]] if is_package else None
        kind = _LazyLoader if name in LAZY else BundledLoader
        loader = kind(name, file, self._read(place, size))
        return spec_from_file_location(name, file, loader=loader, submodule_search_locations=folders)

    def forget_start(self) -> None:
        """Forget the modules that every sandbox imports, and what they would compile. Code may have a module `nt`."""
        self._absent = frozenset()
        if self.precompiled is not None:
            self.precompiled.forget()
        size, self._start = len(self._start), b""
        self._entries = {name: entry for name, entry in self._entries.items() if entry[2] >= size or not entry[3]}

    def _read(self, place: int, size: int) -> bytes:
        if place + size <= len(self._start):
            return self._start[place : place + size]
        with open(FILE, "rb", buffering=0) as file:
            file.seek(self._offset + place)
            return file.read(size)


class BundledLoader(SourceFileLoader):
    """Loader of a source file whose code is known."""

    def __init__(self, name: str, path: str, code: bytes) -> None:
        super().__init__(name, path)
        self._code = code

    def get_code(self, fullname: str) -> "CodeType | None":
        """Return the code. The loader becomes one of files then: programs know loaders by their classes."""
        code = marshal.loads(self._code)
        del self._code
        self.__class__ = SourceFileLoader  # type: ignore[assignment]
        return code  # type: ignore[no-any-return]


class _LazyLoader(BundledLoader):
    """Loader of a module that is executed when one of its attributes is read."""

    def exec_module(self, module: "ModuleType") -> None:
        """Make the module execute itself later."""

        def load(name: str) -> object:
            if module.__dict__.get("__getattr__") is load:
                del module.__dict__["__getattr__"]
                super(_LazyLoader, self).exec_module(module)
            return getattr(module, name)

        module.__dict__["__getattr__"] = load


def install() -> None:
    """Import from the bundle from now on, if there is one for this Python."""
    try:
        with open(FILE, "rb", buffering=0) as file:
            head = file.read(HEAD_BYTES)
            size = int.from_bytes(head, "big")
            version, start, entries, functions, patterns = marshal.loads(file.read(size))
            if version != sys.version:
                return
            finder = BundleFinder(entries, file.read(start), HEAD_BYTES + size)
    except (OSError, ValueError, EOFError, TypeError):
        return
    sys.meta_path.insert(0, finder)
    from mcp_exec_sandbox.import_locks import unlock_imports

    unlock_imports()
    from mcp_exec_sandbox.import_locks import Precompiled

    finder.precompiled = Precompiled(functions, patterns)
    finder.precompiled.use()


def forget_start() -> None:
    """Import as usual from now on, and release the memory of the code of modules that every sandbox imports."""
    from mcp_exec_sandbox.import_locks import lock_imports

    lock_imports()
    for finder in sys.meta_path:
        if isinstance(finder, BundleFinder):
            finder.forget_start()
