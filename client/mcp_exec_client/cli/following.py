"""Following an execution to its end, with interrupts and approvals in between."""

import asyncio
import signal
import sys
from collections.abc import Coroutine, Iterator
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_client.cli.backends.backend import Backend, Decision, ExecutionDraft
from mcp_exec_client.cli.exit_codes import ExitCode, code_of
from mcp_exec_client.cli.options import CommandError, Object
from mcp_exec_client.cli.printer import EventPrinter, describe_end
from mcp_exec_client.cli.terminal import escape_line

_ABANDON_SECONDS: Final = 5.0


@dataclass(kw_only=True)
class Follower:
    """Follows one execution."""

    backend: Backend
    name: str
    printer: EventPrinter
    cancels: bool = False
    """Whether an interrupt cancels the execution."""
    asks: bool = False
    """Whether a person at the terminal is asked for approvals."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _interrupts: int = field(default=0, init=False)
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def run(self, *, seconds: float) -> Object:
        """Print events up to the end and return the last one.

        Raises CommandError if the end does not come within this time; the execution is not cancelled then.
        """
        try:
            with self._catching_interrupts():
                async with asyncio.timeout(seconds), aclosing(self.backend.follow(self.name)) as events:
                    async for event in events:
                        self.printer.show(event)
                        if event["type"] == "approval" and self.asks:
                            self._start(self._ask(str(event["approval"])))
                        if event["type"] == "end":
                            return event
        except TimeoutError:
            message = f"{self.name} has not ended within {seconds:g} s; it goes on"
            raise CommandError(message, ExitCode.UNAVAILABLE) from None
        except asyncio.CancelledError:
            if self._interrupts < 2:
                raise
            raise CommandError(f"{self.name} may still run", ExitCode.CANCELLED) from None
        except BrokenPipeError:
            if self.cancels:
                await _cancel_in_time(self.backend, self.name)
            raise
        finally:
            await self._stop()
        raise CommandError(f"the events of {self.name} ended early; it goes on", ExitCode.UNAVAILABLE)

    @contextmanager
    def _catching_interrupts(self) -> Iterator[None]:
        """Cancel the execution at the first interrupt or SIGTERM, and leave at the second."""
        loop, caught = asyncio.get_running_loop(), []
        main = asyncio.current_task()

        def interrupt() -> None:
            self._interrupts += 1
            if self._interrupts == 1:
                self.printer.note(f"cancelling {self.name}; interrupt again to leave at once")
                self._start(self._cancel())
            elif main is not None:
                main.cancel()

        if self.cancels:
            for number in (signal.SIGINT, signal.SIGTERM):
                # not possible in other threads than the main one, and on other systems than Unix
                with suppress(NotImplementedError, RuntimeError, ValueError):
                    loop.add_signal_handler(number, interrupt)
                    caught.append(number)
        try:
            yield
        finally:
            for number in caught:
                loop.remove_signal_handler(number)

    async def _cancel(self) -> None:
        try:
            await self.backend.cancel(self.name)
        except CommandError as error:
            self.printer.note(f"{self.name} was not cancelled: {error}")

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

    async def _stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def submit(backend: Backend, draft: ExecutionDraft) -> str:
    """Create an execution and return its name. If this is cancelled, so is the execution."""
    creation = asyncio.create_task(backend.submit(draft))
    try:
        return str((await asyncio.shield(creation))["name"])
    except asyncio.CancelledError:
        with suppress(CommandError, TimeoutError):
            async with asyncio.timeout(_ABANDON_SECONDS):
                execution = await creation
            await _cancel_in_time(backend, str(execution["name"]))
        raise


async def _cancel_in_time(backend: Backend, name: str) -> None:
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
