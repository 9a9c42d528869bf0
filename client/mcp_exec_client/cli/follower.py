"""Followers of executions, with interrupts and approvals in between, and checks that an operator observes them."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NoReturn

from mcp_exec_client.cli.backends.backend import Decision, is_unobserved
from mcp_exec_client.cli.exit_codes import CommandError, ExitCode, code_of
from mcp_exec_client.cli.options import Object
from mcp_exec_client.cli.output import escape_line
from mcp_exec_client.cli.printer import EventPrinter, describe_end

if TYPE_CHECKING:
    from mcp_exec_client.cli.connection import Backend


_NOTE_SECONDS: Final = 2.0
"""Time until a person is informed. An operator needs well under a second."""
_CHECK_SECONDS: Final = 5.0
"""Time until the namespace is checked."""
_MAX_SECONDS: Final = 60.0
"""Longest time without an operator, for example while another one becomes the leader."""
_ABANDON_SECONDS: Final = 3.0
"""Time for each request of a command that has been interrupted."""
_CANCEL_SECONDS: Final = 5.0
"""Time for the end of an execution that was cancelled by an interrupt."""
_APPEARANCE_DELAYS: Final = (0.0, 0.2, 0.4, 0.8, 1.6)
"""Seconds between the requests for an approval that an event names: events are up to a second faster."""


class Unobserved(CommandError):
    """No operator observes the execution, so it would neither run nor end."""


async def watch_silence(
    backend: "Backend", name: str, observed: asyncio.Event, note: Callable[[str], None], *, waits: bool = True
) -> None:
    """Return when an execution is observed. Raises Unobserved if none will observe it, or none does in time.

    Without `waits`, it also returns if the namespace is served.
    """
    if await _comes_within(observed, _NOTE_SECONDS):
        return
    note(f"{name} waits: no operator has observed it yet")
    if await _comes_within(observed, _CHECK_SECONDS - _NOTE_SECONDS):
        return
    problem = await explain_silence(backend)
    if observed.is_set():
        return
    if problem is not None:
        raise Unobserved(problem, ExitCode.REFUSED)
    if waits and not await _comes_within(observed, _MAX_SECONDS - _CHECK_SECONDS):
        message = f"no operator has observed {name} within {_MAX_SECONDS:g} s: check that the operator runs"
        raise Unobserved(message, ExitCode.UNAVAILABLE)


async def explain_silence(backend: "Backend") -> str | None:
    """Return why no operator observes executions of the namespace, or None if that is not known within seconds."""
    with suppress(CommandError, TimeoutError):
        async with asyncio.timeout(_CHECK_SECONDS):
            return await backend.find_unserved()
    return None


async def describe_nothing(backend: "Backend", what: str) -> str:
    """Return that a list of a namespace has no items, and why that may be so."""
    place = f" in namespace {backend.namespace}" if backend.namespace else ""
    problem = await explain_silence(backend)
    return f"no {what}{place}" + (f": {problem}" if problem else "")


async def _comes_within(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


@dataclass(kw_only=True)
class Follower:
    """Follows one execution."""

    backend: "Backend"
    name: str
    printer: EventPrinter
    cancels: bool = False
    """Whether an interrupt cancels the execution."""
    asks: bool = False
    """Whether a person at the terminal is asked for approvals."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _observed: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set as soon as an operator has observed the execution."""
    _silent: bool = field(default=False, init=False)
    """Whether an event has said that no operator has observed the execution."""
    _reading: asyncio.Task[Object] | None = field(default=None, init=False)
    _unobserved: Unobserved | None = field(default=None, init=False)
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def run(self, *, seconds: float) -> Object:
        """Print events up to the end and return the last one.

        If the task is cancelled, so is the execution, whose end then has a few seconds to come. Raises CommandError if
        the end does not come in time; after `seconds` the execution is not cancelled.
        """
        reading = self._reading = asyncio.create_task(self._read())
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(reading)
        except TimeoutError:
            message = f"{self.name} has not ended within {seconds:g} s; it goes on"
            raise CommandError(message, ExitCode.UNAVAILABLE) from None
        except asyncio.CancelledError:
            if self._unobserved is not None:
                await self._give_up(self._unobserved)
            if not self.cancels:
                raise
            return await self._cancel_and_wait(reading)
        except BrokenPipeError:
            if self.cancels:
                await _cancel_in_time(self.backend, self.name)
            raise
        finally:
            await self._stop(reading)

    async def confirm(self) -> None:
        """Return when an operator has observed the execution or will do so. Raises CommandError if none will."""
        reading = self._reading = asyncio.create_task(self._read(until_observed=True))
        try:
            await asyncio.wait([reading])
            if self._unobserved is not None:
                await self._give_up(self._unobserved)
            if not reading.cancelled():
                reading.result()
        except asyncio.CancelledError:
            await _cancel_in_time(self.backend, self.name)
            raise
        finally:
            await self._stop(reading)

    async def _read(self, *, until_observed: bool = False) -> Object:
        async with aclosing(self.backend.follow(self.name)) as events:
            async for event in events:
                self._watch_silence(event, waits=not until_observed)
                if until_observed and self._observed.is_set():
                    return event
                self.printer.show(event)
                if event["type"] == "approval":
                    self._announce(event)
                if event["type"] == "end":
                    return event
        raise CommandError(f"the events of {self.name} ended early; it goes on", ExitCode.UNAVAILABLE)

    def _watch_silence(self, event: Object, *, waits: bool) -> None:
        """Begin to wait for an operator at the first event that says that none has observed the execution."""
        if not is_unobserved(event):
            self._observed.set()
        elif not self._silent:
            self._silent = True
            self._start(self._guard(waits=waits))

    async def _guard(self, *, waits: bool) -> None:
        try:
            await watch_silence(self.backend, self.name, self._observed, self.printer.note, waits=waits)
        except Unobserved as error:
            self._unobserved = error
        if self._reading is not None and (self._unobserved is not None or not waits):
            self._reading.cancel()

    async def _give_up(self, error: Unobserved) -> NoReturn:
        """Raise the error of an execution that nothing runs. One that this command created does not stay."""
        rest = await _withdraw_in_time(self.backend, self.name) if self.cancels else f"{self.name} stays as it is"
        raise CommandError(f"{error}; {rest}", error.code) from None

    async def _cancel_and_wait(self, reading: "asyncio.Task[Object]") -> Object:
        """Cancel the execution and return its last event. Raises CommandError if that takes too long."""
        self.printer.note(f"cancelling {self.name}; interrupt again to leave at once")
        rest = f"{self.name} may still run: its cancellation has not been confirmed"
        try:
            async with asyncio.timeout(_CANCEL_SECONDS):
                await self.backend.cancel(self.name)
                rest = f"{self.name} is being cancelled, but has not ended within {_CANCEL_SECONDS:g} s"
                return await asyncio.shield(reading)
        except TimeoutError:
            if self._silent and not self._observed.is_set():
                rest = await _withdraw_in_time(self.backend, self.name)
        except CommandError as error:
            rest = f"{self.name} may still run: {error}"
        except asyncio.CancelledError:
            rest = f"{self.name} may still run"
        raise CommandError(rest, ExitCode.CANCELLED)

    def _announce(self, event: Object) -> None:
        """Say that a call waits. An event of the sandbox is confirmed first, because its code may have forged it."""
        if self.backend.streams_output:
            self._start(self._confirm_approval(str(event["approval"])))
        else:
            self.printer.show_approval({**event, "id": event["approval"]})
            if self.asks:
                self._start(self._ask(str(event["approval"])))

    async def _confirm_approval(self, approval: str) -> None:
        with suppress(CommandError):
            found = await self._find(approval)
            if found is not None and found["state"] != "Pending":
                return
            self.printer.show_approval(found)
            if found is not None and self.asks:
                await self._ask(approval)

    async def _find(self, approval: str) -> Object | None:
        for delay in _APPEARANCE_DELAYS:
            await asyncio.sleep(delay)
            for item in await self.backend.list_approvals(self.name):
                if item["id"] == approval:
                    return item
        return None

    async def _ask(self, approval: str) -> None:
        """Show the arguments of a call and ask whether to approve it, one call after the other."""
        async with self._asking:
            await self._ask_now(approval)

    async def _ask_now(self, approval: str) -> None:
        try:
            listed = await self.backend.list_approvals(self.name)
            found = next((item for item in listed if item["id"] == approval), None)
            if found is None or found["state"] != "Pending":
                return
            self.printer.note(f"  {found['tool']} {found['arguments']}")
            _drop_typed()
            self.printer.note(f"  approve {escape_line(approval)}? Type yes or no:")
            answer = (await _read_line()).strip().lower()
            if answer not in ("yes", "no"):
                self.printer.note("  neither yes nor no: the call still waits")
                return
            choice = Decision(
                choice="Approve" if answer == "yes" else "Deny", arguments_digest=found.get("argumentsDigest")
            )
            decided = await self.backend.decide(self.name, approval, choice)
            self.printer.note(f"  {decided['state']}")
        except CommandError as error:
            self.printer.note(f"  {error}")

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _stop(self, reading: "asyncio.Task[Object]") -> None:
        tasks = [reading, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def submit(backend: "Backend", new: Object) -> str:
    """Create an execution and return its name. If this is cancelled, so is the execution."""
    creation = asyncio.create_task(backend.submit(new))
    try:
        return str((await asyncio.shield(creation))["name"])
    except asyncio.CancelledError:
        await _abandon(backend, creation)
        raise


async def _abandon(backend: "Backend", creation: "asyncio.Task[Object]") -> None:
    """Cancel an execution that is being created. Raises CommandError if it is not known whether it exists."""
    try:
        async with asyncio.timeout(_ABANDON_SECONDS):
            execution = await creation
    except TimeoutError:
        message = "interrupted while the execution was created: it may run; look for it with `get`"
        raise CommandError(message, ExitCode.CANCELLED) from None
    except CommandError:
        return
    await _cancel_in_time(backend, str(execution["name"]))


async def _withdraw_in_time(backend: "Backend", name: str) -> str:
    """Remove an execution that no operator has observed, and return what became of it."""
    try:
        async with asyncio.timeout(_ABANDON_SECONDS):
            return await backend.withdraw(name)
    except (CommandError, TimeoutError) as error:
        return f"{name} stays, and would run if an operator observed it" + (f": {error}" if str(error) else "")


async def _cancel_in_time(backend: "Backend", name: str) -> None:
    """Cancel an execution whose command ends, as well as that is possible in a few seconds."""
    with suppress(CommandError, TimeoutError):
        async with asyncio.timeout(_ABANDON_SECONDS):
            await backend.cancel(name)


def check_end(name: str, end: Object) -> None:
    """Raise CommandError with the exit code of the end, unless the execution succeeded."""
    code = code_of(str(end.get("phase")), str(end.get("reason") or ""))
    if code is not ExitCode.OK:
        raise CommandError(describe_end(name, end), code)


def _drop_typed() -> None:
    """Drop what was typed before the question, so that it is not the answer."""
    with suppress(ImportError):  # other systems than Unix
        import termios

        with suppress(OSError, ValueError, termios.error):
            termios.tcflush(sys.stdin, termios.TCIFLUSH)


async def _read_line() -> str:
    """Read a line of standard input without a thread, which could not be stopped."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[str] = loop.create_future()

    def read() -> None:
        if not readable.done():
            readable.set_result(sys.stdin.readline())

    loop.add_reader(sys.stdin, read)
    try:
        return await readable
    finally:
        loop.remove_reader(sys.stdin)
