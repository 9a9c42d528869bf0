"""Faster imports at the start: without the locks of the import system, and with what modules would compile.

The locks matter only if several threads import. Each acquisition of a lock reads the clock. In the first second of a
container, gVisor makes a system call of it, and an import acquires some ten locks: together a third of what a sandbox's
start takes there.
"""

import _frozen_importlib
import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` would be imported with locks
    from typing import Any

_saved: dict[str, object] = {}
"""The import system's own functions."""
Functions = dict[str, "Any"]
"""Code objects by the text that they were compiled from."""
Patterns = dict[tuple[str | bytes, int], "tuple[Any, ...]"]
"""Arguments of `_sre.compile` after the pattern, by pattern and flags."""


class _NoLock:
    """Context that locks nothing, for a module or for all imports."""

    def __init__(self, name: str = "") -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


def _pass_lock(name: str) -> None:
    """Wait for nothing: no other thread imports the module."""


def unlock_imports() -> None:
    """Import without locks from now on. Call it while no import is in progress and no other thread runs."""
    system = vars(_frozen_importlib)
    for name, replacement in (
        ("_ModuleLockManager", _NoLock),
        ("_ImportLockContext", _NoLock),
        ("_lock_unlock_module", _pass_lock),
    ):
        if name in system:
            _saved.setdefault(name, system[name])
            system[name] = replacement


def lock_imports() -> None:
    """Import with locks again. Call it while no import is in progress, before other threads start."""
    vars(_frozen_importlib).update(_saved)
    _saved.clear()


class Precompiled:
    """Results of compilations, by what was compiled. What is missing is compiled as usual."""

    def __init__(self, functions: Functions, patterns: Patterns) -> None:
        self.functions, self.patterns = functions, patterns
        self._compiler = vars(importlib.import_module("re._compiler"))
        self._core = vars(importlib.import_module("_sre"))
        self._compile_pattern = self._compiler["compile"]

    def use(self) -> None:
        """Use the results, until `forget`."""
        self._install(self._run, self._build_pattern)

    def record(self) -> None:
        """Add the results of all compilations from now on, until `forget`."""
        self._install(self._record_function, self._record_pattern)

    def forget(self) -> None:
        """Compile as usual from now on."""
        self._compiler["compile"] = self._compile_pattern
        vars(importlib.import_module("dataclasses")).pop("exec", None)
        self.functions, self.patterns = {}, {}

    def _install(self, run: "Any", compile_pattern: "Any") -> None:
        self._compiler["compile"] = compile_pattern
        # It hides the builtin function only from this module.
        vars(importlib.import_module("dataclasses"))["exec"] = run

    def _run(self, text: str, scope: "dict[str, Any]", names: "dict[str, Any]") -> None:
        exec(self.functions.get(text, text), scope, names)  # noqa: S102 - the text of a dataclass

    def _record_function(self, text: str, scope: "dict[str, Any]", names: "dict[str, Any]") -> None:
        self.functions[text] = compile(text, "<string>", "exec", dont_inherit=True)
        self._run(text, scope, names)

    def _build_pattern(self, pattern: "Any", flags: int = 0) -> "Any":
        known = self.patterns.get((pattern, flags)) if isinstance(pattern, (str, bytes)) else None
        if known is None:
            return self._compile_pattern(pattern, flags)
        return self._core["compile"](pattern, *known)

    def _record_pattern(self, pattern: "Any", flags: int = 0) -> "Any":
        build = self._core["compile"]

        def keep(text: "Any", flags_: int, code: list[int], *rest: "Any") -> "Any":
            # Numbers are of subclasses of int, which can't be stored.
            self.patterns[pattern, int(flags)] = (flags_, [int(each) for each in code], *rest)
            return build(text, flags_, code, *rest)

        if not isinstance(pattern, (str, bytes)):
            return self._compile_pattern(pattern, flags)
        self._core["compile"] = keep
        try:
            return self._compile_pattern(pattern, flags)
        finally:
            self._core["compile"] = build
