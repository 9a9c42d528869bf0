"""Garbage collection of a process that runs for long."""

import gc


def exempt_started_objects() -> None:
    """Exempt all objects that exist now from garbage collection. Call it once, when the process has started.

    A full collection stops the process while it looks at each object: a tenth of a second for the modules, types and
    schemas of a process alone, which never become garbage.
    """
    gc.collect()
    gc.freeze()
