"""Limits of stacks and recursion that suit the memory: code may raise them, and would end late and without a name.

A recursion of a million calls takes seconds and all memory, until an error comes whose cause nobody sees. A thread with
a stack as large as the memory starts, has no memory to run, and its starter waits for ever.
"""

import functools
import sys
import threading

CALL_BYTES = 1024
"""Memory of a call of a recursion: its frame and its entry in the traceback, with a few variables."""

MIB = 1024 * 1024


def limit_stacks(memory_bytes: int) -> None:
    """Bound what `sys.setrecursionlimit` and `threading.stack_size` set, in an interpreter with so much memory."""
    sys.setrecursionlimit = _bound_recursion(memory_bytes // CALL_BYTES)  # type: ignore[assignment]
    threading.stack_size = _bound_stack(memory_bytes // 2)


def explain_recursion(error: RecursionError) -> str:
    """Return the error's text, with the limit if it is the highest that the memory allows."""
    limit = sys.getrecursionlimit()
    # Calls of C code have a limit of their own in Python 3.13.
    if limit != getattr(sys.setrecursionlimit, "most", None) or not _has_calls(error, limit // 2):
        return str(error)
    return f"{error}: the memory of the sandbox allows {limit} calls"


def _has_calls(error: BaseException, number: int) -> bool:
    """Return whether the traceback of an error has at least so many calls."""
    entry = error.__traceback__
    while entry is not None and number > 0:
        entry, number = entry.tb_next, number - 1
    return number == 0


def _bound_recursion(most: int) -> object:
    original = sys.setrecursionlimit

    @functools.wraps(original)
    def setrecursionlimit(limit: int, /) -> None:
        original(min(limit, most) if isinstance(limit, int) else limit)

    setrecursionlimit.most = most  # type: ignore[attr-defined]
    return setrecursionlimit


def _bound_stack(most: int):  # type: ignore[no-untyped-def]
    original = threading.stack_size

    @functools.wraps(original)
    def stack_size(size: int = 0, /) -> int:
        if isinstance(size, int) and size > most:
            raise MemoryError(
                f"a stack of {size // MIB} MiB does not fit into memory: threading.stack_size takes at most"
                f" {most // MIB} MiB here"
            )
        return original(size)

    return stack_size
