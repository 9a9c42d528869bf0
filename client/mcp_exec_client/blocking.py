"""Blocking client of a gateway: AsyncClient and its parts, run by an event loop in a thread of its own."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, Unpack

from pydantic import PrivateAttr

from mcp_exec_client.client import AsyncClient
from mcp_exec_client.event_stream import ItemStream
from mcp_exec_client.options import suggesting
from mcp_exec_client.state.conversations import Conversations, Records
from mcp_exec_client.state.files import Files
from mcp_exec_client.state.results import MAX_READ_BYTES, Content, ExecutionArtifact
from mcp_exec_client.state.sessions import OpenSession, SessionOptions, Sessions
from mcp_exec_client.state.skills import Skills
from mcp_exec_client.state.workspaces import Artifacts, Workspaces
from mcp_exec_client.transport import ClientOptions
from mcp_exec_client.types import Execution

_T = TypeVar("_T")
_CLOSE_SECONDS: Final = 10.0
"""Time for calls in other threads to end when the loop is closed."""
_P = ParamSpec("_P")
_Target = TypeVar("_Target")


class LoopThread:
    """Event loop that several threads may use. It starts with the first call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._process = os.getpid()

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in the thread and return its result. Cancels it if the wait is interrupted."""
        try:
            loop = self._get_loop()
            if threading.current_thread() is self._thread:
                raise RuntimeError("a function that the client calls must not call the client")
            future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        except BaseException:
            coroutine.close()
            raise
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def finish(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that ends an iteration, unless the loop's end has ended it."""
        if self._closed or os.getpid() != self._process:
            coroutine.close()
        elif threading.current_thread() is self._thread:
            # the garbage collector may end an iteration in any thread, and this one must not wait for itself
            self._get_loop().create_task(coroutine)
        else:
            self.run(coroutine)

    def close(self, clean_up: Callable[[], Awaitable[None]]) -> None:
        """End calls of other threads, await `clean_up`, and end the thread."""
        with self._lock:
            self._closed, loop, thread = True, self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None or os.getpid() != self._process:
            return
        asyncio.run_coroutine_threadsafe(_shut_down(clean_up), loop).result(_CLOSE_SECONDS * 2)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_CLOSE_SECONDS)

    def _get_loop(self) -> asyncio.AbstractEventLoop:
        if os.getpid() != self._process:
            raise RuntimeError("the client was created before a fork; create one in each process")
        with self._lock:
            if self._closed:
                raise RuntimeError("the client is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run_loop, args=(self._loop,), name="mcp-exec-client", daemon=True
                )
                self._thread.start()
            return self._loop


async def _shut_down(clean_up: Callable[[], Awaitable[None]]) -> None:
    if others := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in others:
            # a task that is cancelled already may be cancelling its execution
            if not task.cancelling():
                task.cancel()
        await asyncio.wait(others, timeout=_CLOSE_SECONDS)
    await asyncio.get_running_loop().shutdown_asyncgens()
    await clean_up()


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


class Blocking(Generic[_Target]):
    """Base of blocking classes: an object with asynchronous methods, and the loop that runs them."""

    def __init__(self, target: _Target, loop: LoopThread) -> None:
        self._target = target
        self._loop = loop

    def call(self, method: Callable[[_Target], Awaitable[_T]]) -> _T:
        """Return what an asynchronous function of the target returns."""

        async def await_method() -> _T:
            return await method(self._target)

        return self._loop.run(await_method())

    def iterate(self, method: Callable[[_Target], ItemStream[_T]]) -> Generator[_T, None, None]:
        """Yield what an asynchronous iteration of the target yields."""
        items = method(self._target)

        async def get_next() -> list[_T]:
            return [item] if (item := await anext(items, None)) is not None else []

        async def close() -> None:
            await items.aclose()

        try:
            while found := self._loop.run(get_next()):
                yield from found
        finally:
            self._loop.finish(close())


def blocking(
    method: Callable[Concatenate[_Target, _P], Awaitable[_T]],
) -> Callable[Concatenate[Blocking[_Target], _P], _T]:
    """Return a method that waits for this method of its target."""

    @wraps(method)
    def call(self: Blocking[_Target], /, *arguments: _P.args, **options: _P.kwargs) -> _T:
        return self.call(lambda target: method(target, *arguments, **options))

    return call


