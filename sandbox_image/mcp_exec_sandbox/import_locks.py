"""Start without the locks of the import system, which matter only if several threads import.

Each acquisition of a lock reads the clock. In the first second of a container, gVisor makes a system call of it, and an
import acquires some ten locks: together a third of what a sandbox's start takes there.
"""

import _frozen_importlib

_saved: dict[str, object] = {}
"""What the import system uses otherwise."""


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
