"""A guard that fails a test that starts a process."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

EVENTS = {"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system"}
"""Audit events of Python that precede a new process."""


class ProcessStarted(RuntimeError):
    """A unit test started a process; such a test belongs to tests/component."""


class ProcessGuard:
    """Refuses new processes inside `refuse()`.

    An audit hook can't be removed, so it is installed once and does nothing outside `refuse()`.
    """

    def __init__(self) -> None:
        self._refusing = False
        self._refused: list[str] = []
        self._installed = False

    @contextmanager
    def refuse(self) -> Iterator[None]:
        """Raise ProcessStarted at each new process, and again at the end if the code inside caught it."""
        if not self._installed:
            sys.addaudithook(self._audit)
            self._installed = True
        outer = self._refusing, self._refused
        self._refusing, self._refused = True, []
        try:
            yield
            if self._refused:
                raise ProcessStarted("; ".join(self._refused))
        finally:
            self._refusing, self._refused = outer

    def _audit(self, event: str, arguments: tuple[object, ...]) -> None:
        if self._refusing and event in EVENTS:
            message = f"{event} {arguments[:2]}: a test that starts a process belongs to tests/component"
            self._refused.append(message)
            raise ProcessStarted(message)