def iterating(
    method: Callable[Concatenate[_Target, _P], ItemStream[_T]],
) -> Callable[Concatenate[Blocking[_Target], _P], Generator[_T, None, None]]:
    """Return a method that iterates over what this method of its target yields."""

    @wraps(method)
    def iterate(self: Blocking[_Target], /, *arguments: _P.args, **options: _P.kwargs) -> Generator[_T, None, None]:
        return self.iterate(lambda target: method(target, *arguments, **options))

    return iterate


class BlockingArtifact(ExecutionArtifact):
    """An artifact whose methods block."""

    _loop: LoopThread = PrivateAttr()

    @classmethod
    def wrap(cls, artifact: ExecutionArtifact, loop: LoopThread) -> "BlockingArtifact":
        """Return an artifact whose methods use the loop."""
        made = cls.model_construct(**{name: getattr(artifact, name) for name in ExecutionArtifact.model_fields})
        made._loop, made._open = loop, artifact._open  # noqa: SLF001
        return made

    def read(self, *, max_bytes: int = MAX_READ_BYTES) -> Content:  # type: ignore[override] # the same, but it blocks
        """Return the artifact's bytes. Raises UnexpectedResponse if there are more than `max_bytes`."""
        return self._loop.run(super().read(max_bytes=max_bytes))

    def save(self, path: str | Path | None = None) -> Path:  # type: ignore[override] # the same, but it blocks
        """Write the artifact to a file, or by its name into a folder, and return the file's path."""
        return self._loop.run(super().save(path))


class BlockingExecution(Execution):
    """An execution whose artifacts have blocking methods."""

    artifacts: list[BlockingArtifact] = []  # type: ignore[assignment] # the same, but they block

    @classmethod
    def wrap(cls, execution: Execution, loop: LoopThread) -> "BlockingExecution":
        """Return an execution whose artifacts use the loop."""
        fields = {name: getattr(execution, name) for name in Execution.model_fields}
        artifacts = [BlockingArtifact.wrap(artifact, loop) for artifact in execution.artifacts]
        return cls.model_construct(execution.model_fields_set, **(fields | {"artifacts": artifacts}))


def running(
    method: Callable[Concatenate[_Target, _P], Awaitable[Execution]],
) -> Callable[Concatenate[Blocking[_Target], _P], BlockingExecution]:
    """Return a method that waits for this method of its target, which returns an execution."""

    @wraps(method)
    def call(self: Blocking[_Target], /, *arguments: _P.args, **options: _P.kwargs) -> BlockingExecution:
        execution = self.call(lambda target: method(target, *arguments, **options))
        return BlockingExecution.wrap(execution, self._loop)

    return call


@suggesting
class BlockingSessions(Blocking[Sessions]):
    """Sessions of the caller: the methods of Sessions, which block."""

    create = blocking(Sessions.create)
    get = blocking(Sessions.get)
    list = blocking(Sessions.list)
    reset = blocking(Sessions.reset)
    delete = blocking(Sessions.delete)


@suggesting
class BlockingArtifacts(Blocking[Artifacts]):
    """Artifacts of the caller's executions: the methods of Artifacts, which block."""

    read = blocking(Artifacts.read)
    save = blocking(Artifacts.save)

    def list(self, execution: str, *, link_seconds: int | None = None) -> Sequence[BlockingArtifact]:
        """Return the artifacts of an execution, as Artifacts does."""
        found = self.call(lambda artifacts: artifacts.list(execution, link_seconds=link_seconds))
        return [BlockingArtifact.wrap(artifact, self._loop) for artifact in found]

    def get(self, execution: str, artifact: str) -> BlockingArtifact:
        """Return the artifact with this id, or with this name if only one has it. Raises NotFound."""
        return BlockingArtifact.wrap(self.call(lambda artifacts: artifacts.get(execution, artifact)), self._loop)


@suggesting
class BlockingConversations(Blocking[Conversations]):
    """Reports about conversations: the methods of Conversations, which block."""

    report_usage = blocking(Conversations.report_usage)
    report_feedback = blocking(Conversations.report_feedback)
    assign = blocking(Conversations.assign)
    report_outcome = blocking(Conversations.report_outcome)
    rollout_report = blocking(Conversations.rollout_report)


@suggesting
class BlockingRecords(Blocking[Records]):
    """Records that the caller may read: the methods of Records, which block."""

    read = iterating(Records.read)


