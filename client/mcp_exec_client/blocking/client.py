"""Blocking client of a gateway: AsyncClient, driven by an event loop in a thread of its own."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self, Unpack

from mcp_exec_client.blocking.loop import Blocking, BlockingArtifact, LoopThread, blocking, iterating, running
from mcp_exec_client.client import AsyncClient
from mcp_exec_client.configuration import ClientOptions
from mcp_exec_client.state.conversations import Conversations, Records
from mcp_exec_client.state.files import Files
from mcp_exec_client.state.sessions import OpenSession, SessionOptions, Sessions
from mcp_exec_client.state.skills import Skills
from mcp_exec_client.state.workspaces import Artifacts, Workspaces
from mcp_exec_client.suggestions import suggesting


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
