"""Blocking client of a gateway: AsyncClient, driven by an event loop in a thread of its own."""

from types import TracebackType
from typing import Self, Unpack

from mcp_exec_client.blocking.loop import LoopThread
from mcp_exec_client.blocking.methods import Blocking, blocking, iterating
from mcp_exec_client.blocking.results import running
from mcp_exec_client.blocking.state import (
    BlockingArtifacts,
    BlockingConversations,
    BlockingFiles,
    BlockingRecords,
    BlockingSession,
    BlockingSessions,
    BlockingSkills,
    BlockingWorkspaces,
)
from mcp_exec_client.client import AsyncClient
from mcp_exec_client.configuration import ClientOptions
from mcp_exec_client.state.sessions import SessionOptions
from mcp_exec_client.suggestions import suggesting


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
    usage = blocking(AsyncClient.usage)
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