@suggesting
class BlockingSkills(Blocking[Skills]):
    """Skills that the caller may see: the methods of Skills, which block."""

    save = blocking(Skills.save)
    save_folder = blocking(Skills.save_folder)
    list = blocking(Skills.list)
    versions = blocking(Skills.versions)
    get = blocking(Skills.get)
    approve = blocking(Skills.approve)
    deprecate = blocking(Skills.deprecate)
    export = blocking(Skills.export)
    delete = blocking(Skills.delete)
    run = running(Skills.run)


@suggesting
class BlockingWorkspaces(Blocking[Workspaces]):
    """Workspaces of the caller: the methods of Workspaces, which block."""

    list = blocking(Workspaces.list)
    get = blocking(Workspaces.get)
    put = blocking(Workspaces.put)
    delete = blocking(Workspaces.delete)
    versions = blocking(Workspaces.versions)
    restore = blocking(Workspaces.restore)
    save_archive = blocking(Workspaces.save_archive)
    load_archive = blocking(Workspaces.load_archive)


@suggesting
class BlockingFiles(Blocking[Files]):
    """Files of the caller's workspaces: the methods of Files, which block."""

    list = iterating(Files.list)
    read = blocking(Files.read)
    save = blocking(Files.save)
    write = blocking(Files.write)
    delete = blocking(Files.delete)
    sync = blocking(Files.sync)
    pull = blocking(Files.pull)


@suggesting
class BlockingSession(Blocking[OpenSession]):
    """One session: the methods of OpenSession, which block."""

    run = running(OpenSession.run)
    get = blocking(OpenSession.get)
    reset = blocking(OpenSession.reset)
    delete = blocking(OpenSession.delete)

    @property
    def name(self) -> str:
        """Name of the session."""
        return self._target.name

    def __enter__(self) -> Self:
        self.call(OpenSession.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.call(lambda session: session.__aexit__(kind, error, trace))


@suggesting
class Client(Blocking[AsyncClient]):
    """Client of one gateway, used as `with Client(url, api_key=key) as client`.

    Its arguments and methods are those of AsyncClient; each method blocks until it is done. Several threads may use
    one client. A process that was forked needs a client of its own.
    """

    def __init__(self, url: str | None = None, **options: Unpack[ClientOptions]) -> None:
        """Create a client; nothing is sent yet."""
        super().__init__(AsyncClient(url, **options), LoopThread())
        self.sessions = BlockingSessions(self._target.sessions, self._loop)
        self.workspaces = BlockingWorkspaces(self._target.workspaces, self._loop)
        self.files = BlockingFiles(self._target.files, self._loop)
        self.artifacts = BlockingArtifacts(self._target.artifacts, self._loop)
        self.skills = BlockingSkills(self._target.skills, self._loop)
        self.records = BlockingRecords(self._target.records, self._loop)
        self.conversations = BlockingConversations(self._target.conversations, self._loop)

    run = running(AsyncClient.run)
    submit = running(AsyncClient.submit)
    wait = running(AsyncClient.wait)
    get = running(AsyncClient.get)
    cancel = running(AsyncClient.cancel)
    delete = blocking(AsyncClient.delete)
    list = iterating(AsyncClient.list)
    stream = iterating(AsyncClient.stream)
    approvals = blocking(AsyncClient.approvals)
    pending_approvals = blocking(AsyncClient.pending_approvals)
    approve = blocking(AsyncClient.approve)
    deny = blocking(AsyncClient.deny)
    search_tools = blocking(AsyncClient.search_tools)
    tools = blocking(AsyncClient.tools)
    stats = blocking(AsyncClient.stats)
    version = blocking(AsyncClient.version)
    usage = blocking(AsyncClient.usage)
    key_uses = blocking(AsyncClient.key_uses)
    audit = iterating(AsyncClient.audit)

    def session(
        self,
        name: str | None = None,
        *,
        user: str | None = None,
        keep: bool | None = None,
        **options: Unpack[SessionOptions],
    ) -> BlockingSession:
        """Return one session, as AsyncClient does, for `with client.session("analysis") as session`."""
        return BlockingSession(self._target.session(name, user=user, keep=keep, **options), self._loop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End calls of other threads and close all connections."""
        self._loop.close(self._target.aclose)
